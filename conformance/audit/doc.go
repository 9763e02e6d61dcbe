// Package audit sends scripted requests to a server and compares what it writes down of them with what the reference
// writes down (AUTH-4).
//
// The scripts are those of package requests, in testdata/*.txt; below each request stand, instead of the answer, the
// events that the reference has recorded of it, one after the other. The first word behind "@policy" in the head of a
// script names the file of its policy. A request whose Content-Type is protobuf is written in JSON and sent as
// protobuf.
//
//	go test ./audit                              Plinth writes down what is recorded
//	go test ./audit -rewrite [-run Records/x]    ask the reference again and write its events into the files
//	CONFORMANCE_REFERENCE=1 go test ./audit      and the records are still what the reference writes down
//
// Left out of the events are their IDs, times and durations.
package audit

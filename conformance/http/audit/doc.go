// Package audit sends scripted requests to a server and compares the audit events that it writes with those of the
// reference (AUTH-4).
//
// The scripts have the format of package requests and are in testdata/*.txt; below each request are, instead of the
// response, the events that the reference recorded for it. The first word after "@policy" in the head of a script names
// the file of its audit policy. A request whose Content-Type is protobuf is written in JSON and sent as protobuf.
//
//	go test ./http/audit                              compare Plinth's events with the records
//	go test ./http/audit -rewrite [-run Records/x]    record the reference's events anew
//	CONFORMANCE_REFERENCE=1 go test ./http/audit      compare the reference with the records, too
//
// The IDs, times and durations of events are not compared.
package audit

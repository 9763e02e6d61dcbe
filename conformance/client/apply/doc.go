// Package apply runs scripts of server-side apply and other writes, with the real kubectl, linked from its library, and
// with plain requests, and compares the objects and their managers with those of the reference.
//
// The scripts are testdata/*.txt; below each step is the reference's recorded response. testdata/README.md says how to
// read and write them. A script is a file; a step is one command or request in it; a runner sends the steps of one
// script to one server, in a separate namespace.
//
//	go test ./client/apply                              compare Plinth with the records
//	go test ./client/apply -rewrite [-run Records/x]    record the reference's responses anew
//	go test ./client/apply -accept [-run Plinth/x]      record Plinth's responses in steps that are known to differ
//	CONFORMANCE_REFERENCE=1 go test ./client/apply      compare the reference with the records, too
package apply

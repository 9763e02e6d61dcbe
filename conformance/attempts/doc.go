// Package attempts asks for everything that a server serves, without credentials, with bad ones, and as somebody who
// may do little, and compares the status of each answer with the reference's (AUTH-1, AUTH-2).
//
// A row is a way to show who one is, a URL, and a method; there are some thousands. Two things are held against them:
// what the reference has answered, in testdata/attempts.txt, where a line has the rows of one URL; and a rule of a few
// lines that says by itself what must not be answered with success, whatever is recorded.
//
//	go test ./attempts                              Plinth answers as recorded
//	go test ./attempts -rewrite -run Records        ask the reference again and write its answers into the file
//	CONFORMANCE_REFERENCE=1 go test ./attempts      and the records are still what the reference answers
package attempts

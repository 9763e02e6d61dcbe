// Package attempts requests everything that a server serves, without credentials, with wrong ones, and as users with
// few permissions, and compares the status of each response with the reference's (AUTH-1, AUTH-2).
//
// A row is a set of credentials, a URL and a method; there are thousands. Each is compared with two things: with the
// reference's recorded status in testdata/attempts.txt, where a line has the rows of one URL; and with a rule of a few
// lines, which says independently of the records what must not succeed.
//
//	go test ./attempts                              Plinth answers as recorded
//	go test ./attempts -rewrite -run Records        ask the reference again and write its answers into the file
//	CONFORMANCE_REFERENCE=1 go test ./attempts      and the records are still what the reference answers
package attempts

// Package attempts requests all URLs that a server serves, without credentials and as a user with few permissions, and
// some URLs with many other credentials, most of them wrong. It compares the status of each response with the
// reference's (AUTH-1, AUTH-2).
//
// A row is a set of credentials, a URL and a method; there are thousands. Each is compared with two things: with the
// reference's recorded status in testdata/attempts.txt, where a line has the rows of one URL; and with a rule of a few
// lines, which says independently of the records what must not succeed.
//
//	go test ./http/attempts                              compare Plinth with the records
//	go test ./http/attempts -rewrite -run Records        record the reference's responses anew
//	CONFORMANCE_REFERENCE=1 go test ./http/attempts      compare the reference with the records, too
package attempts

// Package requests sends scripted HTTP requests to a server and compares the responses with those of the reference.
//
// The scripts are testdata/*.txt; below each request is the reference's recorded response. testdata/README.md says how
// to read and write them. A Script is a file, a Step is one request in it with its recorded Answer, and a Runner sends
// the steps to one server in order.
//
//	go test ./http/requests                              compare Plinth with the records
//	go test ./http/requests -rewrite [-run Records/x]    record the reference's responses anew
//	go test ./http/requests -accept [-run Plinth/…/x]    record Plinth's responses in steps that are known to differ
//	CONFORMANCE_REFERENCE=1 go test ./http/requests      compare the reference with the records, too
//
// Responses are normalised: uids and resourceVersions become <uid1>, <rv1> … in the order in which they appear, so that
// equal ones stay equal; times of today become <time>; managedFields become a line for each entry, without its time.
package requests

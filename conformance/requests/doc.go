// Package requests sends scripted HTTP requests to a server and compares the responses with those of the reference.
//
// The scripts are testdata/*.txt; below each request is the reference's recorded response. testdata/README.md says how
// to read and write them. A Script is a file, a Step is one request in it with its recorded Answer, and a Runner sends
// the steps to one server in order.
//
//	go test ./requests                              Plinth answers as recorded
//	go test ./requests -rewrite [-run Records/x]    ask the reference again and write its answers into the files
//	go test ./requests -accept [-run Plinth/…/x]    write Plinth's answers into the steps that are known to differ
//	CONFORMANCE_REFERENCE=1 go test ./requests      and the records are still what the reference answers
//
// Answers are normalised: uids and resourceVersions become <uid1>, <rv1> … in the order in which they appear, so that
// equal ones stay equal; times of today become <time>; managedFields become a line for each entry, without its time.
package requests

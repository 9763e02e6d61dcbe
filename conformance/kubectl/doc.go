// Package kubectl runs the real kubectl, linked from its library, against a server and compares what it prints.
//
// testdata/*.txt are scripts: commands as one types them, each with the output that kubectl gave against the reference,
// normalised (ages, uids, versions, addresses). Below === and a title stands the command, a shell line after `$ `, then
// its standard input; below --> what it printed: standard output, then standard error behind `! `, then the exit status
// if it is not 0. A line `@differs REASON` marks a known difference: below ~~> stands what is printed with Plinth, and
// the test fails with anything else, and when the difference is gone.
//
//	go test ./kubectl                              Plinth behaves as recorded
//	go test ./kubectl -rewrite [-run Records/x]    record what the reference does
//	go test ./kubectl -accept [-run Plinth/x]      record what Plinth does in the steps that are known to differ
//	CONFORMANCE_REFERENCE=1 go test ./kubectl      and the records are still what the reference does
package kubectl

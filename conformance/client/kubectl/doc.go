// Package kubectl runs the real kubectl, linked from its library, against a server and compares its output.
//
// testdata/*.txt are scripts: commands, each with the output of kubectl against the reference, normalised (ages, uids,
// versions, addresses). Below === and a title is the command, a shell line after `$ `, then its standard input; below
// --> is its output: standard output, then standard error after `! `, then the exit status if it is not 0. A line
// `@differs REASON` marks a known difference: below ~~> is the output with Plinth, and the test fails with any other
// output, and when there is no difference any more.
//
//	go test ./client/kubectl                              compare Plinth with the records
//	go test ./client/kubectl -rewrite [-run Records/x]    record the reference's output anew
//	go test ./client/kubectl -accept [-run Plinth/x]      record Plinth's output in steps that are known to differ
//	CONFORMANCE_REFERENCE=1 go test ./client/kubectl      compare the reference with the records, too
package kubectl

// Package merge holds plinth/merge against the field manager of Kubernetes: the same operations, in the same order, at
// the same times, through both, and after each of them the same object, the same metadata.managedFields and the same
// conflicts.
//
// Glossary. An engine is one of the two, behind one small interface. A kind is a type that objects have: a random one
// with one or several versions, whose schema both engines get from one description, or a built-in one. A history is a
// kind and the operations of several managers on one object of it; an outcome is what one operation made of the object,
// as text, and two engines agree where their texts are equal.
//
// Histories come from a generator (generate_test.go), one seed each, so that every failure can be had again:
//
//	go test ./merge -histories 100000 -seed 7
//	go test ./merge -only 342 -seed 7
//	go test ./merge -histories 20000 -scattered 0.2
//
// The last of these has managedFields written by hand all the time, and badly.
//
// A history on which the engines differ is cut down to what still shows the difference, and printed in the form of the
// files in testdata. Those are run through both engines in every test; -update writes upstream's outcomes into them.
//
// Upstream takes the time from the clock. Histories run in a bubble of testing/synctest, where the clock is the test's.
//
// Upstream is not always of one mind: where several API versions meet, the order of a Go map decides. A difference
// counts only if upstream, asked again, keeps to its answer. The differences that are meant are data, with their
// reasons, in explained_test.go, and each has a scenario. After one of them both engines go on from where upstream is.
//
// What of upstream's merge and typed no operation of a server reaches is data, too: unreachable.txt, with reasons. Its
// texts are held against upstream's source in every test. That nothing in it is reached after all, and at least 95 % of
// the rest in either package, takes a run with upstream instrumented: a minute on one core, and three more where
// nothing is built yet.
//
//	go test ./merge -v -run 'TestUnreachable$' -coverage
//
// With the scenarios and 2000 histories all of the rest is reached: 167 of 167 statements in merge, where 52 of 219 are
// listed, and 900 of 900 in typed, where 142 of 1042 are. The histories alone reach 92.8 and 96.9 % of the rest. That
// is as much as Go's coverage tells: an if without an else counts as soon as it has been true. In the search for what
// might be reached after all, values of wrong types are of use, which are for upstream alone; thousands of such
// histories have reached nothing listed:
//
//	go test ./merge -run TestHistories -alone -scattered 0.3 -histories 5000 -coverprofile=/tmp/cover -coverpkg=\
//	sigs.k8s.io/structured-merge-diff/v6/merge,sigs.k8s.io/structured-merge-diff/v6/typed
//
// Caveat: built-in objects are unstructured here and Go structs in the API server, which makes no difference to values
// that have been decoded: TestGoStructs holds upstream against itself. Only there and in the benchmarks are they Go
// structs.
package merge

// Package merge compares plinth/merge with the field manager of Kubernetes: both get the same operations, in the same
// order, at the same times, and after each the object, metadata.managedFields and the conflicts have to be equal.
//
// Glossary. An engine is one of the two, behind one small interface. A kind is a type of objects: a random one with one
// or several versions, whose schema both engines get from one description, or a built-in one. A history is a kind and
// the operations of several managers on one object of it; an outcome is the result of one operation, as text.
//
// Histories come from a generator (generate_test.go), one seed each, so that every failure can be reproduced:
//
//	go test ./oracle/merge -histories 100000 -seed 7
//	go test ./oracle/merge -only 342 -seed 7
//	go test ./oracle/merge -histories 20000 -scattered 0.2
//
// With -scattered, operations also set managedFields, often to wrong values.
//
// A history on which the engines differ is minimised, and printed in the form of the files in testdata. Every test runs
// these files through both engines; -update writes upstream's outcomes into them.
//
// Upstream takes the time from the clock. Histories run in a bubble of testing/synctest, in which the test sets it.
//
// With several API versions, upstream's outcome can depend on the iteration order of a Go map. A difference counts only
// if upstream gives the same outcome again. The intended differences are listed with their reasons in
// explained_test.go, and each has a scenario. After one of them both engines continue from upstream's outcome.
//
// The statements of upstream's packages merge and typed that no operation of a server reaches are listed in
// unreachable.txt, with reasons. Its texts are compared with upstream's source in every test. Two claims need a run
// with upstream instrumented, which takes a minute on one core, and three more for the build: that no listed statement
// is reached, and that at least 95 % of the others are, in either package.
//
//	go test ./oracle/merge -v -run 'TestUnreachable$' -coverage
//
// With the scenarios and 2000 histories all statements that are not listed are reached: 167 of 167 statements in merge,
// where 52 of 219 are listed, and 900 of 900 in typed, where 142 of 1042 are. The histories alone reach 92.8 and 96.9 %
// of them. Go's coverage does not show more than that: an if without an else counts as reached as soon as its condition
// was true. Histories with values of wrong types, which only upstream gets, might reach listed statements; thousands of
// them reached none:
//
//	go test ./oracle/merge -run TestHistories -alone -scattered 0.3 -histories 5000 -coverprofile=/tmp/cover -coverpkg=\
//	sigs.k8s.io/structured-merge-diff/v6/merge,sigs.k8s.io/structured-merge-diff/v6/typed
//
// Caveat: built-in objects are unstructured here and Go structs in the API server. For decoded values that makes no
// difference: TestGoStructs compares upstream with itself. Only there and in the benchmarks are they Go structs.
package merge

// Package merge holds plinth/merge against the field manager of Kubernetes: the same operations, in the same order, at the
// same times, through both, and after each of them the same object, the same metadata.managedFields and the same conflicts.
//
// Glossary. An engine is one of the two, behind one small interface. A kind is a type that objects have: a random one with
// one or several versions, whose schema both engines get from one description, or a built-in one. A history is a kind and
// the operations of several managers on one object of it; an outcome is what one operation made of the object, as text, and
// two engines agree where their texts are equal.
//
// Histories come from a generator (generate_test.go), one seed each, so that every failure can be had again:
//
//	go test ./merge -histories 100000 -seed 7
//
// A history on which the engines differ is cut down to what still shows the difference, and printed in the form of the
// files in testdata. Those are run through both engines in every test; -update writes upstream's outcomes into them.
//
// Upstream takes the time from the clock. Histories run in a bubble of testing/synctest, where the clock is the test's.
//
// Upstream is not always of one mind: where several API versions meet, the order of a Go map decides. A difference counts
// only if upstream, asked again, keeps to its answer. The differences that are meant are data, with their reasons, in
// explained_test.go.
package merge

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
//	go test ./merge -only 342 -seed 7
//
// A history on which the engines differ is cut down to what still shows the difference, and printed in the form of the
// files in testdata. Those are run through both engines in every test; -update writes upstream's outcomes into them.
//
// Upstream takes the time from the clock. Histories run in a bubble of testing/synctest, where the clock is the test's.
//
// Upstream is not always of one mind: where several API versions meet, the order of a Go map decides. A difference counts
// only if upstream, asked again, keeps to its answer. The differences that are meant are data, with their reasons, in
// explained_test.go, and each has a scenario. After one of them both engines go on from where upstream is.
//
// What the histories reach of upstream, values of wrong types among them:
//
//	go test ./merge -run TestHistories -alone -histories 3000 -coverprofile=/tmp/cover -coverpkg=\
//	sigs.k8s.io/structured-merge-diff/v6/merge,sigs.k8s.io/structured-merge-diff/v6/typed,k8s.io/apimachinery/pkg/util/managedfields/internal
//
// They do not reach what no server calls: in merge the IgnoredFields, the builder, and Conflicts as text, as a set and in
// comparison; in typed ExtractItems and what only it leads to in remove.go, FromYAML and the parser of schemas, Empty,
// AsTypedUnvalidated, Comparison's IsSame, String and ExcludeFields, the compareWalker's indexListPathElements,
// reconcile's fieldSetAtPath and descendToPath, WithPath. Nor what earlier steps rule out: schemas with a reference to
// nowhere, objects of different schemas or invalid ones after validation, big leaves within leaves. What is left are the
// branches for a conversion that fails half-way through an apply, having worked before.
//
// Caveat: built-in objects are unstructured here and Go structs in the API server, which makes no difference to values that
// have been decoded. Only the benchmarks give upstream Go structs.
package merge

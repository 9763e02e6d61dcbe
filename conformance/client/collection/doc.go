// Package collection compares garbage collection: which objects that own each other are left after some were deleted.
// On the reference, kube-controller-manager's garbage collector and namespace controller do the work, on Plinth its
// own.
//
// A case is a list of steps in a small language, which create and delete objects. At each wait, when the objects no
// longer change, all of them are listed: which are gone, and which owners and finalizers the others have. Cases run in
// parallel, each with its own names and namespaces.
//
//	create NAME KIND [in NAMESPACE] [owned by REFERENCE …] [held by FINALIZER …]
//	own NAME by REFERENCE …
//	delete NAME [background|foreground|orphan]
//	delete namespace NAMESPACE
//	release NAME                 removes the object's other finalizers
//	wait
//
// A REFERENCE is the name of an object, followed by ! if it blocks the deletion of its owner. In NAME/name, NAME/uid,
// NAME/kind and NAME/group that part of the reference is wrong. A NAME that is created again is another object: NAME'.
//
// A line "@differs REASON" before the steps says why Plinth's result differs, and "@either REASON" why each server has
// one of two results; the second one is below the first. Both have been seen on the reference.
//
// testdata has cases with the reference's results, some written by hand and some random:
//
//	go test ./client/collection                              compare Plinth with the records
//	go test ./client/collection -rewrite                     record the reference's results anew
//	CONFORMANCE_REFERENCE=1 go test ./client/collection  and 500 random graphs, against the reference (-graphs, -seed)
package collection

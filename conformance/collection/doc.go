// Package collection compares what is left of objects that own each other when some of them are deleted: on the
// reference, with the garbage collector and the namespace controller of its kube-controller-manager, and on Plinth,
// which does that itself.
//
// A case is a list of steps in a small language. It makes objects, deletes some, and at each wait looks at all of them
// when nothing moves any more: who is gone, and what owners and finalizers the others have. Cases run side by side,
// each with names and namespaces of its own.
//
//	create NAME KIND [in NAMESPACE] [owned by REFERENCE …] [held by FINALIZER …]
//	own NAME by REFERENCE …
//	delete NAME [background|foreground|orphan]
//	delete namespace NAMESPACE
//	release NAME                 takes the finalizers of others away
//	wait
//
// A REFERENCE is the name of an object, with a ! behind it if it blocks the deletion of its owner. NAME/name, NAME/uid,
// NAME/kind and NAME/group have that part of the reference wrong. A NAME that is created again, is another object:
// NAME'.
//
// A line "@differs REASON" before the steps says why Plinth leaves something else.
//
// testdata has cases with the reference's answers, some written and some random:
//
//	go test ./collection                              Plinth answers as recorded
//	go test ./collection -rewrite                     ask the reference again and write its answers into the files
//	CONFORMANCE_REFERENCE=1 go test ./collection  and 500 random graphs, against the reference (-graphs, -seed)
package collection

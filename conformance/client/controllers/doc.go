// Package controllers compares what controllers leave in objects: conditions, finalizers, owner references, Events, and
// which manager owns which fields. On the reference, kube-controller-manager does the work, on Plinth its own
// controllers. (Package collection compares the garbage collector over many graphs, certificates those of
// CertificateSigningRequests.)
//
// A scenario is a list of requests and looks. A look shows objects when the controllers have done their work. The
// scenarios of a file run at the same time, so each has its own names; the files run one after the other.
//
//	POST|PATCH|DELETE PATH    a request; its body, in YAML, is in the lines below, which are indented. A PATCH is a JSON
//	                          merge patch
//	await PATH TEXT           waits until the object has a text, because what the controllers do later depends on it
//	see PATH [MEMBER …]       the object's metadata and status, and other members of it, or "gone"
//	events PATH               the Events about the object
//
// Adjacent lines with see and events are one look. An object is shown without what differs in each run: the fields that
// the requests of scenarios own are left out, resourceVersions are "RV", times "TIME", and UIDs "UID 1" and so on, by
// which names the bodies of requests can have them, too.
//
// A line "@differs REASON" before the requests says why what Plinth leaves differs.
//
// testdata has scenarios with what the reference has left:
//
//	go test ./client/controllers                              compare Plinth with the records
//	go test ./client/controllers -rewrite                     record the reference anew
//	CONFORMANCE_REFERENCE=1 go test ./client/controllers      and compare the records with the reference of today
package controllers

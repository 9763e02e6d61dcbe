// Package envtest runs Plinth in the place of kube-apiserver and etcd, as the programs do that start them:
// controller-runtime's envtest, with the directory that `plinth envtest` writes, and kwokctl's command lines.
//
// testdata holds the flags of the reference, as its help tells them: a line a flag, with its type and its default.
//
//	go test ./envtest                                        the recorded flags are there, and the programs start
//	CONFORMANCE_REFERENCE=1 go test ./envtest                and the records are still what the reference says
//	CONFORMANCE_REFERENCE=1 go test ./envtest -rewrite       record what it says
//	CONTROLLER_RUNTIME=1 go test ./envtest -run Suites -v    controller-runtime's own suites on both, with what differs
package envtest

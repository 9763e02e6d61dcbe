// Package envtest runs Plinth in place of kube-apiserver and etcd, like the programs that start them:
// controller-runtime's envtest, with the directory that `plinth envtest` writes, and kwokctl, with its command lines.
//
// testdata has the flags of the reference from its help, one per line, with the type and, for kube-apiserver, the
// default; the names of its admission plugins; and the tests of the port to plinthtest, each with that of the original.
//
//	go test ./client/envtest                                       compare the flags, and start the programs
//	CONFORMANCE_REFERENCE=1 go test ./client/envtest               compare the reference with the records, too
//	CONFORMANCE_REFERENCE=1 go test ./client/envtest -rewrite      record what it prints
//	ENVTEST_SUITES=1 go test ./client/envtest -run Suites -v       run suites of other projects on both, compared
//	ENVTEST_SUITES=1 go test ./client/envtest -run ThreeWays -v    run one of them on both, and its port to plinthtest
package envtest

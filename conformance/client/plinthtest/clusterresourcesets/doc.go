// Package clusterresourcesets has the tests of Cluster API for its ClusterResourceSets again, on plinthtest: real
// reconcilers and webhooks of that project in a real manager, each test with a management cluster and a workload
// cluster of its own, in virtual time.
//
// The original is core/reconcilers/clusterresourceset in sigs.k8s.io/cluster-api. Its tests share one envtest server,
// which is the workload cluster, too, and wait with Eventually. Here a test says Settle and looks once.
// reconcile_test.go has the tests that need envtest there, in their order; resources_test.go what the original tests
// by calling unexported functions with a fake client.
//
// A workload cluster is reached as Cluster API reaches one: by the kubeconfig in a Secret, from which ClusterCache
// makes its own clients. No socket is possible in virtual time, so the kubeconfig names a URL of a scheme that
// http.DefaultTransport passes to the plane (scene_test.go).
//
//	go test ./client/plinthtest/clusterresourcesets                          the port
//	ENVTEST_SUITES=1 go test ./client/envtest -run ThreeWays -v              the original and the port, side by side
package clusterresourcesets

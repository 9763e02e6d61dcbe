// Package rolling restarts servers on one etcd one after another, behind a balancer, while a cluster works: the real
// kube-controller-manager and kube-scheduler, KWOK as all nodes, and users who scale, roll and delete workloads. Plinth
// is compared with kube-apiservers that are restarted in the same way.
//
// No Pod may be lost. The ledger follows all Pods in etcd, past the servers, and each change of a user is entered there
// first: how many Pods it makes, and which ones may go. So a Pod that goes without a reason is noticed at once, and in
// the end the numbers of Pods that were made, that have gone and that are there are exact, for each workload.
//
// Errors that the three programs log, and those of the test's own requests, are compared by their kind:
// testdata/errors.txt lists those that occur with the reference; -rewrite adds to it. The flag -fault plants a fault,
// which has to be noticed.
package rolling

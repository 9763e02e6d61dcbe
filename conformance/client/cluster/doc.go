// Package cluster runs the real kube-controller-manager and kube-scheduler on Plinth, with simulated nodes
// (internal/kubelet), and does what users of a cluster do: Deployments that scale, roll and are autoscaled, Jobs,
// CronJobs, StatefulSets, DaemonSets, Services, disruption budgets, a chart of Helm 4, and the deletion of a namespace
// with all of it.
//
// Only the test's user is an administrator: the two programs authenticate as in a real cluster, their controllers are
// service accounts, and each node is a user in the group system:nodes, with the permissions that the node authorizer
// gives it.
//
// Errors that the two programs log are compared by their place in the source: testdata/errors.txt lists those that
// occur with the reference in the same scenario; -rewrite updates it.
package cluster

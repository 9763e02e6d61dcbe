// Package cluster runs the real kube-controller-manager and kube-scheduler on Plinth, with nodes that pretend to run
// Pods (internal/kubelet), and goes through what users of a cluster do: Deployments that scale, roll and are
// autoscaled, Jobs, CronJobs, StatefulSets, DaemonSets, Services, disruption budgets, a chart of Helm 4, and the
// deletion of a namespace with all of it.
//
// Nobody in it is the administrator but the user: the two programs are the users that they are in a cluster, their
// controllers service accounts, and each node is a user in the group system:nodes, who may do what the node authorizer
// allows.
//
// What the two programs log as errors is compared by the place in their source: testdata/errors.txt lists those that
// the reference causes in the same scenario, which -rewrite brings up to date.
package cluster

// Package aggregation runs Kubernetes' sample-apiserver, unchanged, behind Plinth and behind the reference, and
// compares what clients get: from the sample server through both, of the documents that describe it, of the status of
// its APIService, of the deletion of a namespace that has its objects, and of objects that own objects of the other
// server; also while it is stopped, killed and started again. And it runs metrics-server, unchanged, with an autoscaler
// that scales by what it measures.
package aggregation

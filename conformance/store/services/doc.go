// Package services runs Plinth and a kube-apiserver on one etcd, and gives Services addresses and ports through both.
package services

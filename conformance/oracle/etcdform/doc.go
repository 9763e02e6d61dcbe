// Package etcdform compares the keys and values of package internal/etcdform with those of the reference: what its
// storage codec reads and writes (codec_test.go), and what a running kube-apiserver has written into etcd
// (recorded_test.go).
package etcdform

// Package etcd runs the suite of all stores (storetest) on a real etcd, and shows what is special about that store:
// that other processes write to it, and that it fails and comes back.
package etcd

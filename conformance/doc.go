// Package conformance holds Plinth against the real thing: the real clients, the recorded answers of a real
// kube-apiserver, and upstream's own functions as oracles. It is a module of its own because its dependencies, all of
// Kubernetes among them, have no place in the product.
//
// Each folder says in its package comment what it compares. What several of them need is below internal: harness starts
// the servers, records reads what the reference has answered, and vectors, scheme and strategies are upstream's objects
// and functions. Plain `go test ./...` needs no reference: it compares with recorded answers. With
// CONFORMANCE_REFERENCE set, the reference is built and started too, and the records themselves are checked.
package conformance

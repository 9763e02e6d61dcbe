// Package reading reads from a server that changes, restarts and drops old versions, with watches and with client-go's
// informers, and requires that they end with the exact state of the server.
//
// `go test` runs short versions; -full runs them over 10,000 objects with 20 informers.
package reading

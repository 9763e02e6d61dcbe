// Package reading follows a server that changes, restarts and forgets, with watches and with client-go's informers, and
// demands that they end in the exact state.
//
// `go test` runs short versions; -full runs them over 10,000 objects with 20 informers.
package reading

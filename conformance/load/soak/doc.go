// Package soak puts a server under load and disturbs it: kills during writes, many watchers, watchers that do not read.
// `go test` runs short versions; -full runs them as long as the requirements say.
package soak

// Package authorization compares package internal/authz with the reference's own authorizers, and the default roles and
// bindings with its bootstrap policy. `go test ./oracle/authorization -run TestBootstrapPolicy -rewrite` writes the table of
// bootstrap roles and bindings again.
package authorization

// Package authorization compares package internal/authz with the reference's own authorizers and its bootstrap policy.
// `go test ./authorization -run TestBootstrapPolicy -rewrite` writes the table of bootstrap roles and bindings anew.
package authorization

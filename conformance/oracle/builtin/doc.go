// Package builtin compares Plinth's table of built-in types with upstream, except for defaults and validation: which
// fields creates, updates and writes to subresources reset and keep, what counts as a new generation, which fields can
// be selected, and the cells of Tables. Upstream's own strategies and printers are linked, and called on variants of
// the vectors of k8s.io/api.
//
// More variants: go test -objects 20000 -seed 7.
package builtin

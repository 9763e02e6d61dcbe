// Package builtin holds what Plinth's table of built-in types does beside defaults and validation against what upstream
// does: what creates, updates and writes to subresources reset and keep, what counts as a new generation, what can be
// selected by field, and what stands in the cells of Tables. Upstream's own strategies and printers are linked and
// called on variants of the vectors of k8s.io/api.
//
// More variants: go test -objects 20000 -seed 7.
package builtin

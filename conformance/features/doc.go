// Package features compares package internal/features with the reference's own registry of feature gates: the table of
// gates, and what --feature-gates is taken to mean. `go test ./features -rewrite` writes the table anew.
package features

// Package features compares package internal/features with the reference's own registry of feature gates: the table of
// gates, and the effect of --feature-gates. `go test ./oracle/features -rewrite` writes the table again.
package features

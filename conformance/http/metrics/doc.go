// Package metrics compares the metrics that dashboards read with those of the reference: all that its help texts call
// STABLE or BETA, by name, type and labels, in both directions. testdata/reference.txt has the reference's; -rewrite
// updates it.
package metrics

// Package defaults compares the defaults of built-in kinds (plinth/internal/builtin/defaults) and the conversions
// (plinth/internal/builtin/convert) with upstream's own functions, on variants of the vectors of k8s.io/api and of the
// manifests in testdata.
//
// More variants: go test -objects 20000 -seed 7.
package defaults

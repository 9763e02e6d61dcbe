// Package patches compares plinth/patch with the libraries with which Kubernetes applies patches: Strategic Merge Patch
// with k8s.io/apimachinery/pkg/util/strategicpatch, as the API server calls it, and JSON Merge Patch with
// gopkg.in/evanphx/json-patch.v4.
//
// Glossary. A case is a kind, a live object of it and a patch. An outcome is the resulting object, as bytes, or the
// error: the status that the API server makes of it, and its message. Two outcomes agree if they are equal.
//
// Live objects are variants of the vectors of k8s.io/api, for every built-in kind: lists get more items, fields are
// removed and changed. Patches are random, with every directive in every place, right or wrong; or upstream's own
// CreateTwoWayMergePatch and CreateThreeWayMergePatch make them from two or three variants; or such patches are damaged
// afterwards. Each case has a number, so that every failure can be reproduced:
//
//	go test ./oracle/patches -cases 100000 -seed 7
//
// A case that differs is minimised before it is printed.
//
// Upstream applies the members of a patch in the random iteration order of Go's maps, so that its outcome may vary. A
// difference counts only if upstream gives Plinth's outcome in no order of the same patch. The intended differences are
// listed with their reasons in explained_test.go.
package patches

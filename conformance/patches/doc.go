// Package patches holds plinth/patch against the libraries with which Kubernetes applies patches: Strategic Merge Patch
// against k8s.io/apimachinery/pkg/util/strategicpatch, as the API server calls it, and JSON Merge Patch against
// gopkg.in/evanphx/json-patch.v4.
//
// Glossary. A case is a kind, a live object of it and a patch. An outcome is the object that comes of it, as bytes, or
// the error: its status, as the API server makes it of the error, and its message. Two outcomes agree where they are
// equal.
//
// Live objects are variants of the vectors of k8s.io/api, of every built-in kind: lists get more items, fields are
// removed and changed. Patches are written at random with every directive in every place, right or wrong; or upstream's
// own CreateTwoWayMergePatch and CreateThreeWayMergePatch make them from two or three variants; or such patches are
// spoilt afterwards. Each case has a number, so that every failure can be had again:
//
//	go test ./patches -cases 100000 -seed 7
//
// A case that differs is cut down to what still shows the difference before it is printed.
//
// Upstream goes through patches in the random order of Go's maps and is not always of one mind. A difference counts
// only if no order of the same patch makes upstream answer as plinth does. The differences that are meant are data,
// with their reasons, in explained_test.go.
package patches

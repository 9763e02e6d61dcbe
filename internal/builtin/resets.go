package builtin

import (
	"strings"

	"plinth/internal/engine"
	"plinth/merge"
)

// The untouched fields of most kinds with a status.
var (
	// statusApart is that of the older kinds: metadata can be written through both endpoints.
	statusApart = map[string]string{"": "status", "status": "spec"}
	// statusAlone is that of the newer kinds.
	statusAlone = map[string]string{"": "status", "status": "metadata spec"}
)

// resets returns, by API version, the fields that a write to this endpoint of a type cannot change and so does not own
// (SSA-14); the subresource "" is the main URL. Each version of a kind has those of all versions, as a write also
// changes the ownership recorded in other versions.
//
// A write to the scale, to the ephemeralcontainers or to the resize of an object owns every field that it changes. In
// the reference the last two are meant to own only the containers' parts, but its storage does not pass that on to the
// code that tracks ownership: there, a write owns the labels that it sends, even though they are not changed. Ownership
// is the same here.
func (k *kind) resets(r *engine.Resource, subresource string) map[string]merge.Set {
	paths, known := k.untouched[subresource]
	if !known {
		return nil
	}
	sets := map[string]merge.Set{}
	for _, version := range r.Stored.Versions {
		sets[version.APIVersion] = merge.Fields(strings.Fields(paths)...)
	}
	return sets
}

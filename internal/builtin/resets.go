package builtin

import (
	"strings"

	"plinth/internal/engine"
	"plinth/merge"
)

// The untouched fields of most kinds with a status.
var (
	// statusApart is what the older kinds have: metadata can be written through both endpoints.
	statusApart = map[string]string{"": "status", "status": "spec"}
	// statusAlone is what the newer ones have.
	statusAlone = map[string]string{"": "status", "status": "metadata spec"}
)

// resets returns, by API version, the fields that a write to this endpoint of a type cannot change and so does not own
// (SSA-14); the subresource "" is the main URL. Each version of a kind has those of all versions, as a write also
// changes the ownership recorded in other versions.
//
// A write to the scale, to the ephemeralcontainers or to the resize of an object owns whatever it changes. The
// reference means the last two to own nothing but the containers' parts, but its storage does not hand that on to what
// tracks ownership: there, a write owns the labels that it sends and that are not changed. Ownership is the same here.
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

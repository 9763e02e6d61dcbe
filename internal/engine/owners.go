package engine

import (
	"slices"
	"strings"

	"plinth/object"
)

// dedupOwners drops duplicate owner references and warns of them. The reference looks at patched objects later than
// at sent ones, and its warning says so.
func (d *draft) dedupOwners(patched bool) {
	owners := d.sent.At("metadata", "ownerReferences").Items()
	if len(owners) < 2 {
		return
	}
	kept := make([]object.Value, 0, len(owners))
	// By UID: to compare each reference with all others would be quadratic in a list whose length the client chooses.
	seen := make(map[string][]object.Value, len(owners))
	var repeated []string
	for _, owner := range owners {
		uid := owner.At("uid").Str()
		if slices.ContainsFunc(seen[uid], func(o object.Value) bool { return object.Equal(o, owner) }) {
			repeated = append(repeated, uid)
			continue
		}
		seen[uid] = append(seen[uid], owner)
		kept = append(kept, owner)
	}
	if len(repeated) == 0 {
		return
	}
	when := ""
	if patched {
		when = " after mutating admission happens"
	}
	d.warn(".metadata.ownerReferences contains duplicate entries" + when +
		"; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; " +
		"please fix your requests; duplicate UID(s) observed: " + strings.Join(repeated, ", "))
	d.sent = d.sent.WithAt(object.ListOf(kept...), "metadata", "ownerReferences")
}

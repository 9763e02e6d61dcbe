package engine

import (
	"strings"

	"plinth/object"
)

// dedupOwners drops duplicate owner references of an object and adds a warning about them. The reference deduplicates
// patched objects later than sent ones, after admission, and its warning says so.
//
// Two references are duplicates if all of their members are equal; one owner may be listed twice with different names.
// The client chooses their number: a body of 3 MiB has room for 40,000, all with one UID. Each is therefore looked up
// by its text. Comparing it with the others of its UID, as the reference does (dedupOwnerReferences), would be 800
// million comparisons for such a body.
func (d *draft) dedupOwners(obj object.Value, patched bool) object.Value {
	owners := obj.At("metadata", "ownerReferences").Items()
	if len(owners) < 2 {
		return obj
	}
	kept := make([]object.Value, 0, len(owners))
	seen := make(map[string]bool, len(owners))
	var repeated []string
	var text []byte
	for _, owner := range owners {
		text = object.AppendJSON(text[:0], owner)
		if seen[string(text)] {
			repeated = append(repeated, owner.At("uid").Str())
			continue
		}
		seen[string(text)] = true
		kept = append(kept, owner)
	}
	if len(repeated) == 0 {
		return obj
	}
	when := ""
	if patched {
		when = " after mutating admission happens"
	}
	d.warn(".metadata.ownerReferences contains duplicate entries" + when +
		"; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; " +
		"please fix your requests; duplicate UID(s) observed: " + strings.Join(repeated, ", "))
	return obj.WithAt(object.ListOf(kept...), "metadata", "ownerReferences")
}

package engine

import (
	"slices"
	"strings"

	"plinth/object"
)

// once drops owners that are listed twice, and warns of them. The reference looks at patched objects later than at sent
// ones, and says so.
func (rq *Request) once(obj object.Value, patched bool) object.Value {
	owners := obj.At("metadata", "ownerReferences").Items()
	if len(owners) < 2 {
		return obj
	}
	kept := make([]object.Value, 0, len(owners))
	seen := make(map[string][]object.Value, len(owners)) // by UID, so that a long list takes no square of comparisons
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
		return obj
	}
	when := ""
	if patched {
		when = " after mutating admission happens"
	}
	rq.warn(".metadata.ownerReferences contains duplicate entries" + when + "; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; " +
		"please fix your requests; duplicate UID(s) observed: " + strings.Join(repeated, ", "))
	return obj.WithAt(object.ListOf(kept...), "metadata", "ownerReferences")
}

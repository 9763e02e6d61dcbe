// Package native converts Plinth's values to the maps and slices of upstream's unstructured objects, which its merges
// and patches work on.
package native

import (
	"math/rand/v2"
	"slices"

	"plinth/object"
)

// Of converts a value to upstream's form. Maps are filled in the order of their members, or, if rng is not nil, in
// random order. Lists have no spare capacity: upstream appends in place if there is any, and that affects its result
// for lists with duplicate items.
func Of(v object.Value, rng *rand.Rand) any {
	switch v.Kind() {
	case object.Bool:
		return v.Bool()
	case object.Int:
		return v.Int()
	case object.Float, object.Number:
		return v.Float()
	case object.String:
		return v.Str()
	case object.List:
		list := make([]any, v.Len())
		for i, item := range v.Items() {
			list[i] = Of(item, rng)
		}
		return list
	case object.Map:
		members := v.Members()
		if rng != nil {
			members = slices.Clone(members)
			rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		}
		m := make(map[string]any, len(members))
		for _, member := range members {
			m[member.Key] = Of(member.Value, rng)
		}
		return m
	}
	return nil
}

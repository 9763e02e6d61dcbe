package merge

import (
	"slices"

	"plinth/object"
	"plinth/schema"
)

// without is the value without the fields and items of a set. Where nothing stays of a map or list, null does.
func without(v object.Value, t *schema.Type, gone Set) object.Value {
	s := shapeOf(t, v)
	switch {
	case s == leaf:
		return v
	case v.Len() == 0 || atomic(t, s):
		return object.Nil // what is below it has gone, and so has it
	case s == mapping:
		return withoutMembers(v, t, gone)
	}
	return withoutItems(v, t, gone)
}

func withoutMembers(v object.Value, t *schema.Type, gone Set) object.Value {
	members := v.Members()
	var out []object.Member
	changed := false
	for i, m := range members {
		n := gone.at(FieldElement(m.Key))
		stays, value := n.marks == 0, m.Value
		if stays && !n.below.Empty() {
			of, _ := memberType(t, m.Key)
			value = without(value, of, n.below)
		}
		if !changed && (!stays || value != m.Value) {
			changed = true
			out = append(make([]object.Member, 0, len(members)), members[:i]...)
		}
		if changed && stays {
			out = append(out, object.Member{Key: m.Key, Value: value})
		}
	}
	switch {
	case !changed:
		return v
	case len(out) == 0:
		return object.Nil
	}
	return object.MapOf(out...)
}

func withoutItems(v object.Value, t *schema.Type, gone Set) object.Value {
	items := v.Items()
	var out []object.Value
	changed := false
	for i, item := range items {
		var n node
		if id, err := identify(t, item); err == nil {
			n = gone.at(elementOf(t, id))
		}
		stays, value := n.marks == 0, item
		if stays && !n.below.Empty() {
			if value = without(value, itemType(t), n.below); value.IsNull() {
				value = emptyMap // its key has a default; null would not be an item
			}
		}
		if !changed && (!stays || value != item) {
			changed = true
			out = append(make([]object.Value, 0, len(items)), items[:i]...)
		}
		if changed && stays {
			out = append(out, value)
		}
	}
	switch {
	case !changed:
		return v
	case len(out) == 0:
		return object.Nil
	}
	return object.ListOf(out...)
}

// prune takes out of merged what the writer owned before (last), does not own any longer, and nobody else owns.
func (o *operation) prune(merged object.Value, last *entry, writer *entry) (object.Value, error) {
	if last == nil || last.set.Empty() {
		return merged, nil
	}
	if last.APIVersion == writer.APIVersion && last.set.within(writer.set) {
		// Nothing was given up. A set made from an intent holds all list and map items on the way to what it holds, so
		// that nothing above goes away, either.
		return merged, nil
	}
	at, t, err := o.in(merged, last.APIVersion)
	if err != nil {
		return object.Nil, err
	}
	if t == nil {
		return merged, nil
	}
	lastSet := last.set.withStructs(t)
	pruned, err := o.addOwned(at, without(at, t, lastSet), last.APIVersion)
	if err != nil {
		return object.Nil, err
	}
	// What the writer did not own stays, even where what held it has gone: it is added back.
	back, backType, err := o.in(pruned, last.APIVersion)
	if err != nil {
		return object.Nil, err
	}
	if backType == nil {
		return at, nil
	}
	still := fieldsOf(back, t).withStructs(t)
	lost := fieldsOf(at, t).withStructs(t).Minus(still).Both(lastSet)
	out, _, err := o.in(without(at, t, lost), writer.APIVersion)
	return out, err
}

// addOwned adds back to pruned what others own or the writer owns still: version by version, and that of the last apply
// first, since another one may need what is missing to be converted to.
func (o *operation) addOwned(merged, pruned object.Value, first string) (object.Value, error) {
	versions := []string{first}
	for _, e := range o.entries {
		if !slices.Contains(versions, e.APIVersion) {
			versions = append(versions, e.APIVersion)
		}
	}
	for _, version := range versions {
		var set Set
		for _, e := range o.entries {
			if e.APIVersion == version {
				set = set.Union(e.set)
			}
		}
		m, t, err := o.in(merged, version)
		if err != nil {
			return pruned, err
		}
		if t == nil {
			continue
		}
		p, _, err := o.in(pruned, version)
		if err != nil {
			return pruned, err
		}
		still := fieldsOf(p, t).withStructs(t).Union(set.withStructs(t))
		merged, pruned = m, without(m, t, fieldsOf(m, t).withStructs(t).Minus(still))
	}
	return pruned, nil
}

package merge

import (
	"slices"

	"plinth/internal/invariants"
	"plinth/object"
	"plinth/schema"
)

// without is v ∖ gone: the value without the fields and items of a set. A map or list that becomes empty becomes null;
// the caller decides by the path of the container itself whether it is removed as well. A path that does not exist has
// no effect. Remaining parts are the same memory as in v.
//
// From {replicas: 1, strategy: {type: Recreate}} the set {.strategy.type} leaves {replicas: 1, strategy: null}, and the
// set {.strategy, .strategy.type} leaves {replicas: 1}. Null, and not {}: an empty map that the client has written is a
// different value, which must not be the result of a removal.
func without(v object.Value, t *schema.Type, gone Set) object.Value {
	s := shapeOf(t, v)
	switch {
	case s == leaf:
		return v
	case v.Len() == 0 || atomic(t, s):
		return object.Nil // gone has paths below, so this was granular when they were owned: it is removed with them
	case s == mapping:
		return withoutMembers(v, t, gone)
	}
	return withoutItems(v, t, gone)
}

// withoutMembers removes members, and copies the others only once a member has changed: most of an object stays, and
// has to stay the same memory for the comparison that follows.
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

// withoutItems removes items by their identities, all items of one identity together. An item without identity is
// selected by no path, and stays.
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
				value = emptyMap // an item whose keys all have defaults; null would have no identity
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

// prune removes from merged what the writer owned before (last), does not own any longer, and no other manager owns:
//
//	lost   = owned(last) ∩ fields(merged) ∖ fields(kept)
//	result = merged ∖ lost        where no leaf of lost is in owned(m), for every manager m, the writer included
//
// where kept is merged without everything that last owned, to which everything that has an owner now is added back.
//
// Why not remove owned(last) ∖ ⋃ owned(m), a difference of sets? For two reasons.
//
//   - Managers may name the same field differently, in their own versions: autoscaling/v1 has
//     .spec.targetCPUUtilizationPercentage for an item of .spec.metrics in v2. Whether a field of last is owned by m
//     can only be seen by converting the object to the version of m, once with the field taken out and once with it
//     left in.
//   - A struct is in no set, but has to be removed with its last field: when alice gives up .spec.strategy.type, no
//     `strategy: {}` may stay that no manager has applied.
//
// Hence values are computed first (kept), and their sets, with structs, are compared: fields(kept) is what is still
// needed. Two rules of the reference follow from the formulas:
//
//   - An item or member without an owner is removed with everything in it, even fields that others own. Say alice
//     applied the item [name="web"], and bob updated its .args: he owns .args, but not the item. When she gives it up,
//     it is removed, and .args with it. Had he applied the item, he would own it, and it would stay.
//   - A field that last did not own is not lost by itself, even if it has no owner. If bob keeps the item, a field
//     in it without an owner stays.
//
// merged has been joined, and o.entries hold the writer's new set (writer is among them), but still the old ones of all
// others. The result is in the version of the writer. Its cost is a few walks over the object per version among the
// managers; an apply that gives up nothing returns before any of them.
func (o *operation) prune(merged object.Value, last *entry, writer *entry) (object.Value, error) {
	if last == nil || last.set.Empty() {
		return merged, nil
	}
	if last.APIVersion == writer.APIVersion && last.set.within(writer.set) {
		// Nothing was given up: owned(last) ∖ owned(writer) = ∅. The set of an intent has every list and map item above its
		// paths, so that no container is removed, either. The code below would give the same result.
		return merged, nil
	}
	at, t, err := o.in(merged, last.APIVersion)
	if err != nil {
		return object.Nil, err
	}
	if t == nil {
		return merged, nil // the version of the last apply no longer exists, and its paths have no meaning
	}
	// 1. Remove everything that last owned, with the structs on its paths, and add back the paths that are owned now.
	lastSet := last.set.withStructs(t)
	pruned, err := o.addOwned(at, without(at, t, lastSet), last.APIVersion)
	if err != nil {
		return object.Nil, err
	}
	// 2. Whatever was not added back is lost. What last did not own is not to be lost, even if a container around it is
	// missing in pruned: hence ∩ owned(last).
	back, _, err := o.in(pruned, last.APIVersion)
	if err != nil {
		return object.Nil, err
	}
	still := fieldsOf(back, t).withStructs(t)
	fields := fieldsOf(at, t).withStructs(t)
	lost := fields.Minus(still).Intersect(lastSet)
	if invariants.Enabled {
		o.checkPruned(fields, lost)
	}
	out, _, err := o.in(without(at, t, lost), writer.APIVersion)
	return out, err
}

// addOwned adds back to pruned all parts of merged that have an owner, the writer included. It works version by
// version, and starts with the version of the last apply: a conversion may need fields that have been taken out, and
// this version restores them without one. pruned stays a part of merged throughout:
//
//	pruned' = merged ∖ (fields(merged) ∖ (fields(pruned) ∪ ⋃ owned(m)))      m of this version
//
// Both are carried from version to version, so that fields which one version adds back are seen in the next. The result
// is in the last version; the caller converts it.
func (o *operation) addOwned(merged, pruned object.Value, first string) (object.Value, error) {
	versions := []string{first}
	for _, e := range o.entries {
		if !slices.Contains(versions, e.APIVersion) {
			versions = append(versions, e.APIVersion)
		}
	}
	for _, version := range versions {
		var sets []Set
		for _, e := range o.entries {
			if e.APIVersion == version {
				sets = append(sets, e.set)
			}
		}
		set := unionOf(sets)
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
		// The fields that still exist, or are owned. The structs are added to both: a struct stays as long as a field in it
		// does.
		still := fieldsOf(p, t).withStructs(t).Union(set.withStructs(t))
		merged, pruned = m, without(m, t, fieldsOf(m, t).withStructs(t).Minus(still))
	}
	return pruned, nil
}

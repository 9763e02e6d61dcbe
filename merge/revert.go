package merge

import (
	"slices"

	"plinth/object"
	"plinth/schema"
)

// Disagreement is a field that a change has set and somebody has changed since, so that Revert cannot know what it
// should be. A value that is not there is nil.
type Disagreement struct {
	Path                Path
	Before, After, Live *object.Value
}

// Revert takes a change back that has made an object of before into after: the result is live without the change. With
// force, fields that have changed since get the value that they had before; without it they stay, and are the
// disagreements. All values are of type t, or t is nil.
//
// Reverting is a three-way merge with after as the common ancestor, by the paths by which fields are owned: two changes
// disagree only if they are of one field.
//
//	before        after            live                    result
//	replicas: 1   replicas: 2      replicas: 2             replicas: 1
//	labels: {}    labels: {a: x}   labels: {a: x, b: y}    labels: {b: y}
//	image: v1     image: v2        image: v3               disagreement: v1, v2, v3
//
// Let b, a and l be what the three have at one place, each of which may be nothing. The place becomes
//
//	l   if b = a   (it was not changed)   or  b = l   (it was taken back already)
//	b   if a = l   (nobody has changed it since)
//	and a disagreement otherwise.
//
// Maps and lists that merge by members are not such places, but all that they have. One that is missing in before or
// after counts as empty, so that what others have put into it stays. An item of a list is not taken apart like that: if
// one of the three does not have it, it is one place, as no item is of use with half of its fields.
//
// Revert(x, y, y) is x, and so it takes itself back: Revert(y, x, x) is y. It is linear in the size of the three values
// up to a logarithm: values are compared as wholes only where the walk goes no deeper.
func Revert(before, after, live object.Value, t *schema.Type, force bool) (object.Value, []Disagreement) {
	if t == nil {
		t = deduced
	}
	r := reverter{force: force}
	reverted, ok := r.revert([3]*object.Value{&before, &after, &live}, t, nil, false)
	if !ok {
		return object.Nil, r.all
	}
	return reverted, r.all
}

type reverter struct {
	force bool
	all   []Disagreement
}

// The three values of a place.
const (
	wasBefore = iota
	wasAfter
	isLive
)

// revert is what a place becomes; false: it goes. item: it is an item of a list.
func (r *reverter) revert(of [3]*object.Value, t *schema.Type, at Path, item bool) (object.Value, bool) {
	missing, s, alike := 0, leaf, true // alike: those that are there are maps, or lists, that merge by members
	for _, v := range of {
		if v == nil {
			missing++
			continue
		}
		is := leaf
		if of := shapeOf(t, *v); !atomic(t, of) && (of == mapping && v.Kind() == object.Map ||
			of == listing && v.Kind() == object.List) {
			is = of
		}
		alike = alike && is != leaf && (s == leaf || s == is)
		s = is
	}
	if alike && missing < 2 && of[isLive] != nil && !(item && missing > 0) {
		var reverted object.Value
		ok := true
		if s == mapping {
			reverted = r.members(of, t, at)
		} else {
			reverted, ok = r.items(of, t, at)
		}
		if ok {
			return reverted, reverted.Len() > 0 || of[wasBefore] != nil
		}
	}
	b, a, l := of[wasBefore], of[wasAfter], of[isLive]
	switch {
	case equal(b, a), equal(b, l):
	case equal(a, l):
		l = b
	default:
		r.all = append(r.all, Disagreement{slices.Clone(at), b, a, l})
		if r.force {
			l = b
		}
	}
	if l == nil {
		return object.Nil, false
	}
	return *l, true
}

// equal compares two values, of which one that is not there equals itself alone.
func equal(v, w *object.Value) bool {
	if v == nil || w == nil {
		return v == w
	}
	return object.Equal(*v, *w)
}

// members reverts each member that one of three maps has. All are sorted by their keys.
func (r *reverter) members(of [3]*object.Value, t *schema.Type, at Path) object.Value {
	var rest [3][]object.Member
	for i, v := range of {
		if v != nil {
			rest[i] = v.Members()
		}
	}
	var out []object.Member
	for {
		key, found := "", false
		for _, members := range rest {
			if len(members) > 0 && (!found || members[0].Key < key) {
				key, found = members[0].Key, true
			}
		}
		if !found {
			return object.MapOf(out...)
		}
		var member [3]*object.Value
		for i, members := range rest {
			if len(members) > 0 && members[0].Key == key {
				member[i], rest[i] = &members[0].Value, members[1:]
			}
		}
		of, _ := memberType(t, key)
		if v, ok := r.revert(member, of, append(slices.Clip(at), FieldElement(key)), false); ok {
			out = append(out, object.Member{Key: key, Value: v})
		}
	}
}

// items reverts each item that one of three associative lists has. ok is false if the items of one are not told apart
// by their identities: then each list is one value.
func (r *reverter) items(of [3]*object.Value, t *schema.Type, at Path) (_ object.Value, ok bool) {
	var lists [3][]object.Value
	var by [3]*itemIndex
	for i, v := range of {
		if v != nil {
			lists[i] = v.Items()
		}
		by[i] = newItemIndex()
		defer by[i].free()
		if err := by[i].build(t, lists[i]); err != nil {
			return object.Nil, false
		}
		for k := range by[i].ids {
			if by[i].next(k) >= 0 {
				return object.Nil, false
			}
		}
	}
	item := func(i int, id object.Value) (v *object.Value) {
		if k := by[i].first(id); k >= 0 {
			v = &lists[i][k]
		}
		return v
	}
	// The order is that of live, or of before, if nobody has changed the one that the change has left.
	order, others := by[isLive], by[wasBefore]
	if slices.EqualFunc(by[wasAfter].ids, by[isLive].ids, same) {
		order, others = others, order
	}
	// behind has the items of others alone, each behind the one of the order that it follows there; -1: at the start.
	behind := make(map[int][]object.Value, 1)
	last := -1
	for _, id := range others.ids {
		if k := order.first(id); k >= 0 {
			last = k
		} else {
			behind[last] = append(behind[last], id)
		}
	}
	var out []object.Value
	add := func(ids ...object.Value) {
		for _, id := range ids {
			three := [3]*object.Value{item(wasBefore, id), item(wasAfter, id), item(isLive, id)}
			if v, ok := r.revert(three, itemType(t), append(slices.Clip(at), elementOf(t, id)), true); ok {
				out = append(out, v)
			}
		}
	}
	add(behind[-1]...)
	for k, id := range order.ids {
		add(id)
		add(behind[k]...)
	}
	return object.ListOf(out...), true
}

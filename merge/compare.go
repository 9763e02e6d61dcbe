package merge

import (
	"plinth/internal/invariants"
	"plinth/object"
	"plinth/schema"
)

// compare is diff(was, is): one trie with the paths that were added or have another value, marked touched, and those
// that were removed.
//
//	touched(diff) ⊆ fields(is)        removed(diff) ⊆ fields(was)        diff(x, x) = ∅
//
// where fields includes structs (withStructs). One trie with two marks serves where the reference computes three sets
// (added, modified, removed) per version: callers ask for either mark, or for both at once. From
//
//	labels: {a: "1", b: "1"}       to       labels: {b: "2", c: "1"}
//
// .labels.a is removed, and .labels.b and .labels.c are touched. .labels has no mark: it exists before and after. Only
// where a whole container is added or removed does the container have the mark as well as every path in it.
//
// Comparing the sets fields(was) and fields(is), and then the values at the paths that both have, walks both objects
// completely and looks up every path twice, although nearly everything is unchanged.
//
// Values of the same memory are equal, and the walk does not descend into them. An apply shares all unchanged subtrees
// of live (join), so that the comparison takes time proportional to what has changed, not to the object.
//
// The order of an associative list is not compared: its items are paths, and a set of paths has no order. A list that
// is merely reordered has an empty difference, and ownership does not change.
//
// Both values must be of type t, but their lists may hold duplicate items. An item without identity is the only error.
// The set lives in the arena.
func compare(before, now object.Value, t *schema.Type, a *arena) (Set, error) {
	c := comparer{arena: a}
	_, below := c.values(before, now, t)
	if invariants.Enabled && c.err == nil {
		checkDiff(before, now, t, below)
	}
	return below, c.err
}

// comparer is the state of a comparison.
type comparer struct {
	err   error // the first one: an item without identity
	arena *arena
}

// values compares two values that both exist, and may be null. The result is the marks of the place itself, and what
// differs below it.
func (c *comparer) values(before, now object.Value, t *schema.Type) (marks, Set) {
	if before == now {
		return 0, Set{}
	}
	// The type decides the shape of both. They differ only where it admits several kinds.
	old, new := shapeOf(t, before), shapeOf(t, now)
	m, below := c.asShape(new, before, now, t)
	if old != new {
		// Only a type that admits several kinds gets here. The place is compared once as each of the two: all paths of
		// the old value are removed, and all of the new one are added.
		m2, below2 := c.asShape(old, before, now, t)
		m, below = m|m2, below.Union(below2)
	}
	return m, below
}

// asShape compares two values as if both had this shape. A value of another shape has no members or items then. Two
// containers that are both empty are compared as leaves: {} and null have the same paths below, namely none, but are
// different values.
func (c *comparer) asShape(s shape, before, now object.Value, t *schema.Type) (marks, Set) {
	kind := object.Map
	if s == listing {
		kind = object.List
	}
	if s == leaf || atomic(t, s) || !eitherHas(before, now, kind) {
		if same(before, now) {
			return 0, Set{}
		}
		return touched, Set{}
	}
	if s == mapping {
		return 0, c.members(before.Members(), now.Members(), t)
	}
	return 0, c.items(before.Items(), now.Items(), t)
}

// oneSided compares a value with an absent one: the place and all paths of the value have the mark, which is touched
// for a value that was added, or removed for one that was removed. It walks the value as values does, against an empty
// container.
func (c *comparer) oneSided(v object.Value, t *schema.Type, mark marks) (marks, Set) {
	s := shapeOf(t, v)
	if s == leaf || v.Len() == 0 || atomic(t, s) {
		return mark, Set{}
	}
	if mark == removed {
		if s == mapping {
			return mark, c.members(v.Members(), nil, t)
		}
		return mark, c.items(v.Items(), nil, t)
	}
	if s == mapping {
		return mark, c.members(nil, v.Members(), t)
	}
	return mark, c.items(nil, v.Items(), t)
}

// members compares two maps in one pass, since both are sorted by key. Nodes are allocated when the first difference is
// found, as most maps have none.
func (c *comparer) members(before, now []object.Member, t *schema.Type) Set {
	var out []node // ascending, as the members of both are
	put := func(name string, m marks, below Set) {
		if m == 0 && below.Empty() {
			return
		}
		if out == nil {
			out = c.arena.nodes(changes(len(before), len(now)))
		}
		out = append(out, node{FieldElement(name), m, below})
	}
	for len(before) > 0 || len(now) > 0 {
		switch {
		case len(before) > 0 && len(now) > 0 && before[0].Key == now[0].Key:
			if before[0].Value != now[0].Value {
				of, _ := memberType(t, now[0].Key)
				m, below := c.values(before[0].Value, now[0].Value, of)
				put(now[0].Key, m, below)
			}
			before, now = before[1:], now[1:]
		case len(now) == 0 || len(before) > 0 && before[0].Key < now[0].Key:
			of, _ := memberType(t, before[0].Key)
			m, below := c.oneSided(before[0].Value, of, removed)
			put(before[0].Key, m, below)
			before = before[1:]
		default:
			of, _ := memberType(t, now[0].Key)
			m, below := c.oneSided(now[0].Value, of, touched)
			put(now[0].Key, m, below)
			now = now[1:]
		}
	}
	return Set{out}
}

// items compares associative lists by the identities of their items. Identities may be duplicated in objects that have
// been stored without a schema, or with another one. A duplicated identity is one path, compared as if it were atomic:
//
//	before    now       the path                      below it
//	one       one       compared                      compared
//	one       several   touched and removed           removed: several items have no paths below
//	several   one       touched and removed           added
//	several   several   touched, unless all are equal
//
// The last row compares the occurrences in their order. The first pass below visits the identities that the old list
// has, and the second one those that only the new list has; sortedSet combines both.
func (c *comparer) items(before, now []object.Value, t *schema.Type) Set {
	olds, news := newItemIndex(), newItemIndex()
	defer olds.free()
	defer news.free()
	if err := olds.build(t, before); err != nil {
		c.fail(err)
		return Set{}
	}
	if err := news.build(t, now); err != nil {
		c.fail(err)
		return Set{}
	}
	var out []node
	put := func(id object.Value, m marks, below Set) {
		if m == 0 && below.Empty() {
			return
		}
		if out == nil {
			out = c.arena.nodes(changes(len(before), len(now)))
		}
		out = append(out, node{elementOf(t, id), m, below})
	}
	of := itemType(t)
	for i, id := range olds.ids {
		if olds.first(id) != i {
			continue // a further occurrence: the first one has stood for all
		}
		j := news.first(id)
		duplicatedBefore, duplicatedNow := olds.next(i) >= 0, j >= 0 && news.next(j) >= 0
		var m marks
		var below Set
		switch {
		case duplicatedBefore && duplicatedNow:
			if !sameItems(olds, i, before, news, j, now) {
				m = touched
			}
		case duplicatedBefore:
			if j >= 0 {
				m, below = c.oneSided(now[j], of, touched)
			}
			m |= removed
		case duplicatedNow:
			m, below = c.oneSided(before[i], of, removed)
			m |= touched
		case j < 0:
			m, below = c.oneSided(before[i], of, removed)
		default:
			m, below = c.values(before[i], now[j], of)
		}
		put(id, m, below)
	}
	for j, id := range news.ids {
		if news.first(id) != j || olds.first(id) >= 0 {
			continue
		}
		if news.next(j) >= 0 {
			put(id, touched, Set{})
			continue
		}
		m, below := c.oneSided(now[j], of, touched)
		put(id, m, below)
	}
	return sortedSet(out)
}

// fail keeps the first error. The walk continues, but its result is not used.
func (c *comparer) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// changes estimates how many members or items differ, to allocate room for them: few, unless one side has none.
func changes(before, now int) int {
	if before == 0 || now == 0 {
		return before + now
	}
	return 2
}

// sameItems says whether all items of one identity are the same in both lists, and in the same order. i and j are the
// positions of the first ones.
func sameItems(olds *itemIndex, i int, before []object.Value, news *itemIndex, j int, now []object.Value) bool {
	for i >= 0 && j >= 0 {
		if !same(before[i], now[j]) {
			return false
		}
		i, j = olds.next(i), news.next(j)
	}
	return i < 0 && j < 0
}

package merge

import (
	"plinth/object"
	"plinth/schema"
)

// compare is the difference between what was and what is, as a trie in which touched stands for added and modified and
// removed for removed paths.
func compare(was, is object.Value, t *schema.Type, r *room) (Set, error) {
	c := comparer{room: r}
	_, below := c.values(was, is, t)
	return below, c.err
}

// comparer holds the first error of a comparison: an item that cannot be identified.
type comparer struct {
	err  error
	room *room
}

// values compares two values that are both there. The marks are those of the place itself.
func (c *comparer) values(was, is object.Value, t *schema.Type) (marks, Set) {
	if was == is {
		return 0, Set{}
	}
	old, new := shapeOf(t, was), shapeOf(t, is)
	m, below := c.as(new, was, is, t)
	if old != new {
		// A value of another kind: all that was there has gone, too.
		m2, below2 := c.as(old, was, is, t)
		m, below = m|m2, below.Union(below2)
	}
	return m, below
}

// as compares two values as if both had this shape.
func (c *comparer) as(s shape, was, is object.Value, t *schema.Type) (marks, Set) {
	kind := object.Map
	if s == listing {
		kind = object.List
	}
	if s == leaf || atomic(t, s) || !either(was, is, kind) {
		if same(was, is) {
			return 0, Set{}
		}
		return touched, Set{}
	}
	if s == mapping {
		return 0, c.members(was.Members(), is.Members(), t)
	}
	return 0, c.items(was.Items(), is.Items(), t)
}

// lone is the comparison of a value with none: all of it bears the mark.
func (c *comparer) lone(v object.Value, t *schema.Type, mark marks) (marks, Set) {
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

func (c *comparer) members(was, is []object.Member, t *schema.Type) Set {
	var out []node
	put := func(name string, m marks, below Set) {
		if m == 0 && below.Empty() {
			return
		}
		if out == nil {
			out = c.room.nodes(changes(len(was), len(is)))
		}
		out = append(out, node{FieldElement(name), m, below})
	}
	for len(was) > 0 || len(is) > 0 {
		switch {
		case len(was) > 0 && len(is) > 0 && was[0].Key == is[0].Key:
			if was[0].Value != is[0].Value {
				of, _ := memberType(t, is[0].Key)
				m, below := c.values(was[0].Value, is[0].Value, of)
				put(is[0].Key, m, below)
			}
			was, is = was[1:], is[1:]
		case len(is) == 0 || len(was) > 0 && was[0].Key < is[0].Key:
			of, _ := memberType(t, was[0].Key)
			m, below := c.lone(was[0].Value, of, removed)
			put(was[0].Key, m, below)
			was = was[1:]
		default:
			of, _ := memberType(t, is[0].Key)
			m, below := c.lone(is[0].Value, of, touched)
			put(is[0].Key, m, below)
			is = is[1:]
		}
	}
	return Set{out}
}

func (c *comparer) items(was, is []object.Value, t *schema.Type) Set {
	olds, news := newRoster(), newRoster()
	defer olds.free()
	defer news.free()
	if err := olds.enroll(t, was); err != nil {
		c.fail(err)
		return Set{}
	}
	if err := news.enroll(t, is); err != nil {
		c.fail(err)
		return Set{}
	}
	var out []node
	put := func(id object.Value, m marks, below Set) {
		if m == 0 && below.Empty() {
			return
		}
		if out == nil {
			out = c.room.nodes(changes(len(was), len(is)))
		}
		out = append(out, node{elementOf(t, id), m, below})
	}
	of := itemType(t)
	for i, id := range olds.ids {
		if olds.first(id) != i {
			continue
		}
		j := news.first(id)
		twice, thrice := olds.next(i) >= 0, j >= 0 && news.next(j) >= 0
		var m marks
		var below Set
		switch {
		case twice && thrice:
			// Several items of one identity are owned together, as if they were atomic.
			if !sameItems(olds, i, was, news, j, is) {
				m = touched
			}
		case twice:
			if j >= 0 {
				m, below = c.lone(is[j], of, touched)
			}
			m |= removed
		case thrice:
			m, below = c.lone(was[i], of, removed)
			m |= touched
		case j < 0:
			m, below = c.lone(was[i], of, removed)
		default:
			m, below = c.values(was[i], is[j], of)
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
		m, below := c.lone(is[j], of, touched)
		put(id, m, below)
	}
	return gather(out)
}

func (c *comparer) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// changes is how many of the members or items on the two sides are likely to differ: few, unless one side has none.
func changes(was, is int) int {
	if was == 0 || is == 0 {
		return was + is
	}
	return 2
}

// sameItems says whether all items of one identity are the same in both lists, and in the same order.
func sameItems(olds *roster, i int, was []object.Value, news *roster, j int, is []object.Value) bool {
	for i >= 0 && j >= 0 {
		if !same(was[i], is[j]) {
			return false
		}
		i, j = olds.next(i), news.next(j)
	}
	return i < 0 && j < 0
}

package merge

import (
	"plinth/object"
	"plinth/schema"
)

// Blame finds which change has given each field of an object the value that it has (BEY-4). It is told the versions
// before, the newest first: the change that has ended a version has set those fields that are not the same in it, and
// were the same in all later ones.
//
//	version     10           11           12           13 (now)
//	            a: 1         a: 2         a: 1         a: 1, b: 1
//	a was set by the change of 12, b by that of 13.
type Blame struct {
	now  object.Value
	t    *schema.Type
	left Set // the paths that have been the same in all versions so far
}

// NewBlame begins with an object as it is, without managedFields. t is its type, or nil if that is unknown. It fails if
// a list has items that are not told apart.
func NewBlame(now object.Value, t *schema.Type) (*Blame, error) {
	if t == nil {
		t = deduced
	}
	b := &Blame{now: now, t: t}
	var err error
	b.left, err = b.since(object.Nil)
	return b, err
}

// since is the set of paths whose value is another one than it was, or that were not there.
func (b *Blame) since(before object.Value) (Set, error) {
	d, err := compare(before, b.now, b.t, new(arena))
	return d.only(touched), err
}

// Before is told the version that a change has ended, null if the object was not there, and returns the fields that the
// change has set.
func (b *Blame) Before(version object.Value) (Set, error) {
	d, err := b.since(version)
	if err != nil {
		return Set{}, err
	}
	set := b.left.Intersect(d)
	b.left = b.left.Minus(set)
	return set, nil
}

// Left is the fields that no change so far has set.
func (b *Blame) Left() Set { return b.left }

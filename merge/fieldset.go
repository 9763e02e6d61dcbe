package merge

import (
	"plinth/object"
	"plinth/schema"
)

// fieldsOf is the set of all that an object says: what an apply of it owns. Structs are owned by their fields, the items of
// lists and maps both as such and by their fields.
func fieldsOf(v object.Value, t *schema.Type) Set {
	_, below := fieldsAt(v, t)
	return below
}

// fieldsAt is what is below a place, and whether the place itself is owned whoever holds it.
func fieldsAt(v object.Value, t *schema.Type) (marks, Set) {
	s := shapeOf(t, v)
	switch {
	case s == leaf || atomic(t, s):
		return owned, Set{}
	case s == mapping:
		return 0, fieldsOfMembers(v.Members(), t)
	}
	return 0, fieldsOfItems(v.Items(), t)
}

func fieldsOfMembers(members []object.Member, t *schema.Type) Set {
	if len(members) == 0 {
		return Set{}
	}
	out := make([]node, 0, len(members))
	for i := range members {
		m := &members[i]
		of, declared := memberType(t, m.Key)
		n := node{element: FieldElement(m.Key)}
		n.marks, n.below = fieldsAt(m.Value, of)
		if !declared || m.Value.IsNull() || m.Value.Kind() == object.Map && m.Value.Len() == 0 {
			n.marks = owned
		}
		if n.marks != 0 || !n.below.Empty() {
			out = append(out, n)
		}
	}
	return Set{out}
}

// fieldsOfItems does without the content of items that are there several times. Items that cannot be identified are
// nobody's.
func fieldsOfItems(items []object.Value, t *schema.Type) Set {
	var r roster
	if len(items) == 0 || r.enroll(t, items) != nil {
		return Set{}
	}
	out := make([]node, 0, len(items))
	for i, id := range r.ids {
		if r.first(id) != i {
			continue
		}
		n := node{element: elementOf(t, id), marks: owned}
		if r.next(i) < 0 {
			_, n.below = fieldsAt(items[i], itemType(t))
		}
		out = append(out, n)
	}
	return gather(out)
}

// withStructs is the set with all fields of structs that have something of the set below them. Sets do without those: who
// owns spec.replicas does not own spec.
func (s Set) withStructs(t *schema.Type) Set {
	if len(s.nodes) == 0 {
		return s
	}
	out := make([]node, len(s.nodes))
	for i, n := range s.nodes {
		if !n.below.Empty() {
			of := t
			switch {
			case t == nil:
			case n.element.step == Field && shapeOf(t, object.Nil) == mapping:
				var declared bool
				if of, declared = memberType(t, n.element.v.Str()); declared {
					n.marks = owned
				}
			case n.element.step == Key && t.Kind == schema.List:
				of = t.Elem
			default:
				of = nil
			}
			n.below = n.below.withStructs(of)
		}
		out[i] = n
	}
	return Set{out}
}

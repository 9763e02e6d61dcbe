package merge

import "plinth/schema"

// reconcile adapts a stored set to a schema in which lists or maps have become atomic since (SSA-10): a manager that
// owned a part of one owns all of it. In the result, no path leads into something atomic.
//
// Say .spec.selector was granular, alice owned .spec.selector.a and bob .spec.selector.b. In the new schema the
// selector is replaced as a whole. If their sets stayed as they are, fields(intent) would hold .spec.selector, which
// has no owner, and the next apply would overwrite both without a conflict. So both become owners of .spec.selector.
//
// The other direction needs no change: if a container has become granular, its path stays owned, without its parts. An
// apply that then changes a part meets no conflict, as the parts have no owner.
//
// Schemas have no record of their past, so that this runs at every write, over every set. It returns s itself where it
// changes nothing.
func (s Set) reconcile(t *schema.Type) Set {
	var out []node
	for i := range s.nodes {
		n := s.nodes[i]
		if !n.below.Empty() {
			if of := belowType(t, n.element); of != nil && !schemaless(of) {
				if isAtomic(of) {
					n.marks, n.below = owned, Set{}
				} else {
					n.below = n.below.reconcile(of)
				}
			}
		}
		if out == nil && (n.marks != s.nodes[i].marks || !n.below.identical(s.nodes[i].below)) {
			out = append(make([]node, 0, len(s.nodes)), s.nodes[:i]...)
		}
		if out != nil {
			out = append(out, n)
		}
	}
	if out == nil {
		return s
	}
	return Set{out}
}

// belowType is the type that an element selects; nil where the schema does not describe it. It differs from memberType,
// which returns the type of an existing value: a set may hold elements that the type does not have, and a path into
// them must be left alone.
func belowType(t *schema.Type, e Element) *schema.Type {
	switch t.Kind {
	case schema.Struct:
		if e.step == Field {
			if f := t.Field(e.v.Str()); f != nil {
				return f.Type
			}
		}
		return t.Elem
	case schema.Map, schema.List:
		return t.Elem
	}
	return nil
}

// schemaless says whether the schema does not describe the members of a map. The reference does not reconcile such
// maps, even if they are atomic: it treats them as values whose types are deduced.
func schemaless(t *schema.Type) bool {
	switch t.Kind {
	case schema.Any:
		return !t.AtomicMap
	case schema.Map:
		return t.Elem.Kind == schema.Any && !t.Elem.AtomicMap
	case schema.Struct:
		return len(t.Fields) == 0 && (t.Elem == nil || t.Elem.Kind == schema.Any)
	}
	return false
}

// isAtomic says whether parts of a value of this type cannot be owned. It is atomic for a type without a value: a set
// names places that the object need not have.
func isAtomic(t *schema.Type) bool {
	switch t.Kind {
	case schema.Struct, schema.Map, schema.Any:
		return t.AtomicMap
	case schema.List:
		return t.ListType == schema.Atomic
	}
	return false
}

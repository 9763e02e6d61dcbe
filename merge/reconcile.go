package merge

import "plinth/schema"

// reconcile adapts a stored set to a schema in which lists or maps have become atomic since (SSA-10): whoever owned a
// part of one owns all of it. In the result, no path leads into something atomic.
//
// Say .spec.selector was granular, alice owned .spec.selector.a and bob .spec.selector.b. In the new schema the
// selector is replaced as a whole. If their sets stayed as they are, fields(intent) would hold .spec.selector, which
// nobody seems to own, and whoever applies next would overwrite both without a conflict. So both come to own
// .spec.selector.
//
// The other direction needs nothing: of what has become granular the path of the container stays owned, without its
// parts. An apply that then changes a part meets no conflict, as nobody owns the parts.
//
// Schemas hold no record of what they were, so that this runs at every write, over every set. It returns s itself where
// nothing changes.
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

// belowType is the type of what an element selects; nil where nothing is known of it. It differs from memberType, which
// gives the type of a value that is there: a set may hold elements that the type does not have, and a path into them
// must be left alone.
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

// schemaless says whether the schema says nothing of the members of a map. The reference does not reconcile such maps,
// even if they are atomic: it takes them for values whose types are deduced.
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

// isAtomic says whether nobody can own a part of a value of this type. It is atomic for a type of which there is no
// value at hand: a set names places that the object need not have.
func isAtomic(t *schema.Type) bool {
	switch t.Kind {
	case schema.Struct, schema.Map, schema.Any:
		return t.AtomicMap
	case schema.List:
		return t.ListType == schema.Atomic
	}
	return false
}

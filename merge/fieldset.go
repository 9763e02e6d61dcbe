package merge

import (
	"fmt"
	"slices"

	"plinth/object"
	"plinth/schema"
)

// fieldsOf is the set of all that an object says: what an apply of it owns. Structs are owned by their fields, the items of
// lists and maps both as such and by their fields.
func fieldsOf(v object.Value, t *schema.Type) Set {
	s := surveyor{room: new(room)}
	_, below := s.at(v, t)
	return below
}

// survey is fieldsOf for an object that is not known to be one that can be merged: the error is a *TypeError then.
func survey(v object.Value, t *schema.Type, r *room) (Set, error) {
	s := surveyor{strict: true, room: r}
	_, below := s.at(v, t)
	if len(s.found) == 0 {
		return below, nil
	}
	first := *s.found[0]
	first.more = s.found[1:]
	return Set{}, &first
}

// surveyor walks an object for what is in it.
type surveyor struct {
	strict bool         // look for what is wrong
	found  []*TypeError // their paths grow on the way back
	room   *room
}

// at is what is below a place, and whether the place itself is owned whoever holds it.
func (s *surveyor) at(v object.Value, t *schema.Type) (marks, Set) {
	if s.strict {
		if want := expected(t, v); want != "" {
			s.tell("expected %s, got %s", want, object.AppendJSON(nil, v))
			return owned, Set{}
		}
	}
	kind := shapeOf(t, v)
	switch {
	case kind == leaf:
		return owned, Set{}
	case atomic(t, kind):
		if s.strict && t.Kind != schema.Any {
			s.inside(v, t, kind)
		}
		return owned, Set{}
	case kind == mapping:
		return 0, s.members(v.Members(), t)
	}
	return 0, s.items(v.Items(), t)
}

// expected is what a value has to be to have its type, or "" if it is that. Null always is.
func expected(t *schema.Type, v object.Value) string {
	is := v.Kind()
	if is == object.Null {
		return ""
	}
	numeric := is == object.Int || is == object.Float || is == object.Number
	switch t.Kind {
	case schema.Struct, schema.Map:
		if is != object.Map {
			return "map"
		}
	case schema.List:
		if is != object.List {
			return "list"
		}
	case schema.Int, schema.Float:
		if !numeric {
			return "numeric (int or float)"
		}
	case schema.Bool:
		if is != object.Bool {
			return "boolean"
		}
	case schema.IntOrString, schema.Quantity:
		if t.Kind == schema.IntOrString && t.GoName == "" {
			return "" // of a custom type: a merge takes what there is, and validation refuses it
		}
		if is == object.Map || is == object.List {
			return "any scalar"
		}
	case schema.String, schema.Bytes, schema.Time, schema.MicroTime, schema.Duration:
		if c := t.Custom; c != nil && c.Format != "" && c.Format != "byte" { // what a format describes may be no text
			if is == object.Map || is == object.List {
				return "any scalar"
			}
			return ""
		}
		if is != object.String {
			return "string"
		}
	}
	return ""
}

// inside looks for what is wrong with the content of something atomic, which nobody owns by parts.
func (s *surveyor) inside(v object.Value, t *schema.Type, kind shape) {
	if kind == mapping {
		s.members(v.Members(), t)
		return
	}
	for i, item := range v.Items() {
		before := len(s.found)
		s.at(item, itemType(t))
		if len(s.found) > before {
			s.within(before, Element{Index, object.IntOf(int64(i))})
		}
	}
}

func (s *surveyor) tell(format string, args ...any) {
	if s.strict {
		s.found = append(s.found, &TypeError{Message: fmt.Sprintf(format, args...)})
	}
}

// within puts an element before the path of what has been found since.
func (s *surveyor) within(before int, e Element) {
	for _, err := range s.found[before:] {
		err.Path = e.String() + err.Path
	}
}

func (s *surveyor) members(members []object.Member, t *schema.Type) Set {
	if len(members) == 0 {
		return Set{}
	}
	out := s.room.nodes(len(members))
	for i := range members {
		m := &members[i]
		before := len(s.found)
		of, declared := memberType(t, m.Key)
		n := node{element: FieldElement(m.Key)}
		if !declared && t.Kind == schema.Struct && t.Elem == nil && len(t.Fields) > 0 {
			s.tell("field not declared in schema")
		}
		n.marks, n.below = s.at(m.Value, of)
		if len(s.found) > before {
			s.within(before, n.element)
		}
		if !declared || m.Value.IsNull() || m.Value.Kind() == object.Map && m.Value.Len() == 0 {
			n.marks = owned
		}
		if n.marks != 0 || !n.below.Empty() {
			out = append(out, n)
		}
	}
	return Set{out}
}

// nobody stands for the items of a list that cannot be told apart.
var nobody = KeyElement(object.Nil)

// items does without the content of items that are there several times. Items that cannot be identified, as pruning leaves
// them when it takes their keys, are nobody's; but they are there, and so is the list.
func (s *surveyor) items(items []object.Value, t *schema.Type) Set {
	if len(items) == 0 {
		return Set{}
	}
	r := newRoster()
	defer r.free()
	if err := r.enroll(t, items); err != nil {
		s.tell("%v", err)
		if s.strict {
			return Set{}
		}
		known := slices.DeleteFunc(slices.Clone(items), func(item object.Value) bool {
			_, err := identify(t, item)
			return err != nil
		})
		return s.items(known, t).Union(Set{[]node{{element: nobody, marks: owned}}})
	}
	out := s.room.nodes(len(items))
	for i, id := range r.ids {
		first := r.first(id)
		n := node{element: elementOf(t, id), marks: owned}
		if first < i {
			s.tell("duplicate entries for key %v", n.element)
		}
		before := len(s.found)
		var below Set
		if first == i || s.strict {
			_, below = s.at(items[i], itemType(t))
		}
		if len(s.found) > before {
			s.within(before, n.element)
		}
		if first < i {
			continue
		}
		if r.next(i) < 0 {
			n.below = below
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

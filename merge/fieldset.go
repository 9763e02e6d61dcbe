package merge

import (
	"fmt"
	"slices"
	"strings"

	"plinth/internal/invariants"
	"plinth/object"
	"plinth/schema"
)

// fieldsOf is the set of paths of a value, fields(v): the paths that an apply of v owns.
//
//	fields(leaf or atomic)    = { the place itself }
//	fields(struct)            = ⋃ fields(member)              a struct exists wherever one of its fields does
//	fields(map)               = ⋃ fields(member) ∪ { members that no field of a struct declares }
//	fields(associative list)  = ⋃ fields(item) ∪ { items }
//
// Members of maps and items of lists are owned as such, too, because their existence is a decision: removing all fields
// of a container is not removing the container. Empty and null members are owned as leaves. So
//
//	metadata: {labels: {app: web}}                              (labels is a field, app a member of a map)
//	spec: {selector: {a: b}, ports: [{port: 80}], paused: null}      (selector is atomic, port the key of ports)
//
// has the paths
//
//	.metadata.labels.app   .spec.selector   .spec.ports[port=80]   .spec.ports[port=80].port   .spec.paused
//
// and neither .metadata.labels nor .spec.ports: these are fields of structs.
//
// The value must fit its type at least in which places are leaves, maps and lists; checkedFieldsOf accepts any value.
// Items without identity are admitted, see items. It is linear in the value, up to the sort of large lists.
func fieldsOf(v object.Value, t *schema.Type) Set {
	s := fieldWalker{arena: new(arena)}
	_, below := s.at(v, t)
	if invariants.Enabled {
		below.check()
	}
	return below
}

// checkedFieldsOf is fieldsOf for a value that may violate its schema, such as an intent. The error, a *TypeError,
// lists every violation, and then there is no set. The set lives in the arena. One walk both checks and collects: an
// intent is walked by every apply, and a second walk to validate it, as in the reference, costs as much as the first.
func checkedFieldsOf(v object.Value, t *schema.Type, r *arena) (Set, error) {
	s := fieldWalker{strict: true, arena: r}
	_, below := s.at(v, t)
	if len(s.errs) == 0 {
		if invariants.Enabled {
			below.check()
		}
		return below, nil
	}
	for _, err := range s.errs {
		slices.Reverse(err.front)
		err.Path, err.front = strings.Join(err.front, ""), nil
	}
	first := *s.errs[0]
	first.more = s.errs[1:]
	return Set{}, &first
}

// fieldWalker collects the paths of a value.
type fieldWalker struct {
	strict bool         // check the value against the schema, too
	errs   []*TypeError // each gets the front of its path while the walk returns to the top (prefixErrors)
	size   int          // Σ length(e) of errs; at most maxErrorText, unless there is only one
	full   bool         // no further violation is recorded
	arena  *arena       // of the nodes
}

// maxErrorText bounds the text of an error, paths included. Half of an intent of 3 MB may be one key, and the rest a
// million wrong values below it: a path for each would be terabytes. So only the first violations are reported, as many
// as fit, and the first one at any length.
const maxErrorText = 1 << 18

// at is the set below a place, and owned for a leaf or something atomic, which is a path whatever contains it. Of other
// values the container says whether the place itself is a path: members and items add that mark.
func (s *fieldWalker) at(v object.Value, t *schema.Type) (marks, Set) {
	if s.strict {
		if want := expected(t, v); want != "" {
			s.fail("expected %s, got %s", want, object.AppendJSON(nil, v))
			return owned, Set{}
		}
	}
	kind := shapeOf(t, v)
	switch {
	case kind == leaf:
		return owned, Set{}
	case atomic(t, kind):
		if s.strict && t.Kind != schema.Any {
			s.checkAtomic(v, t, kind)
		}
		return owned, Set{}
	case kind == mapping:
		return 0, s.members(v.Members(), t)
	}
	return 0, s.items(v.Items(), t)
}

// expected is the word of the reference for the values that a type admits, or "" if this is one. Null always is. The
// reference takes these types from its OpenAPI document (convertPrimitive in kube-openapi's schemaconv), in which a
// string with a format other than byte is a scalar of any type, so that its merge accepts a number there. Decoding and
// validation refuse it later.
func expected(t *schema.Type, v object.Value) string {
	current := v.Kind()
	if current == object.Null {
		return ""
	}
	numeric := current == object.Int || current == object.Float || current == object.Number
	switch t.Kind {
	case schema.Struct, schema.Map:
		if current != object.Map {
			return "map"
		}
	case schema.List:
		if current != object.List {
			return "list"
		}
	case schema.Int, schema.Float:
		if !numeric {
			return "numeric (int or float)"
		}
	case schema.Bool:
		if current != object.Bool {
			return "boolean"
		}
	case schema.IntOrString, schema.Quantity:
		if t.Kind == schema.IntOrString && t.GoName == "" {
			return "" // in a custom type any value is merged, and validation refuses it later
		}
		if current == object.Map || current == object.List {
			return "any scalar"
		}
	case schema.String, schema.Bytes, schema.Time, schema.MicroTime:
		if c := t.Custom; c != nil && c.Format != "" && c.Format != "byte" { // the reference has a scalar of any kind here
			if current == object.Map || current == object.List {
				return "any scalar"
			}
			return ""
		}
		if current != object.String {
			return "string"
		}
	}
	return ""
}

// checkAtomic checks the content of something atomic, of which no paths are collected. The positions of items stand in
// the paths of its errors, as the items of an atomic list have no identities.
func (s *fieldWalker) checkAtomic(v object.Value, t *schema.Type, kind shape) {
	if kind == mapping {
		s.members(v.Members(), t)
		return
	}
	for i, item := range v.Items() {
		before := len(s.errs)
		s.at(item, itemType(t))
		if len(s.errs) > before {
			s.prefixErrors(before, Element{Index, object.IntOf(int64(i))})
		}
	}
}

// fail records a violation at the current place of the walk, if strict is set.
func (s *fieldWalker) fail(format string, args ...any) {
	if !s.strict || s.full {
		return
	}
	message := fmt.Sprintf(format, args...)
	if s.full = len(s.errs) > 0 && s.size+len(message) > maxErrorText; s.full {
		return
	}
	s.size += len(message)
	s.errs = append(s.errs, &TypeError{Message: message})
}

// prefixErrors puts an element in front of the paths of all errors but the first "before" ones, which belong to places
// that the walk has left. Paths are built on the way back, from errors only: a walk without errors, nearly every one,
// builds none. The elements are joined at the end (checkedFieldsOf), as a new text at each level would take time
// quadratic in the depth.
func (s *fieldWalker) prefixErrors(before int, e Element) {
	text := e.String()
	for i := before; i < len(s.errs); i++ {
		// The first violations are kept, so the last ones make room for their paths.
		for last := len(s.errs) - 1; last >= max(i, 1) && s.size+len(text) > maxErrorText; last-- {
			s.size -= s.errs[last].length()
			s.errs, s.full = s.errs[:last], true
		}
		if i < len(s.errs) {
			s.size += len(text)
			s.errs[i].front = append(s.errs[i].front, text)
		}
	}
}

// members is the set below a map or struct with these members, which are sorted by name, and so are the nodes.
func (s *fieldWalker) members(members []object.Member, t *schema.Type) Set {
	if len(members) == 0 {
		return Set{}
	}
	out := s.arena.nodes(len(members))
	for i := range members {
		m := &members[i]
		before := len(s.errs)
		of, declared := memberType(t, m.Key)
		// A struct that declares fields but no additional ones admits no others.
		n := node{element: FieldElement(m.Key)}
		if !declared && t.Kind == schema.Struct && t.Elem == nil && len(t.Fields) > 0 {
			s.fail("field not declared in schema")
		}
		n.marks, n.below = s.at(m.Value, of)
		if len(s.errs) > before {
			s.prefixErrors(before, n.element)
		}
		// The member itself is a path if it belongs to a map, or if no path below it implies it.
		if !declared || m.Value.IsNull() || m.Value.Kind() == object.Map && m.Value.Len() == 0 {
			n.marks = owned
		}
		if n.marks != 0 || !n.below.Empty() {
			out = append(out, n)
		}
	}
	return Set{out}
}

// unidentified is the element of all items of a list that have no identity. No manager owns it: its keys are null, and
// managedFields are refused where the keys of an element are not a map (parseOther).
var unidentified = KeyElement(object.Nil)

// items collects the items of an associative list. Items that occur several times are one path without anything below:
// the paths below could not say which of them they mean. An intent may not have such items, but a live object may.
//
// Items without identity occur while prune computes: it may have removed their keys. They share one element that no
// manager owns; without it the list would look empty, and be removed with its items. They are an error where strict is
// set.
func (s *fieldWalker) items(items []object.Value, t *schema.Type) Set {
	if len(items) == 0 {
		return Set{}
	}
	r := newItemIndex()
	defer r.free()
	if err := r.build(t, items); err != nil {
		s.fail("%v", err)
		if s.strict {
			return Set{}
		}
		// Collect the items that have an identity. The recursion ends: it has no item without one.
		known := slices.DeleteFunc(slices.Clone(items), func(item object.Value) bool {
			_, err := identify(t, item)
			return err != nil
		})
		return s.items(known, t).Union(Set{[]node{{element: unidentified, marks: owned}}})
	}
	out := s.arena.nodes(len(items))
	for i, id := range r.ids {
		first := r.first(id)
		n := node{element: elementOf(t, id), marks: owned}
		if first < i {
			s.fail("duplicate entries for key %v", n.element)
		}
		before := len(s.errs)
		var below Set
		// The content of a further occurrence is checked, but its paths are not collected.
		if first == i || s.strict {
			_, below = s.at(items[i], itemType(t))
		}
		if len(s.errs) > before {
			s.prefixErrors(before, n.element)
		}
		if first < i {
			continue
		}
		if r.next(i) < 0 {
			n.below = below
		}
		out = append(out, n)
	}
	return sortedSet(out)
}

// withStructs adds to the set the path of every struct, or other declared field, that has a path of the set below it:
// fieldsOf leaves them out, as a manager that owns .spec.replicas does not own .spec. prune needs them, to see that a
// struct has lost its last field: only then is it removed.
//
//	withStructs({ .spec.replicas }) = { .spec, .spec.replicas }
//
// t is the type of the object that s is a set of. s may hold paths that do not exist in the type, as clients may write
// managedFields: no structs are added below them. A set without nodes below its first level is copied all the same; the
// callers compare paths, and not memory.
func (s Set) withStructs(t *schema.Type) Set {
	if len(s.nodes) == 0 {
		return s
	}
	out := make([]node, len(s.nodes))
	for i, n := range s.nodes {
		if !n.below.Empty() {
			of := t
			switch {
			case t == nil: // below a place that the schema does not describe
			case n.element.step == Field && shapeOf(t, object.Nil) == mapping:
				var declared bool
				if of, declared = memberType(t, n.element.v.Str()); declared {
					n.marks = owned
				}
			case n.element.step == Key && t.Kind == schema.List:
				of = t.Elem
			default:
				of = nil // the schema does not describe what is below: no structs there
			}
			n.below = n.below.withStructs(of)
		}
		out[i] = n
	}
	return Set{out}
}

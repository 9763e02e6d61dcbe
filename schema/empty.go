package schema

import (
	"slices"
	"strings"

	"plinth/object"
)

// EmptyField is a field that a body has as an empty list, map or bytes, and that Decode leaves out.
//
// The problem: Go's encoding leaves out an empty list of a field with omitempty, and so does Decode, while Go's
// decoding keeps it: until the reference has stored an object, a rule can tell `policies: []` from an absent list, and
// a few rules do. Validation refuses the former, and defaults fill in the latter. What is stored, owned and shown to
// admission has no such list, so if Decode kept it, each step would have to drop it again. Instead Decode reports it,
// and only the steps that call the rules put it back:
//
//	f.TellsEmpty ∧ v has f as an empty value ⇔ f ∈ Decode(v).Empty          (and f is not in Decode(v).Value)
//	WithoutEmpty(WithEmpty(v, fields), fields) = v
type EmptyField struct {
	path  []any // strings: members; ints: items of lists
	value object.Value
}

// noteEmpty reports a value that is left out.
func (w *walker) noteEmpty(v object.Value, at *step) {
	w.empty = append(w.empty, EmptyField{at.elements(), v})
}

// elements is the path of the place as the members and indices that lead to it. The names are copied: a reference to
// anything in a step would move all steps to the heap.
func (s *step) elements() []any {
	var path []any
	for ; s != nil; s = s.up {
		switch {
		case s.field != nil:
			path = append(path, strings.Clone(s.field.Name))
		case s.index >= 0:
			path = append(path, s.index)
		default:
			path = append(path, strings.Clone(s.key))
		}
	}
	slices.Reverse(path)
	return path
}

// WithEmpty adds the fields to a value that was made from the decoded one. A field whose place no longer exists, or
// that has a value now, is left as it is.
func WithEmpty(v object.Value, fields []EmptyField) object.Value {
	for _, f := range fields {
		v = changeAt(v, f.path, func(now object.Value) object.Value {
			if now.IsNull() {
				return f.value
			}
			return now
		})
	}
	return v
}

// WithoutEmpty removes the fields that are still empty.
func WithoutEmpty(v object.Value, fields []EmptyField) object.Value {
	for _, f := range fields {
		v = changeAt(v, f.path, func(now object.Value) object.Value {
			if now.Len() == 0 {
				return object.Nil
			}
			return now
		})
	}
	return v
}

// changeAt replaces the member at a path by what f makes of it, and removes it if that is null. A value that has no map
// for the member is returned as it is.
func changeAt(v object.Value, path []any, f func(object.Value) object.Value) object.Value {
	if i, ok := path[0].(int); ok {
		if v.Kind() != object.List || i >= v.Len() {
			return v
		}
		item := v.Items()[i]
		if made := changeAt(item, path[1:], f); made != item {
			return v.WithItem(i, made)
		}
		return v
	}
	if v.Kind() != object.Map {
		return v
	}
	name := path[0].(string)
	now, has := v.Get(name)
	made := now
	switch {
	case len(path) == 1:
		made = f(now)
	case has:
		made = changeAt(now, path[1:], f)
	}
	switch {
	case made == now:
		return v
	case made.IsNull():
		return v.Without(name)
	}
	return v.With(name, made)
}

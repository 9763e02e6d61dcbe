package schema

import "plinth/object"

// Default fills in the defaults of the type's markers: in a pointer field that is not set, in any other field that has
// its zero value, and at every depth that the value has. Subtrees that need no default are shared. A custom type fills
// in the defaults of its schema: see filler.
//
// The rules follow from what a Go struct can hold, because the reference fills in defaults after it has decoded into
// one:
//
//	field           absent     zero       any other value
//	pointer         default    kept       kept
//	not a pointer   default    default    kept
//
// For example, `+default="TCP"` stands above the protocol of a port, which is not a pointer: {port: 80} and {port: 80,
// protocol: ""} both get protocol: TCP, since Go cannot distinguish the two. For the same reason a pointer field keeps
// an explicit zero: it differs from an absent one.
//
// v must have been decoded. Decoding writes a struct that is not a pointer even if it is empty, so that the defaults
// below it apply. A struct behind a pointer that is absent stays absent, with all of its fields. Defaults that depend
// on other fields, such as targetPort, cannot be expressed by a marker; they are functions in
// internal/builtin/defaults.
//
// Defaulting is idempotent: a default that has been filled in is either kept, or replaced by itself.
//
//	Default(Default(v)) = Default(v)
func (t *Type) Default(v object.Value) object.Value {
	if !t.fills {
		return v
	}
	if t.Custom != nil {
		var f filler
		return f.value(v, t)
	}
	switch t.Kind {
	case Struct:
		if v.Kind() == object.Map {
			return t.defaultFields(v)
		}
	case List:
		out := listEdit{old: v.Items()}
		for i, item := range out.old {
			out.set(i, t.Elem.Default(item))
		}
		return out.value(v)
	case Map:
		out := edit{old: v.Members()}
		for i := range out.old {
			out.keep(i, t.Elem.Default(out.old[i].Value))
		}
		return out.value(v)
	}
	return v
}

// defaultFields fills in the fields of a struct. It makes a copy per changed field; this is cheap enough, since it is
// called only for types with a default at or below them (fills), few of which are unset in an update. It does not
// descend into a field that is absent and would not be written: an empty list or an absent pointer has no place below
// it that a default could apply to.
func (t *Type) defaultFields(v object.Value) object.Value {
	for i := range t.Fields {
		f := &t.Fields[i]
		if f.Default.IsNull() && !f.Type.fills {
			continue
		}
		old, ok := v.Get(f.Name)
		value := old
		switch {
		case f.Pointer && value.IsNull():
			value = f.Default
		case !f.Pointer && !f.Default.IsNull() && (!ok || value.IsNull() || isEmpty(value, f.Type)):
			value = f.Default
		}
		if value.IsNull() || !f.Pointer && f.OmitEmpty && isEmpty(value, f.Type) {
			continue
		}
		if value = f.Type.Default(value); value != old {
			v = v.With(f.Name, value)
		}
	}
	return v
}

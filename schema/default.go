package schema

import "plinth/object"

// Default fills in the defaults of the type's markers: in a pointer field that is not set, in any other that has its
// zero value, and at every depth that the value has. Subtrees in which nothing is missing are shared. A custom type
// fills in what its schema says: see filler.
//
// v must have been decoded: a struct that is no pointer is there, so that defaults below it apply; one behind a pointer
// that is absent stays so, with all of its fields. Whether a field is set cannot be seen of one that is no pointer: Go
// holds `port: 0` and no port alike, and so both get the default.
//
// For example, `+default="TCP"` stands above the protocol of a port, which is no pointer: {port: 80} and {port: 80,
// protocol: ""} both get protocol: TCP. Defaults that depend on other fields, such as targetPort, are functions in
// internal/builtin/defaults.
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

// defaultFields fills in the fields of a struct. Its type has a default at or below it (fills), so that the copy per
// changed field is rare. A field that is absent, and whose value would not be written, is not gone into: below an empty
// list or an absent pointer there is nothing that a default could apply to.
func (t *Type) defaultFields(v object.Value) object.Value {
	for i := range t.Fields {
		f := &t.Fields[i]
		if f.Default.IsNull() && !f.Type.fills {
			continue
		}
		old, there := v.Get(f.Name)
		value := old
		switch {
		case f.Pointer && value.IsNull():
			value = f.Default
		case !f.Pointer && !f.Default.IsNull() && (!there || value.IsNull() || isEmpty(value, f.Type)):
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

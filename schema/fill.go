package schema

import "plinth/object"

// maxFilled bounds the total size of the defaults that one object gets. An object of that size is refused later.
// Without a bound here, a list of a million empty maps would get a million defaults first: 3 MB of {} with a default of
// 1 kB make a gigabyte. It does not matter that defaults beyond the bound are missing, since the object is refused
// anyway.
const maxFilled = 16 << 20

// filler fills in the defaults of a structural schema (Default of apiextensions-apiserver's package defaulting). A
// place gets its default if
//
//	it is a declared member that is absent; or
//	it is a member or item that is null, and the schema does not say nullable.
//
// A value that was filled in gets the defaults below it in turn. Null without a default stays: where it is not allowed,
// pruning has dropped it before.
//
// With port: {type: integer, default: 80} below tls: {type: object}, {} stays {}: a default applies to members of a map
// that exists. Only where tls has `default: {}` does {} become {tls: {port: 80}}. {tls: null} stays as it is, if
// pruning has left it.
//
// Subtrees of types without any default below (fills) are not walked, so that a schema without defaults costs nothing.
// The default is inserted as it is: all objects of a type share its memory. If a default has defaults below it in turn,
// each place gets a copy of the parts that they change.
type filler struct{ filled int } // the size of the defaults so far, as JSON

// value fills in defaults below a value of the type, by the kind of the value. It does not replace the value itself:
// the caller, who has the type of the place, calls null first.
func (f *filler) value(v object.Value, t *Type) object.Value {
	if !t.fills {
		return v
	}
	switch v.Kind() {
	case object.Map:
		return f.members(v, t)
	case object.List:
		of := t.Items()
		if of == nil {
			return v
		}
		out := listEdit{old: v.Items()}
		for i, item := range out.old {
			out.set(i, f.value(f.null(item, of), of))
		}
		return out.value(v)
	}
	return v
}

// null replaces null by the default, if there is one. Where null is valid for the type (nullable), it stays: it was set
// on purpose, and differs from absent.
func (f *filler) null(v object.Value, of *Type) object.Value {
	if !v.IsNull() || of.nullable() || of.fallback().IsNull() {
		return v
	}
	return f.fallback(v, of)
}

// fallback is the default of a type that has one; or v, once maxFilled is exceeded.
func (f *filler) fallback(v object.Value, of *Type) object.Value {
	if f.filled += of.Custom.defaultSize; f.filled > maxFilled {
		return v
	}
	return of.Custom.Default
}

// members fills in the members of a map: first those that are absent, by the fields of the type, then those below the
// existing ones. All changes are made in one copy of the map.
func (f *filler) members(v object.Value, t *Type) object.Value {
	var set []object.Member
	for i := range t.Fields {
		of := t.described(&t.Fields[i])
		if of == nil || of.fallback().IsNull() {
			continue
		}
		name := t.Fields[i].Name
		if _, ok := v.Get(name); !ok {
			if value := f.fallback(object.Nil, of); !value.IsNull() {
				set = append(set, object.Member{Key: name, Value: f.value(value, of)})
			}
		}
	}
	for _, m := range v.Members() {
		of := t.additional()
		if field := t.Field(m.Key); field != nil {
			of = t.described(field)
		}
		if of == nil {
			continue
		}
		if value := f.value(f.null(m.Value, of), of); value != m.Value {
			set = append(set, object.Member{Key: m.Key, Value: value})
		}
	}
	if len(set) == 0 {
		return v
	}
	return v.Edit(set)
}

// described is the type that the schema gives a field. That is the field's type, except for metadata, which is always
// an ObjectMeta.
func (t *Type) described(f *Field) *Type {
	if f.Name == "metadata" && t.embeds() {
		return t.Custom.Metadata
	}
	return f.Type
}

// Property returns the type of a property in the schema that a custom type was compiled from; nil if the schema does
// not have the property. It differs from the type of the field of this name for the metadata of an API object: values
// have the fields of ObjectMeta there, whatever the schema says.
func (t *Type) Property(name string) *Type {
	if name == "metadata" && t.embeds() {
		return t.Custom.Metadata
	}
	if f := t.Field(name); f != nil {
		return f.Type
	}
	return nil
}

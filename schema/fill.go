package schema

import "plinth/object"

// maxFilled bounds the text of all defaults that one object gets. An object of so many bytes is refused for its size;
// without a bound, a list of a million empty maps would get a million defaults before somebody looks.
const maxFilled = 16 << 20

// filler fills in the defaults of a structural schema: of a declared member that is not there, or that is null where
// the schema does not say `nullable`; of an additional member or an item only in the latter case. What a default
// fills in gets defaults of its own. Null without a default stays: pruning has dropped it where it goes.
type filler struct{ filled int }

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

// null is the default in the place of null, where there is one.
func (f *filler) null(v object.Value, of *Type) object.Value {
	if !v.IsNull() || of.nullable() || of.fallback().IsNull() {
		return v
	}
	return f.fallback(v, of)
}

func (f *filler) fallback(v object.Value, of *Type) object.Value {
	if f.filled += of.Custom.defaultSize; f.filled > maxFilled {
		return v
	}
	return of.Custom.Default
}

func (f *filler) members(v object.Value, t *Type) object.Value {
	var set []object.Member
	for i := range t.Fields {
		of := t.described(&t.Fields[i])
		if of == nil || of.fallback().IsNull() {
			continue
		}
		name := t.Fields[i].Name
		if _, there := v.Get(name); !there {
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

// described is what the schema says of a field: its type, but for metadata, whose type is not the schema's.
func (t *Type) described(f *Field) *Type {
	if f.Name == "metadata" && t.embeds() {
		return t.Custom.Metadata
	}
	return f.Type
}

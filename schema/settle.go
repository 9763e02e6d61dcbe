package schema

import "plinth/object"

// Settle brings a value into the form in which a built-in object is stored: what survives a round trip through protobuf,
// which cannot tell an empty list or map from none. Subtrees in which nothing changes are shared. Custom objects are
// stored as they came.
//
// One thing is not as protobuf has it: it does not carry the apiVersion and kind of an object within an object, and the
// reference sets them again when it writes out a StatefulSet's volumeClaimTemplates. Here they stay.
func (t *Type) Settle(v object.Value) object.Value {
	if t.golang == nil {
		return v
	}
	return t.settle(v)
}

func (t *Type) settle(v object.Value) object.Value {
	switch t.Kind {
	case Struct:
		members := v.Members()
		out := edit{old: members}
		from := 0
		for i := range members {
			at, known := t.find(members[i].Key, from)
			if from = at; !known {
				out.keep(i, members[i].Value)
				continue
			}
			f := &t.Fields[at]
			value := f.Type.settle(members[i].Value)
			if value.IsNull() && f.OmitEmpty && !members[i].Value.IsNull() {
				out.drop(i)
			} else {
				out.keep(i, value)
			}
		}
		return out.value(v)
	case Map:
		members := v.Members()
		if len(members) == 0 {
			return object.Nil
		}
		out := edit{old: members}
		for i := range members {
			out.keep(i, settleEntry(members[i].Value, t.Elem))
		}
		return out.value(v)
	case List:
		if v.Len() == 0 {
			return object.Nil
		}
		switch t.Elem.Kind {
		case Struct, Map, List:
			out := listEdit{old: v.Items()}
			for i, item := range out.old {
				out.set(i, t.Elem.settle(item))
			}
			return out.value(v)
		}
	}
	return v
}

// settleEntry settles a value of a map. The generated code starts from an empty value there and not from none, so lists
// and bytes come back empty.
func settleEntry(v object.Value, t *Type) object.Value {
	if v.Len() == 0 {
		switch t.Kind {
		case Bytes:
			return object.StringOf("")
		case List:
			return object.ListOf()
		}
	}
	return t.settle(v)
}

package schema

import "plinth/object"

// Settle brings a value into the form in which a built-in object is stored: what survives a round trip through protobuf,
// which cannot tell an empty list or map from none. Subtrees in which nothing changes are shared. Custom objects are
// stored as they came.
//
// One thing is not as protobuf has it: it does not carry the apiVersion and kind of an object within an object, and the
// reference sets them again when it writes out a StatefulSet's volumeClaimTemplates. Here they stay.
func (t *Type) Settle(v object.Value) object.Value {
	v, _ = t.SettleFrom(v, object.Nil)
	return v
}

// SettleFrom is Settle for a value that was made from another one, which is settled: what the two share is not looked at. Null
// is nothing to share. Stable says that Decode has nothing to change in the result, if it had nothing to change in v: it drops the
// null of a field that is left out when it is empty, and a time that is zero is settled as such a null.
func (t *Type) SettleFrom(v, settled object.Value) (_ object.Value, stable bool) {
	if t.golang == nil {
		return v, true
	}
	var s settler
	v = s.value(v, settled, t)
	return v, !s.unstable
}

// IsSettled says that neither Decode nor Settle has anything to change in v.
func (t *Type) IsSettled(v object.Value) bool {
	decoded, err := t.Decode(v)
	return err == nil && len(decoded.Unknown) == 0 && decoded.Value == v && t.Settle(v) == v
}

// settler is what one walk has found.
type settler struct {
	unstable bool // see SettleFrom
}

func (s *settler) value(v, settled object.Value, t *Type) object.Value {
	switch t.Kind {
	case Struct:
		members := v.Members()
		out := edit{old: members}
		was := counterpart{members: settled.Members()}
		from := 0
		for i := range members {
			before, same := was.find(members[i].Key)
			if same && before == members[i].Value {
				out.keep(i, before)
				continue
			}
			at, known := t.find(members[i].Key, from)
			if from = at; !known {
				s.unstable = true
				out.keep(i, members[i].Value)
				continue
			}
			f := &t.Fields[at]
			value := s.value(members[i].Value, before, f.Type)
			switch {
			case !value.IsNull() || !f.OmitEmpty:
				out.keep(i, value)
			case members[i].Value.IsNull():
				s.unstable = s.unstable || f.Pointer
				out.keep(i, value)
			default:
				out.drop(i)
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
			out.keep(i, s.entry(members[i].Value, t.Elem))
		}
		return out.value(v)
	case List:
		if v.Len() == 0 {
			return object.Nil
		}
		switch t.Elem.Kind {
		case Struct, Map, List:
			out := listEdit{old: v.Items()}
			was := settled.Items()
			for i, item := range out.old {
				switch {
				case i >= len(was):
					out.set(i, s.value(item, object.Nil, t.Elem))
				case item == was[i]:
					out.set(i, item)
				default:
					out.set(i, s.value(item, was[i], t.Elem))
				}
			}
			return out.value(v)
		}
	}
	return v
}

// entry settles a value of a map. The generated code starts from an empty value there and not from none, so lists
// and bytes come back empty.
func (s *settler) entry(v object.Value, t *Type) object.Value {
	if v.Len() == 0 {
		switch t.Kind {
		case Bytes:
			return object.StringOf("")
		case List:
			return object.ListOf()
		}
	}
	return s.value(v, object.Nil, t)
}

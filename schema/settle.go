package schema

import (
	"plinth/internal/invariants"
	"plinth/object"
)

// Settle brings a value into the form in which a built-in object is stored: the form after a round trip through
// protobuf. Subtrees in which nothing changes are shared. Custom objects are stored unchanged.
//
// The reference stores protobuf, which cannot distinguish an empty list or map from an absent one, and clients see
// that: `rules: []` is returned as null. Ownership is computed before, when the list is still empty. So this is a
// separate step after decoding, and not a part of it. Encoding protobuf and decoding it again would give the same form
// at ten times the cost. The rules are:
//
//	an empty list or map → null                        and its field is left out if it has omitempty
//	an empty list or bytes as the value of a map       stays empty: the generated code starts from an empty value there
//	Settle(Settle(v)) = Settle(v)
//
// A Role is created with `rules: []`. An update compares it with the zero value of a Role, which has `rules: null`, so
// that .rules has changed, and its creator owns it. If decoding made it null, .rules would have no owner. If neither
// step did, clients would see an empty list where the reference shows null.
//
// There is one exception: protobuf does not carry the apiVersion and kind of an embedded object, and the reference sets
// them again when it writes out a StatefulSet's volumeClaimTemplates. Here they are kept.
func (t *Type) Settle(v object.Value) object.Value {
	v, _ = t.SettleFrom(v, object.Nil)
	return v
}

// SettleFrom is Settle for a value that was made from a settled one; as in DecodeFrom, shared subtrees are skipped,
// and null shares nothing.
//
// stable says that Decode would leave the result unchanged, if it left v unchanged: the next write may take the stored
// value as decoded. It is nearly always true. It is false where there is a field that the type does not have, or a null
// in a pointer field with omitempty, which Decode drops: a pointer to the zero time is decoded as such a null.
func (t *Type) SettleFrom(v, settled object.Value) (_ object.Value, stable bool) {
	if t.golang == nil {
		return v, true
	}
	var s settler
	out := s.value(v, settled, t)
	if invariants.Enabled {
		t.checkSettled(v, settled, out)
	}
	return out, !s.unstable
}

// IsSettled says whether both Decode and Settle leave v unchanged.
func (t *Type) IsSettled(v object.Value) bool {
	decoded, err := t.Decode(v)
	return err == nil && len(decoded.Unknown) == 0 && decoded.Value == v && t.Settle(v) == v
}

// settler is the state of one walk.
type settler struct {
	unstable bool // see SettleFrom
}

// value settles a value of the type; settled is the value at the same place of the older version, or null. The parallel
// walk over members and fields is that of walker.structure.
//
// Lists of scalars are not walked: nothing in them changes.
func (s *settler) value(v, settled object.Value, t *Type) object.Value {
	switch t.Kind {
	case Struct:
		members := v.Members()
		out := edit{old: members}
		previous := counterpart{members: settled.Members()}
		from := 0
		for i := range members {
			before, same := previous.find(members[i].Key)
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
			previous := settled.Items()
			for i, item := range out.old {
				switch {
				case i >= len(previous):
					out.set(i, s.value(item, object.Nil, t.Elem))
				case item == previous[i]:
					out.set(i, item)
				default:
					out.set(i, s.value(item, previous[i], t.Elem))
				}
			}
			return out.value(v)
		}
	}
	return v
}

// entry settles a value of a map: empty lists and bytes stay, see Settle. A null one becomes empty, as the generated
// code creates a value for each key before it reads its content.
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

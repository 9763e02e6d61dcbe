package schema

import (
	"encoding/base64"
	"slices"
	"strconv"

	"plinth/internal/invariants"
	"plinth/object"
)

// maxUnknown bounds how many unknown fields are reported; the reference stops at the same number.
const maxUnknown = 100

// This file decodes built-in objects, except for the scalars whose Go types have their own UnmarshalJSON (special.go).
// Custom objects are decoded in prune.go.

// Decode checks a value against the type and brings it into the form that the reference's typed codec prints: see the
// package comment. Subtrees in which nothing changes are shared with v. Any error is a *TypeError.
//
// The reference gets this form by decoding JSON into a Go struct and encoding it again. That takes a Go struct per
// kind, and allocates every field. Here one walk does both: it goes down the members of a map and the fields of its
// type in parallel, both sorted by name, so that
//
//	out = (members ∩ fields, decoded, without those that omitempty leaves out) ∪ { the zero of f : f ∈ always ∖ members }
//
// The result is made in one pass, in order, and members are copied only from the first one that changes on (edit). With
// the fields
//
//	containers (always written)    paused (omitempty)    strategy (always written)
//
// the members {colour: red, paused: false} become {containers: null, strategy: {}}: containers is inserted where the
// walk passes its place, colour is unknown, paused is zero and has omitempty, and strategy comes last.
//
// The walk costs a look-up per member, in a hash table of the fields (names). It allocates only for values that change;
// the path to the current value is a linked list on the stack (step), and becomes text only for an error.
//
// If a value has several errors, the result is that of the reference: an error of a parser of scalars (quantity, time)
// ends the walk; otherwise the first error is returned. First is by the order of keys, since the order of the text is
// no longer known.
//
// For custom types see prune.go.
func (t *Type) Decode(v object.Value) (Decoded, error) {
	if t.Custom != nil {
		return t.prune(v, pruner{})
	}
	var w walker
	return w.decode(v, t)
}

// DecodeFrom is Decode for a value that was made from another one, which has been decoded and settled:
//
//	DecodeFrom(v, settled) = Decode(v)
//
// Subtrees that are the same memory in both, at the same place, are skipped: a patch of one field does not walk the
// whole object. They need not be decoded again, as the result of decoding depends only on the value and on the type of
// its place. Null never counts as shared.
//
// "At the same place" matters: a value that a patch has moved from a map of strings into a struct is the same memory,
// and has never been decoded as that struct. So both objects are walked in parallel, and each member is compared with
// the one of its name in settled, never with another one. settled must be of the same type; it is not checked.
func (t *Type) DecodeFrom(v, settled object.Value) (Decoded, error) {
	if !settled.IsNull() && v == settled {
		return Decoded{Value: v}, nil
	}
	decoded, err := t.decodeFrom(v, settled)
	if invariants.Enabled {
		t.checkDecoded(v, settled, decoded, err)
	}
	return decoded, err
}

// DecodeMerged is DecodeFrom for the result of an apply. The reference does not decode that of a custom type: a null
// that the intent has in a place that is not nullable is left to validation, which refuses it, and is not dropped as in
// every other body. For a built-in type it is DecodeFrom.
func (t *Type) DecodeMerged(v, settled object.Value) (Decoded, error) {
	if t.Custom == nil || !settled.IsNull() && v == settled {
		return t.DecodeFrom(v, settled)
	}
	return t.prune(v, pruner{settled: settled, nulls: true})
}

// decodeFrom is DecodeFrom without its check.
func (t *Type) decodeFrom(v, settled object.Value) (Decoded, error) {
	if t.Custom != nil {
		return t.prune(v, pruner{settled: settled})
	}
	w := walker{settled: settled}
	return w.decode(v, t)
}

// DecodePart is Decode for a part of an object, the intent of an apply (SSA-2): scalars get their stored form, and no
// member is added or removed. Every member is kept, as it is part of the intent: null, an empty list, a zero. In a
// custom type only numbers have a separate stored form; its unknown fields are dropped without a report when the merged
// object is decoded.
func (t *Type) DecodePart(v object.Value) (Decoded, error) {
	if t.Custom != nil {
		var p pruner
		v = p.untyped(v, nil)
		if p.number != nil {
			return Decoded{}, p.number
		}
		return Decoded{Value: v}, nil
	}
	w := walker{part: true}
	return w.decode(v, t)
}

// decode walks an object. A fatal error takes precedence over a saved one, although the walk may meet it later: in Go
// the parser of a scalar ends the decoding at once, while other errors are returned at its end.
func (w *walker) decode(v object.Value, t *Type) (Decoded, error) {
	out := w.value(v, t, nil)
	if w.fatal != nil {
		return Decoded{}, w.fatal
	}
	if w.saved != nil {
		return Decoded{}, w.saved
	}
	return Decoded{Value: out, Unknown: w.unknown, Empty: w.empty}, nil
}

// walker is the state of one walk. It is passed by pointer, and so are the steps: all of them stay on the stack. A walk
// over an object that does not change allocates nothing.
type walker struct {
	part     bool         // see DecodePart
	settled  object.Value // see DecodeFrom
	unknown  []string     // paths, at most maxUnknown
	reported int          // the length of their text
	empty    []EmptyField // see there
	// saved is the error for the first value of a wrong type. The walk goes on, as Go's does, since a fatal error may
	// follow. No further error is created: printing a path for each would take time quadratic in the length of keys
	// (maxReported).
	saved *TypeError
	fatal *TypeError // ends the walk
}

// step is one element of the path from the top to the current value, linked upwards: a field of a struct, an index of a
// list, or, where field is nil and index is -1, a key of a map. The top is nil. A path is printed only for an error. A
// reference to a step must not be kept: it would move every step of every walk from the stack to the heap.
type step struct {
	up    *step
	owner *Type  // the struct that field belongs to
	field *Field // nil: not a field
	key   string // of a map
	index int    // in a list; -1: not an item
	// settled is the value at the same place of the older version that the current value was made from (DecodeFrom);
	// null if it does not exist there.
	settled object.Value
}

// from is the value at a place of the older version, or null.
func (w *walker) from(at *step) object.Value {
	if at == nil {
		return w.settled
	}
	return at.settled
}

// counterpart finds members of another map in a parallel walk. Keys must be looked up in ascending order. All look-ups
// together pass the other map once, where a binary search for each would cost a logarithm.
type counterpart struct {
	members []object.Member
	at      int
}

// find returns the value of a key, which must be greater than all keys before it.
func (c *counterpart) find(key string) (object.Value, bool) {
	for c.at < len(c.members) {
		m := &c.members[c.at]
		if m.Key == key {
			return m.Value, true
		}
		if m.Key > key {
			break
		}
		c.at++
	}
	return object.Nil, false
}

// value decodes the value of one place. Null becomes the zero value of the type, since Go leaves a field unset for a
// null in JSON. A value of the right kind returns from the switch; any other reaches the mismatch at the end.
func (w *walker) value(v object.Value, t *Type, at *step) object.Value {
	if w.part && v.IsNull() {
		return v
	}
	switch t.Kind {
	case Any:
		if t.Either != nil {
			return w.either(v, t, at)
		}
		if t.golang != nil {
			return v
		}
		return w.untyped(v, at)
	case Struct:
		if v.Kind() == object.Map {
			return w.structure(v, t, at)
		}
	case Map:
		if v.Kind() == object.Map {
			return w.table(v, t, at)
		}
	case List:
		if v.Kind() == object.List {
			return w.list(v, t, at)
		}
	case String:
		if v.Kind() == object.String {
			return v
		}
	case Bool:
		if v.Kind() == object.Bool {
			return v
		}
	case Int:
		if v.Kind() == object.Int && fits(v.Int(), t.Bits) {
			return v
		}
	case Float:
		if isNumber(v) {
			return w.float(v, t, at)
		}
	case Bytes:
		switch v.Kind() {
		case object.String:
			return w.bytes(v, at)
		case object.List:
			return w.byteList(v, at)
		}
	default:
		return w.special(v, t, at)
	}
	if v.IsNull() {
		return t.zero
	}
	w.mismatch(v, t, at)
	return object.Nil
}

// structure decodes a struct by the parallel walk that Decode describes. The result shares v where no member changes.
func (w *walker) structure(v object.Value, t *Type, at *step) object.Value {
	members := v.Members()
	always := t.always
	if w.part {
		always = nil
	}
	out := edit{old: members, extra: len(always)}
	here := step{up: at, owner: t}
	before := counterpart{members: w.from(at).Members()}
	// next is the first index of always that has not been passed, from the index of the last field found. Both only
	// grow, as members are in the order of fields: the whole walk is one pass over both, and each search starts where
	// the last one ended.
	next, from := 0, 0
	for i := range members {
		key := members[i].Key
		index, known := t.find(key, from)
		for ; next < len(always) && int(always[next]) < index; next++ {
			out.insert(i, t.zeroMember(next))
		}
		from = index
		if !known {
			w.reportUnknown(at, key)
			out.drop(i)
			continue
		}
		if next < len(always) && int(always[next]) == index {
			next++
		}
		// A member that is the same memory as in the older version has been decoded and settled. The value must be the same
		// one and at the same key: one that was moved here from elsewhere had another type.
		same := false
		if here.settled, same = before.find(key); same && here.settled == members[i].Value {
			out.keep(i, members[i].Value)
			continue
		}
		f := &t.Fields[index]
		here.field = f
		value, keep := w.field(members[i].Value, f, &here)
		if w.fatal != nil {
			return object.Nil
		}
		if !keep {
			out.drop(i)
			if f.TellsEmpty && !members[i].Value.IsNull() {
				w.noteEmpty(value, &here)
			}
		} else {
			out.keep(i, value)
		}
	}
	for ; next < len(always); next++ {
		out.insert(len(members), t.zeroMember(next))
	}
	return out.value(v)
}

// zeroMember is the member for the i-th field of always: the index into Fields is always[i].
func (t *Type) zeroMember(i int) object.Member {
	f := &t.Fields[t.always[i]]
	return object.Member{Key: f.Name, Value: f.zero()}
}

// zero is the value of an unset field, if it is written.
func (f *Field) zero() object.Value {
	if f.Pointer {
		return object.Nil
	}
	return f.Type.zero
}

// field decodes the value of a field, and says whether Go's encoding writes it:
//
//	pointer                  as long as it is not null, or has no omitempty
//	omitempty                unless it is empty: "", 0, false, [], {} of a map; a struct never is
//	omitzero                 unless it is the zero value, of a struct as well
//	none of these            always
//
// In a part of an object (an intent) every field that has a value is written.
func (w *walker) field(v object.Value, f *Field, at *step) (object.Value, bool) {
	if f.Pointer {
		if v.IsNull() {
			return v, w.part || !f.OmitEmpty
		}
		return w.value(v, f.Type, at), true
	}
	v = w.value(v, f.Type, at)
	if w.part {
		return v, true
	}
	if f.OmitEmpty && isEmpty(v, f.Type) || f.OmitZero && object.Equal(v, f.Type.zero) {
		return v, false
	}
	return v, true
}

// isEmpty says whether omitempty leaves a value out. Structs are never empty, nor is any type that is a struct in Go: a
// Quantity of "0", a Time that is null.
func isEmpty(v object.Value, t *Type) bool {
	switch t.Kind {
	case String, List, Map, Bytes:
		return v.Len() == 0
	case Bool:
		return !v.Bool()
	case Int:
		return v.Int() == 0
	case Float:
		return v.Float() == 0
	}
	return false
}

// table decodes a map with one type of values. Every key is known, and none is added. Members are not compared with
// those of settled: nearly all such maps hold strings, for which plain is cheaper.
func (w *walker) table(v object.Value, t *Type, at *step) object.Value {
	members := v.Members()
	if plain(members, t.Elem) {
		return v
	}
	out := edit{old: members}
	here := step{up: at, index: -1}
	for i := range members {
		here.key = members[i].Key
		value := w.value(members[i].Value, t.Elem, &here)
		if w.fatal != nil {
			return object.Nil
		}
		out.keep(i, value)
	}
	return out.value(v)
}

// plain is a shortcut for labels, annotations and data: if all values are strings, no value changes. It saves a step on
// the stack and a call per member.
func plain(members []object.Member, elem *Type) bool {
	if elem.Kind != String {
		return false
	}
	for i := range members {
		if members[i].Value.Kind() != object.String {
			return false
		}
	}
	return true
}

// list decodes a list. Items are compared with those at the same index of settled. If an item was inserted in front,
// all others are decoded again, which is slower, but correct.
func (w *walker) list(v object.Value, t *Type, at *step) object.Value {
	items := v.Items()
	out := listEdit{old: items}
	here := step{up: at}
	before := w.from(at).Items()
	for i, item := range items {
		here.index = i
		if i < len(before) {
			if here.settled = before[i]; item == before[i] {
				out.set(i, item)
				continue
			}
		} else {
			here.settled = object.Nil
		}
		value := w.value(item, t.Elem, &here)
		if w.fatal != nil {
			return object.Nil
		}
		out.set(i, value)
	}
	return out.value(v)
}

// listEdit is edit for lists, whose items change, but are neither added nor dropped. The list is copied when the first
// item changes.
type listEdit struct{ old, new []object.Value }

func (e *listEdit) set(i int, v object.Value) {
	if v == e.old[i] {
		return
	}
	if e.new == nil {
		e.new = slices.Clone(e.old)
	}
	e.new[i] = v
}

func (e *listEdit) value(old object.Value) object.Value {
	if e.new == nil {
		return old
	}
	return object.ListOf(e.new...)
}

// edit makes the new members of a map in one pass over the old ones, and copies them only from the first change on. For
// each i in turn, keep or drop is called once; insert(i, m) precedes that call, with a key between the two neighbours.
//
// Invariant: new = nil ⇔ nothing has changed so far. So a map that does not change is returned as it is.
type edit struct {
	old   []object.Member
	new   []object.Member
	extra int // how many members may be inserted
}

// value is the map with the changes; old, the map that the walk started from, if there are none.
func (e *edit) value(old object.Value) object.Value {
	if e.new == nil {
		return old
	}
	return object.MapOf(e.new...)
}

// begin makes the copy, with the members before i, unless it has been made.
func (e *edit) begin(i int) {
	if e.new == nil {
		e.new = append(make([]object.Member, 0, len(e.old)+e.extra), e.old[:i]...)
	}
}

func (e *edit) keep(i int, v object.Value) {
	if e.new == nil {
		if v == e.old[i].Value {
			return
		}
		e.begin(i)
	}
	e.new = append(e.new, object.Member{Key: e.old[i].Key, Value: v})
}

func (e *edit) drop(i int) { e.begin(i) }

func (e *edit) insert(i int, m object.Member) {
	e.begin(i)
	e.new = append(e.new, m)
}

// fits says whether an integer fits into this number of bits, which is 32 or 64.
func fits(i int64, bits uint8) bool { return bits == 64 || i == int64(int32(i)) }

// isNumber says whether a value is a number: an integer, a float, or a literal that has not been given a type yet.
func isNumber(v object.Value) bool {
	switch v.Kind() {
	case object.Int, object.Float, object.Number:
		return true
	}
	return false
}

// float keeps an integer that a float holds exactly, as its text is the same, and parses any other literal: 1e3 becomes
// 1000. A literal that is out of the range of the type is a mismatch.
func (w *walker) float(v object.Value, t *Type, at *step) object.Value {
	const exact = 1 << 53
	if i := v.Int(); v.Kind() == object.Int && i > -exact && i < exact {
		return v
	}
	f, err := strconv.ParseFloat(literal(v), 64)
	if err != nil {
		w.mismatch(v, t, at)
		return object.Nil
	}
	return object.FloatOf(f)
}

// untyped gives numbers in content without a type the type that their literal implies: 1.5 is a float; 1e999 does not
// fit a float and is an error. Content of a Go type that accepts any JSON keeps its literals instead (value).
func (w *walker) untyped(v object.Value, at *step) object.Value {
	typed, err := v.Untyped()
	if err != nil && w.saved == nil {
		w.saved = &TypeError{Path: at.String(), Message: err.Error()}
	}
	return typed
}

// bytes brings base64 text into the one form that encoding prints: without line breaks, and with zeros in the bits of
// the last character that belong to no byte. The data of a Secret is mostly in this form and megabytes long, so that it
// is recognised without decoding it.
func (w *walker) bytes(v object.Value, at *step) object.Value {
	text := v.Str()
	if isBase64(text) {
		return v
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		if w.saved == nil {
			w.saved = &TypeError{Path: at.String(), Message: err.Error()}
		}
		return object.Nil
	}
	if canonical := base64.StdEncoding.EncodeToString(data); canonical != text {
		return object.StringOf(canonical)
	}
	return v
}

// isBase64 says whether text is certainly in the form that encoding prints: characters of the alphabet alone, in groups
// of four. It is false for a text with padding, which is left to the decoder, as its last character may have extra
// bits.
func isBase64(text string) bool {
	if len(text)%4 != 0 {
		return false
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		if (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '+' && c != '/' {
			return false
		}
	}
	return true
}

// byteList decodes the other form of bytes that Go accepts: a list of numbers. Null is 0, as in any list.
func (w *walker) byteList(v object.Value, at *step) object.Value {
	data := make([]byte, 0, v.Len())
	for i, item := range v.Items() {
		switch {
		case item.Kind() == object.Int && item.Int() >= 0 && item.Int() <= 255:
			data = append(data, byte(item.Int()))
		case item.IsNull():
			data = append(data, 0)
		case w.saved == nil:
			w.saved = wrong(describe(item, true), "uint8", &step{up: at, index: i})
		}
	}
	return object.StringOf(base64.StdEncoding.EncodeToString(data))
}

// reportUnknown reports a member that the type of the struct at a place does not have.
func (w *walker) reportUnknown(at *step, name string) {
	if len(w.unknown) >= maxUnknown || w.reported >= maxReported {
		return
	}
	path := at.String()
	if path != "" {
		path += "."
	}
	path += name
	w.unknown, w.reported = append(w.unknown, path), w.reported+len(path)
}

// String is the path of the place, spec.containers[0].image, in the form that is used for unknown fields, and for
// duplicates in package object. Keys of maps are printed as they are, dots and all.
func (s *step) String() string { return string(s.appendPath(nil)) }

func (s *step) appendPath(dst []byte) []byte {
	if s == nil {
		return dst
	}
	dst = s.up.appendPath(dst)
	if s.field == nil && s.index >= 0 {
		dst = append(dst, '[')
		dst = strconv.AppendInt(dst, int64(s.index), 10)
		return append(dst, ']')
	}
	if len(dst) > 0 {
		dst = append(dst, '.')
	}
	if s.field == nil {
		return append(dst, s.key...)
	}
	return append(dst, s.field.Name...)
}

// appendGo appends the path as encoding/json prints it: fields only, including the embedded structs on the way.
func (s *step) appendGo(dst []byte) []byte {
	if s == nil {
		return dst
	}
	dst = s.up.appendGo(dst)
	if s.field == nil {
		return dst
	}
	if len(dst) > 0 {
		dst = append(dst, '.')
	}
	dst = append(dst, s.field.embedded...)
	return append(dst, s.field.Name...)
}

// mismatch records the error for a value of the wrong JSON type.
func (w *walker) mismatch(v object.Value, t *Type, at *step) {
	if w.saved == nil {
		w.saved = wrong(describe(v, t.Kind == Int || t.Kind == Float), t.goString(), at)
	}
}

// end ends the walk with the error of a parser of scalars.
func (w *walker) end(err error, at *step) {
	w.fatal = &TypeError{Path: at.String(), Message: err.Error()}
}

// wrong builds the error of encoding/json for a value that does not fit a Go type. It names the innermost struct on the
// path and the fields that lead to the value, but no indices and no keys of maps.
func wrong(value, goType string, at *step) *TypeError {
	text := append(make([]byte, 0, 160), "json: cannot unmarshal "...)
	text = append(text, value...)
	inner := at
	for inner != nil && inner.field == nil {
		inner = inner.up
	}
	if inner == nil {
		text = append(text, " into Go value"...)
	} else {
		text = append(text, " into Go struct field "...)
		text = append(text, inner.owner.GoName...)
		text = append(text, '.')
		text = append(text, at.appendGo(nil)...)
	}
	text = append(text, " of type "...)
	return &TypeError{Path: at.String(), Message: string(append(text, goType...))}
}

// describe is encoding/json's name for a value: "string", "array", "bool". Where a number was expected, it includes the
// literal of a number: "number 1.5".
func describe(v object.Value, numeric bool) string {
	name := v.Kind().String()
	if numeric && isNumber(v) {
		return name + " " + literal(v)
	}
	return name
}

// literal is the text of a number, or of a string.
func literal(v object.Value) string {
	if v.Kind() == object.Int || v.Kind() == object.Float {
		return string(object.AppendJSON(nil, v))
	}
	return v.Str()
}

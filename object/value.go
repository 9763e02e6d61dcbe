package object

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"plinth/internal/invariants"
)

// Kind says what a Value is.
type Kind uint8

// The kinds of values. The zero Value is Null.
const (
	Null   Kind = iota
	Bool        // true or false
	Int         // an integer of 64 bits
	Float       // a floating point number of 64 bits
	Number      // a number literal that no type has been given yet, and that is no Int
	String      // Unicode text
	List        // values in order
	Map         // members sorted by key, each key once
)

var kindNames = [...]string{"null", "bool", "number", "number", "number", "string", "array", "object"}

// String is the JSON name of the kind.
func (k Kind) String() string { return kindNames[k] }

// Value is one immutable value. It takes 24 bytes: scalars stand in it, everything else is behind the pointer.
//
// The obvious form, any with map[string]any and []any as in unstructured objects, costs an allocation per scalar, a
// hash table per map, and a copy of all of it wherever two owners might change it. A Value is copied as three words, a
// map is one slice of members, and nothing is ever copied for fear of a change. The price is that a change copies the
// members of each map on its way (WithAt), and that a member of a large map is found by binary search.
//
// For example, {"a": [1, "xy"]} is
//
//	Value  kind: Map, n: 1, p ─→ Member  Key: "a", Value  kind: List, n: 2, p ─→ Value  kind: Int, n: 1
//	                                                                           Value  kind: String, n: 2, p ─→ "xy"
//
// with one slice of one member, one slice of two values, and the text of the input. What p points to is always the data
// of a string or a slice, or nil where n is 0. A field per form (string, slice of values, slice of members) would make
// a Value 80 bytes.
//
// Two Values that are equal by == share their memory and so have equal content. The reverse holds for null, Bool, Int
// and Float only: two equal strings may stand at different places.
type Value struct {
	// Bool: 0 or 1. Int: the integer. Float: its bits. The others: how much is at p, in bytes (Number, String), values
	// (List) or members (Map).
	n    uint64
	p    unsafe.Pointer
	kind Kind
}

// Member is one entry of a map.
type Member struct {
	Key   string
	Value Value
}

// Nil is the null value. The zero Value is the same.
var Nil = Value{}

// BoolOf makes a boolean.
func BoolOf(b bool) Value {
	if b {
		return Value{kind: Bool, n: 1}
	}
	return Value{kind: Bool}
}

// IntOf makes an integer.
func IntOf(i int64) Value { return Value{kind: Int, n: uint64(i)} }

// FloatOf makes a floating point number. NaN and infinities cannot be printed as JSON and become null there.
func FloatOf(f float64) Value { return Value{kind: Float, n: math.Float64bits(f)} }

// StringOf makes a string.
func StringOf(s string) Value { return textOf(String, s) }

// NumberOf makes an untyped number from a JSON number literal; one that fits 64 bits is an Int at once. The literal is
// printed as it is, so that it must be one.
func NumberOf(literal string) Value {
	if i, ok := parseInt(literal); ok {
		return IntOf(i)
	}
	return textOf(Number, literal)
}

// textOf is a String or Number that shares the memory of s.
func textOf(k Kind, s string) Value {
	return Value{kind: k, n: uint64(len(s)), p: unsafe.Pointer(unsafe.StringData(s))}
}

// ListOf makes a list of these items. It keeps the slice: do not change it afterwards.
func ListOf(items ...Value) Value {
	return Value{kind: List, n: uint64(len(items)), p: unsafe.Pointer(unsafe.SliceData(items))}
}

// MapOf makes a map of members in any order; of two with one key, the later one stays. It keeps the slice and orders
// it: do not use it afterwards.
func MapOf(members ...Member) Value {
	if !strictlySorted(members) {
		slices.SortStableFunc(members, func(a, b Member) int { return strings.Compare(a.Key, b.Key) })
		members = lastOfEach(members)
	}
	return mapOf(members)
}

// mapOf is MapOf for members that are sorted already:
//
//	members[i].Key < members[i+1].Key
//
// Get searches by it, merges walk two maps in parallel by it, and the canonical form is printed by it.
func mapOf(members []Member) Value {
	if invariants.Enabled {
		mustHold(strictlySorted(members), "object: members of a map out of order")
	}
	return Value{kind: Map, n: uint64(len(members)), p: unsafe.Pointer(unsafe.SliceData(members))}
}

// Strings makes a list of strings.
func Strings(items ...string) Value {
	list := make([]Value, len(items))
	for i, s := range items {
		list[i] = StringOf(s)
	}
	return ListOf(list...)
}

// Fields makes a map from alternating keys and values; it is for literals in code: Fields("kind", StringOf("Pod")).
func Fields(keysAndValues ...any) Value {
	members := make([]Member, 0, len(keysAndValues)/2)
	for i := 0; i < len(keysAndValues); i += 2 {
		members = append(members, Member{Key: keysAndValues[i].(string), Value: keysAndValues[i+1].(Value)})
	}
	return MapOf(members...)
}

// strictlySorted says whether keys ascend, each once.
func strictlySorted(members []Member) bool {
	for i := 1; i < len(members); i++ {
		if members[i-1].Key >= members[i].Key {
			return false
		}
	}
	return true
}

// lastOfEach keeps the last of each run of equal keys.
func lastOfEach(sorted []Member) []Member {
	kept := sorted[:0]
	for i, m := range sorted {
		if i+1 < len(sorted) && sorted[i+1].Key == m.Key {
			continue
		}
		kept = append(kept, m)
	}
	return kept
}

// Kind says what the value is.
func (v Value) Kind() Kind { return v.kind }

// IsNull says whether the value is null.
func (v Value) IsNull() bool { return v.kind == Null }

// Bool is the boolean, false for every other kind.
func (v Value) Bool() bool { return v.kind == Bool && v.n == 1 }

// Int is the integer, 0 for every other kind.
func (v Value) Int() int64 {
	if v.kind != Int {
		return 0
	}
	return int64(v.n)
}

// Float is the number as a float, whatever way it is held; 0 for other kinds and for literals beyond its range. An Int
// of more than 53 bits is rounded.
func (v Value) Float() float64 {
	switch v.kind {
	case Int:
		return float64(int64(v.n))
	case Float:
		return math.Float64frombits(v.n)
	case Number:
		f, err := strconv.ParseFloat(v.text(), 64)
		if err != nil {
			return 0
		}
		return f
	}
	return 0
}

// Str is the text of a string and the literal of an untyped number; "" for every other kind.
func (v Value) Str() string {
	if v.kind != String && v.kind != Number {
		return ""
	}
	return v.text()
}

// text is the string at p. v must be a String or a Number.
func (v Value) text() string { return unsafe.String((*byte)(v.p), int(v.n)) }

// Len is the number of items of a list, members of a map, or bytes of a string.
func (v Value) Len() int {
	switch v.kind {
	case String, Number, List, Map:
		return int(v.n)
	}
	return 0
}

// Items is the content of a list, nil for every other kind. It must not be changed: other values may share it.
func (v Value) Items() []Value {
	if v.kind != List {
		return nil
	}
	return unsafe.Slice((*Value)(v.p), int(v.n))
}

// Members is the content of a map sorted by key, nil for every other kind. It must not be changed: other values may
// share it.
func (v Value) Members() []Member {
	if v.kind != Map {
		return nil
	}
	return unsafe.Slice((*Member)(v.p), int(v.n))
}

// few is up to how many members are searched linearly: most keys differ in length and are told apart by that alone,
// which is quicker than comparing their text in a binary search.
const few = 12

// Get finds the member of a map with this key. Every other kind has none.
func (v Value) Get(key string) (Value, bool) {
	members := v.Members()
	if len(members) <= few {
		for i := range members {
			if members[i].Key == key {
				return members[i].Value, true
			}
		}
		return Nil, false
	}
	if i, ok := find(members, key); ok {
		return members[i].Value, true
	}
	return Nil, false
}

// At walks down maps by these keys and is null where the way ends.
func (v Value) At(keys ...string) Value {
	for _, k := range keys {
		v, _ = v.Get(k)
	}
	return v
}

// find is the position of a key in sorted members, or the one where it would have to be inserted. It is a binary search
// without a comparison function, as every request makes many.
func find(members []Member, key string) (int, bool) {
	lo, hi := 0, len(members)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if members[mid].Key < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(members) && members[lo].Key == key
}

// With is the map with this member set. Null counts as an empty map; it panics on any other kind, which is a
// programming error: whoever calls it has checked the type. It copies the members, so that setting n members of a large
// map one by one takes quadratic time: see Edit. A member that is the same memory already leaves the map as it is.
func (v Value) With(key string, value Value) Value {
	if v.kind != Map && v.kind != Null {
		panic("object: With on " + v.kind.String())
	}
	old := v.Members()
	i, found := find(old, key)
	if found {
		if old[i].Value == value {
			return v
		}
		members := slices.Clone(old)
		members[i].Value = value
		return mapOf(members)
	}
	members := make([]Member, 0, len(old)+1)
	members = append(members, old[:i]...)
	members = append(members, Member{Key: key, Value: value})
	members = append(members, old[i:]...)
	return mapOf(members)
}

// WithAt is With at the end of a way down maps; maps that are missing on the way are made. Only the maps on the way are
// copied: v.WithAt(x, "metadata", "uid") shares spec and status with v.
func (v Value) WithAt(value Value, keys ...string) Value {
	if len(keys) == 1 {
		return v.With(keys[0], value)
	}
	child, _ := v.Get(keys[0])
	return v.With(keys[0], child.WithAt(value, keys[1:]...))
}

// Without is the map without this member, and any other value as it is.
func (v Value) Without(key string) Value {
	old := v.Members()
	i, found := find(old, key)
	if !found {
		return v
	}
	members := make([]Member, 0, len(old)-1)
	members = append(members, old[:i]...)
	members = append(members, old[i+1:]...)
	return mapOf(members)
}

// WithoutAt is Without at the end of a way down maps; where the way ends early, nothing changes.
func (v Value) WithoutAt(keys ...string) Value {
	if len(keys) == 1 {
		return v.Without(keys[0])
	}
	child, ok := v.Get(keys[0])
	if !ok || child.kind != Map {
		return v
	}
	return v.With(keys[0], child.WithoutAt(keys[1:]...))
}

// WithItem is the list with item i replaced. i must be an index of the list.
func (v Value) WithItem(i int, item Value) Value {
	items := slices.Clone(v.Items())
	items[i] = item
	return ListOf(items...)
}

// Untyped is the value as it is understood without a schema: literals that are no 64-bit integers become floats, at
// every depth, as in the reference's UnmarshalJSON of unstructured objects. It fails on a literal beyond the range of a
// float, 1e999.
func (v Value) Untyped() (Value, error) {
	return v.Scalars(func(v Value) (Value, error) {
		if v.kind != Number {
			return v, nil
		}
		f, err := strconv.ParseFloat(v.text(), 64)
		if err != nil {
			return Nil, &NumberError{Literal: v.text()}
		}
		return FloatOf(f), nil
	})
}

// Scalars is the value with every scalar in it, at every depth, replaced by what change makes of it. It fails where
// change does. Each list and map of which something changes is copied once, however much of it changes; all others are
// shared.
func (v Value) Scalars(change func(Value) (Value, error)) (Value, error) {
	switch v.kind {
	case List:
		var changed []Value
		for i, item := range v.Items() {
			made, err := item.Scalars(change)
			if err != nil {
				return Nil, err
			}
			if made == item {
				continue
			}
			if changed == nil {
				changed = slices.Clone(v.Items())
			}
			changed[i] = made
		}
		if changed != nil {
			return ListOf(changed...), nil
		}
		return v, nil
	case Map:
		var changed []Member
		for i, m := range v.Members() {
			made, err := m.Value.Scalars(change)
			if err != nil {
				return Nil, err
			}
			if made == m.Value {
				continue
			}
			if changed == nil {
				changed = slices.Clone(v.Members())
			}
			changed[i].Value = made
		}
		if changed != nil {
			return mapOf(changed), nil
		}
		return v, nil
	}
	return change(v)
}

// NumberError is a number literal that no number type can hold.
type NumberError struct{ Literal string }

func (e *NumberError) Error() string {
	return "json: cannot unmarshal number " + e.Literal + " into Go value of type float64"
}

// Equal says whether two values have the same content. An Int and a Float of the same number differ, as their types do.
// Two Numbers are compared as text: 1.0 and 1.00 differ. Shared subtrees are not walked, so that comparing an object
// with one that was made from it costs what was changed.
func Equal(a, b Value) bool {
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case String, Number:
		return a.text() == b.text()
	case List:
		return a.n == b.n && (a.p == b.p || slices.EqualFunc(a.Items(), b.Items(), Equal))
	case Map:
		return a.n == b.n && (a.p == b.p || slices.EqualFunc(a.Members(), b.Members(), equalMembers))
	default:
		return a.n == b.n
	}
}

func equalMembers(a, b Member) bool { return a.Key == b.Key && Equal(a.Value, b.Value) }

// parseInt reads a JSON integer literal of 64 bits.
func parseInt(literal string) (int64, bool) {
	for i := 0; i < len(literal); i++ {
		if c := literal[i]; c != '-' && (c < '0' || c > '9') {
			return 0, false
		}
	}
	i, err := strconv.ParseInt(literal, 10, 64)
	return i, err == nil
}

// Edit is the map with these members set and those keys dropped, made in one go: With for each of n members would copy
// the map n times. A key that is both set and dropped is set. Null counts as an empty map. drop is for a few keys: each
// member is compared with each of them.
func (v Value) Edit(set []Member, drop ...string) Value {
	old := v.Members()
	if len(set) == 0 && v.kind == Map && !slices.ContainsFunc(old,
		func(m Member) bool { return slices.Contains(drop, m.Key) }) {
		return v
	}
	members := make([]Member, 0, len(old)+len(set))
	for _, m := range old {
		if !slices.Contains(drop, m.Key) {
			members = append(members, m)
		}
	}
	return MapOf(append(members, set...)...)
}

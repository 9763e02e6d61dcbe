package object

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"plinth/internal/invariants"
)

// Kind is the kind of a Value.
type Kind uint8

// The kinds of values. The zero Value is Null.
const (
	Null   Kind = iota
	Bool        // true or false
	Int         // an integer of 64 bits
	Float       // a floating point number of 64 bits
	Number      // a number literal that is not an Int and has not been decoded with a type
	String      // Unicode text
	List        // values in order
	Map         // members sorted by key, each key once
)

var kindNames = [...]string{"null", "bool", "number", "number", "number", "string", "array", "object"}

// String is the JSON name of the kind.
func (k Kind) String() string { return kindNames[k] }

// Value is one immutable value. It takes 24 bytes, which contain a scalar or point to the content.
//
// Go's any with map[string]any and []any, as in unstructured objects, costs an allocation per scalar, a hash table per
// map, and a copy of all of it wherever two owners might change it. A Value is copied as three words, a map is one
// slice of members, and because values are immutable, no copy is made as a precaution. The price is that a change
// copies the members of each map on its path (WithAt), and that a member of a large map is found by binary search.
//
// For example, {"a": [1, "xy"]} is
//
//	Value  kind: Map, n: 1, p ─→ Member  Key: "a", Value  kind: List, n: 2, p ─→ Value  kind: Int, n: 1
//	                                                                           Value  kind: String, n: 2, p ─→ "xy"
//
// with one slice of one member, one slice of two values, and the text of the input. p always points to the data of a
// string or a slice, or is nil if n is 0. With separate fields for a string, a slice of values and a slice of members,
// a Value would take 80 bytes.
//
// Two Values that are equal by == share their memory and so have equal content. The reverse holds only for null, Bool,
// Int and Float: two equal strings may have different addresses.
type Value struct {
	// Bool: 0 or 1. Int: the integer. Float: its bits. Otherwise the length of the data at p in bytes (Number, String),
	// values (List) or members (Map).
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

// NumberOf makes an untyped number from a JSON number literal, or an Int if it fits 64 bits. literal must be valid,
// because it is printed unchanged.
func NumberOf(literal string) Value {
	if i, ok := parseInt(literal); ok {
		return IntOf(i)
	}
	return textOf(Number, literal)
}

// textOf makes a String or Number that shares the memory of s.
func textOf(k Kind, s string) Value {
	return Value{kind: k, n: uint64(len(s)), p: unsafe.Pointer(unsafe.StringData(s))}
}

// ListOf makes a list of these items. It keeps the slice, which must not be changed afterwards.
func ListOf(items ...Value) Value {
	return Value{kind: List, n: uint64(len(items)), p: unsafe.Pointer(unsafe.SliceData(items))}
}

// MapOf makes a map of members in any order; the last one of several equal keys counts. It sorts and keeps the slice,
// which must not be used afterwards.
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
// Get relies on it for its search, merges for walking two maps in parallel, and printing for the canonical order.
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

// strictlySorted says whether keys ascend without duplicates.
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

// Kind returns the kind of the value.
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

// Get finds the member of a map with this key. Values of other kinds have no members.
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

// At follows these keys through nested maps. It returns null if one of them is missing.
func (v Value) At(keys ...string) Value {
	for _, k := range keys {
		v, _ = v.Get(k)
	}
	return v
}

// find returns the position of a key in sorted members, or the position at which to insert it. It is a binary search
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

// With returns the map with this member set. Null counts as an empty map; on any other kind it panics, because callers
// must have checked the type. It copies the members, so that setting n members of a large map one by one takes
// quadratic time: see Edit. If the map already has a member that is == value, With returns the map itself.
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

// WithAt is With at the end of a path of maps. Missing maps on the path are created. Only the maps on the path are
// copied: v.WithAt(x, "metadata", "uid") shares spec and status with v.
func (v Value) WithAt(value Value, keys ...string) Value {
	if len(keys) == 1 {
		return v.With(keys[0], value)
	}
	child, _ := v.Get(keys[0])
	return v.With(keys[0], child.WithAt(value, keys[1:]...))
}

// Without returns the map without this member. Values of other kinds are returned unchanged.
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

// WithoutAt is Without at the end of a path of maps. If the path does not exist, the value is returned unchanged.
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

// WithItem returns the list with item i replaced. i must be an index of the list.
func (v Value) WithItem(i int, item Value) Value {
	items := slices.Clone(v.Items())
	items[i] = item
	return ListOf(items...)
}

// Untyped returns the value as it is interpreted without a schema: literals that are not 64-bit integers become floats,
// at every depth, as in the reference's UnmarshalJSON of unstructured objects. It fails on a literal beyond the range
// of a float, such as 1e999.
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

// Scalars returns the value with every scalar, at every depth, replaced by the result of change. It returns the first
// error of change. A list or map with changes is copied once, however many there are; all others are shared.
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

// NumberError is a number literal beyond the range of all number types.
type NumberError struct{ Literal string }

func (e *NumberError) Error() string {
	return "json: cannot unmarshal number " + e.Literal + " into Go value of type float64"
}

// Equal says whether two values have the same content. An Int and a Float of the same number differ, as their types do.
// Two Numbers are compared as text: 1.0 and 1.00 differ. Shared subtrees are not walked, so that the cost of comparing
// an object with one that was derived from it depends on the size of the changes.
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

// Edit returns the map with these members set and those keys dropped. It copies the map once, where With for each of n
// members would copy it n times. A key that is both set and dropped is set. Null counts as an empty map. drop is for a
// few keys: each member is compared with each of them.
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

package merge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"plinth/internal/invariants"
	"plinth/object"
)

// Step is the kind of an [Element]: how it selects a part of a container.
type Step uint8

// The kinds of elements, in the order in which they sort. In FieldsV1 they are f:image, k:{"name":"web"}, v:"a.b/c" and
// i:0.
const (
	Field Step = iota // a member of a map or struct, by name
	Key               // an item of an associative list, by its keys
	Item              // an item of a set, by its value
	Index             // an item of a list, by its position; no schema leads to one, but managedFields may hold one
)

// Element is one step of a Path.
//
// An element selects by what stays the same while others edit the list. A position would not: if one manager owns
// .containers[0].image and another one inserts an item before it, the path would mean another container.
type Element struct {
	step Step
	// Field: a string, the name. Key: a map of the keys. Item: the value, a scalar where the list fits its schema. Index:
	// an integer. Elements of managedFields may have any keys and any value, as clients may write them.
	v object.Value
}

// FieldElement selects a member by name.
func FieldElement(name string) Element { return Element{Field, object.StringOf(name)} }

// KeyElement selects the item of an associative list that has these keys.
func KeyElement(keys object.Value) Element { return Element{Key, keys} }

// ItemElement selects the item of a set that has this value.
func ItemElement(value object.Value) Element { return Element{Item, value} }

// Step is how the element selects.
func (e Element) Step() Step { return e.step }

// Value is the name of a Field, the keys of a Key, the value of an Item and the position of an Index.
func (e Element) Value() object.Value { return e.v }

// Compare orders elements: names, then keys, then values, then positions, and each of these by its own order. It is a
// total order, by which the nodes of a Set are sorted. The reference lists conflicts in the same order, so that it is
// visible to clients and cannot be chosen freely.
func (e Element) Compare(f Element) int {
	if invariants.Enabled {
		comparisons.Add(1)
	}
	if e.step != f.step {
		return cmp.Compare(e.step, f.step)
	}
	if e.step == Field {
		return compareText(e.v.Str(), f.v.Str())
	}
	return compareValues(e.v, f.v)
}

// rank orders the kinds of values: numbers first, then strings, null last. The three kinds of numbers have one rank, as
// they are compared with each other.
var rank = [...]uint8{object.Int: 0, object.Float: 0, object.Number: 0, object.String: 1, object.Bool: 2,
	object.List: 3, object.Map: 4, object.Null: 5}

// compareValues is a total order of values in which the integer 1 and the float 1.0 are equal: clients and conversions
// write either, and an item of a set must stay the same item. Lists and maps compare by their first difference, and the
// shorter one first if there is none. Clients may write any values into managedFields and into sets; their depth is
// that of a parsed document, which the parser bounds, and so is the recursion.
//
// An integer and a float are compared exactly. Turning both into floats is not transitive beyond 2^53, where several
// integers have one float: with f = 2^53 as a float, 2^53 = f and f = 2^53+1, but 2^53 < 2^53+1. A trie could not be
// sorted by that.
func compareValues(a, b object.Value) int {
	if invariants.Enabled {
		comparisons.Add(1)
	}
	if c := cmp.Compare(rank[a.Kind()], rank[b.Kind()]); c != 0 {
		return c
	}
	switch a.Kind() {
	case object.Int, object.Float, object.Number:
		if a.Kind() == object.Int && b.Kind() == object.Int {
			return cmp.Compare(a.Int(), b.Int())
		}
		if a.Kind() == object.Int {
			return compareIntFloat(a.Int(), b.Float())
		}
		if b.Kind() == object.Int {
			return -compareIntFloat(b.Int(), a.Float())
		}
		return cmp.Compare(a.Float(), b.Float())
	case object.String:
		return compareText(a.Str(), b.Str())
	case object.Bool:
		switch {
		case a.Bool() == b.Bool():
			return 0
		case b.Bool():
			return -1
		}
		return 1
	case object.List:
		x, y := a.Items(), b.Items()
		for i := range min(len(x), len(y)) {
			if c := compareValues(x[i], y[i]); c != 0 {
				return c
			}
		}
		return cmp.Compare(len(x), len(y))
	case object.Map:
		x, y := a.Members(), b.Members()
		for i := range min(len(x), len(y)) {
			if c := compareText(x[i].Key, y[i].Key); c != 0 {
				return c
			}
			if c := compareValues(x[i].Value, y[i].Value); c != 0 {
				return c
			}
		}
		return cmp.Compare(len(x), len(y))
	}
	return 0
}

// compareIntFloat compares an integer with a float without rounding either. f may be infinite, but is not NaN, which
// JSON does not have.
func compareIntFloat(i int64, f float64) int {
	switch {
	case f >= 1<<63:
		return -1
	case f < -1<<63:
		return 1
	}
	whole := int64(f) // towards zero
	return cmp.Or(cmp.Compare(i, whole), cmp.Compare(0, f-float64(whole)))
}

// compareText is strings.Compare, faster for texts that are equal, as most here are.
func compareText(a, b string) int {
	if a == b {
		return 0
	}
	return strings.Compare(a, b)
}

// same says whether two values are equal by compareValues. Values of one memory are recognised without a walk: after a
// join most subtrees of both objects are.
func same(a, b object.Value) bool {
	if invariants.Enabled {
		comparisons.Add(1)
	}
	return a == b || compareValues(a, b) == 0
}

// Path leads from an object to one of its fields. The empty path is the object itself, which has no owner. Sets are
// tries and do not contain Paths: a Path is made where one field is named, in a conflict or as an argument.
type Path []Element

// String is the path in the form of conflict messages: `.spec.containers[name="web"].image`.
func (p Path) String() string {
	var text []byte
	for _, e := range p {
		text = e.append(text)
	}
	return string(text)
}

// String is the element in the form of [Path.String].
func (e Element) String() string { return string(e.append(nil)) }

func (e Element) append(dst []byte) []byte {
	switch e.step {
	case Field:
		return append(append(dst, '.'), e.v.Str()...)
	case Key:
		dst = append(dst, '[')
		for i, m := range e.v.Members() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(dst, m.Key...), '=')
			dst = appendReadable(dst, m.Value)
		}
	case Item:
		dst = appendReadable(append(dst, "[="...), e.v)
	default:
		dst = strconv.AppendInt(append(dst, '['), e.v.Int(), 10)
	}
	return append(dst, ']')
}

// appendReadable prints a value in the form of [Path.String]: JSON, but for strings and floats, which Go prints.
func appendReadable(dst []byte, v object.Value) []byte {
	switch v.Kind() {
	case object.String:
		return strconv.AppendQuote(dst, v.Str())
	case object.Float, object.Number:
		return fmt.Append(dst, v.Float())
	}
	return object.AppendJSON(dst, v)
}

// The prefixes of elements in FieldsV1.
const (
	fieldPrefix = "f:"
	keyPrefix   = "k:"
	itemPrefix  = "v:"
	indexPrefix = "i:"
)

// errUnknownElement is the error of an element with an unknown prefix. The reader drops such elements, because a newer
// version of the server may have written them.
var errUnknownElement = errors.New("unknown path element type")

// parseElement reads an element of FieldsV1. canonical says that FieldsV1 prints it as the same text. The element may
// point into the memory of the text.
//
// Names, plain keys and plain values are read without the JSON parser: an apply reads the sets of all managers, a few
// hundred elements, and setting up a parser for each took most of that time. Any text that the fast paths do not
// recognise, valid or not, is passed to parseOther, so that they return no errors.
func parseElement(text string) (e Element, canonical bool, err error) {
	if rest, ok := strings.CutPrefix(text, fieldPrefix); ok {
		return FieldElement(rest), true, nil
	}
	if rest, ok := strings.CutPrefix(text, keyPrefix); ok {
		if keys, ok := plainKeys(rest); ok {
			return KeyElement(keys), true, nil
		}
	}
	if rest, ok := strings.CutPrefix(text, itemPrefix); ok {
		if v, rest, ok := plainScalar(rest); ok && rest == "" {
			return ItemElement(v), true, nil
		}
	}
	if e, err = parseOther(text); err != nil {
		return Element{}, false, err
	}
	return e, e.wire() == text, nil
}

// parseOther reads any element, with the JSON parser where the element holds JSON. The errors are worded as those of
// the reference.
func parseOther(text string) (Element, error) {
	if len(text) < 2 {
		return Element{}, errors.New("a path element has a letter and a colon at least")
	}
	if text[1] != ':' {
		return Element{}, fmt.Errorf("missing colon: %v", text)
	}
	rest := text[2:]
	switch text[:2] {
	case keyPrefix:
		keys, err := parseInner(rest)
		if err != nil {
			return Element{}, err
		}
		if keys.Kind() != object.Map {
			return Element{}, fmt.Errorf("%s does not hold the keys of an item", text)
		}
		return KeyElement(keys), nil
	case itemPrefix:
		v, err := parseInner(rest)
		return ItemElement(v), err
	case indexPrefix:
		i, err := strconv.Atoi(rest)
		return Element{Index, object.IntOf(int64(i))}, err
	}
	return Element{}, errUnknownElement
}

// parseInner parses the JSON within an element. Its numbers become Int or Float at once (Untyped): no schema gives them
// a type later, and they are compared with decoded values.
func parseInner(text string) (object.Value, error) {
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil {
		return object.Nil, err
	}
	return parsed.Value.Untyped()
}

// plainKeys reads the keys of almost all lists without the JSON parser, whose set-up would cost more than the rest: up
// to four keys, in order, that are strings without escapes or short integers. ok is false for everything else, valid
// or not.
func plainKeys(text string) (object.Value, bool) {
	const most = 4
	var array [most]object.Member // on the stack
	keys := array[:0]
	rest, ok := strings.CutPrefix(text, "{")
	for ok && len(keys) < most {
		var m object.Member
		if m.Key, rest, ok = plainString(rest); !ok || len(keys) > 0 && keys[len(keys)-1].Key >= m.Key {
			break
		}
		if rest, ok = strings.CutPrefix(rest, ":"); !ok {
			break
		}
		if m.Value, rest, ok = plainScalar(rest); !ok {
			break
		}
		if keys = append(keys, m); rest == "}" {
			return object.MapOf(slices.Clone(keys)...), true
		}
		rest, ok = strings.CutPrefix(rest, ",")
	}
	return object.Nil, false
}

// plainString cuts a string without escapes off the front of a text.
func plainString(text string) (s, rest string, ok bool) {
	if text, ok = strings.CutPrefix(text, `"`); !ok {
		return "", "", false
	}
	s, rest, ok = strings.Cut(text, `"`)
	return s, rest, ok && isPlain(s)
}

// plainScalar cuts such a string, or an integer of up to nine digits, off the front of a text.
func plainScalar(text string) (v object.Value, rest string, ok bool) {
	if s, rest, ok := plainString(text); ok {
		return object.StringOf(s), rest, true
	}
	n, i := int64(0), 0
	for i < len(text) && i < 9 && text[i] >= '0' && text[i] <= '9' {
		n = 10*n + int64(text[i]-'0')
		i++
	}
	if i == 0 || i > 1 && text[0] == '0' {
		return object.Nil, "", false
	}
	return object.IntOf(n), text[i:], true
}

// isPlain says whether a string is printed as JSON without escapes. It may be false for one that is; the callers take
// the slow way then. <, > and & are not plain, because JSON is printed with escapes for them here, as by Go's encoder;
// nor is anything beyond ASCII, which may be invalid UTF-8.
func isPlain(text string) bool {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"', c == '\\', c < ' ', c >= 0x7f, c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

// wire is the element as FieldsV1 has it. parseElement(e.wire()) = e for every element that parseElement returns. The
// reverse does not hold: a client may write {"b":1,"a":2} or 1e0 in an element, which is printed differently.
func (e Element) wire() string {
	switch e.step {
	case Field:
		return fieldPrefix + e.v.Str()
	case Key:
		return string(object.AppendJSON([]byte(keyPrefix), e.v))
	case Item:
		return string(object.AppendJSON([]byte(itemPrefix), e.v))
	}
	return indexPrefix + strconv.FormatInt(e.v.Int(), 10)
}

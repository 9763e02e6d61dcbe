package schema

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/object"
)

// microLayout is how a MicroTime is written.
const microLayout = "2006-01-02T15:04:05.000000Z07:00"

// This file decodes the scalars whose Go types have their own UnmarshalJSON:
//
//	type           accepted                 stored form            null is
//	Quantity       "0.5", 0.5, "500m"       "500m"                 "0"
//	IntOrString    80, "http", "25%"        as it came             0
//	Time           RFC 3339                 UTC, whole seconds     null
//	MicroTime      RFC 3339, microseconds   UTC, microseconds      null
//
// The stored form is the one in which Go encodes the type. Two texts of one amount are one stored value, so that a
// client that writes cpu: "0.5" again and again changes nothing (WRITE-3), and owns the same value as one that writes
// 500m.

// special decodes the types with their own UnmarshalJSON. An error of theirs ends the walk, as in Go: encoding/json
// keeps the first error about a wrong JSON type and continues, but returns the error of an Unmarshaler at once. If a
// wrong type precedes a malformed quantity, the client gets the error of the quantity.
func (w *walker) special(v object.Value, t *Type, at *step) object.Value {
	switch t.Kind {
	case Quantity:
		return w.quantity(v, t, at)
	case IntOrString:
		return w.intOrString(v, t, at)
	case Time:
		return w.time(v, time.RFC3339, at)
	default: // MicroTime
		return w.time(v, microLayout, at)
	}
}

// quantity accepts text and bare numbers, and returns the canonical form. isCanonicalQuantity nearly always avoids the
// library's parsing and printing, as stored quantities are canonical and are sent again with each update. Any other
// JSON value is printed and parsed as well, as Go does: the error for true is that of a malformed quantity.
func (w *walker) quantity(v object.Value, t *Type, at *step) object.Value {
	if v.IsNull() {
		return t.zero
	}
	text := v.Str()
	switch v.Kind() {
	case object.String:
		if isCanonicalQuantity(text) {
			return v
		}
	default:
		text = string(object.AppendJSON(nil, v))
	}
	q, err := resource.ParseQuantity(strings.TrimSpace(text))
	if err != nil {
		w.end(err, at)
		return object.Nil
	}
	canonical := q.String()
	if v.Kind() == object.String && canonical == v.Str() {
		return v
	}
	return object.StringOf(canonical)
}

// isCanonicalQuantity recognises the usual quantities that are in canonical form already: a few digits whose suffix
// cannot be replaced by a bigger one. 1500m is canonical, 1000m is not, since it is 1; 1536Mi is, 1024Mi is 1Gi. It may
// be false for a canonical quantity, but is never true for another one: the rest is left to the library.
func isCanonicalQuantity(text string) bool {
	n, i := 0, 0
	for ; i < len(text) && i < 9 && text[i] >= '0' && text[i] <= '9'; i++ {
		n = n*10 + int(text[i]-'0')
	}
	if i == 0 || text[0] == '0' {
		return text == "0"
	}
	switch text[i:] {
	case "", "m", "k", "M", "G":
		return n%1000 != 0
	case "Ki", "Mi", "Gi":
		return n%1024 != 0
	}
	return false
}

// intOrString accepts text and integers of 32 bits, and leaves both as they are.
func (w *walker) intOrString(v object.Value, t *Type, at *step) object.Value {
	switch {
	case v.Kind() == object.String, v.Kind() == object.Int && fits(v.Int(), 32):
		return v
	case v.IsNull():
		return t.zero
	}
	w.fatal = wrong(describe(v, true), "int32", at)
	return object.Nil
}

// time accepts a text of this layout and returns it in UTC: 2024-01-01T01:00:00+01:00 becomes 2024-01-01T00:00:00Z, and
// a fraction of a second that the layout does not have is dropped. The zero time is null, as Go prints it.
func (w *walker) time(v object.Value, layout string, at *step) object.Value {
	if v.IsNull() {
		return v
	}
	if v.Kind() != object.String {
		w.fatal = wrong(describe(v, false), "string", at)
		return object.Nil
	}
	text := v.Str()
	moment, err := time.Parse(layout, text)
	if err != nil {
		w.end(err, at)
		return object.Nil
	}
	if moment.IsZero() {
		return object.Nil
	}
	var room [len(microLayout)]byte
	printed := moment.UTC().AppendFormat(room[:0], layout)
	if string(printed) == text {
		return v
	}
	return object.StringOf(string(printed))
}

package schema

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/strfmt"

	"plinth/object"
)

// This file checks strings and numbers: minLength, maxLength, pattern and format; minimum, maximum and multipleOf.
//
// These keywords apply by the kind of the value and not by the type beside them, as in JSON schema: {type: integer,
// maxLength: 3} does not constrain 1234, and is violated twice by "1234": it is not an integer, and it is too long.
//
// The oracle is kube-openapi's pkg/validation/validate (stringValidator, formatValidator, numberValidator). Its quirks
// are kept, for clients see them, and the order of errors and the number of matches (checker) depend on them:
//
//   - Of maxLength, minLength and pattern only the first one that a string violates is reported. For a number every
//     violation is.
//   - Lengths are counted in code points. The message of maxLength says bytes nevertheless, as field.TooLong does.
//   - A pattern is a regular expression of Go, which is not anchored. A pattern that does not compile is accepted in a
//     definition, and refuses every string. See patterns.go for what a match costs.
//   - An error of the range of a number's type has no path: the place is named in its text alone (say).

// text checks a string against minLength, maxLength and pattern, of which it reports at most one violation, and against
// the format.
//
// The formats of numbers do not constrain a string. In an object, said.format has only known formats (effectiveFormat);
// a default is checked against the format as written, and an unknown one is ignored there, too.
func (c *checker) text(f *findings, v object.Value, said *Constraints, at *location) {
	f.matches++
	text := v.Str()
	length := int64(-1)
	if said.MaxLength != nil || said.MinLength != nil {
		length = int64(utf8.RuneCountInString(text))
	}
	switch {
	case said.MaxLength != nil && length > *said.MaxLength:
		c.put(f, at, "should be at most %d chars long", []any{*said.MaxLength},
			func(path *field.Path, _ string) *field.Error {
				return field.TooLong(path, "", int(*said.MaxLength))
			})
	case said.MinLength != nil && length < *said.MinLength:
		c.invalid(f, at, text, "should be at least %d chars long", *said.MinLength)
	case said.Pattern != "":
		if p, err := patterns.get(said.Pattern); err != nil {
			c.asked() // nothing is kept of such a pattern, and so each value compiles it
			c.invalid(f, at, text, "should match '%s, but pattern is invalid: %s'", said.Pattern, err)
		} else if !c.matches(p, text) {
			c.invalid(f, at, text, "should match '%s'", said.Pattern)
		}
	}
	format := c.format(said)
	if format == "" || format == "int32" || format == "int64" || format == "float" || format == "double" || c.asDefault &&
		!KnowsFormat("string", format) {
		return
	}
	if f.matches++; !hasFormat(format, text) {
		c.wrongType(f, at, format, text)
	}
}

// textFormats are the formats of strings that are checked: supportedVersionedFormats of apiextensions-apiserver, up to
// the version that this server reports to clients. They are written without dashes, which do not count in the name of a
// format: "date-time" is "datetime". The library decides what each of them accepts (hasFormat): "password" accepts any
// string, "datetime" RFC 3339.
var textFormats = []string{
	"bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4", "uuid5", "isbn",
	"isbn10", "isbn13",
	"creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password", "date", "duration", "datetime",
	"k8sshortname", "k8slongname", // since 1.34
}

// KnowsFormat says whether values of a type of a structural schema ("string", "integer"; "" where the schema names
// none) are checked against a format. All other formats are ignored: a definition may have them, and the client that
// creates it is warned (GetUnrecognizedFormats of apiextensions-apiserver).
func KnowsFormat(typ, format string) bool {
	switch typ {
	case "", "string":
		return slices.Contains(textFormats, strings.ReplaceAll(format, "-", ""))
	case "integer":
		return format == "int32" || format == "int64"
	case "number":
		return format == "float" || format == "double"
	}
	return false
}

// format is the format that a value is checked against. The reference removes unknown formats from the schema that
// objects are validated by (StripUnsupportedFormatsPostProcessorForVersion), and leaves them in the one for defaults,
// where they affect the check of the type (ofType).
func (c *checker) format(said *Constraints) string {
	if c.asDefault {
		return said.Format
	}
	return said.format
}

// effectiveFormat is the format that values at a place are checked against; "" if it is unknown, or not a format of the
// place's type. An int-or-string counts as a string, since its schema names no type.
func (t *Type) effectiveFormat(format string) string {
	typ := "other"
	switch t.Kind {
	case Any, String, IntOrString:
		typ = "string"
	case Int:
		typ = "integer"
	case Float:
		typ = "number"
	}
	if !KnowsFormat(typ, format) {
		return ""
	}
	return format
}

// registries are copies of the library's registry of formats. A registry holds its lock while it checks a text: with a
// single registry, every request would wait while another one checks a string of a megabyte.
var registries = sync.Pool{New: func() any { return strfmt.NewFormats() }}

// hasFormat says whether a text has a format, which must be one that the library knows: for others it returns false.
func hasFormat(format, text string) bool {
	r := registries.Get().(strfmt.Registry)
	defer registries.Put(r)
	return r.Validates(format, text)
}

// number checks a number against the range of its type, multipleOf, minimum and maximum.
//
// The problem: bounds are floats in a schema, values of type integer have 64 bits, and a float cannot hold all of
// those. 9007199254740993 (2⁵³+1) is above maximum: 9007199254740992, but as floats the two are equal. So an integer is
// compared with the bound as an integer. That works only for an integral bound:
//
//	type       bound    value    compared as
//	integer    5        6        integers
//	integer    5.5      6        floats; and the bound itself is an error, reported with each value
//	number     5        6.5      floats
//	number     5.5      6        integers, 5 and 6: the bound loses its fraction
//
// By the last row, a quirk of the library, {type: number, minimum: 5.5} accepts 5.
//
// The two matches are those that the library counts for the check as a whole.
func (c *checker) number(f *findings, v object.Value, t *Type, said *Constraints, at *location) {
	f.matches += 2
	c.inRange(f, v, t, said, "Checked", at)
	if m := said.MultipleOf; m != nil {
		if c.inRange(f, object.FloatOf(*m), t, said, "MultipleOf", at) && v.Kind() == object.Int {
			c.multiple(f, at, v, object.IntOf(int64(*m)))
		} else {
			c.multiple(f, at, object.FloatOf(v.Float()), object.FloatOf(*m))
		}
	}
	if m := said.Minimum; m != nil {
		whole := c.inRange(f, object.FloatOf(*m), t, said, "Minimum boundary", at) && v.Kind() == object.Int
		if v, m := alike(v, *m, whole); less(v, m) || said.ExclusiveMinimum && !less(m, v) {
			text := "should be greater than or equal to %v"
			if said.ExclusiveMinimum {
				text = "should be greater than %v"
			}
			c.invalid(f, at, BadValue(v), text, BadValue(m))
		}
	}
	if m := said.Maximum; m != nil {
		whole := c.inRange(f, object.FloatOf(*m), t, said, "Maximum boundary", at) && v.Kind() == object.Int
		if v, m := alike(v, *m, whole); less(m, v) || said.ExclusiveMaximum && !less(v, m) {
			text := "should be less than or equal to %v"
			if said.ExclusiveMaximum {
				text = "should be less than %v"
			}
			c.invalid(f, at, BadValue(v), text, BadValue(m))
		}
	}
}

// alike makes a number and its bound comparable (see number): two integers if whole, else two floats.
func alike(v object.Value, bound float64, whole bool) (object.Value, object.Value) {
	if whole {
		return v, object.IntOf(int64(bound))
	}
	return object.FloatOf(v.Float()), object.FloatOf(bound)
}

// less says whether a < b. Both are Ints, or both are Floats.
func less(a, b object.Value) bool {
	if a.Kind() == object.Int {
		return a.Int() < b.Int()
	}
	return a.Float() < b.Float()
}

// inRange checks that a number is in the range of its type and format, and says whether it is
// (IsValueValidAgainstRange). The library prints the number without an exponent and parses that text as the type: 1e300
// is not an integer because its 301 digits do not fit 64 bits, 1.5 is not because of its point, and 1e40 with format
// float is above the largest float32. A value of another type than the schema has was reported before (ofType), and is
// reported again here.
//
// what names the number in the error: "Checked" is the value, and the others are bounds of the schema.
func (c *checker) inRange(f *findings, v object.Value, t *Type, said *Constraints, what string, at *location) bool {
	var err error
	switch typ := t.jsonType(); {
	case typ == "integer" && v.Kind() == object.Int && c.format(said) != "int32":
	case typ == "integer":
		bits := 64
		if c.format(said) == "int32" {
			bits = 32
		}
		_, err = strconv.ParseInt(plain10(v), 10, bits)
	case typ == "number" && c.format(said) == "float":
		_, err = strconv.ParseFloat(plain10(v), 32)
	}
	if err == nil {
		return true
	}
	format := "(default format)"
	if c.format(said) != "" {
		format = "with format " + c.format(said)
	}
	c.say(f, at, "%[2]s value must be of type %[3]s %[4]s in %[1]s", what, t.jsonType(), format)
	return false
}

// plain10 is a number in decimal digits, without an exponent: up to 309 of them before the point.
func plain10(v object.Value) string {
	if v.Kind() == object.Int {
		return strconv.FormatInt(v.Int(), 10)
	}
	return strconv.FormatFloat(v.Float(), 'f', -1, 64)
}

// multiple checks multipleOf, for two Ints or two Floats. A factor that is not positive is an error of the schema, and
// is reported with each value, since the validation of definitions accepts it. The same holds for a factor of 0.5 on an
// integer: its integer part is 0.
//
// Floats divide with an error: 0.3/0.1 is 2.9999999999999996. So the quotient need only be near an integer (isWhole).
// For a factor below 1 it is computed by the reciprocal, as the library does: the rounding decides which numbers pass.
func (c *checker) multiple(f *findings, at *location, v, factor object.Value) {
	if !(factor.Int() > 0 || factor.Float() > 0) {
		if c.silent(f) {
			return
		}
		name := at.name()
		message := fmt.Sprintf("factor MultipleOf declared for %s must be positive: %v", name, BadValue(factor))
		c.add(f, finding{message, field.Invalid(c.at(name), BadValue(factor), message), 2 * len(message)})
		return
	}
	var ok bool
	switch {
	case factor.Kind() == object.Int:
		ok = v.Int()%factor.Int() == 0
	case factor.Float() < 1:
		ok = isWhole(1 / factor.Float() * v.Float())
	default:
		ok = isWhole(v.Float() / factor.Float())
	}
	if !ok {
		c.invalid(f, at, BadValue(v), "should be a multiple of %v", BadValue(factor))
	}
}

// isWhole says whether a float is an integer of at most 53 bits, or differs from one by less than a billionth of it,
// which is taken for a rounding error (IsFloat64AJSONInteger of the library). By this definition 1e16 is not whole.
func isWhole(f float64) bool {
	const most = 1<<53 - 1
	if math.IsNaN(f) || f < -most || f > most {
		return false
	}
	whole := math.Round(f)
	return f == whole || whole != 0 && math.Abs(f-whole) < 1e-9*math.Abs(whole)
}

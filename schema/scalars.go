package schema

import (
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/strfmt"

	"plinth/object"
)

// This file checks strings and numbers.

// text checks a string: the first rule of length and pattern that it breaks, and the format.
func (c *checker) text(f *findings, v object.Value, said *Constraints, at *place) {
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
		if re, err := patterns.get(said.Pattern); err != nil {
			c.invalid(f, at, text, "should match '%s, but pattern is invalid: %s'", said.Pattern, err)
		} else if !re.MatchString(text) {
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

// textFormats are the formats of strings that a server of this version checks, without the dashes that they may be
// written with. Others mean nothing.
var textFormats = []string{
	"bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4", "uuid5", "isbn",
	"isbn10", "isbn13",
	"creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password", "date", "duration", "datetime",
	"k8sshortname", "k8slongname", // since 1.34
}

// KnowsFormat says whether values of a type of a structural schema ("string", "integer"; "" where the schema names
// none) are checked against a format. Others mean nothing.
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

// format is the format that is checked.
func (c *checker) format(said *Constraints) string {
	if c.asDefault {
		return said.Format
	}
	return said.format
}

// effectiveFormat is the format that is checked at a place, "" where it is none.
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

// registries are copies of the library's registry of formats. One copy is locked while it checks a text, so that a
// long one would keep everybody else waiting.
var registries = sync.Pool{New: func() any { return strfmt.NewFormats() }}

// hasFormat says whether a text has a format that the library knows.
func hasFormat(format, text string) bool {
	r := registries.Get().(strfmt.Registry)
	defer registries.Put(r)
	return r.Validates(format, text)
}

// number checks a number. Whether it is a number of the type is checked first. A bound that is no number of the type
// is an error of its own, told with each value, and is then compared as a float; else an integer is compared with the
// bound's integer part.
func (c *checker) number(f *findings, v object.Value, t *Type, said *Constraints, at *place) {
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

// alike gives a number and its bound as two integers, or as two floats.
func alike(v object.Value, bound float64, whole bool) (object.Value, object.Value) {
	if whole {
		return v, object.IntOf(int64(bound))
	}
	return object.FloatOf(v.Float()), object.FloatOf(bound)
}

// less compares two of a kind.
func less(a, b object.Value) bool {
	if a.Kind() == object.Int {
		return a.Int() < b.Int()
	}
	return a.Float() < b.Float()
}

// inRange checks that a number is one of the type and format, and says whether it is. The library prints it and reads
// it again as such; so 1e300 fails as an integer because its text does not fit 64 bits. what names the number in the
// error: the value itself, or a bound of the schema.
func (c *checker) inRange(f *findings, v object.Value, t *Type, said *Constraints, what string, at *place) bool {
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
	c.say(f, fmt.Sprintf("%s value must be of type %s %s in %s", what, t.jsonType(), format, at.name()))
	return false
}

// plain10 is a number without an exponent.
func plain10(v object.Value) string {
	if v.Kind() == object.Int {
		return strconv.FormatInt(v.Int(), 10)
	}
	return strconv.FormatFloat(v.Float(), 'f', -1, 64)
}

// multiple checks multipleOf, for two integers or two floats.
func (c *checker) multiple(f *findings, at *place, v, factor object.Value) {
	if !(factor.Int() > 0 || factor.Float() > 0) {
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

// isWhole says whether a float is an integer that JSON can hold, or so near to one that the difference is taken for
// an error of rounding.
func isWhole(f float64) bool {
	const most = 1<<53 - 1
	if math.IsNaN(f) || f < -most || f > most {
		return false
	}
	whole := math.Round(f)
	return f == whole || whole != 0 && math.Abs(f-whole) < 1e-9*math.Abs(whole)
}

// patterns are the compiled patterns of all schemas.
var patterns = patternCache{limit: 8 << 20}

// patternCache keeps patterns compiled, up to a bound on what they take: a pattern is compiled when a value is first
// checked against it, and many schemas share theirs. In two generations: a pattern that is asked for moves to the
// young one, and when that holds half of what may be kept, it becomes the old one, and the old one goes. So what was
// used lately stays, without a list of who was used when.
//
//	size(young) ≤ limit/2 ∧ size(old) ≤ limit/2
//
// A map without a bound would grow with every definition that was ever there; compiling a pattern per value takes many
// times what matching it takes.
type patternCache struct {
	limit int // of the memory of both generations

	mu         sync.RWMutex
	young, old map[string]compiledPattern
	size       int // of young
}

type compiledPattern struct {
	re   *regexp.Regexp
	size int
}

// instruction is about what one instruction of a compiled pattern takes, with what is derived from it.
const instruction = 100

// get is the compiled pattern, or the error of compiling it, which is not kept. Patterns above half the limit are
// compiled each time. Two callers may compile the same pattern at once; the second one's is used by it alone.
func (c *patternCache) get(pattern string) (*regexp.Regexp, error) {
	c.mu.RLock()
	known, ok := c.young[pattern]
	c.mu.RUnlock()
	if ok {
		return known.re, nil
	}
	c.mu.RLock()
	known, ok = c.old[pattern]
	c.mu.RUnlock()
	if !ok {
		var err error
		pattern = strings.Clone(pattern) // it may be a part of a whole definition
		if known, err = compilePattern(pattern); err != nil {
			return nil, err
		}
	}
	if known.size > c.limit/2 {
		return known.re, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.young == nil || c.size+known.size > c.limit/2 {
		c.young, c.old, c.size = map[string]compiledPattern{}, c.young, 0
	}
	if _, ok := c.young[pattern]; !ok {
		c.young[pattern] = known
		c.size += known.size
	}
	return known.re, nil
}

// compilePattern compiles a pattern and estimates its size by the length of the program that it becomes: a{1000} is
// short as text.
func compilePattern(pattern string) (compiledPattern, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return compiledPattern{}, err
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return compiledPattern{}, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return compiledPattern{}, err
	}
	return compiledPattern{re, len(pattern) + instruction*len(program.Inst)}, nil
}

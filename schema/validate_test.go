package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/recent"
	"plinth/object"
)

const validated = `
type: object
required: [spec]
properties:
  spec:
    type: object
    required: [a]
    properties:
      a: {type: string, maxLength: 3, pattern: "^a"}
      i: {type: integer, minimum: 1, maximum: 5}
      port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
      when: {type: string, format: date-time}
      one: {type: string, enum: [a, b]}
      set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
      byKey: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, required: [k], properties: {k: {type: string}, v: {type: integer, maximum: 5}}}}
      atoms: {type: array, maxItems: 2, items: {type: integer, maximum: 5}}
      map: {type: object, additionalProperties: {type: integer}}
      union: {type: object, properties: {x: {type: string}, z: {type: string}}, oneOf: [{required: [x]}, {required: [z]}]}
      template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
  status: {type: object, properties: {count: {type: integer, maximum: 5}}}
`

func lines(errs field.ErrorList) string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return strings.Join(out, "\n")
}

func validatedType(t *testing.T) *Type {
	t.Helper()
	out, err := Structural(parsed(t, validated), StructuralOptions{
		Metadata: FromGo(metadataType, nil),
		Inspect: func(metadata object.Value, path *field.Path) field.ErrorList {
			if metadata.At("name").Str() == "bad" {
				return field.ErrorList{field.Invalid(path.Child("name"), "bad", "is bad")}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// SPEC: EXT-1
func TestValidate(t *testing.T) {
	typ := validatedType(t)
	for _, c := range []struct{ in, want string }{
		{`{"spec":{"a":"a","i":5,"port":"x","when":"2024-01-02T03:04:05Z","one":"b","set":["a","b"],"byKey":[{"k":"a"},{"k":"b"}],"atoms":[5],"map":{"k":1},"union":{"x":""}}}`, ""},
		{`{}`, "spec: Required value"},
		{`{"spec":{"a":"b"}}`, `spec.a: Invalid value: "b": spec.a in body should match '^a'`},
		{`{"spec":{"a":"aééé"}}`, `spec.a: Too long: may not be more than 3 bytes`},
		{`{"spec":{"a":"a","i":1.5}}`, `spec.i: Invalid value: "number": spec.i in body must be of type integer: "number"` +
			"\n" +
			`<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.i`},
		{`{"spec":{"a":"a","i":9}}`, `spec.i: Invalid value: 9: spec.i in body should be less than or equal to 5`},
		{`{"spec":{"a":"a","port":true}}`,
			`spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"` + "\n" +
				`<nil>: Invalid value: "": "spec.port" must validate at least one schema (anyOf)` + "\n" +
				`spec.port: Invalid value: "boolean": spec.port in body must be of type integer: "boolean"`},
		{`{"spec":{"a":null,"when":"now"}}`, `spec.a: Invalid value: "null": spec.a in body must be of type string: "null"` +
			"\n" +
			`spec.when: Invalid value: "now": spec.when in body must be of type date-time: "now"`},
		{`{"spec":{"a":"a","one":"c"}}`, `spec.one: Unsupported value: "c": supported values: "a", "b"`},
		{`{"spec":{"a":"a","atoms":[1,2,9]}}`,
			`spec.atoms[2]: Invalid value: 9: spec.atoms[2] in body should be less than or equal to 5` + "\n" +
				`spec.atoms: Too many: 3: must have at most 2 items`},
		{`{"spec":{"a":"a","set":["a","b","a","a"],"byKey":[{"k":"a"},{"k":"a"}]}}`,
			`spec.byKey[1]: Duplicate value: {"k":"a"}` + "\n" + `spec.set[2]: Duplicate value: "a"`},
		{`{"spec":{"a":"a","map":{"k":"v"}}}`,
			`spec.map.k: Invalid value: "string": spec.map.k in body must be of type integer: "string"`},
		{`{"spec":{"a":"a","union":{}}}`,
			`<nil>: Invalid value: "": "spec.union" must validate one and only one schema (oneOf). Found none valid` + "\n" +
				`spec.union.x: Required value`},
		{`{"spec":{"a":"a","union":{"x":"","z":""}}}`,
			`<nil>: Invalid value: "": "spec.union" must validate one and only one schema (oneOf). Found 2 valid alternatives`},
		{`{"spec":{"a":"a","template":{"kind":"","metadata":{"name":"bad"}}}}`, "spec.template.apiVersion: Required value\n" +
			`spec.template.kind: Invalid value: "": must not be empty` + "\n" +
			`spec.template.metadata.name: Invalid value: "bad": is bad`},
	} {
		if got := lines(typ.Validate(parsedJSON(t, c.in), object.Nil, nil)); got != c.want {
			t.Errorf("%s: the errors are\n%s\nwant\n%s", c.in, got, c.want)
		}
	}
}

// An update is not refused for errors in values that it does not change.
// SPEC: EXT-1
func TestRatcheting(t *testing.T) {
	typ := validatedType(t)
	const old = `{"spec":{"a":"b","map":{"k":"v"},"atoms":[9],"set":["a","a"],"byKey":[{"k":"a","v":9},{"k":"b"}]},"status":{"count":9}}`
	for _, c := range []struct{ in, want, status string }{
		{in: old},
		{in: `{"spec":{"a":"b","map":{"k":"v","l":1},"atoms":[9],"set":["a","a","a"],"byKey":[{"k":"c"},{"k":"a","v":9}]},"status":{"count":9}}`},
		{`{"spec":{"a":"c","map":{"k":"w"},"atoms":[9,1],"byKey":[{"k":"a","v":8},{"k":"b"}]},"status":{"count":8}}`,
			`spec.a: Invalid value: "c": spec.a in body should match '^a'` + "\n" +
				`spec.atoms[0]: Invalid value: 9: spec.atoms[0] in body should be less than or equal to 5` + "\n" +
				`spec.byKey[0].v: Invalid value: 8: spec.byKey[0].v in body should be less than or equal to 5` + "\n" +
				`spec.map.k: Invalid value: "string": spec.map.k in body must be of type integer: "string"` + "\n" +
				`status.count: Invalid value: 8: status.count in body should be less than or equal to 5`,
			`status.count: Invalid value: 8: count in body should be less than or equal to 5`},
	} {
		v, before := parsedJSON(t, c.in), parsedJSON(t, old)
		if got := lines(typ.Validate(v, before, nil)); got != c.want {
			t.Errorf("%s: the errors are\n%s\nwant\n%s", c.in, got, c.want)
		}
		if got := lines(typ.ValidateStatus(v, before, nil)); got != c.status {
			t.Errorf("status of %s: the errors are\n%s\nwant\n%s", c.in, got, c.status)
		}
	}
}

// Deep maps, each of which breaks a rule, must not be compared with the old ones once for each level.
func TestRatchetingComparesOnce(t *testing.T) {
	const depth = 2000
	var nested, v strings.Builder
	for range depth {
		nested.WriteString(`{"type":"object","maxProperties":1,"properties":{"s":{"type":"string"},"x":`)
		v.WriteString(`{"s":"` + strings.Repeat("s", 100) + `","x":`)
	}
	nested.WriteString(`{"type":"integer","maximum":1}` + strings.Repeat("}}", depth))
	typ, err := Structural(parsedJSON(t, nested.String()), StructuralOptions{Metadata: FromGo(metadataType, nil)})
	if err != nil {
		t.Fatal(err)
	}
	object := func(n int) object.Value { return parsedJSON(t, v.String()+fmt.Sprint(n)+strings.Repeat("}", depth)) }
	old, made := object(3), object(2)
	if n := testing.AllocsPerRun(1, func() { typ.Validate(made, old, nil) }); n > 100*depth {
		t.Errorf("%v allocations for a depth of %d, want at most %d", n, depth, 100*depth)
	}
}

// SPEC: WRITE-6
func TestReportedErrorsAreBounded(t *testing.T) {
	typ := validatedType(t)
	long := strings.Repeat("x", 10_000)
	for name, in := range map[string]string{
		"many errors": `{"spec":{"a":"a","atoms":[` + strings.Repeat(`"",`, 300_000) + `""]}}`,
		"long names": `{"spec":{"a":"a","map":{` + strings.Repeat(`"`+long+`":"",`, 1) + manyKeys(long,
			1000) + `}}}`,
		"one value, long":      `{"spec":{"a":"` + strings.Repeat("x", 3<<20) + `"}}`,
		"duplicates":           `{"spec":{"a":"a","set":["` + long + manyItems(long, 1000) + `"]}}`,
		"embedded":             `{"spec":{"a":"a","template":{"kind":"` + strings.Repeat("!", 2<<20) + `"}}}`,
		"wrong in every place": `{"spec":{"a":"a","byKey":[` + strings.Repeat(`{"v":9},`, 100_000) + `1]}}`,
	} {
		errs := typ.Validate(parsedJSON(t, in), object.Nil, nil)
		size := 0
		for _, err := range errs {
			size += len(err.Error())
		}
		if len(errs) == 0 || size > 8<<20 {
			t.Errorf("%s: %d errors of %d bytes, want some errors of at most %d bytes", name, len(errs), size, 8<<20)
		}
	}
}

func manyKeys(long string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%s%d":"",`, long, i)
	}
	return b.String() + `"z":1`
}

func manyItems(long string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `","%s%d","%s%d`, long, i, long, i)
	}
	return b.String()
}

func TestPatternsAreBounded(t *testing.T) {
	const limit = 1 << 17
	c := patternCache{recent.Cache[string, compiledPattern]{Limit: limit}}
	text := func(i int) string { return fmt.Sprintf("^[a-z]{1,%d}x%d$", 1+i%50, i) }
	for i := range 2_000 {
		first, err := c.get(text(i))
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := c.get(text(i)); first.re != again.re {
			t.Fatal("a pattern is compiled again at once")
		}
	}
	size := 0
	for i := range 2_000 {
		if p, ok := c.known.Get(text(i)); ok {
			size += p.size
		}
	}
	if size > 2*limit || size < limit/2 {
		t.Errorf("%d bytes of patterns are kept, want at most %d and at least a quarter of that", size, 2*limit)
	}
	large := strings.Repeat("(abc){1000}", 100)
	if _, err := c.get(large); err != nil {
		t.Errorf("a pattern above the limit: %v", err)
	}
	if _, ok := c.known.Get(large); ok {
		t.Error("a pattern above the limit is kept")
	}
	if _, err := c.get("("); err == nil {
		t.Error("a pattern that does not compile has no error")
	}
}

// stopAfter is a stop that returns an error from its call n+1 on.
func stopAfter(n int) func() error {
	return func() error {
		if n--; n < 0 {
			return errors.New("too late")
		}
		return nil
	}
}

// Validation ends when it is told to, before it has seen all values.
//
// SPEC: WRITE-7
func TestValidationStops(t *testing.T) {
	const items = 1000
	typ, err := Structural(parsedJSON(t, `{"type":"object","properties":{"status":{"type":"object","properties":{
		"list":{"type":"array","items":{"type":"integer"}}}}}}`), StructuralOptions{Metadata: FromGo(metadataType, nil)})
	if err != nil {
		t.Fatal(err)
	}
	v := parsedJSON(t, `{"status":{"list":[`+strings.TrimSuffix(strings.Repeat(`"x",`, items), ",")+`]}}`)
	for name, validate := range map[string]func(stop func() error) field.ErrorList{
		"Validate":       func(stop func() error) field.ErrorList { return typ.Validate(v, object.Nil, stop) },
		"ValidateStatus": func(stop func() error) field.ErrorList { return typ.ValidateStatus(v, object.Nil, stop) },
		"CheckDefault":   func(stop func() error) field.ErrorList { return typ.CheckDefault(v, nil, stop) },
	} {
		if n := len(validate(nil)); n != items {
			t.Errorf("%s: %d errors, want %d", name, n, items)
		}
		if n := len(validate(stopAfter(3))); n > 4*askedEvery {
			t.Errorf("%s: %d errors after it was stopped", name, n)
		}
	}
}

// A match that takes long reads only a part of its text when validation is stopped.
//
// SPEC: WRITE-7
func TestMatchesStop(t *testing.T) {
	text := strings.Repeat("é", 1<<20)
	c := checker{stop: stopAfter(3)}
	r := &stoppable{Reader: strings.NewReader(text), c: &c}
	n := 0
	for ; ; n++ {
		if _, _, err := r.ReadRune(); err != nil {
			break
		}
	}
	if n > 100 || !c.stopped {
		t.Errorf("%d runes were read", n)
	}
	p, err := compilePattern("^(é{500}x?)*$")
	if err != nil {
		t.Fatal(err)
	}
	for _, many := range []int{0, 1, 2} {
		c = checker{stop: stopAfter(many)}
		c.matches(p, text)
		if !c.stopped {
			t.Errorf("a match of %d runes has asked less than %d times whether it is to stop", len(text)/2, many+1)
		}
	}
}

// A match that can be stopped has the same result as one that cannot.
func TestLongMatches(t *testing.T) {
	long := strings.Repeat("ab", 100_000)
	for _, text := range []string{long, long + "c", "c" + long, long + "\xff", long + "é", "", "abc"} {
		for _, pattern := range []string{"c", "^c", "c$", "^(ab)*$", "^(ab)*.$", "^$", "[^a-c]", "(ab){100}c", "é", "\\bc"} {
			p, err := compilePattern(pattern)
			if err != nil {
				t.Fatal(err)
			}
			c := checker{stop: func() error { return nil }}
			if got, want := c.matches(p, text), p.re.MatchString(text); got != want {
				t.Errorf("%s and %.10s…: %v, want %v", pattern, text, got, want)
			}
		}
	}
}

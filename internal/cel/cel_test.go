package cel

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
	"plinth/schema"
)

var metadata = schema.FromGo(reflect.TypeFor[metav1.ObjectMeta](), noFacts{})

type noFacts struct{}

func (noFacts) Of(reflect.Type) (schema.Markers, map[string]schema.Markers) {
	return schema.Markers{}, nil
}

func parsed(t testing.TB, text string) object.Value {
	t.Helper()
	p, err := object.ParseYAML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	v, err := p.Value.Untyped()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func structural(t testing.TB, text string) *schema.Type {
	t.Helper()
	typ, err := schema.Structural(parsed(t, text), schema.StructuralOptions{Metadata: metadata})
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

func lines(errs field.ErrorList) (out []string) {
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return out
}

func same(t *testing.T, name string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", name, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// widgets is a type with most kinds of rules.
const widgets = `
type: object
properties:
  spec:
    type: object
    x-kubernetes-validations:
    - {rule: "self.min <= self.max", message: min must not be larger than max}
    - {rule: "self.min <= self.max", messageExpression: "'%d is larger than %d'.format([self.min, self.max])", reason: FieldValueForbidden, fieldPath: .min}
    - {rule: "!has(oldSelf.class) || has(self.class)", message: class must stay}
    properties:
      min: {type: integer, x-kubernetes-validations: [{rule: "self >= 0"}]}
      max: {type: integer}
      class: {type: string, maxLength: 20, x-kubernetes-validations: [{rule: "self == oldSelf", message: class is immutable}]}
      first:
        type: string
        x-kubernetes-validations:
        - {rule: "oldSelf.hasValue() || self == 'new'", optionalOldSelf: true, message: begins as new}
      ports:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [name]
        items:
          type: object
          required: [name]
          properties:
            name: {type: string}
            number: {type: integer, x-kubernetes-validations: [{rule: "self >= oldSelf", message: numbers only grow}]}
      tags:
        type: object
        additionalProperties: {type: string, x-kubernetes-validations: [{rule: "self.startsWith('t-')"}]}
`

// SPEC: EXT-1
func TestValidate(t *testing.T) {
	rules := Compile(structural(t, widgets))
	for _, c := range []struct {
		name, obj, old string
		want, warnings []string
	}{
		{name: "nothing is wrong", obj: `spec: {min: 1, max: 2, class: a, tags: {a: t-1}, first: new}`},
		{name: "there is no value", obj: `spec: null`},
		{name: "a message, an expression of one, a reason, a path", obj: `spec: {min: 2, max: 1}`, want: []string{
			"spec: Invalid value: min must not be larger than max",
			"spec.min: Forbidden: 2 is larger than 1",
		}},
		{name: "a scalar is repeated", obj: `spec: {min: -1, max: 2}`,
			want: []string{"spec.min: Invalid value: -1: failed rule: self >= 0"}},
		{name: "a field is missing", obj: `spec: {min: 1}`, want: []string{
			"spec: Invalid value: \"object\": no such key: max evaluating rule: min must not be larger than max",
			"spec: Invalid value: \"object\": no such key: max evaluating rule: self.min <= self.max",
		}},
		{name: "members of a map", obj: `spec: {min: 1, max: 2, tags: {b: x, a: z}}`, want: []string{
			`spec.tags[a]: Invalid value: "z": failed rule: self.startsWith('t-')`,
			`spec.tags[b]: Invalid value: "x": failed rule: self.startsWith('t-')`,
		}},
		{name: "transition rules", obj: `spec: {min: 1, max: 2, class: b}`, old: `spec: {min: 1, max: 2, class: a}`,
			want: []string{
				`spec.class: Invalid value: "b": class is immutable`}},
		{name: "a transition rule without an old value", obj: `spec: {min: 1, max: 2, class: b}`,
			old: `spec: {min: 1, max: 2}`},
		{name: "a field is removed", obj: `spec: {min: 1, max: 2}`, old: `spec: {min: 1, max: 2, class: a}`, want: []string{
			"spec: Invalid value: class must stay"}},
		{name: "an optional old value", obj: `spec: {min: 1, max: 2, first: old}`, want: []string{
			`spec.first: Invalid value: "old": begins as new`}},
		{name: "an optional old value that is there", obj: `spec: {min: 1, max: 2, first: old}`,
			old: `spec: {min: 1, max: 2, first: new}`},
		{name: "items are found by their keys",
			obj:  `spec: {min: 1, max: 2, ports: [{name: b, number: 1}, {name: a, number: 3}]}`,
			old:  `spec: {min: 1, max: 2, ports: [{name: a, number: 2}, {name: b, number: 2}, {name: b, number: 0}]}`,
			want: []string{"spec.ports[0].number: Invalid value: 1: numbers only grow"}},
		{name: "what does not change is a warning", obj: `spec: {min: -1, max: 2, class: a}`,
			old:      `spec: {min: -1, max: 3, class: a}`,
			warnings: []string{"spec.min: Invalid value: -1: failed rule: self >= 0"}},
		{name: "what changes is none", obj: `spec: {min: -2, max: 2}`, old: `spec: {min: -1, max: 2}`,
			want: []string{"spec.min: Invalid value: -2: failed rule: self >= 0"}},
	} {
		old := object.Nil
		if c.old != "" {
			old = parsed(t, c.old)
		}
		errs, warnings := rules.Validate(t.Context(), parsed(t, c.obj), old, nil)
		same(t, c.name, lines(errs), c.want)
		same(t, c.name+" (warnings)", warnings, c.warnings)
	}
}

// SPEC: EXT-1
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name, schema string
		options      CheckOptions
		want         []string
	}{
		{name: "nothing is wrong", schema: widgets},
		{name: "it does not compile", schema: `{type: object, x-kubernetes-validations: [{rule: "self.x > 1"}]}`,
			want: []string{
				`p.x-kubernetes-validations[0].rule: Invalid value: {"Rule":"self.x \u003e 1","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: ` +
					"compilation failed: ERROR: <input>:1:5: undefined field 'x'\n | self.x > 1\n | ....^"}},
		{name: "it is no bool", schema: `{type: object, x-kubernetes-validations: [{rule: "1"}]}`, want: []string{
			`p.x-kubernetes-validations[0].rule: Invalid value: {"Rule":"1","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: ` +
				"cel expression must evaluate to a bool"}},
		{name: "no limits",
			schema: `{type: object, properties: {l: {type: array, items: {type: array, items: {type: string}}, x-kubernetes-validations: [{rule: "self.all(x, x.all(y, y != 'a'))"}]}}}`,
			want: []string{
				"p.properties[l].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
				"p.properties[l].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
				"p: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
			}},
		{name: "the schema is stored",
			schema:  `{type: object, properties: {l: {type: array, maxItems: 700000, items: {type: string, maxLength: 1}, x-kubernetes-validations: [{rule: "self.all(x, x != 'a')"}]}}}`,
			options: CheckOptions{Unchanged: true}},
		{name: "oldSelf in a list",
			schema: `{type: object, properties: {l: {type: array, maxItems: 9, items: {type: string, maxLength: 5, x-kubernetes-validations: [{rule: "self == oldSelf"}]}}}}`,
			want:   []string{`p.properties[l].items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within p.properties[l]`}},
		{name: "optionalOldSelf without oldSelf",
			schema: `{type: object, x-kubernetes-validations: [{rule: "true", optionalOldSelf: true}]}`,
			want:   []string{`p.x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule`}},
		{name: "what only this version knows",
			schema: `{type: object, x-kubernetes-validations: [{rule: "[1].includes(1)"}]}`, want: []string{
				`p.x-kubernetes-validations[0].rule: Invalid value: {"Rule":"[1].includes(1)","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: ` +
					"compilation failed: ERROR: <input>:1:13: undeclared reference to 'includes' (in container '')\n | [1].includes(1)\n | ............^"}},
		{name: "what only this version knows, stored",
			schema: `{type: object, x-kubernetes-validations: [{rule: "[1].includes(1)"}]}`,
			options: CheckOptions{Stored: func(expression string, message bool) bool {
				return expression == "[1].includes(1)" &&
					!message
			}}},
		{name: "skipped", schema: `{type: object, x-kubernetes-validations: [{rule: "1"}]}`,
			options: CheckOptions{Skip: func(path string) bool { return path == "p" }}},
	} {
		same(t, c.name, lines(Check(structural(t, c.schema), field.NewPath("p"), c.options)), c.want)
	}
}

// SPEC: EXT-1: a cancelled validation is an error, so that its result is not mistaken for a valid object.
func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	errs, _ := Compile(structural(t, widgets)).Validate(ctx, parsed(t, `spec: {min: 1, max: 2}`), object.Nil, nil)
	same(t, "ended", lines(errs), []string{"spec: Internal error: context canceled"})
}

// A check of rules ends when it is told to.
//
// SPEC: WRITE-7
func TestCheckStops(t *testing.T) {
	typ := structural(t, `{type: object, x-kubernetes-validations: [`+strings.Repeat(`{rule: nope},`, 49)+`{rule: nope}]}`)
	if errs := Check(typ, nil, CheckOptions{}); len(errs) != 50 {
		t.Errorf("%d errors, want 50", len(errs))
	}
	left := 5
	stop := func() error {
		if left--; left < 0 {
			return errors.New("too late")
		}
		return nil
	}
	if errs := Check(typ, nil, CheckOptions{Stop: stop}); len(errs) != 5 {
		t.Errorf("%d errors, want 5", len(errs))
	}
}

// Rules are found below lists and maps for which the schema specifies nothing else.
func TestRulesBelowPlainLists(t *testing.T) {
	for _, text := range []string{
		`{type: object, properties: {a: {type: array, items: {type: integer, x-kubernetes-validations: [{rule: "self > 0 && nope"}]}}}}`,
		`{type: object, properties: {a: {type: object, additionalProperties: {type: integer, x-kubernetes-validations: [{rule: "nope"}]}}}}`,
		`{type: object, properties: {a: {type: object, properties: {b: {type: integer, x-kubernetes-validations: [{rule: "nope"}]}}}}}`,
		`{type: object, properties: {metadata: {type: object, x-kubernetes-validations: [{rule: "nope"}]}}}`,
	} {
		if errs := Check(structural(t, text), nil, CheckOptions{}); len(errs) != 1 {
			t.Errorf("%s: %v", text, errs)
		}
	}
}

// The text of errors and of warnings is bounded, even if each item below a long key breaks a rule that costs nothing.
// Behind many warnings, an error is still found.
//
// SPEC: WRITE-6
func TestReportsAreBounded(t *testing.T) {
	const items = 5000
	key := strings.Repeat("k", items)
	typ := structural(t, `{type: object, properties: {spec: {type: object, additionalProperties: {type: array,
		items: {type: integer, x-kubernetes-validations: [{rule: "false"}]}}}, z: {type: integer,
		x-kubernetes-validations: [{rule: "self > 1"}]}}}`)
	of := func(z int64) object.Value {
		list := make([]object.Value, items)
		for i := range list {
			list[i] = object.IntOf(0)
		}
		return object.Fields("spec", object.Fields(key, object.ListOf(list...)), "z", object.IntOf(z))
	}
	rules := Compile(typ)
	errs, _ := rules.Validate(t.Context(), of(0), parsed(t, "null"), nil)
	size := 0
	for _, text := range lines(errs) {
		size += len(text)
	}
	if len(errs) == 0 || size > 2*maxReported {
		t.Errorf("%d errors of %d bytes", len(errs), size)
	}
	errs, warnings := rules.Validate(t.Context(), of(0), of(2), nil)
	size = 0
	for _, text := range warnings {
		size += len(text)
	}
	if len(warnings) == 0 || size > 2*maxReported {
		t.Errorf("%d warnings of %d bytes", len(warnings), size)
	}
	if len(errs) != 1 || errs[0].Field != "z" {
		t.Errorf("errors behind the warnings: %v", lines(errs))
	}
}

package schema

import (
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/object"
)

// structuralType compiles a schema written as YAML.
func structuralType(t testing.TB, text string) *Type {
	t.Helper()
	out, err := Structural(parsed(t, text), StructuralOptions{Metadata: FromGo(metadataType, nil)})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func parsed(t testing.TB, text string) object.Value {
	t.Helper()
	p, err := object.ParseYAML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p.Value
}

// at descends in a type by names of fields; [] is the items of a list, {} the members of a map.
func at(t *Type, path string) *Type {
	for name := range strings.SplitSeq(path, ".") {
		switch {
		case t == nil || name == "":
		case name == "[]":
			t = t.Items()
		case name == "{}":
			t = t.additional()
		default:
			f := t.Field(name)
			if f == nil {
				return nil
			}
			t = f.Type
		}
	}
	return t
}

var metadataType = reflect.TypeFor[metav1.ObjectMeta]()

const everyKind = `
type: object
required: [spec]
properties:
  metadata: {type: object, properties: {name: {type: string, pattern: "^a"}}}
  spec:
    type: object
    x-kubernetes-map-type: atomic
    properties:
      count: {type: integer, format: int32, minimum: 1, default: 3}
      exact: {type: integer}
      port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
      empty: {type: object}
      labels: {type: object, additionalProperties: {type: string}}
      free: {type: object, additionalProperties: true}
      open: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {in: {type: object, properties: {a: {type: string}}}}}
      any: {x-kubernetes-preserve-unknown-fields: true}
      atoms: {type: array, items: {type: string}}
      set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
      items: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, properties: {k: {type: string}}}}
      template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
      ruled: {type: string, x-kubernetes-validations: [{rule: "self != ''", message: m, optionalOldSelf: true}]}
`

// SPEC: EXT-1
func TestStructuralKinds(t *testing.T) {
	root := structuralType(t, everyKind)
	for path, want := range map[string]Kind{
		"": Struct, "apiVersion": String, "metadata": Struct, "metadata.labels": Map, "spec": Struct, "spec.count": Int,
		"spec.port":  IntOrString,
		"spec.empty": Struct, "spec.labels": Map, "spec.labels.{}": String, "spec.free": Struct, "spec.open": Struct,
		"spec.any":   Any,
		"spec.atoms": List, "spec.atoms.[]": String, "spec.items.[].k": String, "spec.template.metadata": Struct,
		"spec.template.kind": String,
	} {
		if got := at(root, path); got == nil || got.Kind != want {
			t.Errorf("%s is %+v, not %v", path, got, want)
		}
	}
	// The type that merges see for undeclared members: none in a closed struct, Any in one that is open or empty.
	for path, open := range map[string]bool{
		"": false, "spec": false, "spec.empty": true, "spec.free": true, "spec.open": true, "spec.open.in": true,
		"spec.template": true, "spec.items.[]": false,
	} {
		if got := at(root, path).Elem; (got != nil) != open || open && got.Kind != Any {
			t.Errorf("members of %q that are not declared are %+v", path, got)
		}
	}
	spec := at(root, "spec")
	if !spec.AtomicMap || at(root, "spec.open").AtomicMap {
		t.Error("wrong map types")
	}
	if at(root, "spec.atoms").ListType != Atomic || at(root, "spec.set").ListType != Set {
		t.Error("wrong list types")
	}
	if l := at(root, "spec.items"); l.ListType != Associative || len(l.ListKeys) != 1 || l.ListKeys[0] != "k" {
		t.Errorf("a list by keys: %+v", l)
	}
	if c := at(root, "spec.count").Custom; c == nil || *c.Minimum != 1 || c.Format != "int32" ||
		c.Default != object.IntOf(3) {
		t.Errorf("constraints of count: %+v", c)
	}
	if r := at(root, "spec.ruled").Custom.Rules; len(r) != 1 || r[0].Rule != "self != ''" || r[0].Message != "m" ||
		!*r[0].OptionalOldSelf {
		t.Errorf("rules: %+v", r)
	}
	if m := root.Custom.Metadata; at(m, "name").Custom.Pattern != "^a" || at(root, "metadata.name").Custom != nil {
		t.Error("the constraints on metadata are not in Metadata")
	}
	if at(root, "spec.exact") != at(structuralType(t, everyKind), "spec.exact") {
		t.Error("scalars without constraints do not share one type")
	}
}

// SPEC: EXT-1
func TestStructuralRefusesWhatIsNone(t *testing.T) {
	for _, text := range []string{
		`[]`, `{type: file}`, `{type: object, properties: {a: {type: file}}}`, `{type: object, $ref: x}`,
		`{type: object, properties: {a: {type: array}}}`,
		`{type: object, properties: {a: {type: array, items: [{type: string}]}}}`, `{type: object, patternProperties: {}}`,
		`{type: object, properties: {a: {type: object, x-kubernetes-map-type: none}}}`, `{type: object, properties: {a: 1}}`,
		`{type: object, properties: {a: {type: array, x-kubernetes-list-type: map, items: {type: object}}}}`,
		`{type: object, allOf: [1]}`, `{type: object, anyOf: [1]}`, `{type: object, oneOf: [1]}`, `{type: object, not: 1}`,
	} {
		if _, err := Structural(parsed(t, text), StructuralOptions{Metadata: FromGo(metadataType, nil)}); err == nil {
			t.Errorf("accepted: %s", text)
		}
	}
}

// largeSchema is a schema of 45 kB, with descriptions, as generators of definitions write them.
func largeSchema() string {
	const field = `"field%d":{"description":"Field is what a field of a real definition is, and its description says so at some length, as they do.",` +
		`"type":"object","properties":{"name":{"description":"Name of it.","type":"string","maxLength":63,"pattern":"^[a-z]+$"},` +
		`"items":{"type":"array","items":{"type":"object","required":["key"],"properties":{"key":{"type":"string"},"value":{"type":"integer","format":"int32"},` +
		`"port":{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]}}}},"labels":{"type":"object","additionalProperties":` +
		`{"type":"string"}}}}`
	var b strings.Builder
	b.WriteString(`{"type":"object","properties":{"spec":{"type":"object","properties":{"first":{"type":"string"}`)
	for i := 0; b.Len() < 45_000; i++ {
		b.WriteString("," + strings.Replace(field, "%d", strings.Repeat("x", i), 1))
	}
	return b.String() + `}}}}`
}

func BenchmarkStructural(b *testing.B) {
	from := parsedJSON(b, largeSchema())
	options := StructuralOptions{Metadata: FromGo(metadataType, nil)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Structural(from, options); err != nil {
			b.Fatal(err)
		}
	}
}

// The first request of a new definition waits for its compilation, and the result is kept: both must be cheap.
func TestCompilingIsCheap(t *testing.T) {
	from := parsedJSON(t, largeSchema())
	options := StructuralOptions{Metadata: FromGo(metadataType, nil)}
	compile := func() {
		if _, err := Structural(from, options); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(3, compile); n > 1300 {
		t.Errorf("%v allocations", n)
	}
}

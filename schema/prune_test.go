package schema

import (
	"slices"
	"strings"
	"testing"

	"plinth/object"
)

const pruned = `
type: object
properties:
  spec:
    type: object
    properties:
      a: {type: string}
      "n": {type: integer}
      nullable: {type: string, nullable: true}
      filled: {type: string, default: f}
      map: {type: object, additionalProperties: {type: object, properties: {a: {type: string}}}}
      free: {type: object, additionalProperties: true}
      list: {type: array, items: {type: object, properties: {a: {type: string}}}}
      open:
        type: object
        x-kubernetes-preserve-unknown-fields: true
        properties: {in: {type: object, properties: {a: {type: string}}}}
      opens: {type: array, x-kubernetes-preserve-unknown-fields: true, items: {type: object, properties: {in: {type: object}}}}
      template: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object, properties: {a: {type: string}}}}}
`

// SPEC: EXT-1 VAL-2
func TestPruning(t *testing.T) {
	typ := structuralType(t, pruned)
	for _, c := range []struct{ name, in, out, unknown, err string }{
		{name: "nothing to do", in: `{"spec":{"a":"b","n":1}}`, out: `{"spec":{"a":"b","n":1}}`},
		{"unknown fields", `{"x":1,"spec":{"b":1,"a":"","list":[{"c":{"d":1}},1]}}`, `{"spec":{"a":"","list":[{},1]}}`,
			"spec.b spec.list[0].c x", ""},
		{"the order of unknown fields", `{"spec":{"a":{"x":1},"a-b":1}}`, `{"spec":{"a":{}}}`, "spec.a-b spec.a.x", ""},
		{"a value of another type", `{"spec":{"a":{"b":{}},"n":[{"c":1}]}}`, `{"spec":{"a":{},"n":[{}]}}`,
			"spec.a.b spec.n[0].c", ""},
		{"preserved down to the next schema",
			`{"spec":{"open":{"x":{"y":1},"in":{"a":"","b":1}},"opens":[{"x":1,"in":{"y":1}}]}}`,
			`{"spec":{"open":{"in":{"a":""},"x":{"y":1}},"opens":[{"in":{},"x":1}]}}`, "spec.open.in.b spec.opens[0].in.y", ""},
		{"additional", `{"spec":{"map":{"k":{"a":"","b":1}},"free":{"s":1,"l":[1,{"a":1}],"m":{"a":1}}}}`,
			`{"spec":{"free":{"l":[1,{}],"m":{},"s":1},"map":{"k":{"a":""}}}}`, "spec.free.l[1].a spec.free.m.a spec.map.k.b",
			""},
		{"nulls",
			`{"spec":{"a":null,"nullable":null,"filled":null,"map":{"k":null},"free":{"k":null},"list":[null],"open":{"x":null,"in":null}}}`,
			`{"spec":{"filled":null,"free":{"k":null},"list":[null],"map":{},"nullable":null,"open":{"x":null}}}`, "", ""},
		{"numbers", `{"spec":{"n":1.0,"open":{"e":1e3,"big":12345678901234567890}}}`,
			`{"spec":{"n":1,"open":{"big":12345678901234567000,"e":1000}}}`, "", ""},
		{"a number that is none", `{"spec":{"unknown":[1e999]}}`, "", "", "number 1e999"},
		{"metadata", `{"metadata":{"name":"n","x":1,"generation":2.0,"labels":{"a":"b"},"creationTimestamp":null}}`,
			`{"metadata":{"generation":2,"labels":{"a":"b"},"name":"n"}}`, "metadata.x", ""},
		{"metadata that is none", `{"metadata":{"labels":1}}`, "", "",
			"json: cannot unmarshal number into Go struct field ObjectMeta.labels of type map[string]string"},
		{"a kind that is none", `{"kind":5}`, "", "", ".kind accessor error: 5 is of the type int64, expected string"},
		{"an embedded object",
			`{"spec":{"template":{"kind":"K","apiVersion":"v1","metadata":{"name":"n","x":1},"x":1,"spec":{"a":"","b":1}}}}`,
			`{"spec":{"template":{"apiVersion":"v1","kind":"K","metadata":{"name":"n"},"spec":{"a":""}}}}`,
			"spec.template.spec.b spec.template.x spec.template.metadata.x", ""},
		{"an embedded kind that is none", `{"spec":{"template":{"kind":{"a":1}}}}`, "", "",
			`spec.template.kind: Invalid value: {"a":1}: must be a string`},
		{"embedded metadata that is none", `{"spec":{"template":{"metadata":{"name":1}}}}`, "", "",
			`spec.template.metadata: Invalid value: {"name":1}: json: cannot unmarshal number into Go struct field ObjectMeta.name of type string`},
	} {
		in := parsedJSON(t, c.in)
		got, err := typ.Decode(in)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want one with %q", c.name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if text := string(object.AppendJSON(nil, got.Value)); text != c.out {
			t.Errorf("%s: decoded as %s, want %s", c.name, text, c.out)
		}
		if unknown := strings.Join(got.Unknown, " "); unknown != c.unknown {
			t.Errorf("%s: unknown are %q, want %q", c.name, unknown, c.unknown)
		}
		if again, err := typ.DecodeFrom(got.Value, got.Value); err != nil || again.Value != got.Value {
			t.Errorf("%s: decoded again: %v", c.name, err)
		}
		if !typ.IsSettled(got.Value) {
			t.Errorf("%s: the decoded value is not settled", c.name)
		}
	}
}

func parsedJSON(t testing.TB, text string) object.Value {
	t.Helper()
	p, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p.Value
}

// SPEC: EXT-1
func TestDecodeStoredDropsMalformedMetadata(t *testing.T) {
	typ := structuralType(t, pruned)
	in := parsedJSON(t,
		`{"spec":{"template":{"kind":1,"apiVersion":null,"metadata":{"name":"n","labels":1,"finalizers":["f"]}},"b":1}}`)
	got, err := typ.DecodeStored(in)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(object.AppendJSON(nil,
		got.Value)); text != `{"spec":{"template":{"metadata":{"finalizers":["f"],"name":"n"}}}}` {
		t.Errorf("decoded as %s", text)
	}
}

// Parts that a value shares with a decoded one are not decoded again.
func TestDecodeFromSharesWhatIsTheSame(t *testing.T) {
	typ := structuralType(t, pruned)
	old := parsedJSON(t, `{"spec":{"list":[{"x":1},{"a":"b"}],"map":{"k":{"y":1}}}}`)
	made := old.WithAt(object.Fields("z", object.IntOf(1)), "spec", "map", "l")
	got, err := typ.DecodeFrom(made, old)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"spec.map.l.z"}; !slices.Equal(got.Unknown, want) {
		t.Errorf("unknown are %v", got.Unknown)
	}
}

func TestPrunedFieldsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		b.WriteString(`,"` + strings.Repeat("x", i+1) + `":1`)
	}
	got, err := structuralType(t, pruned).Decode(parsedJSON(t, `{"spec":{`+b.String()[1:]+`}}`))
	if err != nil || len(got.Unknown) != maxUnknown || got.Value.At("spec").Len() != 0 {
		t.Errorf("%d unknown fields, error %v", len(got.Unknown), err)
	}
}

// SPEC: EXT-1
func TestStructuralDefaults(t *testing.T) {
	typ := structuralType(t, `
type: object
properties:
  spec:
    type: object
    default: {}
    properties:
      a: {type: string, default: x}
      gone: {type: object, default: {in: {b: 1, c: 2}}, properties: {in: {type: object, properties: {b: {type: integer}}}}}
      nullable: {type: string, nullable: true, default: "n"}
      list: {type: array, items: {type: object, default: {b: d}, properties: {a: {type: string, default: i}, b: {type: string}}}}
      map: {type: object, additionalProperties: {type: string, default: m}}
      template:
        type: object
        x-kubernetes-embedded-resource: true
        properties: {kind: {type: string, default: K}, metadata: {type: object, properties: {name: {type: string, default: "n"}}}}
`)
	for _, c := range [][2]string{
		{`{}`, `{"spec":{"a":"x","gone":{"in":{"b":1}},"nullable":"n"}}`},
		{`{"spec":{"a":null,"gone":null,"nullable":null,"list":[{},null,{"a":"j"}],"map":{"k":null,"l":"m"},"template":{"metadata":{}}}}`,
			`{"spec":{"a":"x","gone":{"in":{"b":1}},"list":[{"a":"i"},{"a":"i","b":"d"},{"a":"j"}],"map":{"k":"m","l":"m"},"nullable":null,` +
				`"template":{"kind":"K","metadata":{"name":"n"}}}}`},
		{`{"spec":"none"}`, `{"spec":"none"}`},
	} {
		if got := string(object.AppendJSON(nil, typ.Default(parsedJSON(t, c[0])))); got != c[1] {
			t.Errorf("%s: with defaults it is %s", c[0], got)
		}
	}
	full := parsedJSON(t, `{"spec":{"a":"x","gone":{"in":{"b":1}},"nullable":"n"}}`)
	if typ.Default(full) != full {
		t.Error("an object that needs no default is copied")
	}
}

// Defaults for each of many items are bounded in the size of the resulting object.
func TestDefaultsAreBounded(t *testing.T) {
	typ := structuralType(t,
		`{type: object, properties: {l: {type: array, items: {type: object, properties: {s: {type: string, default: "`+
			strings.Repeat("x", 1<<16)+`"}}}}}}`)
	got := typ.Default(parsedJSON(t, `{"l":[`+strings.Repeat("{},", 10_000)+`{}]}`))
	if n := len(object.AppendJSON(nil, got)); n < maxFilled-1<<17 || n > maxFilled+1<<17 {
		t.Errorf("defaults make an object of %d bytes", n)
	}
}

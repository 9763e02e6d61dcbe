package schema

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// FuzzStructural compiles arbitrary schemas, and runs arbitrary objects through the results: there is no panic, the
// text of errors is bounded, and each step is idempotent. SPEC: EXT-1 WRITE-6
func FuzzStructural(f *testing.F) {
	objects := []string{
		`{"spec":{"a":"b","n":1.0,"list":[{"a":1},null],"template":{"kind":1,"metadata":{"labels":{"a":null}}}},"status":{"count":9}}`,
		`{"spec":{"byKey":[{"k":"a"},{"k":"a"}],"set":[1,1.0,"1"],"map":{"k":1e999},"union":{}}}`,
		`{"metadata":[],"kind":{}}`, `{"spec":[[[{}]]]}`,
	}
	for _, s := range []string{everyKind, pruned, validated} {
		p, err := object.ParseYAML([]byte(s))
		if err != nil {
			f.Fatal(err)
		}
		for _, o := range objects {
			f.Add(object.AppendJSON(nil, p.Value), []byte(o))
		}
	}
	f.Add([]byte(`{"type":"object","not":{"allOf":[{"oneOf":[{"anyOf":[{"not":{}}]}]}]}}`), []byte(`{}`))
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"number","multipleOf":0,"minimum":1e999,"enum":[{},null]}}}`),
		[]byte(`{"a":0}`))
	f.Add(
		[]byte(
			`{"type":"object","properties":{"a":{"type":"string","pattern":"(((((a{9}){9}){9}){9}){9})*$","maxLength":-1}}}`),
		[]byte(`{"a":"aaaa"}`))
	metadata := FromGo(metadataType, nil)
	f.Fuzz(func(t *testing.T, schema, text []byte) {
		from, err := object.ParseJSON(schema)
		if err != nil {
			return
		}
		inspect := func(object.Value, *field.Path) field.ErrorList { return nil }
		typ, err := Structural(from.Value, StructuralOptions{Metadata: metadata, Inspect: inspect})
		if err != nil {
			return
		}
		soundType(t, typ)
		in, err := object.ParseJSON(text)
		if err != nil {
			return
		}
		if _, err := typ.DecodeStored(in.Value); err == nil {
			_, _ = typ.DecodePart(in.Value)
		}
		decoded, err := typ.Decode(in.Value)
		if err != nil {
			return
		}
		again, err := typ.Decode(decoded.Value)
		if err != nil || len(again.Unknown) > 0 || !object.Equal(again.Value, decoded.Value) {
			t.Fatalf("decoded %s\nagain %s %v: %v",
				object.AppendJSON(nil, decoded.Value), object.AppendJSON(nil, again.Value),
				again.Unknown, err)
		}
		if from, err := typ.DecodeFrom(in.Value, decoded.Value); err != nil || !object.Equal(from.Value, decoded.Value) {
			t.Fatalf("DecodeFrom its own result gives %s: %v", object.AppendJSON(nil, from.Value), err)
		}
		v := typ.Default(decoded.Value)
		if twice := typ.Default(v); !object.Equal(twice, v) && len(object.AppendJSON(nil, v)) < maxFilled {
			t.Fatalf("defaulted %s\nagain %s", object.AppendJSON(nil, v), object.AppendJSON(nil, twice))
		}
		create := typ.Validate(v, object.Nil, nil)
		update := typ.Validate(v, v, nil)
		if len(create) == 0 && len(update) > 0 {
			t.Fatalf("a valid object is invalid as an update of itself: %v", update)
		}
		_ = typ.ValidateStatus(v, decoded.Value, nil)
		size := 0
		for _, err := range append(create, update...) {
			size += len(err.Field) + len(err.Detail)
		}
		if size > 16*maxReported {
			t.Fatalf("the errors have %d bytes", size)
		}
	})
}

// soundType checks the invariants of every custom type.
func soundType(t *testing.T, typ *Type) {
	t.Helper()
	if typ == nil || typ.golang != nil {
		return
	}
	if (typ.Kind == List || typ.Kind == Map) && typ.Elem == nil {
		t.Fatalf("a %s without a type of its elements", typ.Kind)
	}
	if typ.ListType == Associative && len(typ.ListKeys) == 0 {
		t.Fatal("a list by keys without keys")
	}
	for i := range typ.Fields {
		f := &typ.Fields[i]
		if i > 0 && typ.Fields[i-1].Name >= f.Name {
			t.Fatalf("field %s is before %s", typ.Fields[i-1].Name, f.Name)
		}
		if typ.Field(f.Name) != f {
			t.Fatalf("field %q is not found", f.Name)
		}
		soundType(t, f.Type)
	}
	if typ.Kind != Struct { // the Elem of a Struct may be a type that was visited already
		soundType(t, typ.Elem)
	}
	if c := typ.Custom; c != nil {
		for _, list := range [][]*Type{c.AllOf, c.AnyOf, c.OneOf, {c.Not, c.items, c.additional, c.Metadata}} {
			for _, of := range list {
				soundType(t, of)
			}
		}
	}
}

// Schemas and objects of the greatest depth that JSON may have.
// SPEC: WRITE-6
func TestStructuralDepth(t *testing.T) {
	nest := func(open, inside, shut string, times int) string {
		return strings.Repeat(open, times) + inside + strings.Repeat(shut, times)
	}
	const levels = object.MaxDepth/2 - 10
	typ, err := Structural(parsedJSON(t, nest(`{"type":"object","properties":{"a":`, `{"type":"string"}`, `}}`, levels)),
		StructuralOptions{Metadata: FromGo(metadataType, nil)})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{
		nest(`{"a":`, `1`, `}`, levels), nest(`{"a":`, `1`, `}`, object.MaxDepth-10),
		`{"a":` + nest(`[`, ``, `]`, object.MaxDepth-10) + `}`,
	} {
		v := parsedJSON(t, in)
		decoded, err := typ.Decode(v)
		if err != nil {
			t.Fatal(err)
		}
		v = typ.Default(decoded.Value)
		if errs := typ.Validate(v, object.Nil, nil); len(errs) == 0 {
			t.Errorf("%.20s is valid", in)
		}
		if errs := typ.Validate(v, decoded.Value, nil); len(errs) > 0 {
			t.Errorf("an update of %.20s: %d errors", in, len(errs))
		}
	}
	// Nested junctors are checked once each, at any depth.
	typ, err = Structural(parsedJSON(t, `{"type":"object","properties":{"a":{"type":"string","anyOf":[`+
		nest(`{"anyOf":[{"maxLength":1},`, `{"minLength":9}`, `]}`, levels/2)+`]}}}`),
		StructuralOptions{Metadata: FromGo(metadataType, nil)})
	if err != nil {
		t.Fatal(err)
	}
	if errs := typ.Validate(parsedJSON(t, `{"a":"abc"}`), object.Nil, nil); len(errs) == 0 {
		t.Error("nested junctors accept an invalid object")
	}
}

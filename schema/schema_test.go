package schema

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/object"
)

// The types of these tests have every shape that an API type has. Types of apimachinery that are recognised by name
// are tested in package conformance/oracle/schema, next to the originals.
type (
	thing struct {
		typeMeta `json:",inline"`
		Spec     thingSpec  `json:"spec"`
		Status   *thingSpec `json:"status,omitempty"`
	}
	typeMeta struct {
		Kind string `json:"kind,omitempty"`
	}
	thingSpec struct {
		Replicas *int32            `json:"replicas,omitempty" protobuf:"varint,1,opt,name=replicas"`
		Paused   bool              `json:"paused,omitempty" protobuf:"varint,2,opt,name=paused"`
		Text     string            `json:"text"`
		Big      int64             `json:"big,omitempty"`
		Ratio    float64           `json:"ratio,omitempty"`
		Data     []byte            `json:"data,omitempty"`
		Names    []string          `json:"names" patchStrategy:"merge"`
		Ports    []port            `json:"ports,omitempty" patchStrategy:"merge,retainKeys" patchMergeKey:"number"`
		Labels   map[string]string `json:"labels,omitempty"`
		Limits   map[string]port   `json:"limits,omitempty"`
		Extra    map[string]extra  `json:"extra,omitempty"`
		Secrets  map[string][]byte `json:"secrets,omitempty"`
		Raw      raw               `json:"raw,omitempty"`
		Self     *thingSpec        `json:"self,omitempty"`
		Children []thingSpec       `json:"children,omitempty"`
		hidden   string
		Skipped  string `json:"-"`
	}
	port struct {
		Number   int32  `json:"number"`
		Protocol string `json:"protocol,omitempty"`
		Inner    inner  `json:"inner,omitempty"`
	}
	inner struct {
		Mode *string `json:"mode,omitempty"`
	}
	extra []string
	raw   struct{ text []byte }
)

func (r *raw) UnmarshalJSON(text []byte) error { r.text = text; return nil }

// markersOf replaces the table of facts.
type markersOf map[string]map[string]Markers

func (m markersOf) Of(t reflect.Type) (Markers, map[string]Markers) {
	return m[t.Name()][""], m[t.Name()]
}

var facts = markersOf{
	"thingSpec": {
		"Replicas": {Default: "1", Optional: true}, "Text": {Required: true}, "Big": {Default: "0"},
		"Ratio":  {Default: "0.5"},
		"Labels": {MapType: "atomic"}, "Self": {MapType: "atomic"},
	},
	"port":  {"Protocol": {Default: `"TCP"`}},
	"inner": {"": {MapType: "atomic"}, "Mode": {Default: `"fast"`}},
}

func compiled(t *testing.T) *Type {
	t.Helper()
	_ = thingSpec{}.hidden
	return FromGo(reflect.TypeFor[thing](), facts)
}

func parse(t *testing.T, text string) object.Value {
	t.Helper()
	p, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p.Value
}

func printed(v object.Value) string { return string(object.AppendJSON(nil, v)) }

func TestFromGo(t *testing.T) {
	typ := compiled(t)
	if typ.Zero(); printed(typ.Zero()) != `{"spec":{"names":null,"raw":null,"text":""}}` {
		t.Errorf("zero value %s", printed(typ.Zero()))
	}
	spec := typ.Field("spec").Type
	var names []string
	for _, f := range spec.Fields {
		names = append(names, f.Name)
	}
	want := "big children data extra labels limits names paused ports ratio raw replicas secrets self text"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("fields %s", got)
	}
	for name, kind := range map[string]Kind{
		"big": Int, "children": List, "data": Bytes, "extra": Map, "labels": Map, "names": List, "paused": Bool,
		"ratio": Float,
		"raw":   Any, "replicas": Int, "self": Struct, "text": String,
	} {
		if got := spec.Field(name).Type.Kind; got != kind {
			t.Errorf("%s is of kind %v", name, got)
		}
	}
	if spec.Field("none") != nil || spec.Field("") != nil || spec.Field("Text") != nil {
		t.Error("Field returns a field that does not exist")
	}
	if f := spec.Field("replicas"); !f.Pointer || !f.OmitEmpty || f.Required || f.Number != 1 || f.Type.Bits != 32 {
		t.Errorf("replicas: %+v", f)
	}
	if f := spec.Field("text"); f.Pointer || f.OmitEmpty || !f.Required {
		t.Errorf("text: %+v", f)
	}
	// The list types that follow from patch tags if there is no marker (SSA-8).
	if got := spec.Field("names").Type; got.ListType != Set || got.Marked {
		t.Errorf("names: %+v", got)
	}
	if got := spec.Field("ports").Type; got.ListType != Associative || !slices.Equal(got.ListKeys, []string{"number"}) ||
		got.Marked {
		t.Errorf("ports: %+v", got)
	}
	if got := spec.Field("labels").Type; !got.AtomicMap || !got.Marked {
		t.Errorf("labels: %+v", got)
	}
	// A field's own marker is on its own copy of the type, which has the same fields.
	self := spec.Field("self").Type
	if self == spec || self.Unmarked() != spec || !self.AtomicMap || spec.AtomicMap || &self.Fields[0] != &spec.Fields[0] {
		t.Error("the field self has a type of another struct")
	}
	if spec.Field("children").Type.Elem != spec || typ.Field("status").Type != spec {
		t.Error("one Go type has two types without markers")
	}
	if printed(self.Zero()) != printed(spec.Zero()) {
		t.Errorf("self: zero value %s", printed(self.Zero()))
	}
}

// SPEC: VAL-1, VAL-3.
func TestDecode(t *testing.T) {
	const rest = `"names":null,"raw":null,"text":""`
	for _, c := range []struct{ name, in, out, unknown string }{
		{"nothing", `{}`, `{"spec":{` + rest + `}}`, ""},
		{"nulls", `{"kind":null,"spec":null,"status":null}`, `{"spec":{` + rest + `}}`, ""},
		{
			"nulls inside",
			`{"spec":{"replicas":null,"paused":null,"text":null,"names":[null],"labels":{"a":null},"limits":{"a":null},"extra":{"a":null},"secrets":{"a":null},"raw":null,"ports":[null]}}`,
			`{"spec":{"extra":{"a":null},"labels":{"a":""},"limits":{"a":{"inner":{},"number":0}},"names":[""],"ports":[{"inner":{},"number":0}],"raw":null,"secrets":{"a":null},"text":""}}`, "",
		},
		{
			"empty ones",
			`{"spec":{"replicas":0,"paused":false,"text":"","big":0,"ratio":0,"data":"","names":[],"ports":[],"labels":{},"status":{}},"status":{}}`,
			`{"spec":{"names":[],"raw":null,"replicas":0,"text":""},"status":{` + rest + `}}`, "spec.status",
		},
		{
			"unknown fields",
			`{"Kind":"x","kind":"K","zz":{"spec":1},"spec":{"a":1,"ports":[{},{"x":[]}],"limits":{"m":{"y":1}},"labels":{"any":"thing"}}}`,
			`{"kind":"K","spec":{"labels":{"any":"thing"},"limits":{"m":{"inner":{},"number":0}},"names":null,"ports":[{"inner":{},"number":0},{"inner":{},"number":0}],"raw":null,"text":""}}`,
			"Kind spec.a spec.limits.m.y spec.ports[1].x zz",
		},
		{"numbers", `{"spec":{"big":9223372036854775807,"ratio":1.50,"replicas":-2147483648}}`,
			`{"spec":{"big":9223372036854775807,"names":null,"ratio":1.5,"raw":null,"replicas":-2147483648,"text":""}}`, ""},
		{"a float that is an integer", `{"spec":{"ratio":3}}`, `{"spec":{"names":null,"ratio":3,"raw":null,"text":""}}`, ""},
		{"a float beyond its integers", `{"spec":{"ratio":9007199254740993}}`,
			`{"spec":{"names":null,"ratio":9007199254740992,"raw":null,"text":""}}`, ""},
		{"bytes", `{"spec":{"data":"YW\nJj","secrets":{"l":[97,98,null],"s":"YQ=="}}}`,
			`{"spec":{"data":"YWJj","names":null,"raw":null,"secrets":{"l":"YWIA","s":"YQ=="},"text":""}}`, ""},
		{"raw content", `{"spec":{"raw":{"b":1.0,"a":[1e3,null]}}}`,
			`{"spec":{"names":null,"raw":{"a":[1e3,null],"b":1.0},"text":""}}`, ""},
		{"itself", `{"spec":{"self":{"self":{}},"children":[{"children":[{}]}]}}`,
			`{"spec":{"children":[{"children":[{` + rest + `}],` + rest +
				`}],"names":null,"raw":null,"self":{"names":null,"raw":null,"self":{` + rest + `},"text":""},"text":""}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := compiled(t).Decode(parse(t, c.in))
			if err != nil {
				t.Fatal(err)
			}
			if text := printed(got.Value); text != c.out {
				t.Errorf("decoded %s\nwant    %s", text, c.out)
			}
			if unknown := strings.Join(got.Unknown, " "); unknown != c.unknown {
				t.Errorf("unknown %s, not %s", unknown, c.unknown)
			}
			again, err := compiled(t).Decode(got.Value)
			if err != nil {
				t.Fatal(err)
			}
			if text := printed(again.Value); text != c.out && c.name != "nulls inside" {
				t.Errorf("decoded twice: %s", text)
			}
		})
	}
}

// SPEC: VAL-1.
// SPEC: SSA-2, SSA-18.
func TestDecodePart(t *testing.T) {
	for in, out := range map[string]string{
		`{}`:            `{}`,
		`{"spec":null}`: `{"spec":null}`,
		`{"spec":{"names":[],"text":"","big":0}}`:                                `{"spec":{"big":0,"names":[],"text":""}}`,
		`{"spec":{"replicas":null,"ports":[{"number":null}],"limits":{"a":{}}}}`: `{"spec":{"limits":{"a":{}},"ports":[{"number":null}],"replicas":null}}`,
		`{"spec":{"ratio":1.50,"data":"YW\nJj","unknown":1}}`:                    `{"spec":{"data":"YWJj","ratio":1.5}}`,
	} {
		got, err := compiled(t).DecodePart(parse(t, in))
		if err != nil || printed(got.Value) != out {
			t.Errorf("%s: decoded %s, %v; want %s", in, printed(got.Value), err, out)
		}
	}
	if _, err := compiled(t).DecodePart(parse(t, `{"spec":{"text":1}}`)); err == nil {
		t.Error("a number is accepted as a string")
	}
}

func TestTypeErrors(t *testing.T) {
	for _, c := range []struct{ in, path, message string }{
		{`[]`, "", "json: cannot unmarshal array into Go value of type schema.thing"},
		{`{"spec":"x"}`, "spec", "json: cannot unmarshal string into Go struct field thing.spec of type schema.thingSpec"},
		{`{"kind":1}`, "kind", "json: cannot unmarshal number into Go struct field thing.typeMeta.kind of type string"},
		{`{"spec":{"replicas":"x"}}`, "spec.replicas",
			"json: cannot unmarshal string into Go struct field thingSpec.spec.replicas of type int32"},
		{`{"spec":{"replicas":1.0}}`, "spec.replicas",
			"json: cannot unmarshal number 1.0 into Go struct field thingSpec.spec.replicas of type int32"},
		{`{"spec":{"replicas":2147483648}}`, "spec.replicas",
			"json: cannot unmarshal number 2147483648 into Go struct field thingSpec.spec.replicas of type int32"},
		{`{"spec":{"big":9223372036854775808}}`, "spec.big",
			"json: cannot unmarshal number 9223372036854775808 into Go struct field thingSpec.spec.big of type int64"},
		{`{"spec":{"ratio":1e400}}`, "spec.ratio",
			"json: cannot unmarshal number 1e400 into Go struct field thingSpec.spec.ratio of type float64"},
		{`{"spec":{"paused":"true"}}`, "spec.paused",
			"json: cannot unmarshal string into Go struct field thingSpec.spec.paused of type bool"},
		{`{"spec":{"text":{}}}`, "spec.text",
			"json: cannot unmarshal object into Go struct field thingSpec.spec.text of type string"},
		{`{"spec":{"names":{}}}`, "spec.names",
			"json: cannot unmarshal object into Go struct field thingSpec.spec.names of type []string"},
		{`{"spec":{"names":["a",true]}}`, "spec.names[1]",
			"json: cannot unmarshal bool into Go struct field thingSpec.spec.names of type string"},
		{`{"spec":{"labels":[]}}`, "spec.labels",
			"json: cannot unmarshal array into Go struct field thingSpec.spec.labels of type map[string]string"},
		{`{"spec":{"labels":{"a.b/c":1}}}`, "spec.labels.a.b/c",
			"json: cannot unmarshal number into Go struct field thingSpec.spec.labels of type string"},
		{`{"spec":{"limits":{"m":{"number":"x"}}}}`, "spec.limits.m.number",
			"json: cannot unmarshal string into Go struct field port.spec.limits.number of type int32"},
		{`{"spec":{"ports":[{"inner":{"mode":1}}]}}`, "spec.ports[0].inner.mode",
			"json: cannot unmarshal number into Go struct field inner.spec.ports.inner.mode of type string"},
		{`{"spec":{"data":"?"}}`, "spec.data", "illegal base64 data at input byte 0"},
		{`{"spec":{"data":[1,300]}}`, "spec.data[1]",
			"json: cannot unmarshal number 300 into Go struct field thingSpec.spec.data of type uint8"},
		{`{"spec":{"data":1}}`, "spec.data",
			"json: cannot unmarshal number into Go struct field thingSpec.spec.data of type []uint8"},
		{`{"spec":{"names":1,"text":2}}`, "spec.names",
			"json: cannot unmarshal number into Go struct field thingSpec.spec.names of type []string"},
	} {
		_, err := compiled(t).Decode(parse(t, c.in))
		typed, ok := err.(*TypeError)
		if !ok {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if typed.Message != c.message || typed.Path != c.path {
			t.Errorf("%s: %s: %s\nwant %s: %s", c.in, typed.Path, typed.Message, c.path, c.message)
		}
	}
}

// Untyped content of a custom type has integers and floats like all of JSON; the raw content of a built-in one keeps
// the text of its numbers.
func TestUntypedContent(t *testing.T) {
	anything := &Type{Kind: Any}
	got, err := anything.Decode(parse(t, `{"a":[1.0,1e3,7,"x"]}`))
	if err != nil || printed(got.Value) != `{"a":[1,1000,7,"x"]}` {
		t.Errorf("%s, %v", printed(got.Value), err)
	}
	if _, err := anything.Decode(parse(t, `{"a":1e400}`)); err == nil ||
		err.Error() != "json: cannot unmarshal number 1e400 into Go value of type float64" {
		t.Errorf("1e400: %v", err)
	}
}

func TestUnknownFieldsAreBounded(t *testing.T) {
	members := make([]object.Member, 0, 5000)
	for i := range 5000 {
		members = append(members, object.Member{Key: "x" + strings.Repeat("y",
			i%7) + string(rune('a'+i%26)) + strings.Repeat("z", i/26), Value: object.Nil})
	}
	got, err := compiled(t).Decode(object.MapOf(members...))
	if err != nil || len(got.Unknown) != maxUnknown || printed(got.Value) != printed(compiled(t).Zero()) {
		t.Errorf("%v: %d unknown fields", err, len(got.Unknown))
	}
}

// Unchanged parts are not copied.
func TestUnchangedPartsAreShared(t *testing.T) {
	typ := compiled(t)
	full := parse(t,
		`{"spec":{"labels":{"a":"b"},"names":["x"],"ports":[{"inner":{"mode":"m"},"number":1,"protocol":"UDP"}],"ratio":2,"raw":{"a":1},"replicas":1,"text":"t"}}`)
	for what, walk := range map[string]func(object.Value) object.Value{
		"Decode": func(v object.Value) object.Value {
			d, err := typ.Decode(v)
			if err != nil {
				t.Fatal(err)
			}
			return d.Value
		},
		"Default": typ.Default, "Settle": typ.Settle,
	} {
		if walk(full) != full {
			t.Errorf("%s copies a value that it does not change", what)
		}
		if n := testing.AllocsPerRun(100, func() { walk(full) }); n != 0 {
			t.Errorf("%s: %v allocations without a change", what, n)
		}
		changed := full.WithAt(object.ListOf(), "spec", "children").WithoutAt("spec", "replicas")
		if got := walk(changed); got.At("spec", "ports") != full.At("spec", "ports") ||
			got.At("spec", "labels") != full.At("spec", "labels") {
			t.Errorf("%s copies values beside a change", what)
		}
	}
}

// A value that was made from a decoded one is decoded with the same result as any other: new parts are checked at any
// depth.
func TestDecodeFromIsDecode(t *testing.T) {
	typ := compiled(t)
	decoded, err := typ.Decode(parse(t,
		`{"spec":{"labels":{"a":"b"},"names":["x"],"ports":[{"inner":{"mode":"m"},"number":1},{"number":2}],"replicas":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	old := typ.Settle(decoded.Value)
	port := old.At("spec", "ports").Items()[1]
	for _, made := range []object.Value{
		old.WithAt(object.IntOf(1), "spec", "unknown"),
		old.WithAt(object.IntOf(1), "spec", "labels", "a"),
		old.WithAt(object.StringOf("1"), "spec", "replicas"),
		old.WithAt(object.ListOf(object.StringOf("y"), object.IntOf(1)), "spec", "names"),
		old.WithAt(old.At("spec", "ports").WithItem(1, port.With("unknown", object.Nil)), "spec", "ports"),
		old.WithAt(old.At("spec", "ports").WithItem(1, port.WithAt(object.IntOf(1), "inner", "mode")), "spec", "ports"),
		old.WithAt(object.ListOf(port, port), "spec", "ports"),
	} {
		want, wantErr := typ.Decode(made)
		got, err := typ.DecodeFrom(made, old)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || printed(got.Value) != printed(want.Value) ||
			!slices.Equal(got.Unknown, want.Unknown) {
			t.Errorf("%s: %s, %v, %v; want %s, %v, %v",
				printed(made), printed(got.Value), got.Unknown, err, printed(want.Value),
				want.Unknown, wantErr)
		}
	}
}

func TestDefault(t *testing.T) {
	typ := compiled(t)
	for in, want := range map[string]string{
		`{"spec":{}}`:                            `{"spec":{"ratio":0.5,"replicas":1}}`,
		`{"spec":{"replicas":0,"ratio":0}}`:      `{"spec":{"ratio":0.5,"replicas":0}}`,
		`{"spec":{"replicas":null,"ratio":1.5}}`: `{"spec":{"ratio":1.5,"replicas":1}}`,
		// Lists, maps and structs below; absent ones are not created.
		`{"spec":{"ratio":1,"replicas":1,"ports":[{"inner":{}},{"protocol":"","inner":{"mode":"slow"}}]}}`: `{"spec":{"ports":[{"inner":{"mode":"fast"},"protocol":"TCP"},{"inner":{"mode":"slow"},"protocol":"TCP"}],"ratio":1,"replicas":1}}`,
		`{"spec":{"ratio":1,"replicas":1,"limits":{"a":{"inner":{}}}}}`:                                    `{"spec":{"limits":{"a":{"inner":{"mode":"fast"},"protocol":"TCP"}},"ratio":1,"replicas":1}}`,
		`{"spec":{"ratio":1,"replicas":1,"self":{},"children":[{}]}}`:                                      `{"spec":{"children":[{"ratio":0.5,"replicas":1}],"ratio":1,"replicas":1,"self":{"ratio":0.5,"replicas":1}}}`,
		`{"status":null}`: `{"status":null}`, `{}`: `{}`,
	} {
		v := parse(t, in)
		got := typ.Default(v)
		if printed(got) != want {
			t.Errorf("%s: %s, not %s", in, printed(got), want)
		}
		if again := typ.Default(got); again != got {
			t.Errorf("%s: defaulted twice: %s", in, printed(again))
		}
	}
}

func TestSettle(t *testing.T) {
	typ := compiled(t)
	for in, want := range map[string]string{
		`{"spec":{"names":[],"ports":[],"labels":{},"text":""}}`:                 `{"spec":{"names":null,"text":""}}`,
		`{"spec":{"names":["x"],"labels":{"a":""},"ports":[{"inner":{}}]}}`:      `{"spec":{"labels":{"a":""},"names":["x"],"ports":[{"inner":{}}]}}`,
		`{"spec":{"extra":{"a":[],"b":null,"c":["x"]},"secrets":{"a":null}}}`:    `{"spec":{"extra":{"a":[],"b":[],"c":["x"]},"secrets":{"a":""}}}`,
		`{"spec":{"raw":{"a":[],"b":{}},"data":""},"status":{"children":[]}}`:    `{"spec":{"data":"","raw":{"a":[],"b":{}}},"status":{}}`,
		`{"spec":{"children":[{"names":[]},{"self":{"labels":{}}}]},"kind":"K"}`: `{"kind":"K","spec":{"children":[{"names":null},{"self":{}}]}}`,
	} {
		if got := printed(typ.Settle(parse(t, in))); got != want {
			t.Errorf("%s: %s, not %s", in, got, want)
		}
	}
	custom := &Type{Kind: Struct, Fields: []Field{{Name: "a", Type: &Type{Kind: List, Elem: &Type{Kind: String}}}}}
	if v := parse(t, `{"a":[]}`); custom.Settle(v) != v {
		t.Error("Settle changes a custom object")
	}
}

func TestHas(t *testing.T) {
	typ := compiled(t)
	for path, want := range map[string]bool{
		"spec": true, "spec.replicas": true, "kind": true, "nope": false, "spec.nope": false, "spec.replicas.x": false,
		"spec.ports": true, "spec.ports[3].number": true, "spec.ports[3].nope": false, "spec.ports.number": false,
		"spec.children[0].children[1].text": true,
		"spec.labels.a.b/c[0]":              true, "spec.limits.a.b/c.number": true, "spec.limits.a.b/c.nope": true,
		"spec.extra.a.b[0]": true,
		"spec.raw":          true, "spec.raw.a": false, "": true,
	} {
		if got := typ.Has(path); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
	if !(&Type{Kind: Any}).Has("a.b") {
		t.Error("Has denies a path in untyped content of a custom type")
	}
}

func TestFind(t *testing.T) {
	names := []string{"a", "abcdefgh", "abcdefghi", "abcdefghij", "abcdefgi", "b", "terminationMessagePath",
		"terminationMessagePolicy", "zz"}
	var scanned, hashed Type
	for _, name := range names {
		scanned.Fields = append(scanned.Fields, Field{Name: name})
	}
	hashed.Fields, hashed.names = scanned.Fields, namesOf(scanned.Fields)
	for _, name := range append(names, "", "A", "abcdefg", "abcdefgh\x00", "abcdefghh", "terminationMessageP",
		"terminationMessagePb", "zzz", "é") {
		wantAt, wantFound := slices.BinarySearch(names, name)
		for _, typ := range []*Type{&scanned, &hashed} {
			if at, found := typ.find(name, 0); at != wantAt || found != wantFound {
				t.Errorf("%q: %d %v, not %d %v", name, at, found, wantAt, wantFound)
			}
		}
	}
}

// Texts that are accepted as canonical without a call of the library are canonical.
func FuzzCanonicalQuantity(f *testing.F) {
	for _, text := range []string{"0", "1", "100m", "1000m", "1024Mi", "1Ki", "12345678k", "999999999", "1000000001", "0m",
		"1.5", "1e3", "", "+1", "5G", "1024", "7Ki"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !isCanonicalQuantity(text) {
			return
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.String() != text {
			t.Errorf("%q is %s, %v", text, q.String(), err)
		}
	})
}

func TestCanonicalQuantities(t *testing.T) {
	for n := range 5000 {
		for _, suffix := range []string{"", "m", "k", "M", "G", "Ki", "Mi", "Gi"} {
			text := string(object.AppendJSON(nil, object.IntOf(int64(n*n)))) + suffix
			q, err := resource.ParseQuantity(text)
			if err != nil {
				t.Fatal(err)
			}
			if isCanonicalQuantity(text) && q.String() != text {
				t.Fatalf("%s is not canonical, but %s", text, q.String())
			}
		}
	}
}

// Compiling further types does not modify types that are in use. The race detector checks it.
// SPEC: VAL-1
func TestCompilingBesideDecoding(t *testing.T) {
	type shared struct {
		Text string `json:"text"`
		Port port   `json:"port"`
	}
	type one struct {
		Shared shared `json:"shared"`
	}
	type other struct {
		Text   string `json:"text"`
		Shared shared `json:"shared"`
		Same   one    `json:"same"`
	}
	c := NewCompiler(nil)
	first := c.Type(reflect.TypeFor[one]())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 100 {
			if _, err := first.Decode(object.Fields("shared", object.MapOf())); err != nil {
				t.Error(err)
			}
		}
	}()
	c.Type(reflect.TypeFor[other]())
	<-ended
}

type forest struct {
	Trees []tree `json:"trees"`
}

type tree struct {
	Name  string            `json:"name"`
	Below []tree            `json:"below,omitempty"`
	Under map[string][]tree `json:"under,omitempty"`
}

// A list whose items have a list of the same Go type has its markers at each level, also if the type is first met as
// that of the list.
func TestRecursiveLists(t *testing.T) {
	byName := Markers{ListType: "map", ListKeys: []string{"name"}}
	outer := FromGo(reflect.TypeFor[forest](), markersOf{"forest": {"Trees": byName}, "tree": {"Below": byName}})
	list := outer.Field("trees").Type
	for level := range 3 {
		if list.Kind != List || list.ListType != Associative || list.Elem == nil || list.Elem.Kind != Struct {
			t.Fatalf("level %d: %+v", level, list)
		}
		if under := list.Elem.Field("under").Type; under.Elem.Elem != list.Elem || under.Elem.ListType != Atomic {
			t.Errorf("level %d: a list without markers is %+v", level, under.Elem)
		}
		list = list.Elem.Field("below").Type
	}
}

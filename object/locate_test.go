package object

import (
	"bytes"
	"strings"
	"testing"

	"plinth/internal/invariants"
)

func TestLocate(t *testing.T) {
	for _, c := range []struct{ name, text, item, versioned string }{
		{
			"an object",
			`{"spec":{"a":[1,"x\"}",{}]},"metadata":{"uid":"u","name":"n","labels":{"z":"}"}},"kind":"Pod","apiVersion":"v1"}`,
			`"metadata":{"labels":{"z":"}"},"name":"n","uid":"u"},"spec":{"a":[1,"x\"}",{}]}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"z":"}"},"name":"n","resourceVersion":"42","uid":"u"},"spec":{"a":[1,"x\"}",{}]}}`,
		},
		{"only a UID", `{"metadata":{"uid":"u"}}`, `"metadata":{"uid":"u"}}`,
			`{"metadata":{"resourceVersion":"42","uid":"u"}}`},
		{
			"brackets in strings",
			`{"apiVersion":"v1","kind":"K","metadata":{"annotations":{"a":"}]\\","b":"\\\"{"},"name":"[","uid":"u"}}`,
			`"metadata":{"annotations":{"a":"}]\\","b":"\\\"{"},"name":"[","uid":"u"}}`,
			`{"apiVersion":"v1","kind":"K","metadata":{"annotations":{"a":"}]\\","b":"\\\"{"},"name":"[","resourceVersion":"42","uid":"u"}}`,
		},
		{
			"managedFields", `{"kind":"K","metadata":{"managedFields":[{"a":"]"}],"uid":"u","z":"z"}}`,
			`"metadata":{"managedFields":[{"a":"]"}],"uid":"u","z":"z"}}`,
			`{"kind":"K","metadata":{"managedFields":[{"a":"]"}],"resourceVersion":"42","uid":"u","z":"z"}}`,
		},
		{
			"a key with an escape", `{"metadata":{"managedFields":[],"\u2028":1,"uid":"u"}}`,
			`"metadata":{"managedFields":[],"uid":"u","\u2028":1}}`,
			`{"metadata":{"managedFields":[],"resourceVersion":"42","uid":"u","\u2028":1}}`,
		},
		{"a key with an escape alone", `{"metadata":{"name":"n","\u2028":1}}`, "", ""},
		{"nothing after managedFields", `{"metadata":{"managedFields":[]}}`, "", ""},
		{"no UID", `{"apiVersion":"v1","metadata":{"name":"n"}}`, "", ""},
		{"no metadata", `{"apiVersion":"v1","spec":{}}`, "", ""},
		{"metadata that is a list", `{"apiVersion":"v1","metadata":[1]}`, "", ""},
		{"empty metadata", `{"apiVersion":"v1","metadata":{}}`, "", ""},
		{"a list", `[{"metadata":{"uid":"u"}}]`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := ParseJSON([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			data, printed := AppendLocated([]byte("before"), p.Value)
			data = data[len("before"):]
			at, ok := Locate(data)
			if printed != at && ok || printed != (Offsets{}) && !ok {
				t.Errorf("printed with the places %+v; Locate finds %+v, %v", printed, at, ok)
			}
			if ok != (c.item != "") {
				t.Fatalf("Locate returns %v", ok)
			}
			if !ok {
				return
			}
			if got := string(data[at.Item:]); got != c.item {
				t.Errorf("without its type: %s", got)
			}
			if got := string(AppendVersioned(nil, data, at.Splice, 42)); got != c.versioned {
				t.Errorf("with its resourceVersion: %s", got)
			}
		})
	}
}

// Locate does not panic on any bytes, and in an object it finds the offset at which resourceVersion is inserted.
func FuzzLocate(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n","uid":"u"},"spec":{}}`))
	f.Add([]byte(`{"metadata":{"a":"\\`))
	f.Add([]byte(`{"metadata":{"1`))
	f.Add([]byte(`{"metadata":{"labels":{},"managedFields":[{"a":"]"}],"name":"n"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		Locate(text)
		p, err := ParseJSON(text)
		if err != nil || p.Value.Kind() != Map {
			return
		}
		v := p.Value
		if v.At("metadata").Kind() != Map {
			v = v.With("metadata", MapOf())
		}
		v = v.WithAt(StringOf("u"), "metadata", "uid").WithoutAt("metadata", "resourceVersion")
		data, printed := AppendLocated(nil, v)
		at, ok := Locate(data)
		if !ok || printed != at {
			t.Fatalf("Locate finds %v, %+v in %s, which is printed with %+v", ok, at, data, printed)
		}
		want := AppendObject(nil, v.WithAt(StringOf("7"), "metadata", "resourceVersion"))
		if got := AppendVersioned(nil, data, at.Splice, 7); string(got) != string(want) {
			t.Fatalf("with its resourceVersion: %s, want %s", got, want)
		}
		if lean := string(data[:at.Managed]) + string(data[at.ManagedEnd:]); lean != string(AppendObject(nil,
			v.WithoutAt("metadata", "managedFields"))) {
			t.Fatalf("without managedFields: %s", lean)
		}
		bare := string(AppendObject(nil, v.Without("apiVersion").Without("kind")))
		if got := "{" + string(data[at.Item:]); got != bare {
			t.Fatalf("without its type: %s, want %s", got, bare)
		}
	})
}

// Locate passes no byte more than once, in objects and in invalid input. The bytes are counted if invariants are on.
//
// SPEC: WRITE-6
func TestLocateIsLinear(t *testing.T) {
	const n = 1 << 16
	for _, text := range []string{
		`{"a":` + strings.Repeat(`"`, n),
		`{` + strings.Repeat(`"a":"",`, n),
		`{` + strings.Repeat(`"a":[{}],`, n),
		`{"a":` + strings.Repeat(`[`, n),
		`{"a":` + strings.Repeat(`]`, n),
		`{` + strings.Repeat(`"a"`, n),
		`{"metadata":{` + strings.Repeat(`"a":{"b":[1,2]},`, n),
		`{"metadata":{` + strings.Repeat(`"managedFields":[],`, n),
		strings.Repeat(`{"metadata":`, n),
	} {
		before := bytesPassed.Load()
		if _, ok := Locate([]byte(text)); ok {
			t.Errorf("Locate succeeds on %.40s…", text)
		}
		if passed := bytesPassed.Load() - before; passed > int64(len(text)) || invariants.Enabled && passed == 0 {
			t.Errorf("%.40s…: %d bytes were passed in a text of %d", text, passed, len(text))
		}
	}
}

func TestOutline(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"a":1,"schema":{"b":[1,{"schema":2}]},"c":"schema"}`, `{"a":1,"schema":null,"c":"schema"}`},
		{`{"a":[{"schema":"x\"y:","d":2},{"schema":[]}],"e":"\\"}`, `{"a":[{"schema":null,"d":2},{"schema":null}],"e":"\\"}`},
		{`{"managedFields":[{"f:schema":{}}],"schema":{}}`, `{"managedFields":null,"schema":null}`},
		{`"schema"`, `"schema"`}, {`{}`, `{}`}, {``, ``}, {`{"schema`, `{"schema`}, {`{"schema":`, `{"schema":null`},
	} {
		if got := string(AppendOutline(nil, []byte(c.in), "schema", "managedFields")); got != c.want {
			t.Errorf("%s: %s, want %s", c.in, got, c.want)
		}
	}
	const text = `{"a":{"b":1},"b":[2],"c":"3"}`
	for key, want := range map[string]string{"a": `{"b":1}`, "b": "[2]", "c": `"3"`, "d": ""} {
		if got := string(MemberText([]byte(text), key)); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	for list, want := range map[string]string{
		`[{"a":[1,"]"]},"b,",[],3]`: `{"a":[1,"]"]}|"b,"|[]|3`, `[1]`: "1", `[]`: "", `{}`: "", ``: "", `[1`: "",
		`[1,`: "", `[}`: "",
	} {
		if got := string(bytes.Join(ItemTexts([]byte(list)), []byte("|"))); got != want {
			t.Errorf("%s: %s, want %s", list, got, want)
		}
	}
	for i := range text { // no read is beyond the end of a truncated text
		MemberText([]byte(text[:i]), "c")
		AppendOutline(nil, []byte(text[:i]), "b")
	}
}

package crd

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"plinth/internal/engine"
	"plinth/object"
)

func parse(t testing.TB, text string) object.Value {
	t.Helper()
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Value
}

const gadget = `{"metadata":{"name":"g","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a.b/c":"label"}},
	"spec":{"n":3,"f":2.5,"whole":2.0,"huge":1e30,"yes":true,"text":"hello","none":null,"empty":"","map":{"b":"<&>","a":[1,1.50]},"list":[5,6,7],
		"items":[{"type":"A","n":1,"v":"first"},{"type":"B","n":2,"v":"second"},{"type":"A","n":3,"v":"third"}],"mixed":["a",{"type":"A"}]},
	"status":{"conditions":[{"type":"Ready","status":"True","at":"2026-01-02T03:04:05Z"}]}}`

// SPEC: MED-6, EXT-1
func TestCells(t *testing.T) {
	age := engine.Age{Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for _, c := range []struct {
		path, typ string
		want      any
	}{
		{".spec.text", "string", "hello"},
		{".spec.empty", "string", ""},
		{".spec.n", "string", "3"},
		{".spec.f", "string", "2.5"},
		{".spec.whole", "string", "2"},
		{".spec.huge", "string", "1e+30"},
		{".spec.yes", "string", "true"},
		{".spec.none", "string", "<no value>"},
		{".spec.missing", "string", nil},
		{".spec.none.deeper", "string", nil},
		{".spec.text.deeper", "string", nil},
		{".spec.map", "string", `{"a":[1,1.5],"b":"\u003c\u0026\u003e"}`},
		{".spec.list", "string", `[5,6,7]`},
		{".spec.n", "integer", int64(3)},
		{".spec.f", "integer", int64(2)},
		{".spec.text", "integer", nil},
		{".spec.none", "integer", nil},
		{".spec.n", "number", 3.0},
		{".spec.f", "number", 2.5},
		{".spec.yes", "boolean", true},
		{".spec.text", "boolean", nil},
		{".metadata.creationTimestamp", "date", age},
		{".spec.text", "date", "<invalid>"},
		{".spec.empty", "date", "<unknown>"},
		{".spec.n", "date", nil},
		{".spec.list[0]", "integer", int64(5)},
		{".spec.list[-1]", "integer", int64(7)},
		{".spec.list[-9]", "integer", nil},
		{".spec.list[3]", "integer", nil},
		{".spec.list[1:]", "integer", int64(6)},
		{".spec.list[*]", "integer", int64(5)},
		{".spec.list[::0]", "integer", nil},
		{".spec.map[0]", "string", nil},
		{`.metadata.labels['a\.b/c']`, "string", "label"},
		{`.metadata.labels.a\.b/c`, "string", "label"},
		{`.status.conditions[?(@.type=="Ready")].status`, "string", "True"},
		{`.status.conditions[?(@.type=='Ready')].at`, "date", age},
		{`.status.conditions[?(@.type=="Gone")].status`, "string", nil},
		{`.spec.items[?(@.n>1)].v`, "string", "second"},
		{`.spec.items[?(@.n>=3)].v`, "string", "third"},
		{`.spec.items[?(@.type!="A")].v`, "string", "second"},
		{`.spec.items[?(@.n=="1")].v`, "string", nil},
		{`.spec.items[?(@.v)].n`, "integer", int64(1)},
		{`.spec.mixed[?(@.type=="A")].type`, "string", "A"},
		{`.spec.text[?(@.type=="A")]`, "string", nil},
		{`.spec.items[0,1].v`, "string", "first"},
		{`.spec.items[*].missing`, "string", nil},
		{"..v", "string", "first"},
		{".spec.map.*", "string", "[1,1.5]"},
		{".spec.n range", "integer", nil},
	} {
		version := object.Fields("additionalPrinterColumns", object.ListOf(printerColumn("C", c.typ, "", c.path)))
		columns, cells := columnsOf(version)
		if len(columns) != 2 || columns[1].Name != "C" || columns[1].Type != c.typ {
			t.Errorf("%s: columns %v", c.path, columns)
			continue
		}
		if got := cells(parse(t, gadget)); !reflect.DeepEqual(got, []any{"g", c.want}) {
			t.Errorf("%s as %s: have %#v, want %#v", c.path, c.typ, got[1], c.want)
		}
	}
}

// SPEC: MED-6, EXT-1
func TestColumns(t *testing.T) {
	columns, _ := columnsOf(object.Nil)
	if len(columns) != 2 || columns[0].Format != "name" || columns[1].Name != "Age" || columns[1].Type != "date" ||
		!strings.HasPrefix(columns[1].Description, "CreationTimestamp is a timestamp") {
		t.Errorf("without columns: %+v", columns)
	}
	columns, cells := columnsOf(parse(t, `{"additionalPrinterColumns":[
		{"name":"A","type":"string","jsonPath":".a","format":"byte","priority":2},
		{"name":"B","type":"string","jsonPath":".b","description":"what B is"},
		{"name":"C","type":"string","jsonPath":".c["},
		{"name":"D","type":"string","jsonPath":".d"}]}`))
	want := []engine.Column{
		columns[0],
		{Name: "A", Type: "string", Format: "byte", Priority: 2,
			Description: "Custom resource definition column (in JSONPath format): .a"},
		{Name: "B", Type: "string", Description: "what B is"},
	}
	if !reflect.DeepEqual(columns, want) {
		t.Errorf("have %+v", columns)
	}
	if got := cells(parse(t, `{"metadata":{"name":"x"},"a":"1","b":"2","d":"4"}`)); !reflect.DeepEqual(got,
		[]any{"x", "1", "2"}) {
		t.Errorf("have %v", got)
	}
}

// A path that doubles the found values at each step, or does not end, takes a bounded time and has no result.
//
// SPEC: EXT-1
func TestCostlyPaths(t *testing.T) {
	deep := strings.Repeat("[", 60) + "1" + strings.Repeat("]", 60)
	obj := parse(t, `{"metadata":{"name":"x"},"a":`+deep+`,"b":[`+strings.Repeat("1,", 100)+`1]}`)
	for _, path := range []string{
		".a" + strings.Repeat("[0,0]", 60),
		".a" + strings.Repeat("..[0]", 30),
		".b" + strings.Repeat("[?(@==1)]", 1000),
		".b[?(@.x" + strings.Repeat("[0,0]", 60) + ")]",
		"." + strings.Repeat("x.", maxJSONPath) + "x",
	} {
		_, cells := columnsOf(object.Fields("additionalPrinterColumns",
			object.ListOf(printerColumn("C", "string", "", path))))
		begin := time.Now()
		row := cells(obj)
		if took := time.Since(begin); took > time.Second || len(row) > 1 && row[1] != nil {
			t.Errorf("%.40s…: %v after %v", path, row, took)
		}
	}
}

func BenchmarkCells(b *testing.B) {
	_, cells := columnsOf(object.Fields("additionalPrinterColumns", object.ListOf(
		printerColumn("N", "integer", "", ".spec.n"),
		printerColumn("Ready", "string", "", `.status.conditions[?(@.type=="Ready")].status`))))
	obj := parse(b, gadget)
	for b.Loop() {
		cells(obj)
	}
}

// SPEC: LIST-7, EXT-1
func TestSelectableFields(t *testing.T) {
	fields := selectableOf(parse(t, `{"selectableFields":[{"jsonPath":".spec.text"},{"jsonPath":".spec.n"},{"jsonPath":".spec.yes"},
		{"jsonPath":".spec.missing"},{"jsonPath":".spec.none"},{"jsonPath":".spec.f"}]}`))
	const want = "[{spec.f 2.5} {spec.missing } {spec.n 3} {spec.none } {spec.text hello} {spec.yes true}]"
	if got := fmt.Sprint(fields(parse(t, gadget))); got != want {
		t.Errorf("have %s\nwant %s", got, want)
	}
	if got := fields(object.Nil); len(got) != 6 || got[0].Name != "spec.f" || got[0].Value != "" {
		t.Errorf("the names alone: %v", got)
	}
	if got := selectableOf(object.MapOf())(object.Nil); got == nil || len(got) != 0 {
		t.Errorf("none: %#v", got)
	}
	if got := unknownField("spec.x"); got != "field label not supported: spec.x" {
		t.Error(got)
	}
}

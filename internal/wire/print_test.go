package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// stored makes a stored object from JSON.
func stored(t testing.TB, text string, revision int64) *engine.Object {
	t.Helper()
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	data := object.AppendObject(nil, parsed.Value)
	at, ok := object.Locate(data)
	if !ok {
		t.Fatalf("Locate fails on %s", data)
	}
	return store.NewVersion(store.Key{}, revision, data, engine.NewSidecar(at))
}

const thing = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"annotations":{"a}":"\"}{\\"},"name":"x","uid":"u"},"spec":{"n":1}}`

func thingType(t testing.TB) *engine.Resource {
	t.Helper()
	return &engine.Resource{
		Naming: engine.Naming{
			Group: "example.com", Version: "v1", Name: "things", Kind: "Thing", ListKind: "ThingList",
		},
		Reading: engine.Reading{
			Columns: []engine.Column{{Name: "Name", Type: "string"}, {Name: "N", Type: "integer", Priority: 1},
				{Name: "Up", Type: "boolean"}, {Name: "None", Type: "string"}},
			Cells: func(obj object.Value) []any {
				return []any{obj.At("metadata", "name").Str(), obj.At("spec", "n").Int(), true, nil}
			},
		},
		Schema: func() *schema.Type { return &schema.Type{} },
	}
}

func TestObject(t *testing.T) {
	o := stored(t, thing, 7)
	const versioned = `{"annotations":{"a}":"\"}{\\"},"name":"x","resourceVersion":"7","uid":"u"}`
	check(t, "object", AppendObject(nil, o, false), `{"apiVersion":"example.com/v1","kind":"Thing","metadata":`+versioned+
		`,"spec":{"n":1}}`)
	check(t, "item", AppendItem(nil, o, false), `{"metadata":`+versioned+`,"spec":{"n":1}}`)
	check(t, "metadata", AppendPartial(nil, o, "v1", false),
		`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`+versioned+`}`)

	dry := stored(t, thing, 0)
	check(t, "dry object", AppendObject(nil, dry, false), string(dry.Data()))
	if got := string(AppendPartial(nil, dry, "v1", false)); strings.Contains(got, "resourceVersion") {
		t.Errorf("a dry run has no resourceVersion: %s", got)
	}
}

func check(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if string(got) != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
	if !json.Valid(got) {
		t.Errorf("%s is not valid JSON: %s", what, got)
	}
}

// SPEC: MED-6, MED-7, MED-8, LIST-4, LIST-9
func TestList(t *testing.T) {
	r := thingType(t)
	remaining := int64(3)
	for _, c := range []struct {
		name  string
		media Media
		meta  ListMeta
		items int
		want  string
	}{
		{"empty", Media{}, ListMeta{Revision: 5}, 0,
			`{"kind":"ThingList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"5"},"items":[]}` + "\n"},
		{"two, and more to come", Media{}, ListMeta{Revision: 5, Continue: "abc", Remaining: &remaining}, 2,
			`{"kind":"ThingList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"5","continue":"abc","remainingItemCount":3},"items":[ITEM,ITEM]}` + "\n"},
		{"a shard", Media{}, ListMeta{Revision: 5, Shard: "a 'b'"}, 0,
			`{"kind":"ThingList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"5","shardInfo":{"selector":"a 'b'"}},"items":[]}` + "\n"},
		{"metadata", Media{Form: AsPartials, Version: "v1beta1"}, ListMeta{Revision: 5}, 1,
			`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1beta1","metadata":{"resourceVersion":"5"},"items":[PARTIAL]}` + "\n"},
		{"table", Media{Form: AsTable, Version: "v1"}, ListMeta{Revision: 5}, 1,
			`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"columnDefinitions":[` +
				`{"name":"Name","type":"string","format":"","description":"","priority":0},{"name":"N","type":"integer","format":"","description":"","priority":1},` +
				`{"name":"Up","type":"boolean","format":"","description":"","priority":0},{"name":"None","type":"string","format":"","description":"","priority":0}],` +
				`"rows":[{"cells":["x",1,true,null],"object":PARTIAL}]}` + "\n"},
	} {
		var table *Table
		if c.media.Form == AsTable {
			table = NewTable(&engine.Request{Resource: r}, "v1", IncludeMetadata)
		}
		o := stored(t, thing, 7)
		l := NewList(r, c.media, table)
		got := l.Head(nil, c.meta)
		var err error
		for range c.items {
			if got, err = l.Item(got, o); err != nil {
				t.Fatal(err)
			}
		}
		want := strings.ReplaceAll(c.want, "ITEM", string(AppendItem(nil, o, false)))
		check(t, c.name, l.Tail(got), strings.ReplaceAll(want, "PARTIAL",
			string(AppendPartial(nil, o, map[bool]string{true: c.media.Version, false: "v1"}[c.media.Form != Plain], false))))
	}
}

// SPEC: MED-6
func TestTableOfOne(t *testing.T) {
	o := stored(t, thing, 7)
	for include, object := range map[Include]string{
		IncludeNone: "null", IncludeObject: string(AppendObject(nil, o, false)),
		IncludeMetadata: string(AppendPartial(nil, o, "v1", false)),
	} {
		got, err := AppendTable(nil, o, NewTable(&engine.Request{Resource: thingType(t)}, "v1", include))
		if err != nil {
			t.Fatal(err)
		}
		if want := `"rows":[{"cells":["x",1,true,null],"object":` + object + `}]}`; !strings.HasSuffix(string(got), want) ||
			!json.Valid(got) {
			t.Errorf("got %s\nwant …%s", got, want)
		}
	}
	plain := NewTable(&engine.Request{Resource: &engine.Resource{}}, "v1", IncludeNone)
	got, err := AppendTable(nil,
		stored(t, `{"kind":"T","metadata":{"creationTimestamp":"2024-01-02T03:04:05Z","name":"x","uid":"u"}}`, 1), plain)
	if err != nil || !strings.Contains(string(got), `"cells":["x","2024-01-02T03:04:05Z"]`) ||
		!strings.Contains(string(got), `"name":"Created At","type":"date"`) {
		t.Errorf("a type without columns: %s, %v", got, err)
	}
}

// SPEC: WATCH-1, WATCH-4, WATCH-5, MED-6, MED-7
func TestEvents(t *testing.T) {
	r := thingType(t)
	o := stored(t, thing, 7)
	object := string(AppendObject(nil, o, false))
	plain := NewEvents(r, Media{}, nil)
	printed(t, plain, engine.Event{Type: engine.Added, Object: o, Revision: 7}, `{"type":"ADDED","object":`+object+"}\n")
	printed(t, plain, engine.Event{Type: engine.Modified, Object: o, Revision: 7},
		`{"type":"MODIFIED","object":`+object+"}\n")
	printed(t, plain, engine.Event{Type: engine.Deleted, Object: o, Revision: 9},
		`{"type":"DELETED","object":`+strings.Replace(object, `"resourceVersion":"7"`, `"resourceVersion":"9"`, 1)+"}\n")
	printed(t, plain, engine.Event{Type: engine.Bookmark, Revision: 11, InitialEnd: true},
		`{"type":"BOOKMARK","object":{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"11"}}}`+"\n")
	printed(t, plain, engine.Event{Type: engine.Bookmark, Revision: 12},
		`{"type":"BOOKMARK","object":{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"resourceVersion":"12"}}}`+
			"\n")

	metadata := NewEvents(r, Media{Form: AsPartial, Version: "v1"}, nil)
	record := &store.Record{New: o, Revision: 7}
	want := `{"type":"ADDED","object":` + string(AppendPartial(nil, o, "v1", false)) + "}\n"
	for range 2 { // printed, and from the memo
		printed(t, metadata, engine.Event{Type: engine.Added, Object: o, Revision: 7, Record: record}, want)
	}
	if record.Memo.Load(memoPartial) == nil || record.Memo.Load(memoPartialBeta) != nil {
		t.Error("the printed metadata was not kept for the other watchers, or in the wrong place")
	}
	printed(t, metadata, engine.Event{Type: engine.Bookmark, Revision: 11},
		`{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"11"}}}`+"\n")

	table := NewEvents(r, Media{Form: AsTable, Version: "v1"}, NewTable(&engine.Request{Resource: r}, "v1", IncludeNone))
	first, err := table.Append(nil, &engine.Event{Type: engine.Added, Object: o, Revision: 7})
	if err != nil || !strings.Contains(string(first), `"columnDefinitions":[{"name":"Name"`) {
		t.Errorf("the first event of a Table has no columns: %s, %v", first, err)
	}
	printed(t, table, engine.Event{Type: engine.Modified, Object: o, Revision: 7},
		`{"type":"MODIFIED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"columnDefinitions":null,"rows":[{"cells":["x",1,true,null],"object":null}]}}`+"\n")
	printed(t, table, engine.Event{Type: engine.Bookmark, Revision: 11},
		`{"type":"BOOKMARK","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"11"},"columnDefinitions":null,"rows":[{"cells":["",0,true,null],"object":null}]}}`+"\n")
}

func printed(t *testing.T, f *Events, e engine.Event, want string) {
	t.Helper()
	got, err := f.Append(nil, &e)
	if err != nil {
		t.Fatal(err)
	}
	check(t, e.Type.String(), got, want)
}

// SPEC: WATCH-3
func TestErrorEvent(t *testing.T) {
	status := object.Fields("kind", object.StringOf("Status"), "apiVersion", object.StringOf("v1"), "code",
		object.IntOf(410))
	failed, err := NewEvents(thingType(t), Media{}, nil).AppendError(nil, status)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "error", failed, `{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","code":410}}`+"\n")
}

// An item of a list and an event of a watch cost no more than a copy.
//
// SPEC: LIST-8
func TestPrintingAllocatesNothing(t *testing.T) {
	r := thingType(t)
	o := stored(t, thing, 7)
	buf := make([]byte, 0, 4096)
	l, events := NewList(r, Media{}, nil), NewEvents(r, Media{}, nil)
	partials := NewList(r, Media{Form: AsPartials, Version: "v1"}, nil)
	e := &engine.Event{Type: engine.Modified, Object: o, Revision: 7, Record: &store.Record{New: o}}
	for name, print := range map[string]func(){
		"item":     func() { _, _ = l.Item(buf, o) },
		"metadata": func() { _, _ = partials.Item(buf, o) },
		"event":    func() { _, _ = events.Append(buf, e) },
	} {
		if n := testing.AllocsPerRun(100, print); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkEvent(b *testing.B) {
	o := stored(b, thing, 7)
	e := &engine.Event{Type: engine.Modified, Object: o, Revision: 7}
	events := NewEvents(thingType(b), Media{}, nil)
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = events.Append(buf, e)
	}
}

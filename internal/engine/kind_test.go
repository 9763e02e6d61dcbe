package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/object"
	"plinth/schema"
)

// colors makes resources of one kind: widgets whose color is spec.color in v1 and spec.paint in v2. One of the versions
// is stored. Compared with the v1 of the first two texts, v2 has a new default (spec.size) and lacks a field
// (spec.old).
func colors(storage string, texts ...string) (v1, v2 *Resource) {
	spec := func(names ...string) func() *schema.Type {
		var fields []schema.Field
		for _, name := range names {
			fields = append(fields, schema.Field{Name: name, Type: &schema.Type{Kind: schema.String}, OmitEmpty: true})
		}
		text := &schema.Type{Kind: schema.String}
		t := &schema.Type{Kind: schema.Struct, Fields: []schema.Field{
			{Name: "apiVersion", Type: text}, {Name: "kind", Type: text},
			{Name: "metadata", Type: &schema.Type{Kind: schema.Any}},
			{Name: "spec", Type: &schema.Type{Kind: schema.Struct, Fields: fields}},
		}}
		return func() *schema.Type { return t }
	}
	of := func(version, field string, names ...string) *Resource {
		r := &Resource{
			Naming: Naming{
				Group: "test.example", Version: version, Name: "widgets", Kind: "Widget", ListKind: "WidgetList",
				Namespaced: true, Verbs: []string{"create", "get", "list", "patch", "update", "watch"},
			},
			Writing: Writing{
				UnconditionalUpdate: true,
			},
			Reading: Reading{
				Fields: func(obj object.Value) []store.Pair {
					return []store.Pair{{Name: "spec." + field, Value: obj.At("spec", field).Str()}}
				},
			},
			Schema: spec(names...),
		}
		if version == "v2" {
			r.Default = func(obj object.Value) object.Value {
				if obj.At("spec", "size").IsNull() {
					obj = obj.WithAt(object.StringOf("medium"), "spec", "size")
				}
				return obj
			}
		}
		r.Served = VersionOf(r)
		return r
	}
	v1, v2 = of("v1", "color", "color", "size"), of("v2", "paint", "paint", "size")
	versions := []*Version{v1.Served, v2.Served}
	if storage == "v2" {
		versions = []*Version{v2.Served, v1.Served}
	}
	kind := NewKind("test.example/widgets", versions, texts...)
	kind.Convert = func(_ context.Context, objects []object.Value, to *Version) ([]object.Value, error) {
		converted := make([]object.Value, len(objects))
		for i, obj := range objects {
			from, field := "color", "paint"
			if to == v1.Served {
				from, field = field, from
			}
			if obj.At("apiVersion").Str() != to.APIVersion {
				color := obj.At("spec", from)
				obj = obj.With("apiVersion", object.StringOf(to.APIVersion)).WithoutAt("spec", from)
				if !color.IsNull() {
					obj = obj.WithAt(color, "spec", field)
				}
			}
			converted[i] = obj
		}
		return converted, nil
	}
	v1.Stored, v2.Stored = kind, kind
	return v1, v2
}

// Objects that were stored in another version, or when their version had another schema, are read in the current form
// by every verb, and each write stores the current form.
//
// SPEC: WRITE-3, SSA-11, LIST-7
func TestObjectsOfAnOldForm(t *testing.T) {
	b := newBench(t)
	old := func(texts ...string) *Resource { v1, _ := colors("v1", texts...); return v1 }
	in := func(r *Resource, name string) *Request { return &Request{Resource: r, Namespace: "ns", Name: name} }
	made := b.must(b.Create(t.Context(), in(old(), ""), b.parse(`{"metadata":{"name":"a"},"spec":{"color":"red"}}`)))
	b.must(b.Create(t.Context(), in(old(), ""), b.parse(`{"metadata":{"name":"b"},"spec":{"color":"blue"}}`)))

	v1, v2 := colors("v2") // v2 is the storage version from now on
	for _, c := range []struct {
		as   *Resource
		want string
	}{
		// the version in which it is stored has no defaults, and those of the served one are not added
		{v1, `{"color":"red"}`},
		{v2, `{"paint":"red"}`},
	} {
		result := b.must(b.Get(t.Context(), in(c.as, "a"), ""))
		if got := b.value(result); !strings.Contains(string(object.AppendJSON(nil, got)), `"spec":`+c.want) ||
			got.At("apiVersion").Str() != c.as.APIVersion() || result.Object.Revision != made.Object.Revision {
			t.Errorf("read in %s it is %s", c.as.Version, result.Object.Data())
		}
		list, err := b.List(t.Context(), in(c.as, ""), ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		listed := 0
		for item := range list.Items {
			listed++
			if !strings.HasPrefix(string(item.Data()), `{"apiVersion":"`+c.as.APIVersion()+`"`) {
				t.Errorf("listed as %s: %s", c.as.Version, item.Data())
			}
		}
		field := map[*Resource]string{v1: "spec.color", v2: "spec.paint"}[c.as]
		selector := ListOptions{Fields: fields.OneTermEqualSelector(field, "red")}
		selected, err := b.List(t.Context(), in(c.as, ""), selector)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for item := range selected.Items {
			found++
			if item.Key.Name != "ns/a" {
				t.Errorf("the field selector %s=red selects %s", field, item.Key.Name)
			}
		}
		if listed != 2 || found != 1 {
			t.Errorf("%s: %d listed, %d selected", c.as.Version, listed, found)
		}
	}

	// An empty patch writes the object in its current form, once.
	touch := Patch{Type: MergePatch, Body: []byte(`{}`)}
	first := b.must(b.Patch(t.Context(), in(v2, "a"), touch))
	again := b.must(b.Patch(t.Context(), in(v2, "a"), touch))
	if first.Object.Revision == made.Object.Revision || again.Object.Revision != first.Object.Revision {
		t.Errorf("revisions %d, %d, %d: only the first empty patch should write",
			made.Object.Revision, first.Object.Revision, again.Object.Revision)
	}
	if live, _ := b.store.Get(in(v2, "a").key()); !strings.HasPrefix(string(live.Data()),
		`{"apiVersion":"test.example/v2"`) {
		t.Errorf("the stored object is %s, should be of v2", live.Data())
	}
	if got := b.value(first).At("spec", "size").Str(); got != "medium" { // it was defaulted as a body of v2
		t.Errorf("the size after the write is %q, should be the default of v2", got)
	}
}

// If only the schema of the stored version has changed, reads add the new defaults and prune removed fields. An object
// in a version that the kind no longer has cannot be read, and the error names it.
//
// SPEC: VAL-3, DEL-7
func TestObjectsOfAnOldSchema(t *testing.T) {
	b := newBench(t)
	_, v2 := colors("v2", "first")
	grown := *v2
	grown.Schema = func() *schema.Type { return &schema.Type{Kind: schema.Any} }
	grown.Default = nil
	grown.StoredAlone("test.example/widgets", "first")
	rq := func(r *Resource) *Request { return &Request{Resource: r, Namespace: "ns", Name: "a"} }
	b.must(b.Create(t.Context(), &Request{Resource: &grown, Namespace: "ns"},
		b.parse(`{"metadata":{"name":"a"},"spec":{"paint":"red","old":"x"}}`)))
	if got := b.value(b.must(b.Get(t.Context(), rq(&grown), ""))).At("spec"); got.Len() != 2 {
		t.Errorf("spec is %s", object.AppendJSON(nil, got))
	}
	_, v2 = colors("v2", "second")
	if got := string(object.AppendJSON(nil,
		b.value(b.must(b.Get(t.Context(), rq(v2), ""))).At("spec"))); got != `{"paint":"red","size":"medium"}` {
		t.Errorf("spec is %s", got)
	}
	w, err := b.Watch(t.Context(), &Request{Resource: v2, Namespace: "ns"}, WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	events, err := w.Next(t.Context())
	if err != nil || len(events) != 1 || !strings.Contains(string(events[0].Object.Data()), `"size":"medium"`) {
		t.Errorf("the initial events are %v, %v; should be one with the new default", events, err)
	}
	v3 := *v2
	v3.Version = "v3"
	v3.StoredAlone("test.example/widgets")
	_, err = b.Get(t.Context(), rq(&v3), "")
	if err == nil || !strings.Contains(err.Error(), "test.example/widgets/ns/a") ||
		!strings.Contains(err.Error(), `stored as "test.example/v2"`) {
		t.Error(err)
	}
}

// The form in which an object was written is known after a restart, too.
//
// SPEC: WRITE-3
func TestFormsOutliveARestart(t *testing.T) {
	dir := t.TempDir()
	open := func(text string) (*Engine, *Resource, *store.Store) {
		_, v2 := colors("v2", text)
		namespaces := newBench(t).namespaces
		registry := NewRegistry([]*Resource{v2, namespaces})
		log, err := filelog.Open(dir, filelog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(store.Config{Log: log, Describe: Describe(registry)})
		if err != nil {
			t.Fatal(err)
		}
		return New(Config{Store: s, Registry: registry}), v2, s
	}
	b := newBench(t)
	e, v2, s := open("first")
	v2.Default = nil
	b.must(e.Create(t.Context(), &Request{Resource: b.namespaces}, b.parse(`{"metadata":{"name":"ns"}}`)))
	rq := &Request{Resource: v2, Namespace: "ns", Name: "a"}
	made := b.must(e.Create(t.Context(), &Request{Resource: v2, Namespace: "ns"},
		b.parse(`{"metadata":{"name":"a"},"spec":{"paint":"red"}}`)))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, want string }{{"first", `{"paint":"red"}`},
		{"second", `{"paint":"red","size":"medium"}`}} {
		e, v2, s = open(c.text)
		rq.Resource = v2
		got := b.must(e.Get(t.Context(), rq, ""))
		if spec := string(object.AppendJSON(nil, b.value(got).At("spec"))); spec != c.want ||
			got.Object.Revision != made.Object.Revision {
			t.Errorf("%s: spec is %s at revision %d", c.text, spec, got.Object.Revision)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A watch by a field gets an event when an object leaves its selection, even if the object was stored in an old form,
// whose sidecar does not have the field: in another version, or with a schema in which the field had another value.
//
// SPEC: WATCH-1, LIST-7
func TestSelectedWatchOfObjectsOfAnOldForm(t *testing.T) {
	b := newBench(t)
	in := func(r *Resource, name string) *Request { return &Request{Resource: r, Namespace: "ns", Name: name} }
	old, _ := colors("v1")
	_, grown := colors("v2", "first")
	grown.Fields = func(obj object.Value) []store.Pair {
		return []store.Pair{{Name: "spec.paint", Value: "none"}}
	}
	grown.Served.Fields = grown.Fields
	b.must(b.Create(t.Context(), in(old, ""), b.parse(`{"metadata":{"name":"a"},"spec":{"color":"red"}}`)))
	b.must(b.Create(t.Context(), in(grown, ""), b.parse(`{"metadata":{"name":"b"},"spec":{"paint":"red"}}`)))

	_, v2 := colors("v2", "second")
	for _, name := range []string{"a", "b"} {
		selector := ListOptions{Fields: fields.OneTermEqualSelector("spec.paint", "red")}
		w, err := b.Watch(t.Context(), in(v2, ""), WatchOptions{ListOptions: selector})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		next := func() (all []Event) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			events, err := w.Next(ctx)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return append(all, events...)
		}
		if events := next(); len(events) == 0 || events[0].Type != Added || events[0].Object.Key.Name != "ns/"+name {
			t.Fatalf("%s: the watch begins with %v", name, events)
		}
		blue := Patch{Type: MergePatch, Body: []byte(`{"spec":{"paint":"blue"}}`)}
		b.must(b.Patch(t.Context(), in(v2, name), blue))
		events := next()
		if len(events) != 1 || events[0].Type != Deleted || events[0].Object.Key.Name != "ns/"+name {
			t.Errorf("%s: events after the object left the selection: %v, should be one DELETED", name, events)
		}
	}
}

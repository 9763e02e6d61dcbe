package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
	"plinth/schema"
)

// bench is an engine over a store in memory, with a namespaced type Widget and the namespaces that it needs.
type bench struct {
	*testing.T
	*Engine
	widgets, namespaces *Resource
	now                 time.Time
}

// inNamespace is the admission of the tests: what is created needs its namespace.
var inNamespace = Admission{Admit: func(ctx context.Context, a *Attributes) error {
	if a.Operation == OperationCreate && a.Request.Resource.Answer == nil {
		return a.RequireNamespace(ctx)
	}
	return nil
}}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchOn(t, func(c store.Config) (*store.Store, error) {
		c.Log = memlog.New()
		return store.Open(c)
	})
}

func newBenchOn(t *testing.T, open func(store.Config) (*store.Store, error)) *bench {
	t.Helper()
	anything := &schema.Type{Kind: schema.Any}
	b := &bench{T: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	b.widgets = &Resource{
		Naming: Naming{
			Group: "test.example", Version: "v1", Name: "widgets", Singular: "widget", Kind: "Widget",
			ListKind: "WidgetList", Namespaced: true, Verbs: []string{"create", "get", "list"},
		},
		Writing: Writing{
			UnconditionalUpdate: true,
			Generation:          func(obj object.Value) object.Value { return obj.At("spec") },
		},
		Reading: Reading{
			Fields: func(obj object.Value) []store.Pair {
				return []store.Pair{{Name: "spec.color", Value: obj.At("spec", "color").Str()}}
			},
		},
		Schema: func() *schema.Type { return anything },
	}
	b.namespaces = &Resource{
		Naming: Naming{
			Version: "v1", Name: "namespaces", Kind: "Namespace", ListKind: "NamespaceList",
		},
		Writing: Writing{
			UnconditionalUpdate: true,
		},
		Schema: func() *schema.Type { return anything },
	}
	registry := NewRegistry([]*Resource{b.widgets.StoredAlone("test.example/widgets"),
		b.namespaces.StoredAlone(Namespaces)})
	s, err := open(store.Config{Describe: Describe(registry)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	b.Engine = New(Config{Store: s, Registry: registry, Now: func() time.Time { return b.now }, Admission: inNamespace})
	b.must(b.Create(t.Context(), &Request{Resource: b.namespaces}, b.parse(`{"metadata":{"name":"ns"}}`)))
	return b
}

func (b *bench) parse(text string) object.Parsed {
	b.Helper()
	p, err := object.ParseJSON([]byte(text))
	if err != nil {
		b.Fatalf("%s: %v", text, err)
	}
	return p
}

func (b *bench) must(r *Result, err error) *Result {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func (b *bench) request(name string) *Request {
	return &Request{Resource: b.widgets, Namespace: "ns", Name: name}
}

func (b *bench) create(text string) *Result {
	b.Helper()
	return b.must(b.Create(b.Context(), b.request(""), b.parse(text)))
}

func (b *bench) value(r *Result) object.Value {
	b.Helper()
	p, err := object.ParseJSON(r.Object.Data())
	if err != nil {
		b.Fatal(err)
	}
	return p.Value
}

// wants checks that err is a wire error of this code whose message contains text.
func (b *bench) wants(err error, code int, text string) {
	b.Helper()
	wire := apierr.From(err)
	if err == nil || wire.Code != code || !strings.Contains(wire.Message, text) {
		b.Errorf("got %v, want %d %q", err, code, text)
	}
}

// SPEC: URI-4, WRITE-4
func TestCreateSetsSystemMetadata(t *testing.T) {
	b := newBench(t)
	made := b.create(
		`{"metadata":{"name":"a","uid":"mine","creationTimestamp":"2001-01-01T00:00:00Z","generation":9,"deletionTimestamp":"2001-01-01T00:00:00Z","selfLink":"/x"},"spec":{"n":1}}`)
	meta := b.value(made).At("metadata")
	if uid := meta.At("uid").Str(); uid == "mine" || len(uid) != 36 {
		t.Errorf("the uid is %q, should be a generated one", uid)
	}
	want := fmt.Sprintf(`{"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,"name":"a","namespace":"ns","uid":%q}`,
		meta.At("uid").Str())
	if got := string(object.AppendJSON(nil, meta.Without("managedFields"))); got != want {
		t.Errorf("metadata is %s\nwant %s", got, want)
	}
	if !made.Created || made.Object.Revision == 0 {
		t.Errorf("the create returned Created = %v, revision %d", made.Created, made.Object.Revision)
	}
	_, err := b.Create(t.Context(), b.request(""), b.parse(`{"metadata":{"name":"a"}}`))
	b.wants(err, 409, `widgets.test.example "a" already exists`)
}

// SPEC: URI-5, VAL-1
func TestCreateRefuses(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		namespace, body string
		code            int
		text            string
	}{
		{"nope", `{"metadata":{"name":"a"}}`, 404, `namespaces "nope" not found`},
		{"ns", `{"metadata":{"name":"a","namespace":"other"}}`, 400, "does not match the namespace"},
		{"ns", `{"kind":"Gadget","metadata":{"name":"a"}}`, 400, "cannot be handled as a Widget"},
		{"ns", `{"apiVersion":"v1","metadata":{"name":"a"}}`, 400, "cannot be handled as a Widget"},
		{"ns", `{"kind":5}`, 400, "cannot unmarshal number into Go struct field .kind of type string"},
		{"ns", `[]`, 400, "couldn't get version/kind"},
		{"ns", `{"metadata":{}}`, 422, "name or generateName is required"},
		{"ns", `{"metadata":{"name":"a","resourceVersion":"5"}}`, 400, "resourceVersion should not be set"},
	} {
		_, err := b.Create(t.Context(), &Request{Resource: b.widgets, Namespace: c.namespace}, b.parse(c.body))
		b.wants(err, c.code, c.text)
	}
}

// SPEC: URI-3
func TestGeneratedNames(t *testing.T) {
	b := newBench(t)
	seen := map[string]bool{}
	for range 200 {
		name := b.value(b.create(`{"metadata":{"generateName":"w-"}}`)).At("metadata", "name").Str()
		if !strings.HasPrefix(name, "w-") || len(name) != 7 || seen[name] {
			t.Fatalf("the generated name is %q: not new, or not w- and 5 characters", name)
		}
		seen[name] = true
	}
}

// SPEC: WRITE-1, WRITE-3, WRITE-4
func TestUpdate(t *testing.T) {
	b := newBench(t)
	made := b.create(`{"metadata":{"name":"a"},"spec":{"n":1}}`)
	put := func(body string) (*Result, error) {
		return b.Update(t.Context(), b.request("a"), b.parse(body))
	}
	same := b.must(put(`{"metadata":{"name":"a"},"spec":{"n":1}}`))
	if same.Object.Revision != made.Object.Revision {
		t.Errorf("an update that changes nothing went from revision %d to %d",
			made.Object.Revision, same.Object.Revision)
	}
	labelled := b.must(put(`{"metadata":{"name":"a","labels":{"x":"y"}},"spec":{"n":1}}`))
	if g := b.value(labelled).At("metadata", "generation").Int(); g != 1 {
		t.Errorf("a label raised the generation to %d", g)
	}
	changed := b.must(put(fmt.Sprintf(`{"metadata":{"name":"a","resourceVersion":"%d","generation":77},"spec":{"n":2}}`,
		labelled.Object.Revision)))
	if g := b.value(changed).At("metadata", "generation").Int(); g != 2 {
		t.Errorf("the generation after a change of spec is %d", g)
	}
	for body, want := range map[string]string{
		`{"metadata":{"name":"a","resourceVersion":"1"}}`: "the object has been modified",
		`{"metadata":{"name":"a","uid":"other"}}`:         "UID in precondition: other",
	} {
		_, err := put(body)
		b.wants(err, 409, want)
	}
	_, err := put(`{"metadata":{"name":"b"}}`)
	b.wants(err, 400, "the name of the object (b) does not match the name on the URL (a)")
	_, err = b.Update(t.Context(), b.request("zz"), b.parse(`{"metadata":{"name":"zz"}}`))
	b.wants(err, 404, `widgets.test.example "zz" not found`)
	b.widgets.CreateOnUpdate = true
	if r := b.must(b.Update(t.Context(), b.request("zz"), b.parse(`{"metadata":{"name":"zz"}}`))); !r.Created {
		t.Error("a PUT that created the object returned Created = false")
	}
	b.widgets.UnconditionalUpdate = false
	_, err = put(`{"metadata":{"name":"a"}}`)
	b.wants(err, 422, "metadata.resourceVersion: Invalid value: 0: must be specified for an update")
}

// SPEC: WRITE-2
func TestPatch(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"a"},"spec":{"n":1,"m":2}}`)
	for _, c := range []struct {
		kind PatchType
		body string
		want string // spec, or
		code int    // the error
	}{
		{MergePatch, `{"spec":{"m":null,"o":[1]}}`, `{"n":1,"o":[1]}`, 0},
		{JSONPatch, `[{"op":"test","path":"/spec/n","value":1},{"op":"replace","path":"/spec/n","value":5}]`,
			`{"n":5,"o":[1]}`, 0},
		{JSONPatch, `[{"op":"test","path":"/spec/n","value":1}]`, "", 422},
		{JSONPatch, `{}`, "", 400},
		{MergePatch, `[]`, "", 400},
		{MergePatch, `{`, "", 400},
		{MergePatch, `{"metadata":{"resourceVersion":"1"}}`, "", 409},
		{MergePatch, `{"metadata":{"name":"b"}}`, "", 400},
		{MergePatch, `{"kind":"Gadget"}`, "", 422},
	} {
		r, err := b.Patch(t.Context(), b.request("a"), Patch{Type: c.kind, Body: []byte(c.body)})
		if c.code != 0 {
			b.wants(err, c.code, "")
			continue
		}
		if got := string(object.AppendJSON(nil, b.value(b.must(r, err)).At("spec"))); got != c.want {
			t.Errorf("after the patch %s the spec is %s, want %s", c.body, got, c.want)
		}
	}
	// Of a patch of an object that does not exist only the syntax is checked.
	for body, code := range map[string]int{`{}`: 404, `[1]`: 404, `"a"`: 404, `null`: 404, `{`: 400, ``: 400, `1 2`: 400} {
		for _, kind := range []PatchType{MergePatch, JSONPatch, StrategicPatch} {
			_, err := b.Patch(t.Context(), b.request("none"), Patch{Type: kind, Body: []byte(body)})
			b.wants(err, code, "")
		}
	}
	for _, body := range []string{`"a"`, `3`, `[1]`} {
		for _, kind := range []PatchType{MergePatch, JSONPatch, StrategicPatch} {
			_, err := b.Patch(t.Context(), b.request("a"), Patch{Type: kind, Body: []byte(body)})
			b.wants(err, 400, "error decoding patch: patch: malformed: ")
		}
	}
}

// Patches without a resourceVersion do not conflict: after a lost race the server applies them to the newer object.
// SPEC: WRITE-2
func TestPatchesRace(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"a"},"spec":{}}`)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 25 {
				body := fmt.Sprintf(`{"spec":{"w%d-%d":true}}`, w, i)
				if _, err := b.Patch(t.Context(), b.request("a"), Patch{Type: MergePatch, Body: []byte(body)}); err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	wg.Wait()
	got := b.value(b.must(b.Get(t.Context(), b.request("a"), "")))
	if n := got.At("spec").Len(); n != 200 {
		t.Errorf("the object has the fields of %d of 200 patches", n)
	}
	if g := got.At("metadata", "generation").Int(); g != 201 {
		t.Errorf("the generation is %d after 200 changes", g)
	}
}

// SPEC: DEL-1, DEL-3
func TestDeleteWaitsForFinalizers(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"a","finalizers":["x.y/1","x.y/2"]}}`)
	marked := b.must(b.Delete(t.Context(), b.request("a"), DeleteOptions{}))
	meta := b.value(marked).At("metadata")
	if meta.At("deletionTimestamp").Str() != "2026-01-02T03:04:05Z" ||
		meta.At("deletionGracePeriodSeconds").Kind() != object.Int || meta.At("generation").Int() != 2 {
		t.Errorf("the object marked as deleted is %s", marked.Object.Data())
	}
	again := b.must(b.Delete(t.Context(), b.request("a"), DeleteOptions{}))
	if again.Object.Revision != marked.Object.Revision {
		t.Error("a second delete made a new revision")
	}
	one := b.must(b.Patch(t.Context(), b.request("a"), Patch{Type: MergePatch,
		Body: []byte(`{"metadata":{"finalizers":["x.y/2"]}}`)}))
	_, err := b.Patch(t.Context(), b.request("a"), Patch{Type: MergePatch,
		Body: []byte(`{"metadata":{"finalizers":["x.y/2","x.y/3"]}}`)})
	b.wants(err, 422, "no new finalizers can be added if the object is being deleted")
	last := b.must(b.Patch(t.Context(), b.request("a"), Patch{Type: MergePatch,
		Body: []byte(`{"metadata":{"finalizers":null}}`)}))
	if last.Object.Revision != one.Object.Revision || b.value(last).At("metadata", "finalizers").Len() != 0 {
		t.Errorf("the write that removed the object returned revision %d, %s", last.Object.Revision, last.Object.Data())
	}
	_, err = b.Get(t.Context(), b.request("a"), "")
	b.wants(err, 404, "")
}

// SPEC: DEL-2, DEL-3
func TestDelete(t *testing.T) {
	b := newBench(t)
	made := b.create(`{"metadata":{"name":"a"}}`)
	_, err := b.Delete(t.Context(), b.request("a"), DeleteOptions{PreconditionUID: "x"})
	b.wants(err, 409, "the UID in the precondition (x)")
	_, err = b.Delete(t.Context(), b.request("a"), DeleteOptions{PreconditionRV: "1"})
	b.wants(err, 409, "the ResourceVersion in the precondition (1)")
	dry := b.must(b.Delete(t.Context(), b.request("a"), DeleteOptions{DryRun: true}))
	gone := b.must(b.Delete(t.Context(), b.request("a"), DeleteOptions{}))
	if !object.Equal(dry.Status, gone.Status) {
		t.Error("the dry run of a delete returned another Status than the delete")
	}
	want := fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Status","metadata":{},"details":{"group":"test.example","kind":"widgets","name":"a","uid":%q},"status":"Success"}`, made.Object.Sidecar.UID)
	if got := string(object.AppendObject(nil, gone.Status)); got != want {
		t.Errorf("got %s", got)
	}
	_, err = b.Delete(t.Context(), b.request("a"), DeleteOptions{})
	b.wants(err, 404, "")
	if b.value(b.create(`{"metadata":{"name":"a"}}`)).At("metadata", "uid").Str() == made.Object.Sidecar.UID {
		t.Error("an object created again has the UID of the deleted one")
	}
}

// SPEC: DRY-1
func TestDryRunsWriteNothing(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"a"}}`)
	before := b.store.Revision()
	dry := func(name string) *Request { rq := b.request(name); rq.DryRun = true; return rq }
	b.must(b.Create(t.Context(), dry(""), b.parse(`{"metadata":{"name":"b"}}`)))
	_, err := b.Create(t.Context(), dry(""), b.parse(`{"metadata":{"name":"a"}}`))
	b.wants(err, 409, "already exists")
	changed := b.must(b.Update(t.Context(), dry("a"), b.parse(`{"metadata":{"name":"a"},"spec":{"n":1}}`)))
	if b.value(changed).At("spec", "n").Int() != 1 {
		t.Error("the dry run of an update did not return the updated object")
	}
	b.must(b.Patch(t.Context(), dry("a"), Patch{Type: MergePatch, Body: []byte(`{"spec":{}}`)}))
	b.must(b.Delete(t.Context(), dry("a"), DeleteOptions{}))
	b.must(b.Create(t.Context(), dry(""), b.parse(`{"metadata":{"name":"b","resourceVersion":"7"}}`)))
	if b.store.Revision() != before {
		t.Errorf("dry runs moved the revision of the store from %d to %d", before, b.store.Revision())
	}
}

// SPEC: LIST-1, LIST-4, LIST-7
func TestList(t *testing.T) {
	b := newBench(t)
	for i := range 10 {
		b.create(fmt.Sprintf(`{"metadata":{"name":"w%d","labels":{"even":"%v"}},"spec":{"color":"c%d"}}`, i, i%2 == 0, i%3))
	}
	list := func(o ListOptions) (*Collection, []string) {
		t.Helper()
		c, err := b.List(t.Context(), b.request(""), o)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for item := range c.Items {
			names = append(names, item.Key.Name[3:])
		}
		return c, names
	}
	selector := func(text string) labels.Selector {
		s, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		o    ListOptions
		want string
	}{
		{ListOptions{}, "w0 w1 w2 w3 w4 w5 w6 w7 w8 w9"},
		{ListOptions{Labels: selector("even=true")}, "w0 w2 w4 w6 w8"},
		{ListOptions{Labels: selector("even notin (true),none!=x")}, "w1 w3 w5 w7 w9"},
		{ListOptions{Fields: fields.ParseSelectorOrDie("spec.color=c1")}, "w1 w4 w7"},
		{ListOptions{Fields: fields.ParseSelectorOrDie("metadata.name=w3")}, "w3"},
		{ListOptions{Fields: fields.ParseSelectorOrDie("metadata.namespace!=ns")}, ""},
		{ListOptions{Labels: selector("even=true"), Fields: fields.ParseSelectorOrDie("spec.color=c1")}, "w4"},
	} {
		if _, names := list(c.o); strings.Join(names, " ") != c.want {
			t.Errorf("%+v selects %v", c.o, names)
		}
	}
	_, err := b.List(t.Context(), b.request(""), ListOptions{Fields: fields.ParseSelectorOrDie("spec.size=1")})
	b.wants(err, 400, "field label not supported: spec.size")

	first, names := list(ListOptions{Limit: 4})
	if strings.Join(names, " ") != "w0 w1 w2 w3" || first.Remaining == nil || *first.Remaining != 6 {
		t.Errorf("the first page is %v", names)
	}
	b.create(`{"metadata":{"name":"w33"}}`)
	b.must(b.Delete(t.Context(), b.request("w5"), DeleteOptions{}))
	second, names := list(ListOptions{Limit: 4, Continue: first.Continue})
	if strings.Join(names, " ") != "w4 w5 w6 w7" || second.Revision != first.Revision {
		t.Errorf("the second page at revision %d is %v", second.Revision, names)
	}
	third, names := list(ListOptions{Limit: 4, Continue: second.Continue})
	if strings.Join(names, " ") != "w8 w9" || third.Continue != "" {
		t.Errorf("the third page is %v with the token %q", names, third.Continue)
	}
	for _, bad := range []string{"x", "e30", "////"} {
		_, err := b.List(t.Context(), b.request(""), ListOptions{Continue: bad})
		b.wants(err, 400, "continue key is not valid")
	}
}

// SPEC: LIST-2, LIST-6
func TestVersionsOfTheFuture(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"a"}}`)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := b.Get(ctx, b.request("a"), "99")
	b.wants(err, 504, "Too large resource version: 99")
	_, err = b.Get(t.Context(), b.request("a"), "abc")
	b.wants(err, 400, "resourceVersion: Invalid value")
}

// story collects the events of a watch until it has n of them, as "ADDED a" lines.
func (b *bench) story(w *Watch, n int) []string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
	defer cancel()
	var lines []string
	for len(lines) < n {
		events, err := w.Next(ctx)
		if err != nil {
			b.Fatalf("after %v: %v", lines, err)
		}
		for _, e := range events {
			line := e.Type.String()
			if e.Object != nil {
				line += " " + e.Object.Key.Name[3:]
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func (b *bench) watch(o WatchOptions) *Watch {
	b.Helper()
	w, err := b.Watch(b.Context(), b.request(""), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(w.Close)
	return w
}

func (b *bench) merge(name, body string) {
	b.Helper()
	b.must(b.Patch(b.Context(), b.request(name), Patch{Type: MergePatch, Body: []byte(body)}))
}

// SPEC: WATCH-1
func TestWatchTransitionsOfASelector(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"in","labels":{"on":"1"}}}`)
	b.create(`{"metadata":{"name":"out"}}`)
	on, err := labels.Parse("on=1")
	if err != nil {
		t.Fatal(err)
	}
	w := b.watch(WatchOptions{ListOptions: ListOptions{Labels: on}})
	b.merge("in", `{"spec":1}`)
	b.merge("out", `{"spec":1}`)
	b.merge("out", `{"metadata":{"labels":{"on":"1"}}}`)
	b.merge("in", `{"metadata":{"labels":null}}`)
	b.merge("in", `{"spec":2}`)
	b.must(b.Delete(t.Context(), b.request("out"), DeleteOptions{}))
	want := []string{"ADDED in", "MODIFIED in", "ADDED out", "DELETED in", "DELETED out"}
	if got := b.story(w, len(want)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

// SPEC: WATCH-2, WATCH-5
func TestWatchBeginnings(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		o    WatchOptions
		at   bool // resourceVersion is that of the first object
		want []string
	}{
		{WatchOptions{}, false, []string{"ADDED a", "ADDED b", "ADDED z"}},
		{WatchOptions{ListOptions: ListOptions{ResourceVersion: "0"}}, false, []string{"ADDED a", "ADDED b", "ADDED z"}},
		{WatchOptions{}, true, []string{"ADDED b", "ADDED z"}},
		{WatchOptions{SendInitialEvents: &yes, Bookmarks: true}, false,
			[]string{"ADDED a", "ADDED b", "BOOKMARK", "ADDED z"}},
		{WatchOptions{SendInitialEvents: &yes}, false, []string{"ADDED a", "ADDED b", "ADDED z"}},
		{WatchOptions{SendInitialEvents: &yes, Bookmarks: true}, true, []string{"ADDED a", "ADDED b", "BOOKMARK", "ADDED z"}},
		{WatchOptions{SendInitialEvents: &no}, false, []string{"ADDED z"}},
		{WatchOptions{SendInitialEvents: &no}, true, []string{"ADDED b", "ADDED z"}},
	} {
		b := newBench(t)
		first := b.create(`{"metadata":{"name":"a"}}`)
		b.create(`{"metadata":{"name":"b"}}`)
		if c.at {
			c.o.ResourceVersion = fmt.Sprint(first.Object.Revision)
		}
		w := b.watch(c.o)
		b.create(`{"metadata":{"name":"z"}}`)
		if got := b.story(w, len(c.want)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: got %v", c.o, got)
		}
		if w.Revision() != b.store.Revision() {
			t.Errorf("%+v: a bookmark would have revision %d, the store has %d", c.o, w.Revision(), b.store.Revision())
		}
	}
}

// A watch that cannot begin is none: whoever gets the error has nothing to close.
//
// SPEC: WATCH-2
func TestWatchThatCannotBegin(t *testing.T) {
	b := newBench(t)
	first := b.create(`{"metadata":{"name":"a"}}`)
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	o := WatchOptions{ListOptions: ListOptions{ResourceVersion: fmt.Sprint(first.Object.Revision)}}
	if w, err := b.Watch(t.Context(), b.request(""), o); w != nil || !errors.Is(err, store.ErrClosed) {
		t.Errorf("got the watch %v and the error %v", w, err)
	}
}

// The initial events of a large collection are returned in batches, each object once, regardless of concurrent writes.
// SPEC: WATCH-1, WATCH-5
func TestWatchLongBeginning(t *testing.T) {
	b := newBench(t)
	const n = 3*initialBatch + 7
	for i := range n {
		b.create(fmt.Sprintf(`{"metadata":{"name":"w%05d"}}`, i))
	}
	w := b.watch(WatchOptions{})
	b.must(b.Delete(t.Context(), b.request("w00000"), DeleteOptions{}))
	got := b.story(w, n+1)
	for i := range n {
		if want := fmt.Sprintf("ADDED w%05d", i); got[i] != want {
			t.Fatalf("event %d is %s, want %s", i, got[i], want)
		}
	}
	if got[n] != "DELETED w00000" {
		t.Errorf("the event after the initial ones is %s", got[n])
	}
}

// SPEC: DEL-4, URI-5
func TestDeleteCollection(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "b", "c"} {
		b.create(fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"c":"%v"}}}`, name, name == "c"))
	}
	not, err := labels.Parse("c!=true")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.DeleteCollection(t.Context(), b.request(""), ListOptions{Labels: not}, DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	left, err := b.List(t.Context(), b.request(""), ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for item := range left.Items {
		if item.Key.Name != "ns/c" {
			t.Errorf("%s was not deleted", item.Key.Name)
		}
	}
}

// An object that replaces a listed one under its name, after the list and before its delete, is not deleted.
//
// SPEC: DEL-4
func TestDeleteCollectionSparesNamesakes(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "b", "c"} {
		b.create(fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	}
	b.meanwhile(func() { // within the delete of a
		b.must(b.Delete(t.Context(), b.request("b"), DeleteOptions{}))
		b.create(`{"metadata":{"name":"b"},"spec":{"by":"other"}}`)
	})
	if _, err := b.DeleteCollection(t.Context(), b.request(""), ListOptions{}, DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	left, err := b.List(t.Context(), b.request(""), ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for item := range left.Items {
		names = append(names, item.Key.Name)
	}
	if !slices.Equal(names, []string{"ns/b"}) {
		t.Errorf("%q are left, should be the new ns/b", names)
	}
}

// A duplicate field is an error, a warning or neither, by the validation level of the request.
//
// SPEC: VAL-2
func TestDuplicateFields(t *testing.T) {
	b := newBench(t)
	body := `{"metadata":{"name":"a","name":"b"}}`
	rq := b.request("")
	rq.Validation = Strict
	_, err := b.Create(t.Context(), rq, b.parse(body))
	b.wants(err, 400, `strict decoding error: duplicate field "metadata.name"`)
	rq = b.request("")
	if warnings := b.must(b.Create(t.Context(), rq, b.parse(body))).Warnings; !reflect.DeepEqual(warnings,
		[]string{`duplicate field "metadata.name"`}) {
		t.Errorf("warnings are %q", warnings)
	}
	rq.Validation = Ignore
	made := b.must(b.Create(t.Context(), rq, b.parse(`{"metadata":{"name":"c","name":"d"}}`)))
	if warnings := made.Warnings; len(warnings) != 0 {
		t.Errorf("warnings are %q", warnings)
	}
}

// SPEC: URI-2, DEL-4
func TestNamesThatNothingCanHave(t *testing.T) {
	b := newBench(t)
	for name, want := range map[string]string{
		"..":   `Name parameter invalid: "..": may not be '..'`,
		"a%b":  `Name parameter invalid: "a%b": may not contain '%'`,
		"none": `widgets.test.example "none" not found`,
	} {
		code := 400
		if name == "none" {
			code = 404
		}
		_, err := b.Get(t.Context(), b.request(name), "")
		b.wants(err, code, want)
		_, err = b.Delete(t.Context(), b.request(name), DeleteOptions{})
		b.wants(err, code, want)
	}
	everywhere := b.request("")
	everywhere.Namespace = ""
	_, err := b.DeleteCollection(t.Context(), everywhere, ListOptions{}, DeleteOptions{})
	b.wants(err, 400, "Namespace parameter required.")
}

// SPEC: VAL-2
func TestOwnersListedTwice(t *testing.T) {
	b := newBench(t)
	const owner = `{"apiVersion":"v1","kind":"A","name":"a","uid":"u"}`
	rq := b.request("")
	made := b.must(b.Create(t.Context(), rq, b.parse(`{"metadata":{"name":"a","ownerReferences":[`+owner+
		`,{"apiVersion":"v1","kind":"A","name":"b","uid":"u"},`+owner+`]}}`)))
	parsed, err := object.ParseJSON(made.Object.Data())
	if err != nil {
		t.Fatal(err)
	}
	if n := parsed.Value.At("metadata", "ownerReferences").Len(); n != 2 {
		t.Errorf("%d owner references are stored, should be 2: %s", n, made.Object.Data())
	}
	if warnings := made.Warnings; len(warnings) != 1 || !strings.HasSuffix(warnings[0], "duplicate UID(s) observed: u") {
		t.Errorf("warnings are %q", warnings)
	}
}

// The time for a body with many owner references is linear in their number, even if all of them have one UID: comparing
// each with all others would take minutes here.
//
// SPEC: WRITE-6
func TestManyOwners(t *testing.T) {
	const count = 100_000
	owners := make([]object.Value, count)
	for i := range owners {
		owners[i] = object.Fields("name", object.StringOf(fmt.Sprint("owner-", i/2)), "uid", object.StringOf("u"))
	}
	b := newBench(t)
	d := b.draft(b.request(""), OperationCreate)
	sent := object.Fields("metadata", object.Fields("ownerReferences", object.ListOf(owners...)))
	begun := time.Now()
	sent = d.dedupOwners(sent, false)
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("%d owner references took %s", count, took)
	}
	if n := sent.At("metadata", "ownerReferences").Len(); n != count/2 {
		t.Errorf("%d owner references are kept, should be %d", n, count/2)
	}
}

// The operations of a JSON Patch may have any number of unknown members. A bounded number of them is reported: finding
// the positions of all would take minutes here.
//
// SPEC: WRITE-6
func TestManyUnknownMembersOfAPatch(t *testing.T) {
	const count = 150_000
	body := []byte(`[{"op":"test"`)
	for i := range count {
		body = fmt.Appendf(body, `,"x%06d":0`, i)
	}
	begun := time.Now()
	texts := strictOperations(append(body, "}]"...))
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("%d unknown members took %s", count, took)
	}
	const first = `json patch unknown field "[0].x000000"`
	if len(texts) != maxStrict || texts[0] != first {
		t.Errorf("%d texts, of which the first is %s; should be %d, and %s", len(texts), texts[0], maxStrict, first)
	}
}

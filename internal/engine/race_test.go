package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"plinth/internal/apierr"
	"plinth/object"
)

// meanwhile runs f within the next write, after the write has read the live version and before it commits: a write
// reads the clock in between.
func (b *bench) meanwhile(f func()) {
	clock := b.Engine.now
	b.Engine.now = func() time.Time {
		b.Engine.now = clock
		f()
		return clock()
	}
}

// beforeNaming runs f within the next create, after admission and before the object has a name: there a create reads
// the clock for the second time.
func (b *bench) beforeNaming(f func()) { b.meanwhile(func() { b.meanwhile(f) }) }

// always runs f within every write.
func (b *bench) always(f func()) {
	clock := b.Engine.now
	inside := false
	b.Engine.now = func() time.Time {
		if !inside {
			inside = true
			f()
			inside = false
		}
		return clock()
	}
}

// A write that loses every race ends with its context, as a timeout.
// SPEC: WRITE-2
func TestRacesEndWithTheContext(t *testing.T) {
	verbs := map[string]func(context.Context, *bench) error{
		"update": func(ctx context.Context, b *bench) error {
			_, err := b.Update(ctx, b.request("a"), b.parse(`{"metadata":{"name":"a"},"spec":{"by":"me"}}`))
			return err
		},
		"patch": func(ctx context.Context, b *bench) error {
			_, err := b.Patch(ctx, b.request("a"), Patch{Type: MergePatch, Body: []byte(`{"spec":{"by":"me"}}`)})
			return err
		},
		"delete": func(ctx context.Context, b *bench) error {
			_, err := b.Delete(ctx, b.request("a"), DeleteOptions{})
			return err
		},
		"act": func(ctx context.Context, b *bench) error { return b.bind(ctx, func() {}) },
	}
	for name, verb := range verbs {
		b := newBench(t)
		b.create(`{"metadata":{"name":"a"}}`)
		ctx, cancel := context.WithCancel(t.Context())
		races := 0
		b.always(func() {
			if races++; races == 5 {
				cancel()
			}
			if races > 50 {
				t.Fatalf("%s goes on after its context has ended", name)
			}
			patch := fmt.Sprintf(`{"spec":{"n":%d}}`, races)
			b.must(b.Patch(t.Context(), b.request("a"), Patch{Type: MergePatch, Body: []byte(patch)}))
		})
		err := verb(ctx, b)
		if wire := apierr.From(err); err == nil || wire.Reason != apierr.Timeout {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

// A write whose context ends after it has read the object, and before its commit, is not stored.
//
// SPEC: WRITE-7
func TestNothingIsWrittenAfterTheDeadline(t *testing.T) {
	for _, verb := range conditionalVerbs {
		if verb.name == "get" {
			continue
		}
		t.Run(verb.name, func(t *testing.T) {
			b := newBench(t)
			b.widgets.CreateOnUpdate = true
			if !verb.creates {
				b.create(`{"metadata":{"name":"a"},"spec":{"by":"other"}}`)
			}
			before := b.store.Revision()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b.meanwhile(cancel)
			_, err := verb.do(ctx, b, b.request("a"))
			b.wants(err, 504, "request did not complete within")
			if now := b.store.Revision(); now != before {
				t.Errorf("the store is at revision %d, was at %d", now, before)
			}
		})
	}
}

// The store asks once more when it gives the commit its place: here the context ends behind validation, which is the
// last step to ask before. A dry run, which writes nothing, is over as well.
//
// SPEC: WRITE-7
func TestNothingIsWrittenAfterTheLastStep(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"a"}}`)
	before := b.store.Revision()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.widgets.WarnUpdate = func(object.Value, object.Value) []string { cancel(); return nil }
	_, err := b.Patch(ctx, b.request("a"), Patch{Type: MergePatch, Body: []byte(`{"spec":{"n":1}}`)})
	b.wants(err, 504, "request did not complete within")
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	dry := b.request("a")
	dry.DryRun = true
	_, err = b.Patch(ctx, dry, Patch{Type: MergePatch, Body: []byte(`{"spec":{"n":1}}`)})
	b.wants(err, 504, "request did not complete within")
	if now := b.store.Revision(); now != before {
		t.Errorf("the store is at revision %d, was at %d", now, before)
	}
}

// A patch ends when its context does, and its commit is not the first to ask.
//
// SPEC: WRITE-7
func TestPatchesEndWithTheContext(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"a"},"spec":{"list":[]}}`)
	ctx := &endsWhenAsked{Context: t.Context(), times: 100}
	body := "[" + strings.Repeat(`{"op":"add","path":"/spec/list/-","value":1},`, 200) +
		`{"op":"test","path":"/spec/list","value":"a patch that runs to its end fails here"}]`
	_, err := b.Patch(ctx, b.request("a"), Patch{Type: JSONPatch, Body: []byte(body)})
	b.wants(err, 504, "request did not complete within")
}

// endsWhenAsked is a context that ends when it has been asked so many times whether it has.
type endsWhenAsked struct {
	context.Context
	times int
}

func (c *endsWhenAsked) Err() error {
	if c.times--; c.times < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// bind is an operation that changes the widget a. wrote is called in each attempt.
func (b *bench) bind(ctx context.Context, wrote func()) error {
	rq := b.request("a")
	rq.Subresource = &Subresource{
		Name: "binding", Kind: "Binding", Verbs: []string{"create"}, Schema: b.widgets.Schema,
		Write: func(old, body object.Value) (object.Value, error) {
			wrote()
			return old.WithAt(body.At("target"), "spec", "target"), nil
		},
	}
	_, err := b.Create(ctx, rq, b.parse(`{"metadata":{"name":"a"},"target":"x"}`))
	return err
}

// SPEC: LIST-5
func TestForeignContinueTokens(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"a"}}`)
	for _, c := range []struct {
		revision int64
		start    string
		code     int
		text     string
	}{
		{1 << 40, "a", 504, "Too large resource version"},
		{-1, "../other/x", 400, "invalid continue token"},
		{1, "../other/x", 400, "invalid continue token"},
		{0, "a", 400, "invalid continue token"},
		{1, "", 400, "invalid continue token"},
	} {
		_, err := b.List(t.Context(), b.request(""), ListOptions{Limit: 1, Continue: formatContinue(c.revision, c.start)})
		b.wants(err, c.code, c.text)
	}
}

// SPEC: WRITE-1
func TestVersionsAreNamedWhereTheyMustBe(t *testing.T) {
	b := newBench(t)
	b.widgets.UnconditionalUpdate = false
	status := &Subresource{
		Name: "status", Kind: "Widget", Group: "test.example", Version: "v1",
		Write: func(old, body object.Value) (object.Value, error) { return old.With("status", body.At("status")), nil },
	}
	b.create(`{"metadata":{"name":"a"}}`)
	rq := b.request("a")
	rq.Subresource = status
	_, err := b.Update(t.Context(), rq, b.parse(`{"metadata":{"name":"a"},"status":{"a":"b"}}`))
	b.wants(err, 422, "must be specified for an update")
	_, err = b.Patch(t.Context(), b.request("a"), Patch{Type: MergePatch,
		Body: []byte(`{"metadata":{"resourceVersion":null},"spec":{"a":"b"}}`)})
	b.wants(err, 422, "must be specified for an update")
}

// The end of a grace period counts from the first delete, and never lies in the past.
// SPEC: DEL-2
func TestGraceIsShortened(t *testing.T) {
	b := newBench(t)
	b.widgets.GracefulDelete = func(_ object.Value, asked *int64) (int64, bool) { return *asked, true }
	b.create(`{"metadata":{"name":"a","finalizers":["a.b/c"]}}`)
	began := b.now
	for _, c := range []struct {
		after, grace int64
		want         time.Duration
	}{
		{0, 1000, 1000 * time.Second},
		{3, 500, 500 * time.Second},
		{6, 800, 500 * time.Second},
		{9, 1, 9 * time.Second},
		{12, 0, 12 * time.Second},
	} {
		b.now = began.Add(time.Duration(c.after) * time.Second)
		result := b.must(b.Delete(t.Context(), b.request("a"), DeleteOptions{GracePeriodSeconds: &c.grace}))
		want := began.Add(c.want).Format(time.RFC3339)
		if got := b.value(result).At("metadata", "deletionTimestamp").Str(); got != want {
			t.Errorf("after %d s, grace %d: deletionTimestamp is %s, want %s", c.after, c.grace, got, want)
		}
	}
}

// Patches that each add a little cannot make an object that is longer than maxRequest.
//
// SPEC: WRITE-6
func TestObjectsDoNotGrowWithoutBound(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"a"}}`)
	megabyte := strings.Repeat("x", 1<<20)
	var err error
	for i := range 4 {
		patch := fmt.Sprintf(`{"spec":{"part%d":%q}}`, i, megabyte)
		if _, err = b.Patch(t.Context(), b.request("a"), Patch{Type: MergePatch, Body: []byte(patch)}); err != nil {
			break
		}
	}
	b.wants(err, 413, "Request entity too large")
	b.must(b.Patch(t.Context(), b.request("a"), Patch{Type: MergePatch, Body: []byte(`{"spec":null}`)}))
}

// A waiting watch keeps no returned event in memory.
//
// SPEC: WATCH-6
func TestAWaitingWatchHoldsNothing(t *testing.T) {
	b := newBench(t)
	for i := range initialBatch + 10 {
		b.create(fmt.Sprintf(`{"metadata":{"name":"w%d"}}`, i))
	}
	w, err := b.Watch(t.Context(), b.request(""), WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	received := 0
	for received < initialBatch+10 {
		events, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		received += len(events)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := w.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if cap(w.events) > restingEvents {
		t.Errorf("the capacity for events is %d, should be at most %d", cap(w.events), restingEvents)
	}
	for _, e := range w.events[:cap(w.events)] {
		if e.Object != nil {
			t.Fatalf("the waiting watch keeps %s in memory", e.Object.Key)
		}
	}
}

// A selection of one name reads only that name and is woken only for it, and not for names that begin with it.
//
// SPEC: LIST-7, WATCH-1
func TestOneName(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "ab", "b"} {
		b.create(fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	}
	selector := fields.OneTermEqualSelector("metadata.name", "a")
	for _, rq := range []*Request{b.request(""), {Resource: b.widgets}} {
		for _, limit := range []int64{0, 1} {
			list, err := b.List(t.Context(), rq, ListOptions{Fields: selector, Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for o := range list.Items {
				names = append(names, o.Key.Name)
			}
			more := limit == 1 && rq.Namespace == "" // one of another namespace may follow
			if len(names) != 1 || names[0] != "ns/a" || (list.Continue != "") != more {
				t.Errorf("limit %d: %v, continue %q", limit, names, list.Continue)
			}
		}
		w, err := b.Watch(t.Context(), rq, WatchOptions{ListOptions: ListOptions{Fields: selector}})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if rq.Namespace != "" && w.prefix != "ns/a" {
			t.Errorf("the watch wakes up for %q", w.prefix)
		}
		b.must(b.Patch(t.Context(), b.request("ab"), Patch{Type: MergePatch,
			Body: []byte(fmt.Sprintf(`{"spec":{"at":%d}}`, b.store.Revision()))}))
		last := b.must(b.Patch(t.Context(), b.request("a"),
			Patch{Type: MergePatch, Body: []byte(fmt.Sprintf(`{"spec":{"at":%d}}`, b.store.Revision()))}))
		var told []string
		for w.Revision() < last.Object.Revision {
			events, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				told = append(told, e.Type.String()+" "+e.Object.Key.Name)
			}
		}
		if got := strings.Join(told, ", "); got != "ADDED ns/a, MODIFIED ns/a" {
			t.Errorf("the watch of one name returned %s", got)
		}
	}
	if prefix := (&Request{Resource: b.namespaces}).reach(&selection{name: "ns"}); prefix != "ns" {
		t.Errorf("the reach of a name of a cluster-scoped type is %q", prefix)
	}
}

// SPEC: URI-3
func TestGeneratedNamesRunOut(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"taken"}}`)
	_, err := b.Create(t.Context(), b.request(""), b.parse(`{"metadata":{"name":"taken","generateName":"x-"}}`))
	b.wants(err, 409, "already exists, the server was not able to generate a unique name for the object")
	if retry := apierr.From(err).Details.RetryAfterSeconds; retry != 1 {
		t.Errorf("retryAfterSeconds is %d, should be 1", retry)
	}
}

// The namespace in the body of a cluster-scoped object is ignored.
//
// SPEC: URI-2
func TestClusterScopeHasNoNamespace(t *testing.T) {
	b := newBench(t)
	result := b.must(b.Update(t.Context(), &Request{Resource: b.namespaces, Name: "ns"},
		b.parse(`{"metadata":{"name":"ns","namespace":"x","labels":{"a":"b"}}}`)))
	if ns, ok := b.value(result).At("metadata").Get("namespace"); ok {
		t.Errorf("the cluster-scoped object has the namespace %q", ns.Str())
	}
}

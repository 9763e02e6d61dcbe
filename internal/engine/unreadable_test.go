package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/object"
)

// broken stores bytes that are not an object.
func (b *bench) broken(name string) int64 {
	b.Helper()
	key := store.Key{Resource: b.widgets.Stored.Path, Name: name}
	live, _, err := b.store.Live(b.Context(), key, true)
	if err != nil {
		b.Fatal(err)
	}
	pre := store.Precondition{Key: key}
	if live != nil {
		pre.Revision = live.Revision
	}
	revisions, err := b.store.Commit(b.Context(), []store.Precondition{pre},
		[]store.Change{{Key: key, Data: []byte(`{"metadata":`)}})
	if err != nil {
		b.Fatal(err)
	}
	return revisions.First
}

// An unreadable object does not disturb requests for others; a request that reads it fails with an error that names it.
//
// SPEC: DEL-7
func TestUnreadableObjects(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"fine","labels":{"a":"b"}}}`)
	b.must(b.Create(t.Context(), &Request{Resource: b.namespaces}, b.parse(`{"metadata":{"name":"other"}}`)))
	b.must(b.Create(t.Context(), &Request{Resource: b.widgets, Namespace: "other"},
		b.parse(`{"metadata":{"name":"fine"}}`)))
	before := b.store.Revision()
	b.broken("ns/broken")
	b.broken("ns/finest")
	b.widgets.CreateOnUpdate = true
	for _, verb := range conditionalVerbs {
		rq := b.request("a")
		rq.Name = "broken"
		do := verb.do
		switch verb.name {
		case "create":
			do = func(ctx context.Context, b *bench, rq *Request) (*Result, error) {
				return b.Create(ctx, rq, b.parse(`{"metadata":{"name":"broken"}}`))
			}
		case "update", "update that creates":
			do = func(ctx context.Context, b *bench, rq *Request) (*Result, error) {
				return b.Update(ctx, rq, b.parse(`{"metadata":{"name":"broken"}}`))
			}
		case "act":
			continue
		}
		_, err := do(t.Context(), b, rq)
		if verb.name == "create" {
			b.wants(err, 409, "already exists")
			continue
		}
		b.wants(err, 500, "Internal error occurred: unable to read the stored object test.example/widgets/ns/broken: ")
	}
	everywhere := b.request("")
	everywhere.Namespace = ""
	other := b.request("")
	other.Namespace = "other"
	labelled, err := labels.Parse("a=b")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		rq   *Request
		o    ListOptions
		want []string // the objects that the error names; none: it succeeds
	}{
		{"all", b.request(""), ListOptions{}, []string{"ns/broken", "ns/finest"}},
		{"all namespaces", everywhere, ListOptions{}, []string{"ns/broken", "ns/finest"}},
		{"from memory", b.request(""), ListOptions{ResourceVersion: "0"}, []string{"ns/broken", "ns/finest"}},
		{"labels", b.request(""), ListOptions{Labels: labelled}, []string{"ns/broken", "ns/finest"}},
		{"a page with one", b.request(""), ListOptions{Limit: 2}, []string{"ns/broken"}},
		{"another name", b.request(""), ListOptions{Fields: fields.OneTermEqualSelector("metadata.name", "broken")},
			[]string{"ns/broken"}},
		{"a name", b.request(""), ListOptions{Fields: fields.OneTermEqualSelector("metadata.name", "fine")}, nil},
		{"a page with a name", b.request(""), ListOptions{Fields: fields.OneTermEqualSelector("metadata.name", "fine"),
			Limit: 1}, nil},
		{"a name in all namespaces", everywhere, ListOptions{Fields: fields.OneTermEqualSelector("metadata.name", "fine")},
			nil},
		{"another namespace", other, ListOptions{}, nil},
		{"before", b.request(""), ListOptions{ResourceVersion: fmt.Sprint(before), Match: "Exact"}, nil},
	} {
		check := func(how string, err error) {
			t.Helper()
			var named []string
			if err != nil {
				failed := apierr.From(err)
				if failed.Code != 500 || failed.Reason != apierr.StoreReadError || failed.Details.Kind != "widgets" ||
					failed.Details.Group != "test.example" ||
					!strings.HasPrefix(failed.Message,
						"failed to read one or more widgets.test.example from the storage: unable to read the stored object ") {
					t.Errorf("%s, %s: %+v", how, c.name, failed)
				}
				for _, cause := range failed.Details.Causes {
					name, _ := strings.CutPrefix(cause.Field, "test.example/widgets/")
					if named = append(named, name); cause.Reason != "UnexpectedServerResponse" ||
						!strings.Contains(cause.Message, cause.Field) {
						t.Errorf("%s, %s: the cause %+v", how, c.name, cause)
					}
				}
			}
			if !slices.Equal(named, c.want) {
				t.Errorf("%s, %s: the error names %q, want %q", how, c.name, named, c.want)
			}
		}
		list, err := b.List(t.Context(), c.rq, c.o)
		check("list", err)
		if err == nil {
			for item := range list.Items {
				if !strings.HasSuffix(item.Key.Name, "/fine") {
					t.Errorf("the list of %s has %s", c.name, item.Key.Name)
				}
			}
		}
		_, err = b.DeleteCollection(t.Context(), c.rq, c.o, DeleteOptions{DryRun: true})
		if c.rq.Namespace != "" {
			check("deletecollection", err)
		}
		if c.o.Limit > 0 || c.o.Match != "" {
			continue
		}
		w, err := b.Watch(t.Context(), c.rq, WatchOptions{ListOptions: c.o})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Next(t.Context())
		check("watch", err)
		w.Close()
	}
	for n := range maxUnreadable {
		b.broken(fmt.Sprintf("ns/x%03d", n))
	}
	for _, o := range []ListOptions{{}, {Limit: 1000}} {
		_, err = b.List(t.Context(), b.request(""), o)
		failed := apierr.From(err)
		causes := failed.Details.Causes
		if n := len(causes); n != maxUnreadable+1 || causes[n-1].Reason != "FieldValueTooMany" ||
			!strings.HasSuffix(failed.Message, " (and 99 more)") {
			t.Errorf("the error has %d causes, the last is %+v: %s", n, causes[n-1], failed.Message)
		}
	}
}

// A watch that reaches an unreadable object ends with an error that names it.
//
// SPEC: DEL-7
func TestWatchOfUnreadableObjects(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"a"}}`)
	from := b.store.Revision()
	broke := b.broken("ns/a")
	begin := func(from int64) *Watch {
		w := b.watch(WatchOptions{ListOptions: ListOptions{ResourceVersion: fmt.Sprint(from)}})
		t.Cleanup(w.Close)
		return w
	}
	_, err := begin(from).Next(t.Context())
	b.wants(err, 500, "unable to read the stored object test.example/widgets/ns/a: ")
	b.must(b.Delete(t.Context(), b.request("a"), DeleteOptions{IgnoreReadError: true}))
	after := b.store.Revision()
	_, err = begin(broke).Next(t.Context())
	b.wants(err, 500,
		"saw a DELETED event, but object data is corrupt - unable to read the stored object test.example/widgets/ns/a: ")
	if !apierr.Is(err, apierr.StoreReadError) {
		t.Errorf("the reason should be StoreReadError: %+v", apierr.From(err))
	}
	w := begin(after)
	b.create(`{"metadata":{"name":"a"}}`)
	if got := b.story(w, 1); !slices.Equal(got, []string{"ADDED a"}) {
		t.Errorf("events of a watch that begins after the unreadable object: %q", got)
	}
}

// SPEC: DEL-6
func TestForceDelete(t *testing.T) {
	b := newBench(t)
	fine := b.create(`{"metadata":{"name":"fine","finalizers":["x/y"]}}`)
	b.broken("ns/broken")
	force := func(name string, change func(*Request), dry bool) (*Result, error) {
		rq := b.request(name)
		if change != nil {
			change(rq)
		}
		return b.Delete(t.Context(), rq, DeleteOptions{IgnoreReadError: true, DryRun: dry})
	}
	revision := b.store.Revision()
	for _, dry := range []bool{true, false} {
		_, err := force("fine", nil, dry)
		b.wants(err, 409, "unsafe deletion is not allowed because the object is decodable from storage")
		_, err = force("none", nil, dry)
		b.wants(err, 404, `widgets.test.example "none" not found`)
		_, err = force("broken", func(rq *Request) { rq.IfMatch = &Versions{Of: []int64{fine.Object.Revision}} }, dry)
		b.wants(err, 412, "which If-Match does not name")
		// the error does not disclose which of them exists
		for name := range map[string]bool{"broken": true, "fine": true, "none": true} {
			_, err = force(name, func(rq *Request) { rq.User, rq.Authorizer = access.User{Name: "jane"}, only("delete") }, dry)
			b.wants(err, 403, `widgets.test.example "`+name+
				`" is forbidden: not permitted to do "unsafe-delete-ignore-read-errors", reason: no`)
		}
		_, err = b.Delete(t.Context(), b.request("broken"), DeleteOptions{DryRun: dry})
		b.wants(err, 500, "unable to read the stored object")
	}
	if b.store.Revision() != revision {
		t.Fatal("a refused delete made a new revision")
	}
	const done = `{"apiVersion":"v1","code":200,"details":{"kind":"Widget","name":"broken"},"kind":"Status","metadata":{},"status":"Success"}`
	for _, dry := range []bool{true, false} {
		result := b.must(force("broken", func(rq *Request) { rq.Authorizer = only(forceVerb) }, dry))
		if got := string(object.AppendJSON(nil, result.Status)); got != done || result.Object != nil {
			t.Errorf("the forced delete returned %s", got)
		}
		if wrote := b.store.Revision() - revision; wrote != map[bool]int64{false: 1}[dry] {
			t.Errorf("dry run %v: %d revisions were written", dry, wrote)
		}
	}
	_, err := b.Get(t.Context(), b.request("broken"), "")
	b.wants(err, 404, "not found")
	if _, err := b.List(t.Context(), b.request(""), ListOptions{}); err != nil {
		t.Error(err)
	}
	b.create(`{"metadata":{"name":"broken"}}`)
}

// only allows one verb.
func only(verb string) access.Authorizer {
	return access.AuthorizerFunc(func(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
		if a.Verb == verb && a.IsResource && a.Resource == "widgets" && a.Group == "test.example" && a.Namespace == "ns" &&
			a.Name != "" {
			return access.Allow, "", nil
		}
		return access.NoOpinion, "no", nil
	})
}

// An object that cannot be converted is unreadable at the URL of the other version, and readable at that of its own.
//
// SPEC: DEL-6
func TestForceDeleteOfWhatCannotBeConverted(t *testing.T) {
	b := newBench(t)
	v1, v2 := colors("v1")
	in := func(r *Resource) *Request { return &Request{Resource: r, Namespace: "ns", Name: "a"} }
	made := b.must(b.Create(t.Context(), &Request{Resource: v1, Namespace: "ns"},
		b.parse(`{"metadata":{"name":"a"},"spec":{"color":"red"}}`)))
	v1.Stored.Convert = func(context.Context, []object.Value, *Version) ([]object.Value, error) {
		return nil, errors.New("no webhook")
	}
	_, err := b.Get(t.Context(), in(v2), "")
	b.wants(err, 500, "no webhook")
	_, err = b.Delete(t.Context(), in(v1), DeleteOptions{IgnoreReadError: true})
	b.wants(err, 409, "decodable")
	ctx, cancel := context.WithCancel(t.Context())
	v1.Stored.Convert = func(context.Context, []object.Value, *Version) ([]object.Value, error) {
		cancel()
		return nil, ctx.Err()
	}
	_, err = b.Delete(ctx, in(v2), DeleteOptions{IgnoreReadError: true})
	b.wants(err, 504, "did not complete")
	if b.store.Revision() != made.Object.Revision {
		t.Fatal("a refused delete made a new revision")
	}
	b.must(b.Delete(t.Context(), in(v2), DeleteOptions{IgnoreReadError: true}))
	_, err = b.Get(t.Context(), in(v1), "")
	b.wants(err, 404, "not found")
}

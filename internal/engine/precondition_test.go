package engine

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plinth/internal/apierr"
	"plinth/object"
)

// conditionalVerbs are the verbs on the object "a", which does not exist for those that create it.
var conditionalVerbs = []struct {
	name    string
	creates bool
	do      func(ctx context.Context, b *bench, rq *Request) (*Result, error)
}{
	{"get", false, func(ctx context.Context, b *bench, rq *Request) (*Result, error) { return b.Get(ctx, rq, "") }},
	{"update", false, putBy},
	{"update that creates", true, putBy},
	{"patch", false, func(ctx context.Context, b *bench, rq *Request) (*Result, error) {
		return b.Patch(ctx, rq, Patch{Type: MergePatch, Body: []byte(`{"spec":{"by":"me"}}`)})
	}},
	{"apply", false, applyBy},
	{"apply that creates", true, applyBy},
	{"create", true, func(ctx context.Context, b *bench, rq *Request) (*Result, error) {
		return b.Create(ctx, rq, b.parse(`{"metadata":{"name":"a"},"spec":{"by":"me"}}`))
	}},
	{"delete", false, func(ctx context.Context, b *bench, rq *Request) (*Result, error) {
		return b.Delete(ctx, rq, DeleteOptions{})
	}},
	{"act", false, func(ctx context.Context, b *bench, rq *Request) (*Result, error) {
		rq.Subresource = &Subresource{
			Name: "binding", Kind: "Binding", Verbs: []string{"create"}, Schema: b.widgets.Schema,
			Write: func(old, body object.Value) (object.Value, error) {
				return old.WithAt(body.At("by"), "spec", "by"), nil
			},
		}
		return b.Create(ctx, rq, b.parse(`{"metadata":{"name":"a"},"by":"me"}`))
	}},
}

func putBy(ctx context.Context, b *bench, rq *Request) (*Result, error) {
	return b.Update(ctx, rq, b.parse(`{"metadata":{"name":"a"},"spec":{"by":"me"}}`))
}

func applyBy(ctx context.Context, b *bench, rq *Request) (*Result, error) {
	rq.Force = true
	return b.Apply(ctx, rq,
		b.parse(`{"apiVersion":"test.example/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"by":"me"}}`))
}

// Every verb checks the preconditions of the headers: a request that fails one writes nothing, dry run or not.
// SPEC: WRITE-5
func TestPreconditions(t *testing.T) {
	const live = 0 // stands for the revision of the live version
	cases := []struct {
		name               string
		match, noneMatch   *Versions
		onObject, onAbsent bool // whether the verb succeeds if the object exists, and if it does not
	}{
		{"none", nil, nil, true, true},
		{"If-Match: its version", &Versions{Of: []int64{live}}, nil, true, false},
		{"If-Match: several, its version among them", &Versions{Of: []int64{7, live, 9}}, nil, true, false},
		{"If-Match: another version", &Versions{Of: []int64{1}}, nil, false, false},
		{"If-Match: what is no version", &Versions{}, nil, false, false},
		{"If-Match: *", &Versions{Any: true}, nil, true, false},
		{"If-None-Match: its version", nil, &Versions{Of: []int64{live}}, false, true},
		{"If-None-Match: another version", nil, &Versions{Of: []int64{1}}, true, true},
		{"If-None-Match: *", nil, &Versions{Any: true}, false, true},
		{"both hold", &Versions{Any: true}, &Versions{Of: []int64{1}}, true, false},
		{"the second does not hold", &Versions{Any: true}, &Versions{Of: []int64{live}}, false, false},
	}
	for _, verb := range conditionalVerbs {
		for _, c := range cases {
			for _, dry := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, dry %v", verb.name, c.name, dry), func(t *testing.T) {
					b := newBench(t)
					b.widgets.CreateOnUpdate = true
					want := c.onAbsent
					revision := b.store.Revision()
					if !verb.creates {
						want = c.onObject
						revision = b.create(`{"metadata":{"name":"a"},"spec":{"by":"other"}}`).Object.Revision
					}
					rq := b.request("a")
					rq.IfMatch, rq.IfNoneMatch, rq.DryRun = c.match.at(live, revision), c.noneMatch.at(live, revision), dry
					_, err := verb.do(t.Context(), b, rq)
					if !want {
						b.wants(err, 412, "Operation cannot be fulfilled on widgets.test.example \"a\"")
					} else if err != nil {
						t.Errorf("a write whose precondition holds is refused: %v", err)
					}
					if wrote := b.store.Revision() > revision; wrote != (want && !dry && verb.name != "get") {
						t.Errorf("the store was written to: %v", wrote)
					}
				})
			}
		}
	}
}

// at is v with a live revision in the place of the constant live.
func (v *Versions) at(stands, revision int64) *Versions {
	if v == nil {
		return nil
	}
	is := &Versions{Any: v.Any}
	for _, r := range v.Of {
		if r == stands {
			r = revision
		}
		is.Of = append(is.Of, r)
	}
	return is
}

// Another write is committed between the check of a precondition and the commit: then the next attempt finds that the
// precondition has failed.
//
// SPEC: WRITE-5
func TestPreconditionsAfterARace(t *testing.T) {
	for _, verb := range conditionalVerbs {
		if verb.name == "get" {
			continue
		}
		t.Run(verb.name, func(t *testing.T) {
			b := newBench(t)
			b.widgets.CreateOnUpdate = true
			rq := b.request("a")
			if verb.creates {
				rq.IfNoneMatch = &Versions{Any: true}
				b.meanwhile(func() { b.create(`{"metadata":{"name":"a"},"spec":{"by":"other"}}`) })
			} else {
				rq.IfMatch = &Versions{Of: []int64{b.create(`{"metadata":{"name":"a"},"spec":{"by":"one"}}`).Object.Revision}}
				b.meanwhile(func() {
					b.must(b.Update(t.Context(), b.request("a"), b.parse(`{"metadata":{"name":"a"},"spec":{"by":"other"}}`)))
				})
			}
			_, err := verb.do(t.Context(), b, rq)
			if verb.name == "create" { // a create is not repeated
				b.wants(err, 409, "already exists")
			} else {
				b.wants(err, 412, "the object is at resourceVersion")
			}
			if by := b.value(b.must(b.Get(t.Context(), b.request("a"), ""))).At("spec", "by").Str(); by != "other" {
				t.Errorf("the live object was written by %q, should be other", by)
			}
		})
	}
}

// Of 100 writers that all name the version that they have read, exactly one replaces each version.
//
// SPEC: WRITE-5
func TestOneWriterAVersion(t *testing.T) {
	b := newBench(t)
	first := b.create(`{"metadata":{"name":"a"},"spec":{"n":0}}`).Object.Revision
	clock := b.Engine.now
	b.Engine.now = func() time.Time { // between the read and the commit
		runtime.Gosched()
		return clock()
	}
	const writers, rounds = 100, 20
	var won sync.Map // by revision, the number of successful writes on it
	var failures atomic.Int64
	var done sync.WaitGroup
	for w := range writers {
		done.Go(func() {
			for i := range rounds {
				read, err := b.Get(t.Context(), b.request("a"), "")
				if err != nil {
					t.Error(err)
					return
				}
				rq := b.request("a")
				rq.IfMatch = &Versions{Of: []int64{read.Object.Revision}}
				n := w*rounds + i + 1
				switch w % 3 {
				case 0:
					_, err = b.Update(t.Context(), rq, b.parse(fmt.Sprintf(`{"metadata":{"name":"a"},"spec":{"n":%d}}`, n)))
				case 1:
					_, err = b.Patch(t.Context(), rq, Patch{Type: MergePatch, Body: fmt.Appendf(nil, `{"spec":{"n":%d}}`, n)})
				default:
					rq.Force = true
					_, err = b.Apply(t.Context(), rq, b.parse(fmt.Sprintf(
						`{"apiVersion":"test.example/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"n":%d}}`, n)))
				}
				switch {
				case err == nil:
					count, _ := won.LoadOrStore(read.Object.Revision, new(atomic.Int64))
					count.(*atomic.Int64).Add(1)
				case apierr.From(err).Code == 412:
					failures.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	versions := int64(0)
	won.Range(func(revision, count any) bool {
		versions++
		if n := count.(*atomic.Int64).Load(); n != 1 {
			t.Errorf("%d writes of version %d have succeeded", n, revision)
		}
		return true
	})
	if last := b.store.Revision(); last-first != versions {
		t.Errorf("%d versions were written, and %d writes have succeeded", last-first, versions)
	}
	if versions < 20 || failures.Load() == 0 {
		t.Errorf("%d writes have succeeded and %d failed: that shows little", versions, failures.Load())
	}
}

// A deletecollection has one valid precondition, that the collection exists (If-Match: *): it has no version.
//
// SPEC: WRITE-5, DEL-4
func TestPreconditionsOfCollections(t *testing.T) {
	for name, c := range map[string]struct {
		match, noneMatch *Versions
		want             bool
	}{
		"If-Match: *":               {&Versions{Any: true}, nil, true},
		"If-Match: a version":       {&Versions{Of: []int64{2}}, nil, false},
		"If-None-Match: *":          {nil, &Versions{Any: true}, false},
		"If-None-Match: a version":  {nil, &Versions{Of: []int64{2}}, true},
		"If-None-Match: no version": {nil, &Versions{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.create(`{"metadata":{"name":"a"}}`)
			rq := b.request("")
			rq.IfMatch, rq.IfNoneMatch = c.match, c.noneMatch
			_, err := b.DeleteCollection(t.Context(), rq, ListOptions{}, DeleteOptions{})
			if !c.want {
				b.wants(err, 412, "collection")
			} else if err != nil {
				t.Error(err)
			}
			if _, err := b.Get(t.Context(), b.request("a"), ""); (err != nil) != c.want {
				t.Errorf("a get after the deletecollection: %v", err)
			}
		})
	}
}

// Variant is 0 for results that are not stored in this form: dry runs and removed objects.
//
// SPEC: WRITE-5
func TestForms(t *testing.T) {
	b := newBench(t)
	made := b.create(`{"metadata":{"name":"a","finalizers":["x/y"]},"spec":{"n":1}}`)
	read := b.must(b.Get(t.Context(), b.request("a"), ""))
	if made.Variant == 0 || made.Variant != read.Variant || made.Object.Revision != read.Object.Revision {
		t.Errorf("Variant of the create is %d, of the get %d: should be equal, not 0", made.Variant, read.Variant)
	}
	dry := b.request("a")
	dry.DryRun = true
	if r, err := putBy(t.Context(), b, dry); err != nil || r.Variant != 0 {
		t.Errorf("the Variant of a dry run should be 0: %+v, %v", r, err)
	}
	if r := b.must(b.Delete(t.Context(), b.request("a"), DeleteOptions{})); r.Variant != read.Variant {
		t.Errorf("the Variant of an object marked as deleted is %d, should be that of a get", r.Variant)
	}
	last := b.must(b.Patch(t.Context(), b.request("a"), Patch{Type: MergePatch,
		Body: []byte(`{"metadata":{"finalizers":null}}`)}))
	if last.Object == nil || last.Variant != 0 {
		t.Errorf("the Variant of a removed object should be 0: %+v", last)
	}

	b.create(`{"metadata":{"name":"b"},"spec":{"n":1}}`)
	part := b.request("b")
	shown := int64(1)
	part.Subresource = &Subresource{Name: "part", Kind: "Part", Represent: func(obj object.Value) (object.Value, error) {
		return obj.WithAt(object.IntOf(shown), "spec", "shown"), nil
	}}
	one := b.must(b.Get(t.Context(), part, ""))
	again := b.must(b.Get(t.Context(), part, ""))
	shown = 2 // as after a change of the definition
	two := b.must(b.Get(t.Context(), part, ""))
	whole := b.must(b.Get(t.Context(), b.request("b"), ""))
	if one.Variant == 0 || one.Variant != again.Variant || one.Variant == two.Variant || one.Variant == whole.Variant {
		t.Errorf("the Variants of a representation are %d and %d, then %d; of the object %d: only the first two should be equal",
			one.Variant, again.Variant, two.Variant, whole.Variant)
	}
}

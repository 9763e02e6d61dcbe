package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"plinth/internal/access"
	"plinth/internal/store"
	"plinth/internal/store/storetest"
	"plinth/object"
)

// servers are two engines that serve the same objects, called here and there. Over the embedded writer both have one
// store. Over a writer that several servers share, each has a replica, and that of here receives the writes of there
// only when it must: on a call with sure set, or after a lost race.
type servers struct{ here, there *bench }

// both runs a test with both writers.
func both(t *testing.T, test func(*testing.T, servers)) {
	t.Run("embedded", func(t *testing.T) {
		b := newBench(t)
		test(t, servers{b, b})
	})
	t.Run("foreign", func(t *testing.T) { foreign(t, storetest.NewCluster(nil), test) })
	t.Run("transactions", func(t *testing.T) {
		cluster := storetest.NewCluster(nil)
		cluster.OneRevision = true
		foreign(t, cluster, test)
	})
}

func foreign(t *testing.T, cluster *storetest.Cluster, test func(*testing.T, servers)) {
	t.Helper()
	there := newBenchOn(t, func(c store.Config) (*store.Store, error) {
		s, _, err := cluster.Open(c)
		return s, err
	})
	s, replica, err := cluster.Open(store.Config{Describe: Describe(there.registry)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	replica.Hold(true)
	here := *there
	here.Engine = New(Config{Store: s, Registry: there.registry, Now: there.Engine.now, Admission: inNamespace})
	test(t, servers{&here, there})
}

func (b *bench) put(name, rest string) (*Result, error) {
	b.Helper()
	return b.Update(b.Context(), b.request(name), b.parse(`{"metadata":{"name":"`+name+`"`+rest+`}`))
}

func (b *bench) patch(name, body string) (*Result, error) {
	b.Helper()
	return b.Patch(b.Context(), b.request(name), Patch{Type: MergePatch, Body: []byte(body)})
}

func (b *bench) spec(name string) string {
	b.Helper()
	return string(object.AppendJSON(nil, b.value(b.must(b.Get(b.Context(), b.request(name), ""))).At("spec")))
}

// A server whose replica is outdated gives the same answers as one that has the newest state: a refusal, or "nothing
// changed", that was decided on an outdated version is decided again on the newest one.
//
// SPEC: STORE-2, WRITE-1, WRITE-2, WRITE-3, URI-4, URI-5, DEL-1
func TestVerbsOnWhatIsNotKnownYet(t *testing.T) {
	for name, scenario := range map[string]func(t *testing.T, s servers){
		"create what is there": func(_ *testing.T, s servers) {
			s.there.create(`{"metadata":{"name":"a"}}`)
			_, err := s.here.Create(s.here.Context(), s.here.request(""), s.here.parse(`{"metadata":{"name":"a"}}`))
			s.here.wants(err, 409, "already exists")
		},
		"create what is there, as a dry run": func(_ *testing.T, s servers) {
			another := s.there.parse(`{"metadata":{"name":"another"}}`) // a cluster-scoped type, so that no namespace is read
			s.there.must(s.there.Create(s.there.Context(), &Request{Resource: s.there.namespaces}, another))
			rq := &Request{Resource: s.here.namespaces, DryRun: true}
			_, err := s.here.Create(s.here.Context(), rq, another)
			s.here.wants(err, 409, "already exists")
		},
		"create what is no longer there": func(_ *testing.T, s servers) {
			s.here.create(`{"metadata":{"name":"a"}}`)
			s.there.must(s.there.Delete(s.there.Context(), s.there.request("a"), DeleteOptions{}))
			s.here.create(`{"metadata":{"name":"a"}}`)
		},
		"get": func(_ *testing.T, s servers) {
			s.there.create(`{"metadata":{"name":"a"}}`)
			s.here.must(s.here.Get(s.here.Context(), s.here.request("a"), ""))
		},
		"list and watch": func(t *testing.T, s servers) {
			last := s.there.create(`{"metadata":{"name":"a"}}`).Object.Revision
			list, err := s.here.List(s.here.Context(), s.here.request(""), ListOptions{})
			if err != nil || list.Revision < last {
				t.Fatalf("the list has revision %d, %v", list.Revision, err)
			}
			last = s.there.create(`{"metadata":{"name":"b"}}`).Object.Revision
			w, err := s.here.Watch(s.here.Context(), s.here.request(""), WatchOptions{})
			if err != nil || w.start < last {
				t.Fatalf("the watch begins at revision %d, %v", w.start, err)
			}
			w.Close()
			// A page of a list that another server has begun.
			s.there.create(`{"metadata":{"name":"c"}}`)
			first, err := s.there.List(s.there.Context(), s.there.request(""), ListOptions{Limit: 2})
			if err != nil {
				t.Fatal(err)
			}
			second, err := s.here.List(s.here.Context(), s.here.request(""), ListOptions{Limit: 2, Continue: first.Continue})
			if err != nil || second.Revision != first.Revision {
				t.Errorf("the second page is not of the revision of the first: %+v, %v", second, err)
			}
		},
		"update what it does not know": func(t *testing.T, s servers) {
			s.there.create(`{"metadata":{"name":"a"},"spec":{"n":1}}`)
			if result := s.here.must(s.here.put("a", `},"spec":{"n":2}`)); result.Created {
				t.Error("a write to an object that exists is marked as Created")
			}
		},
		"update on the condition of a version that it does not know": func(_ *testing.T, s servers) {
			s.here.create(`{"metadata":{"name":"a"},"spec":{"n":1}}`)
			now := s.there.must(s.there.patch("a", `{"spec":{"n":2}}`)).Object.Revision
			s.here.must(s.here.put("a", fmt.Sprintf(`,"resourceVersion":"%d"},"spec":{"n":3}`, now)))
		},
		"update on the condition of a version that is no longer live": func(_ *testing.T, s servers) {
			old := s.here.create(`{"metadata":{"name":"a"},"spec":{"n":1}}`).Object.Revision
			s.there.must(s.there.patch("a", `{"spec":{"n":2}}`))
			_, err := s.here.put("a", fmt.Sprintf(`,"resourceVersion":"%d"},"spec":{"n":3}`, old))
			s.here.wants(err, 409, modified)
		},
		"update to what it was before": func(t *testing.T, s servers) {
			s.here.create(`{"metadata":{"name":"a"},"spec":{"n":1}}`)
			s.there.must(s.there.patch("a", `{"spec":{"n":2}}`))
			s.here.must(s.here.put("a", `},"spec":{"n":1}`))
			if got := s.there.spec("a"); got != `{"n":1}` {
				t.Errorf("spec is %s", got)
			}
		},
		"update that creates": func(t *testing.T, s servers) {
			s.here.widgets.CreateOnUpdate = true
			before := s.there.store.Revision()
			if made := s.here.must(s.here.put("a", `},"spec":{"n":1}`)); !made.Created || made.Object.Revision != before+1 ||
				s.here.store.Revision() != before+1 {
				t.Errorf("Created = %v at revision %d, should be the one after %d",
					made.Created, made.Object.Revision, before)
			}
		},
		"update that would create": func(t *testing.T, s servers) {
			s.here.widgets.CreateOnUpdate = true
			s.there.create(`{"metadata":{"name":"a"},"spec":{"n":1}}`)
			rq := s.here.request("a")
			rq.Authorizer = access.AuthorizerFunc(func(context.Context, *access.Attributes) (access.Decision, string, error) {
				return access.NoOpinion, "asked whether it may create", nil
			})
			result, err := s.here.Update(s.here.Context(), rq, s.here.parse(`{"metadata":{"name":"a"},"spec":{"n":2}}`))
			if s.here.must(result, err).Created {
				t.Error("a write to an object that exists is marked as Created")
			}
		},
		"patch what it does not know": func(_ *testing.T, s servers) {
			s.there.create(`{"metadata":{"name":"a"},"spec":{"n":1}}`)
			s.here.must(s.here.patch("a", `{"spec":{"n":2}}`))
		},
		"patch that changes nothing of what it knows": func(t *testing.T, s servers) {
			s.here.create(`{"metadata":{"name":"a"},"spec":{"n":1,"m":1}}`)
			s.there.must(s.there.patch("a", `{"spec":{"n":2}}`))
			s.here.must(s.here.patch("a", `{"spec":{"n":1}}`))
			if got := s.there.spec("a"); got != `{"m":1,"n":1}` {
				t.Errorf("spec is %s", got)
			}
		},
		"patch of what cannot be read": func(t *testing.T, s servers) {
			s.here.create(`{"metadata":{"name":"a"},"spec":{"n":1}}`)
			key := s.here.request("a").key()
			good, _ := s.here.store.Get(key)
			if _,
				err := s.here.store.Commit(t.Context(), nil, []store.Change{{Key: key, Data: []byte(`{"metadata":`)}}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.there.store.Commit(t.Context(), nil, []store.Change{{Key: key, Data: good.Data()}}); err != nil {
				t.Fatal(err)
			}
			s.here.must(s.here.patch("a", `{"spec":{"n":2}}`))
		},
		"apply what it does not know": func(t *testing.T, s servers) {
			s.there.must(s.there.apply("x", "a", `,"spec":{"n":1}`, false))
			if s.here.must(s.here.apply("y", "a", `,"spec":{"m":1}`, false)).Created {
				t.Error("a write to an object that exists is marked as Created")
			}
			if got := s.there.spec("a"); got != `{"m":1,"n":1}` {
				t.Errorf("spec is %s", got)
			}
		},
		"apply that creates": func(t *testing.T, s servers) {
			before := s.there.store.Revision()
			made := s.here.must(s.here.apply("x", "a", `,"spec":{"n":1}`, false))
			if !made.Created || made.Object.Revision != before+1 || s.here.store.Revision() != before+1 {
				t.Errorf("Created = %v at revision %d, should be the one after %d",
					made.Created, made.Object.Revision, before)
			}
		},
		"apply of what it knows to be another one's": func(_ *testing.T, s servers) {
			s.here.must(s.here.apply("x", "a", `,"spec":{"n":1}`, false))
			s.there.must(s.there.apply("x", "a", ``, false)) // x gives up spec.n
			s.here.must(s.here.apply("y", "a", `,"spec":{"n":2}`, false))
		},
		"delete what it does not know": func(_ *testing.T, s servers) {
			uid := s.there.value(s.there.create(`{"metadata":{"name":"a"}}`)).At("metadata", "uid").Str()
			s.here.must(s.here.Delete(s.here.Context(), s.here.request("a"), DeleteOptions{PreconditionUID: uid}))
		},
		"delete what has been made anew": func(_ *testing.T, s servers) {
			s.here.create(`{"metadata":{"name":"a"}}`)
			s.there.must(s.there.Delete(s.there.Context(), s.there.request("a"), DeleteOptions{}))
			uid := s.there.value(s.there.create(`{"metadata":{"name":"a"}}`)).At("metadata", "uid").Str()
			s.here.must(s.here.Delete(s.here.Context(), s.here.request("a"), DeleteOptions{PreconditionUID: uid}))
		},
		"delete what is no longer there": func(_ *testing.T, s servers) {
			s.here.create(`{"metadata":{"name":"a"}}`)
			s.there.must(s.there.Delete(s.there.Context(), s.there.request("a"), DeleteOptions{}))
			_, err := s.here.Delete(s.here.Context(), s.here.request("a"), DeleteOptions{})
			s.here.wants(err, 404, "not found")
		},
		"delete what it knows to be marked": func(t *testing.T, s servers) {
			s.here.create(`{"metadata":{"name":"a","finalizers":["a.b/c"]}}`)
			s.here.must(s.here.Delete(s.here.Context(), s.here.request("a"), DeleteOptions{}))
			s.there.must(s.there.patch("a", `{"metadata":{"finalizers":null}}`)) // this removes the object
			s.there.create(`{"metadata":{"name":"a"}}`)
			s.here.must(s.here.Delete(s.here.Context(), s.here.request("a"), DeleteOptions{}))
			_, err := s.there.Get(t.Context(), s.there.request("a"), "")
			s.there.wants(err, 404, "not found")
		},
		"create in a namespace that it does not know": func(_ *testing.T, s servers) {
			s.there.must(s.there.Create(s.there.Context(), &Request{Resource: s.there.namespaces},
				s.there.parse(`{"metadata":{"name":"new"}}`)))
			rq := &Request{Resource: s.here.widgets, Namespace: "new"}
			s.here.must(s.here.Create(s.here.Context(), rq, s.here.parse(`{"metadata":{"name":"a"}}`)))
		},
		"create in a namespace that is being deleted": func(_ *testing.T, s servers) {
			s.here.namespaces.Held = func(object.Value) bool { return true }
			s.there.must(s.there.Delete(s.there.Context(), &Request{Resource: s.there.namespaces, Name: "ns"}, DeleteOptions{}))
			for _, dry := range []bool{true, false} {
				rq := s.here.request("")
				rq.DryRun = dry
				_, err := s.here.Create(s.here.Context(), rq, s.here.parse(`{"metadata":{"name":"a"}}`))
				s.here.wants(err, 403, "being terminated")
			}
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			both(t, func(t *testing.T, s servers) {
				s.here.T, s.there.T = t, t
				scenario(t, s)
			})
		})
	}
}

// Two servers that write to one object, each from an outdated replica, lose no write, and both finish.
//
// SPEC: STORE-2, WRITE-2
func TestServersRace(t *testing.T) {
	both(t, func(t *testing.T, s servers) {
		s.here.T, s.there.T = t, t
		var all sync.WaitGroup
		for i, b := range []*bench{s.here, s.there, s.here, s.there} {
			all.Go(func() {
				for n := range 15 {
					if _, err := b.apply(fmt.Sprint("m", i), "w", fmt.Sprintf(`,"spec":{"m%d":%d}`, i, n), false); err != nil {
						t.Errorf("apply: %v", err)
					}
					if _, err := b.patch("w", fmt.Sprintf(`{"status":{"p%d-%d":1}}`, i, n)); err != nil {
						t.Errorf("patch: %v", err)
					}
				}
			})
		}
		all.Wait()
		for _, b := range []*bench{s.here, s.there} {
			obj := b.value(b.must(b.Get(b.Context(), b.request("w"), "")))
			if got := string(object.AppendJSON(nil, obj.At("spec"))); got != `{"m0":14,"m1":14,"m2":14,"m3":14}` {
				t.Errorf("spec is %s", got)
			}
			if n := len(obj.At("status").Members()); n != 60 {
				t.Errorf("the status has the fields of %d of 60 patches", n)
			}
		}
	})
}

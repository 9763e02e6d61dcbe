package engine

import (
	"fmt"
	"sync"
	"testing"

	"plinth/internal/store"
	"plinth/internal/store/storetest"
	"plinth/object"
)

// servers are two engines that serve the same objects, called here and there. Over the embedded writer both have one
// store. Over a writer that several servers share, each has a replica, and that of here receives the writes of there
// only when it must: on a call with sure set, or after a lost race.
type servers struct{ here, there *bench }

// writers are the writers that tests run on.
var writers = map[string]func(*testing.T) servers{
	"embedded": func(t *testing.T) servers {
		b := newBench(t)
		return servers{b, b}
	},
	"foreign": func(t *testing.T) servers { return foreign(t, storetest.NewCluster(nil)) },
	"transactions": func(t *testing.T) servers {
		cluster := storetest.NewCluster(nil)
		cluster.OneRevision = true
		return foreign(t, cluster)
	},
}

// both runs a test on each writer.
func both(t *testing.T, test func(*testing.T, servers)) {
	for name, open := range writers {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func foreign(t *testing.T, cluster *storetest.Cluster) servers {
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
	return servers{&here, there}
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
// changed", that was decided on an outdated version is decided again on the newest one. The scenarios print the same
// over each writer.
//
// SPEC: STORE-2, WRITE-1, WRITE-2, WRITE-3, URI-4, URI-5, DEL-1
func TestOutdated(t *testing.T) { playScript(t, "testdata/outdated.txt") }

// Requests between whose read and commit others commit.
//
// SPEC: WRITE-2, URI-4, URI-5, AUTH-3
func TestRaces(t *testing.T) { playScript(t, "testdata/races.txt") }

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

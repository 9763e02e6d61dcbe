package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"plinth/internal/store"
)

// TestForeignWriter: what a store promises, it promises with a writer of another kind, too.
func TestForeignWriter(t *testing.T) { Run(t, Foreign) }

// replicas opens several stores on one cluster.
func replicas(t *testing.T, n int, configure ...func(*store.Config)) (stores []*testStore, writers []*Replica) {
	t.Helper()
	c := NewCluster(nil)
	for range n {
		x, r := join(t, c, configure...)
		stores, writers = append(stores, x), append(writers, r)
	}
	return stores, writers
}

func join(t *testing.T, c *Cluster, configure ...func(*store.Config)) (*testStore, *Replica) {
	t.Helper()
	config := store.Config{Describe: Describe}
	for _, f := range configure {
		f(&config)
	}
	s, r, err := c.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &testStore{Store: s, t: t, config: config}, r
}

// What a replica knows may be old, and it says so; to be sure, it finds out.
//
// SPEC: STORE-2
func TestStaleReads(t *testing.T) {
	stores, writers := replicas(t, 2)
	a, b := stores[0], stores[1]
	a.put(pod("p"), "1")
	writers[0].Hold(true)
	last := b.put(pod("p"), "2")
	v, current, err := a.Live(t.Context(), pod("p"), false)
	if err != nil || string(v.Data) != "1" || current {
		t.Fatalf("%s, current %v, %v", v.Data, current, err)
	}
	v, current, err = a.Live(t.Context(), pod("p"), true)
	if err != nil || string(v.Data) != "2" || !current || a.Revision() != last {
		t.Fatalf("%s, current %v, %v", v.Data, current, err)
	}
	checkSidecar(t, v)
	// Its own commit is to be seen at once, with all that came before it.
	b.put(pod("q"), "3")
	revision := a.put(pod("r"), "4")
	if v, ok := a.Get(pod("q")); !ok || a.Revision() != revision {
		t.Errorf("%v at %d, after a commit of %d", v, a.Revision(), revision)
	}
}

// A conflict is told once its reason is to be seen: so that who tries again never loses to the same version twice.
//
// SPEC: STORE-2, WRITE-2
func TestConflictsOfOthers(t *testing.T) {
	stores, writers := replicas(t, 3)
	for _, w := range writers {
		w.Hold(true)
	}
	const rounds = 60
	var lost, won atomic.Int64
	var wait sync.WaitGroup
	for _, x := range stores {
		wait.Go(func() {
			for n := 0; n < rounds; {
				before, _ := x.Get(pod("n"))
				number := 0
				if before != nil {
					number, _ = strconv.Atoi(string(before.Data))
				}
				pre := store.Precondition{Key: pod("n"), Revision: revisionOf(before)}
				_, err := x.Commit(context.Background(), []store.Precondition{pre},
					[]store.Change{{Key: pod("n"), Data: []byte(strconv.Itoa(number + 1))}})
				var conflict *store.ConflictError
				switch {
				case err == nil:
					won.Add(1)
					n++
				case !errors.As(err, &conflict):
					t.Error(err)
					return
				default:
					lost.Add(1)
					if now, _ := x.Get(pod("n")); revisionOf(now) < conflict.Have ||
						conflict.Have <= revisionOf(before) {
						t.Errorf("lost with %d to %d, and there is %d",
							revisionOf(before), conflict.Have, revisionOf(now))
						return
					}
				}
			}
		})
	}
	wait.Wait()
	if won.Load() != 3*rounds || lost.Load() > 2*won.Load() {
		t.Errorf("%d commits and %d conflicts: somebody lost twice to one version", won.Load(), lost.Load())
	}
	v, _, err := stores[0].Live(t.Context(), pod("n"), true)
	if err != nil || string(v.Data) != strconv.Itoa(3*rounds) {
		t.Errorf("%s, %v", v.Data, err)
	}
}

// Every replica tells its watchers the same, whoever wrote it, and one that joins later goes on from what there is.
//
// SPEC: STORE-2, WATCH-1
func TestReplicasAgree(t *testing.T) {
	stores, _ := replicas(t, 3)
	m := newModel()
	cursors := make([]*store.Cursor, 3)
	for i, x := range stores {
		cursors[i] = x.watchAll(1)
	}
	play := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			changes := []store.Change{
				{Key: pod(fmt.Sprint("p", i%7)), Data: []byte(words[i%4])},
				{Key: store.Key{Resource: "/nodes", Name: fmt.Sprint("n", i%5)}},
			}
			if i%3 > 0 {
				changes[1].Data = []byte(strconv.Itoa(i))
			}
			stores[i%3].commit(changes...)
			m.commit(changes)
		}
	}
	same := func(x *testStore, c *store.Cursor, after int64) {
		t.Helper()
		if err := x.WaitFor(t.Context(), m.revision); err != nil {
			t.Fatal(err)
		}
		if have, want := drain(t, c), m.history("", "", "", after, m.revision); have != want {
			t.Errorf("%s\nshould be\n%s", have, want)
		}
		for _, word := range words {
			if have, want := dependents(t, x, word), m.dependents(word); have != want {
				t.Errorf("%s has the dependents\n%s\nshould be\n%s", word, have, want)
			}
		}
	}
	play(0, 60)
	for i, x := range stores {
		same(x, cursors[i], 1)
	}
	late, _ := join(t, stores[0].Writer.(*Replica).cluster)
	before := m.revision
	cursor := late.watchAll(before)
	if _, err := late.WatchAll(before - 1); err != store.ErrCompacted {
		t.Errorf("it has no history, and a watch from before it came: %v", err)
	}
	play(60, 90)
	same(late, cursor, before)
}

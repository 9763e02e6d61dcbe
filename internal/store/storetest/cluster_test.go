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

// TestForeignWriter: the guarantees of a store hold with another kind of writer, too.
func TestForeignWriter(t *testing.T) { Run(t, Foreign) }

// TestTransactions: they hold if a commit has one revision for all of its changes.
//
// SPEC: STORE-2
func TestTransactions(t *testing.T) { Run(t, Transactions) }

// replicas opens several stores on one cluster.
func replicas(t *testing.T, n int, configure ...func(*store.Config)) (stores []*testStore, writers []*Replica) {
	t.Helper()
	return replicasOf(t, NewCluster(nil), n, configure...)
}

func replicasOf(t *testing.T, c *Cluster, n int, configure ...func(*store.Config)) (stores []*testStore,
	writers []*Replica) {
	t.Helper()
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

// A replica reports that its state may be outdated; with sure set, it is brought up to date.
//
// SPEC: STORE-2, LIST-3
func TestStaleReads(t *testing.T) {
	stores, writers := replicas(t, 2)
	a, b := stores[0], stores[1]
	a.put(pod("p"), "1")
	writers[0].Hold(true)
	last := b.put(pod("p"), "2")
	v, current, err := a.Live(t.Context(), pod("p"), false)
	if err != nil || string(v.Data()) != "1" || current {
		t.Fatalf("the live version is %s, current %v, %v", v.Data(), current, err)
	}
	v, current, err = a.Live(t.Context(), pod("p"), true)
	if err != nil || string(v.Data()) != "2" || !current || a.Revision() != last {
		t.Fatalf("the live version is %s, current %v, %v", v.Data(), current, err)
	}
	checkSidecar(t, v)
	// Its own commit is visible at once, with all commits before it.
	b.put(pod("q"), "3")
	revision := a.put(pod("r"), "4")
	if v, ok := a.Get(pod("q")); !ok || a.Revision() != revision {
		t.Errorf("the state has %v at revision %d, after its own commit of %d", v, a.Revision(), revision)
	}
}

// A conflict is returned once its reason is visible, so that a retry never fails twice because of the same version.
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
					number, _ = strconv.Atoi(string(before.Data()))
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
		t.Errorf("%d commits and %d conflicts: one version caused two conflicts of a writer", won.Load(), lost.Load())
	}
	v, _, err := stores[0].Live(t.Context(), pod("n"), true)
	if err != nil || string(v.Data()) != strconv.Itoa(3*rounds) {
		t.Errorf("%s, %v", v.Data(), err)
	}
}

// Every replica gives its watchers the same events, whichever replica wrote them, and a later replica begins with the
// state of the cluster.
//
// SPEC: STORE-2, WATCH-1
func TestReplicasAgree(t *testing.T) {
	for _, b := range []Implementation{Foreign, Transactions} {
		t.Run(fmt.Sprint("OneRevision=", b.OneRevision), func(t *testing.T) { replicasAgree(t, b) })
	}
}

func replicasAgree(t *testing.T, b Implementation) {
	c := NewCluster(nil)
	c.OneRevision = b.OneRevision
	stores, _ := replicasOf(t, c, 3)
	m := newModel(b)
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
	if _, err := late.WatchAll(t.Context(), before-1); err != store.ErrCompacted {
		t.Errorf("a watch from before the replica was opened: %v", err)
	}
	play(60, 90)
	same(late, cursor, before)
}

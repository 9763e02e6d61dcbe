package storetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"plinth/internal/store"
)

// testWatchAll: a cursor over all resources is woken by each of them and returns every record in order.
//
// SPEC: WATCH-1
func testWatchAll(t *testing.T, b Implementation) {
	x := newStore(t, b)
	node := store.Key{Resource: "/nodes", Name: "n"}
	c := x.watchAll(1)
	other := x.watchTerm("", firstIs("a")) // it must not remove records for the other cursor
	for i, k := range []store.Key{pod("a"), node, {Resource: "example.com/new", Name: "a"}} {
		got := make(chan string)
		go func() { got <- lines(next(t, c)) }()
		eventually(t, "the cursor waits", func() bool { return x.Stats().Waiting == 1 })
		x.put(k, "a")
		if s, want := <-got, fmt.Sprintf("%d +%s=a\n", i+2, k); s != want {
			t.Fatalf("%q, should be %q", s, want)
		}
	}
	x.commit(store.Change{Key: node}, store.Change{Key: pod("b"), Data: []byte("b")},
		store.Change{Key: pod("a"), Data: []byte("c")})
	x.commit(store.Change{Key: pod("never")}) // a revision, and no record
	if _, err := x.Commit(context.Background(), nil, []store.Change{{Key: node, Data: []byte("d")}}); err != nil {
		t.Fatal(err)
	}
	want, end := "5 -/nodes/n=a\n6 +/pods/b=b\n7 ~/pods/a=a→c\n9 +/nodes/n=d\n", int64(9)
	if b.OneRevision {
		want, end = "5 -/nodes/n=a\n5 +/pods/b=b\n5 ~/pods/a=a→c\n7 +/nodes/n=d\n", 7
	}
	third := end - 2 // the revision of the commit of three
	if b.Shared {
		want, end = "5 -/nodes/n=a\n5 +/pods/b=b\n5 ~/pods/a=a→c\n6 +/nodes/n=d\n", 6
	}
	if s := drain(t, c); s != want || c.Revision() != end {
		t.Fatalf("at %d:\n%s", c.Revision(), s)
	}
	if s := drain(t, other); s != fmt.Sprintf("2 +/pods/a=a\n%d ~/pods/a=a→c\n", third) {
		t.Fatal(s)
	}
	if b.Durable {
		x.reopen()
		if s := drain(t, x.watchAll(4)); s != want {
			t.Fatalf("from the log:\n%s", s)
		}
	}

	// A waiting cursor is ended by its context, and by the end of the store.
	c = x.watchAll(x.Revision())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	wait := func() {
		go func() { _, err := c.Next(ctx); ended <- err }()
		eventually(t, "the cursor waits", func() bool { return x.Stats().Waiting == 1 })
	}
	wait()
	cancel()
	if err := <-ended; err != context.Canceled || x.Stats().Waiting != 0 {
		t.Fatal(err, x.Stats().Waiting)
	}
	ctx = context.Background()
	wait()
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != store.ErrClosed {
		t.Fatal(err)
	}
	if _, err := x.WatchAll(t.Context(), x.Revision()); err != store.ErrClosed {
		t.Fatal(err)
	}
}

// testWatchAllWindow: a cursor over all resources may start anywhere in the window, and before it gets ErrCompacted.
//
// SPEC: WATCH-3
func testWatchAllWindow(t *testing.T, b Implementation) {
	x := newStore(t, b, func(c *store.Config) { c.MemoryHistoryBytes, c.HistoryBytes = 4<<10, 64<<10 })
	slow := x.watchAll(1)
	m := newModel(b)
	for i := range 600 {
		k := store.Key{Resource: resources[i%3], Name: fmt.Sprint("n", i%50)}
		data := strings.Repeat("x", 100)
		x.put(k, data)
		m.commit([]store.Change{{Key: k, Data: []byte(data)}})
	}
	stats := x.Stats()
	if stats.Horizon < 2 || stats.Records > 100 {
		t.Fatalf("the horizon is at %d, with %d records in memory", stats.Horizon, stats.Records)
	}
	if _, err := slow.Poll(); err != store.ErrCompacted {
		t.Fatalf("a cursor before the window: %v, should be ErrCompacted", err)
	}
	if _, err := x.WatchAll(t.Context(), stats.Horizon-1); err != store.ErrCompacted {
		t.Fatalf("a cursor before the window: %v, should be ErrCompacted", err)
	}
	after := m.revision - int64(stats.Records) // memory has the rest
	if b.Durable {
		after = stats.Horizon
	}
	if s, want := drain(t, x.watchAll(after)), m.history("", "", "", after, m.revision); s != want {
		t.Fatalf("after revision %d:\n%s\nshould be\n%s", after, s, want)
	}
}

// testWatchAllManyWriters: during concurrent writes to many resources, every cursor over all of them sees each change
// once, in order.
//
// SPEC: WATCH-1, WATCH-6
func testWatchAllManyWriters(t *testing.T, b Implementation) {
	x := newStore(t, b, func(c *store.Config) {
		if b.Durable {
			c.MemoryHistoryBytes = 2 << 10 // a slow cursor reads the log
		}
	})
	const writers, writes = 6, 60
	var wait sync.WaitGroup
	for range 5 {
		c := x.watchAll(1)
		wait.Go(func() {
			for seen := 0; seen < 2*writers*writes; {
				for _, r := range next(t, c) {
					// Both changes of a commit have one revision, or each its own.
					want := int64(2 + seen)
					if b.OneRevision {
						want = int64(2 + seen/2)
					}
					if r.Revision != want {
						t.Errorf("record %d has revision %d, want %d", seen, r.Revision, want)
					}
					seen++
				}
				if t.Failed() {
					return
				}
			}
		})
	}
	for w := range writers {
		wait.Go(func() {
			for i := range writes {
				name := fmt.Sprintf("ns%d/p%d", w, i)
				x.commit(store.Change{Key: store.Key{Resource: resources[i%3], Name: name}, Data: []byte("x")},
					store.Change{Key: store.Key{Resource: resources[(i+1)%3], Name: name}, Data: []byte("y")})
			}
		})
	}
	wait.Wait()
}

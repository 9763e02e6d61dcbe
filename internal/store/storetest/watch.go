package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plinth/internal/store"
)

// testSnapshotStays: the content of a snapshot does not change, regardless of writes.
//
// SPEC: LIST-4
func testSnapshotStays(t *testing.T, b Implementation) {
	x := newStore(t, b)
	for i := range 300 {
		x.put(pod(fmt.Sprintf("p%03d", i)), "old")
	}
	sn := x.snapshot(0)
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := range 300 {
			x.put(pod(fmt.Sprintf("p%03d", i)), "new")
			x.commit(store.Change{Key: pod(fmt.Sprintf("p%03d", i))})
			x.snapshot(0)
		}
	})
	for range 20 {
		n := 0
		sn.Ascend("/pods", "", "", func(v *store.Version) bool {
			if string(v.Data()) != "old" {
				t.Errorf("%s is %s", v.Key, v.Data())
			}
			n++
			return true
		})
		if n != 300 || sn.Count("/pods", "") != 300 || sn.Revision() != 301 {
			t.Fatalf("%d Pods at %d", n, sn.Revision())
		}
	}
	wait.Wait()
	again := x.snapshot(301, "/pods")
	if n := again.Count("/pods", ""); n != 300 {
		t.Fatalf("the same revision again has %d Pods", n)
	}
	if _, err := x.Snapshot(x.Revision() + 1); err != store.ErrFuture {
		t.Fatal(err)
	}
}

// testCollectionRevision: two snapshots in which a collection has the same revision show the same objects, also if the
// collection became empty before the checkpoint that the store was opened from.
//
// SPEC: LIST-4
func testCollectionRevision(t *testing.T, b Implementation) {
	x := newStore(t, b, func(c *store.Config) { c.CompactBytes = 1 })
	shown := map[int64]string{}
	check := func() {
		t.Helper()
		c := x.Collection("/pods")
		newest := x.snapshot(0)
		if c.Revision() != newest.CollectionRevision("/pods") {
			t.Fatalf("the collection is of %d, in the newest snapshot of %d",
				c.Revision(), newest.CollectionRevision("/pods"))
		}
		compared := 0
		for revision := x.Stats().Horizon; revision <= x.Revision(); revision++ {
			sn := x.snapshot(revision, "/pods")
			have := ""
			sn.Ascend("/pods", "", "", func(v *store.Version) bool {
				have += v.Key.Name + "=" + string(v.Data()) +
					" "
				return true
			})
			since := sn.CollectionRevision("/pods")
			if known, ok := shown[since]; ok && known != have || since > revision {
				t.Fatalf("at %d the collection, of %d, is %q, and was %q", revision, since, have, known)
			}
			shown[since] = have
			compared++
		}
		if compared < int(x.Revision()) {
			t.Fatalf("only %d revisions of %d were compared", compared, x.Revision())
		}
	}
	check()
	x.put(pod("a"), "1")
	x.put(store.Key{Resource: "/nodes", Name: "n"}, "1")
	x.put(pod("a"), "2")
	check()
	x.commit(store.Change{Key: pod("a")})
	check()
	x.put(store.Key{Resource: "/nodes", Name: "n"}, "2") // so that a checkpoint follows
	time.Sleep(20 * time.Millisecond)
	if x.reopen() {
		clear(shown) // collections that were known not to have changed need not be known after a restart
		check()
		x.put(pod("b"), "3")
		check()
	}
}

// SPEC: WATCH-3
func testWatchFuture(t *testing.T, b Implementation) {
	x := newStore(t, b)
	c := x.watch("/pods", "", 4)
	got := make(chan string, 1)
	go func() { got <- lines(next(t, c)) }()
	for i := range 5 { // revisions 2 to 6
		x.put(pod("a"), fmt.Sprint(i))
		if i == 1 {
			eventually(t, "the cursor waits", func() bool { return x.Stats().Waiting == 1 })
		}
	}
	if s := <-got + drain(t, c); s != "5 ~/pods/a=2→3\n6 ~/pods/a=3→4\n" {
		t.Fatal(s)
	}
}

// testWatchWakes: a waiting cursor is woken only by records under its prefix.
//
// SPEC: WATCH-1
func testWatchWakes(t *testing.T, b Implementation) {
	x := newStore(t, b)
	prefixes := []string{"", "a", "a/", "a/p", "a/p1", "b/", "a/p1x"}
	want := map[string]string{}
	got := make(chan [2]string)
	for _, prefix := range prefixes {
		c := x.watch("/pods", prefix, 1)
		go func() { got <- [2]string{prefix, lines(next(t, c))} }()
	}
	eventually(t, "all cursors wait", func() bool { return x.Stats().Waiting == len(prefixes) })
	x.put(store.Key{Resource: "/nodes", Name: "a/p1"}, "")
	x.put(pod("c/p"), "")
	want[""] = "3 +/pods/c/p=\n"
	check := func(n int) {
		t.Helper()
		for range n {
			g := <-got
			if want[g[0]] != g[1] {
				t.Fatalf("prefix %q woke for %q, should for %q", g[0], g[1], want[g[0]])
			}
			delete(want, g[0])
		}
	}
	check(1)
	x.put(pod("a/p1"), "")
	for _, prefix := range []string{"a", "a/", "a/p", "a/p1"} {
		want[prefix] = "4 +/pods/a/p1=\n"
	}
	check(4)
	x.put(pod("a/p1xyz"), "")
	want["a/p1x"] = "5 +/pods/a/p1xyz=\n"
	check(1)
	last := x.commit(store.Change{Key: pod("b/q"), Data: []byte{}}, store.Change{Key: pod("b/r"), Data: []byte{}})
	want["b/"] = fmt.Sprintf("6 +/pods/b/q=\n%d +/pods/b/r=\n", last)
	check(1)
	if n := x.Stats().Waiting; n != 0 {
		t.Fatalf("%d cursors still wait", n)
	}
}

// testWatchTerms: a cursor with a term is woken only when an object gets, has or loses it; a version that cannot be
// read wakes all cursors.
//
// SPEC: WATCH-1
func testWatchTerms(t *testing.T, b Implementation) {
	x := newStore(t, b)
	type place struct {
		prefix string
		term   store.Term
	}
	field := store.Term{Name: "node", Value: "n1"}
	got := make(chan string)
	waiting := 0
	wait := func(places ...place) {
		for _, p := range places {
			c := x.watchTerm(p.prefix, p.term)
			go func() { got <- p.prefix + " " + p.term.Name + "=" + p.term.Value + ": " + lines(next(t, c)) }()
			waiting++
		}
		eventually(t, "all cursors wait", func() bool { return x.Stats().Waiting == waiting })
	}
	check := func(want ...string) {
		t.Helper()
		var have []string
		for range want {
			have = append(have, <-got)
		}
		waiting -= len(want)
		sort.Strings(have)
		if h, w := strings.Join(have, ""), strings.Join(want, ""); h != w || x.Stats().Waiting != waiting {
			t.Fatalf("woken, with %d cursors waiting:\n%sshould be, with %d:\n%s", x.Stats().Waiting, h, waiting, w)
		}
	}
	wait(place{"", firstIs("a")}, place{"ns/", firstIs("a")}, place{"other/", firstIs("a")},
		place{"", firstIs("b")}, place{"", field}, place{"ns/", store.Term{}})
	x.put(pod("ns/p"), "c")
	check("ns/ =: 2 +/pods/ns/p=c\n")
	x.put(pod("ns/p"), "a1")
	check(" first=a: 3 ~/pods/ns/p=c→a1\n", "ns/ first=a: 3 ~/pods/ns/p=c→a1\n")
	wait(place{"", firstIs("a")})
	x.put(pod("ns/p"), "b")
	check(" first=a: 4 ~/pods/ns/p=a1→b\n", " first=b: 4 ~/pods/ns/p=a1→b\n")
	wait(place{"", firstIs("b")})
	x.commit(store.Change{Key: pod("ns/p")})
	check(" first=b: 5 -/pods/ns/p=b\n")
	// A field is not a label of the same name, and of two values only one counts.
	for i, s := range []*store.Sidecar{{Labels: []store.Pair{pair(field)}},
		{Fields: []store.Pair{{Name: "node", Value: "n2"}}}} {
		x.commit(store.Change{Key: pod(fmt.Sprint("ns/q", i)), Data: []byte("q"), Sidecar: s})
	}
	if n := x.Stats().Waiting; n != waiting {
		t.Fatalf("%d cursors wait, should be %d", n, waiting)
	}
	x.commit(store.Change{Key: pod("ns/q"), Data: []byte("q"),
		Sidecar: &store.Sidecar{Fields: []store.Pair{pair(field)}}})
	check(" node=n1: 8 +/pods/ns/q=q\n")
	wait(place{"", firstIs("zz")}, place{"", field})
	x.commit(store.Change{Key: pod("ns/q"), Data: []byte("?"), Sidecar: &store.Sidecar{Unreadable: errors.New("no")}})
	check(" first=zz: 9 ~/pods/ns/q=q→?\n", " node=n1: 9 ~/pods/ns/q=q→?\n")
	if waiting != 1 {
		t.Fatalf("%d wait", waiting)
	}
	x.put(pod("other/p"), "a")
	check("other/ first=a: 10 +/pods/other/p=a\n")
	if n := x.Stats().Waiting; n != 0 {
		t.Fatalf("%d cursors still wait", n)
	}
}

func pair(t store.Term) store.Pair { return store.Pair{Name: t.Name, Value: t.Value} }

// testWatchTermsManyWriters: during concurrent writes, every cursor with a term sees the records that concern it, once
// and in order.
//
// SPEC: WATCH-1, WATCH-6
func testWatchTermsManyWriters(t *testing.T, b Implementation) {
	x := newStore(t, b)
	const writers, writes = 4, 80
	letters := []string{"a", "b", "c", "d"}
	var wait sync.WaitGroup
	for w := range writers {
		for l, letter := range letters {
			c := x.watchTerm(fmt.Sprintf("ns%d/", w), firstIs(letter))
			count := writes / 2 // an object gets the letter, and loses it again
			if l == len(letters)-1 {
				count-- // the last one stays
			}
			wait.Go(func() {
				last := int64(1)
				for seen := 0; seen < count; {
					for _, r := range next(t, c) {
						if r.Revision <= last {
							t.Errorf("revision %d follows %d", r.Revision, last)
						}
						last = r.Revision
						seen++
					}
					if t.Failed() {
						return
					}
				}
				if more, err := c.Poll(); err != nil || len(more) > 0 {
					t.Errorf("a cursor of %s in ns%d returned more records: %s, %v", letter, w, lines(more), err)
				}
			})
		}
		wait.Go(func() {
			for i := range writes {
				x.put(pod(fmt.Sprintf("ns%d/p", w)), letters[i%len(letters)])
			}
		})
	}
	wait.Wait()
}

// testWatchManyWriters: during concurrent writes, every watcher sees each of its events once, in order.
//
// SPEC: WATCH-1, WATCH-6
func testWatchManyWriters(t *testing.T, b Implementation) {
	x := newStore(t, b)
	const writers, writes, watchers = 8, 60, 20
	var wait sync.WaitGroup
	for w := range watchers {
		prefix := ""
		count := writers * writes
		if w%2 == 1 {
			prefix, count = fmt.Sprintf("ns%d/", w%writers), writes
		}
		c := x.watch("/pods", prefix, 1)
		wait.Go(func() {
			last := int64(1)
			for seen := 0; seen < count; {
				records := next(t, c)
				if t.Failed() {
					return
				}
				for _, r := range records {
					if r.Revision <= last {
						t.Errorf("revision %d follows %d", r.Revision, last)
					}
					last = r.Revision
				}
				seen += len(records)
				if c.Revision() < last {
					t.Errorf("the cursor is at %d and returned revision %d last", c.Revision(), last)
				}
			}
		})
	}
	for w := range writers {
		wait.Go(func() {
			for i := range writes {
				x.put(pod(fmt.Sprintf("ns%d/p%d", w, i)), "x")
			}
		})
	}
	wait.Wait()
}

// testWatchReady: a reader without a goroutine is called once when there is a record for it, and not for others; one
// that is closed is not counted as waiting any more; one that has missed changes, or whose store ends, is called, too.
//
// SPEC: WATCH-4, BEY-11
func testWatchReady(t *testing.T, b Implementation) {
	x := newStore(t, b)
	c := x.watch("/pods", "a/", x.Revision())
	var calls atomic.Int64
	ready := func(c *store.Cursor, want int) {
		t.Helper()
		got, err := c.Ready(t.Context(), func() { calls.Add(1) })
		if err != nil || len(got) != want {
			t.Fatalf("%d records are ready, want %d: %v", len(got), want, err)
		}
	}
	called := func(want int64) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d calls", want), func() bool { return calls.Load() >= want })
		if n := calls.Load(); n != want {
			t.Fatalf("there were %d calls, want %d", n, want)
		}
	}
	ready(c, 0)
	ready(c, 0) // does not wait twice
	if n := x.Stats().Waiting; n != 1 {
		t.Fatalf("%d cursors wait", n)
	}
	x.put(pod("b/1"), "x")
	called(0)
	x.put(pod("a/1"), "x")
	x.put(pod("a/2"), "x")
	called(1)
	ready(c, 2)
	ready(c, 0)
	if c.Revision() != x.Revision() {
		t.Errorf("the cursor is at %d, the store at %d", c.Revision(), x.Revision())
	}
	other := x.watch("/pods", "a/", x.Revision())
	ready(other, 0)
	c.Close()
	if st := x.Stats(); st.Waiting != 1 || st.Cursors != 1 {
		t.Errorf("%d of %d cursors wait", st.Waiting, st.Cursors)
	}
	x.put(pod("a/3"), "x")
	called(2)
	ready(other, 1)
	ready(other, 0)
	x.Close()
	called(3)
	if _, err := other.Ready(t.Context(), func() {}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after the end of the store: %v", err)
	}
}

// testWatchQuiet: a cursor without any record under its prefix moves on all the same, even when its part of the history
// was dropped long ago, so that a bookmark has a revision to resume from.
//
// SPEC: WATCH-4
func testWatchQuiet(t *testing.T, b Implementation) {
	x := newStore(t, b, func(c *store.Config) { c.MemoryHistoryBytes, c.HistoryBytes = 4<<10, 16<<10 })
	c := x.watch("/pods", "quiet/", 1)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { _, err := c.Next(ctx); ended <- err }()
	eventually(t, "the cursor waits", func() bool { return x.Stats().Waiting == 1 })
	for i := range 300 {
		x.put(pod(fmt.Sprint("loud/", i)), "some bytes to fill the window with, and a few more of them")
		x.put(store.Key{Resource: "/nodes", Name: "n"}, "some bytes to fill the window with")
	}
	if x.Stats().Horizon < 100 {
		t.Fatalf("the horizon did not move from %d", x.Stats().Horizon)
	}
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Fatal(err)
	}
	if c.Revision() != x.Revision() {
		t.Fatalf("cursor is at %d of %d", c.Revision(), x.Revision())
	}
	// The same when a record wakes it in the end.
	c = x.watch("/pods", "quiet/", x.Revision())
	got := make(chan string)
	go func() { got <- lines(next(t, c)) }()
	eventually(t, "the cursor waits", func() bool { return x.Stats().Waiting == 1 })
	for i := range 300 {
		x.put(pod(fmt.Sprint("loud/", i)), "some bytes to fill the window with, and a few more of them")
	}
	revision := x.put(pod("quiet/p"), "")
	if s := <-got; s != fmt.Sprintf("%d +/pods/quiet/p=\n", revision) {
		t.Fatal(s)
	}
}

// testWatchSlow: a cursor that is not read costs nothing, and past the window gets ErrCompacted.
//
// SPEC: WATCH-3, WATCH-6
func testWatchSlow(t *testing.T, b Implementation) {
	const window = 1 << 20
	x := newStore(t, b, func(c *store.Config) { c.MemoryHistoryBytes, c.HistoryBytes = window/4, window })
	cursors := make([]*store.Cursor, 100)
	for i := range cursors {
		cursors[i] = x.watch("/pods", "", 1)
	}
	data := string(bytes.Repeat([]byte("x"), 4<<10))
	for i := range 20 {
		x.put(pod("a"), fmt.Sprint(i, data))
	}
	for _, c := range cursors { // each holds a batch, and stalls
		if records, err := c.Poll(); err != nil || len(records) == 0 {
			t.Fatal(len(records), err)
		}
	}
	before := heap()
	for i := range 4 * window / len(data) {
		x.put(pod("a"), fmt.Sprint(i, data))
	}
	most := int64(2 * window)
	if b.Past {
		most += window // a pack is being written
	}
	if grown := int64(heap()) - int64(before); grown > most {
		t.Errorf("stalled cursors made the heap grow by %d", grown)
	}
	for _, c := range cursors {
		if _, err := c.Poll(); err != store.ErrCompacted {
			t.Fatalf("a cursor before the window: %v, should be ErrCompacted", err)
		}
	}
	if _, err := x.Watch(t.Context(), "/pods", "", 2); err != store.ErrCompacted {
		t.Fatal(err)
	}
	if _, err := x.Snapshot(2); err != store.ErrCompacted {
		t.Fatal(err)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// testWatchLeavesNothing: ten thousand cursors are opened, wait and are closed, and keep no memory.
//
// SPEC: WATCH-6
func testWatchLeavesNothing(t *testing.T, b Implementation) {
	x := newStore(t, b)
	x.put(pod("first"), "x") // with it a store has all of its goroutines
	goroutines := runtime.NumGoroutine()
	visitor := 0
	visit := func(n int) {
		ctx, cancel := context.WithCancel(context.Background())
		var wait sync.WaitGroup
		for i := range n {
			visitor++
			c := x.watch("/pods", fmt.Sprint("ns", visitor, "/", i%7), x.Revision())
			wait.Go(func() {
				if _, err := c.Next(ctx); err != context.Canceled {
					t.Error(err)
				}
				c.Close()
			})
		}
		eventually(t, "all cursors wait", func() bool { return x.Stats().Waiting == n })
		cancel()
		wait.Wait()
	}
	visit(1000)
	before := heap()
	for range 9 {
		visit(1000)
	}
	if grown := int64(heap()) - int64(before); grown > 512<<10 {
		t.Errorf("the heap grew by %d", grown)
	}
	if n := x.Stats().Waiting; n != 0 {
		t.Errorf("%d cursors wait", n)
	}
	eventually(t, "their goroutines ended", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
}

// testWatchReopen: a watch continues after a restart at its position.
//
// SPEC: WATCH-7
func testWatchReopen(t *testing.T, b Implementation) {
	x := newStore(t, b)
	if !b.Durable {
		return
	}
	m := newModel(b)
	put := func(name, data string) {
		x.put(pod(name), data)
		m.commit([]store.Change{{Key: pod(name), Data: []byte(data)}})
	}
	for i := range 50 {
		put(fmt.Sprint("p", i%7), fmt.Sprint("before ", i))
	}
	for round := range 3 {
		x.reopen()
		for after := int64(1); after <= x.Revision(); after += 7 {
			if s, want := drain(t, x.watch("/pods", "", after)), m.history("/pods", "", "", after,
				m.revision); s != want {
				t.Fatalf("after revision %d:\n%s\nshould be\n%s", after, s, want)
			}
		}
		c := x.watch("/pods", "p3", 10)
		put("p3", fmt.Sprint("after ", round))
		if s, want := drain(t, c), m.history("/pods", "p3", "", 10, m.revision); s != want {
			t.Fatalf("%s\nshould be\n%s", s, want)
		}
	}
}

// SPEC: LIST-6
func testWaitFor(t *testing.T, b Implementation) {
	x := newStore(t, b)
	if err := x.WaitFor(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := x.WaitFor(short, 3); err != context.DeadlineExceeded {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for revision := int64(2); revision < 12; revision++ {
		wait.Go(func() {
			if err := x.WaitFor(context.Background(), revision); err != nil || x.Revision() < revision {
				t.Errorf("at %d waiting for %d: %v", x.Revision(), revision, err)
			}
		})
	}
	for range 10 {
		x.put(pod("a"), "x")
	}
	wait.Wait()
}

// testWindow: history is dropped after its age, or its bytes, and not before.
//
// SPEC: WATCH-3
func testWindow(t *testing.T, b Implementation) {
	c := newClock()
	x := newStore(t, b, func(config *store.Config) { config.Now, config.HistoryAge = c.Now, time.Minute })
	x.put(pod("a"), "1")
	c.advance(50 * time.Second)
	x.put(pod("a"), "2")
	if !b.Shared { // where the age of what was written before a start is not known
		x.reopen() // no history has to be dropped
	}
	if b.Durable {
		if s := drain(t, x.watch("/pods", "", 1)); s != "2 +/pods/a=1\n3 ~/pods/a=1→2\n" {
			t.Fatal(s)
		}
	}
	c.advance(15 * time.Second)
	eventually(t, "the first commit is out of the window", func() bool { return x.Stats().Horizon == 2 })
	if _, err := x.Watch(t.Context(), "/pods", "", 1); err != store.ErrCompacted {
		t.Fatal(err)
	}
	if b.Durable && !b.Shared {
		x.reopen()
		if s := drain(t, x.watch("/pods", "", 2)); s != "3 ~/pods/a=1→2\n" {
			t.Fatal(s)
		}
		if v, ok := x.snapshot(2, "/pods").Get(pod("a")); !ok || string(v.Data()) != "1" {
			t.Fatal(v, ok)
		}
	}
	c.advance(time.Hour)
	eventually(t, "the window is empty", func() bool { return x.Stats().Horizon == 3 })
	if s := drain(t, x.watch("/pods", "", 3)); s != "" {
		t.Fatal(s)
	}
	if n := x.Stats().Records; n != 0 {
		t.Fatalf("%d records are still in memory", n)
	}
	if v, ok := x.Get(pod("a")); !ok || string(v.Data()) != "2" {
		t.Fatal("live objects were removed with the history")
	}
}

// testWindowCheckpoint: a restart from a checkpoint restores the extent of the history, and its age.
//
// SPEC: WATCH-3, WATCH-7
func testWindowCheckpoint(t *testing.T, b Implementation) {
	if !b.Durable || b.Shared {
		return
	}
	c := newClock()
	x := newStore(t, b, func(config *store.Config) {
		config.Now, config.HistoryAge, config.CompactBytes = c.Now,
			time.Hour, 1
	})
	m := newModel(b)
	put := func() {
		for range 10 {
			data := []byte(c.Now().String())
			x.put(pod("a"), string(data))
			m.commit([]store.Change{{Key: pod("a"), Data: data}})
			c.advance(time.Minute)
		}
		time.Sleep(20 * time.Millisecond) // for a checkpoint
		x.reopen()
	}
	put()
	put()
	if h := x.Stats().Horizon; h != 1 {
		t.Fatalf("after 20 minutes the horizon is at %d", h)
	}
	for after := int64(1); after <= m.revision; after++ {
		if s, want := drain(t, x.watch("/pods", "", after)), m.history("/pods", "", "", after, m.revision); s != want {
			t.Fatalf("after revision %d:\n%s\nshould be\n%s", after, s, want)
		}
	}
	c.advance(45*time.Minute + 30*time.Second) // the first five commits are older than an hour
	eventually(t, "the window moved", func() bool { return x.Stats().Horizon >= 6 })
	x.reopen()
	if h := x.Stats().Horizon; h < 6 || h > 7 {
		t.Fatalf("the horizon is at %d", h)
	}
	if _, err := x.Watch(t.Context(), "/pods", "", 5); err != store.ErrCompacted {
		t.Fatal(err)
	}
}

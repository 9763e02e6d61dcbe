package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plinth/internal/store"
)

// testEmpty: a new store is at revision 1, because 0 has a special meaning in the API.
//
// SPEC: LIST-1
func testEmpty(t *testing.T, b Implementation) {
	x := newStore(t, b)
	if x.Revision() != 1 {
		t.Fatalf("a new store is at revision %d", x.Revision())
	}
	if _, ok := x.Get(pod("a")); ok {
		t.Fatal("a new store has a Pod")
	}
	sn := x.snapshot(0)
	if n := sn.Count("/pods", ""); n != 0 || sn.Revision() != 1 {
		t.Fatalf("%d Pods at %d", n, sn.Revision())
	}
	if s := drain(t, x.watch("/pods", "", 1)); s != "" {
		t.Fatal(s)
	}
	if x.reopen() && x.Revision() != 1 {
		t.Fatalf("reopened, it is at %d", x.Revision())
	}
}

// SPEC: STORE-1
func testCommit(t *testing.T, b Implementation) {
	x := newStore(t, b)
	c := x.watch("/pods", "", 1)
	for i, want := range []string{"2 +/pods/a=one\n", "3 ~/pods/a=one→two\n", "4 ~/pods/a=two→two\n"} {
		data := []string{"one", "two", "two"}[i]
		if revision := x.put(pod("a"), data); revision != int64(i+2) {
			t.Fatalf("revision is %d", revision)
		}
		if s := drain(t, c); s != want {
			t.Fatalf("%q, should be %q", s, want)
		}
		if v, ok := x.Get(pod("a")); !ok || string(v.Data()) != data || v.Revision != int64(i+2) {
			t.Fatal(v)
		}
	}
	x.commit(store.Change{Key: pod("a")})
	x.commit(store.Change{Key: pod("a")}) // no object to delete: a revision, and no record
	last := int64(6)
	if b.Shared {
		last = 5
	}
	if s := drain(t, c); s != "5 -/pods/a=two\n" || c.Revision() != last {
		t.Fatalf("%q at %d", s, c.Revision())
	}
	if _, err := x.Commit(context.Background(), nil,
		[]store.Change{{Key: pod("a"), Data: []byte("x")}, {Key: pod("a")}}); err == nil {
		t.Fatal("a commit that changes one key twice was accepted")
	}
	x.put(pod("a"), "")
	if v, ok := x.Get(pod("a")); !ok || v.Data() == nil || v.Len() != 0 {
		t.Fatal("a version with empty data reads as deleted")
	}
	if x.reopen() {
		if v, ok := x.Get(pod("a")); !ok || v.Len() != 0 || v.Revision != last+1 || x.Revision() != last+1 {
			t.Fatal(v, ok)
		}
	}
}

// testCommitOfSeveralKeys: each change has a revision of its own, so that a watch that ends between two of them can be
// resumed with the second; and all changes become visible together.
//
// SPEC: STORE-1, WATCH-1
func testCommitOfSeveralKeys(t *testing.T, b Implementation) {
	x := newStore(t, b)
	c := x.watch("/pods", "", 1)
	var changes []store.Change
	for i := range 200 {
		changes = append(changes, store.Change{Key: pod(fmt.Sprintf("p%03d", i)), Data: []byte("x")})
	}
	changes = append(changes, store.Change{Key: store.Key{Resource: "/nodes", Name: "n"}, Data: []byte("y")})
	all := make(chan error, 1)
	go func() { // a woken cursor finds all changes
		_, err := c.Next(context.Background())
		if n := x.snapshot(0).Count("/pods", ""); err == nil && n != 200 {
			err = fmt.Errorf("%d of 200 Pods are visible", n)
		}
		all <- err
	}()
	revision := x.commit(changes...)
	if err := <-all; err != nil {
		t.Fatal(err)
	}
	if b.OneRevision {
		checkOneRevision(t, x, revision)
		return
	}
	if revision != 202 {
		t.Fatal(revision)
	}
	check := func() {
		t.Helper()
		for _, after := range []int64{1, 2, 3, 100, 200, 201, 202} {
			want := ""
			for i := after - 1; i < 200; i++ {
				want += fmt.Sprintf("%d +/pods/p%03d=x\n", i+2, i)
			}
			cut := x.watch("/pods", "", after)
			if s := drain(t, cut); s != want || cut.Revision() != 202 {
				t.Fatalf("after revision %d, at %d:\n%s", after, cut.Revision(), s)
			}
			if n := x.snapshot(after).Count("/pods", ""); n != int(min(after-1, 200)) {
				t.Fatalf("at %d there are %d Pods", after, n)
			}
		}
		if v, ok := x.Get(pod("p199")); !ok || v.Revision != 201 {
			t.Fatal(v)
		}
	}
	check()
	if x.reopen() {
		check()
	}
	// One precondition that does not hold refuses all of it.
	_, err := x.Commit(context.Background(),
		[]store.Precondition{{Key: pod("p000"), Revision: 2}, {Key: pod("p001"), Revision: 1}},
		[]store.Change{{Key: pod("p000")}, {Key: pod("p001")}})
	var conflict *store.ConflictError
	if !errors.As(err, &conflict) || *conflict != (store.ConflictError{Key: pod("p001"), Want: 1, Have: 3}) {
		t.Fatal(err)
	}
	if n := x.snapshot(0).Count("/pods", ""); n != 200 {
		t.Fatal(n)
	}
}

// checkOneRevision checks a store with one commit, of 200 Pods and a Node. Batches stay bounded, so they end within the
// revision. The cursor stands at the revision before it then, from which another cursor could read all of it again; a
// client of the API that is cut off there cannot, as it resumes after the resourceVersion of the last event that it
// has.
func checkOneRevision(t *testing.T, x *testStore, revision int64) {
	t.Helper()
	if revision != 2 || x.Revision() != 2 {
		t.Fatalf("the revision is %d, that of the store %d", revision, x.Revision())
	}
	for resource, want := range map[string]int{"/pods": 200, "/nodes": 1, "": 201} {
		c := x.watchAll(1)
		if resource != "" {
			c = x.watch(resource, "", 1)
		}
		names := map[store.Key]bool{}
		for len(names) < want {
			if c.Revision() != 1 {
				t.Fatalf("after %d of %d records the cursor is at %d", len(names), want, c.Revision())
			}
			records, err := c.Poll()
			if err != nil || len(records) == 0 || len(records) > 64 {
				t.Fatalf("after %d of %d records: %d, %v", len(names), want, len(records), err)
			}
			for _, r := range records {
				if names[r.Key] || r.Revision != 2 {
					t.Fatalf("%s is returned twice, or at %d", r.Key, r.Revision)
				}
				names[r.Key] = true
			}
		}
		if s := drain(t, c); s != "" || c.Revision() != 2 {
			t.Fatalf("at %d there is more:\n%s", c.Revision(), s)
		}
	}
	if n := x.snapshot(1).Count("/pods", ""); n != 0 {
		t.Fatalf("%d Pods exist before the commit", n)
	}
	if n := x.snapshot(2).Count("/pods", ""); n != 200 {
		t.Fatalf("%d Pods exist", n)
	}
}

// testNameOrder: names are ordered by their bytes, so "a-b/" is before "a/".
//
// SPEC: LIST-4
func testNameOrder(t *testing.T, b Implementation) {
	x := newStore(t, b)
	for _, name := range []string{"b/x", "a/x", "a-b/x", "a", "a0", "a/", "é/x", "a/y"} {
		x.put(pod(name), "")
	}
	x.reopen()
	var names []string
	sn := x.snapshot(0)
	sn.Ascend("/pods", "", "", func(v *store.Version) bool { names = append(names, v.Key.Name); return true })
	if s := fmt.Sprint(names); s != "[a a-b/x a/ a/x a/y a0 b/x é/x]" {
		t.Fatal(s)
	}
	// Pages, as a list with a limit takes them.
	names = nil
	for from := ""; ; {
		page := 0
		sn.Ascend("/pods", "a/", from, func(v *store.Version) bool {
			names = append(names, v.Key.Name)
			from = v.Key.Name + "\x00"
			page++
			return page < 2
		})
		if page < 2 {
			break
		}
		if left := sn.CountFrom("/pods", "a/", from); left != 3-len(names) {
			t.Fatalf("%d left behind %q", left, names)
		}
	}
	if s := fmt.Sprint(names); s != "[a/ a/x a/y]" {
		t.Fatal(s)
	}
}

func testPrecondition(t *testing.T, b Implementation) {
	x := newStore(t, b)
	x.put(pod("there"), "1")
	x.put(pod("gone"), "2")
	x.commit(store.Change{Key: pod("gone")})
	for _, test := range []struct {
		key      store.Key
		revision int64
		have     int64 // -1: it holds
	}{
		{pod("there"), 2, -1},
		{pod("there"), 0, 2},
		{pod("there"), 1, 2},
		{pod("there"), 9, 2},
		{pod("gone"), 0, -1},
		{pod("gone"), 3, 0},
		{pod("never"), 0, -1},
		{pod("never"), 1, 0},
	} {
		_, err := x.Commit(context.Background(), []store.Precondition{{Key: test.key, Revision: test.revision}}, nil)
		if test.have < 0 {
			if err != nil {
				t.Errorf("%s at %d: %v", test.key, test.revision, err)
			}
			continue
		}
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) ||
			*conflict != (store.ConflictError{Key: test.key, Want: test.revision, Have: test.have}) {
			t.Errorf("%s at %d: %v", test.key, test.revision, err)
		}
	}
}

// testPreconditionRace: of many writers that create one object, one succeeds, and the others get a conflict when its
// revision is already visible.
//
// SPEC: STORE-1
func testPreconditionRace(t *testing.T, b Implementation) {
	x := newStore(t, b)
	for round := range 50 {
		k := pod(fmt.Sprint("p", round))
		var won atomic.Int64
		var wait sync.WaitGroup
		for range 16 {
			wait.Go(func() {
				revisions, err := x.Commit(context.Background(), []store.Precondition{{Key: k}},
					[]store.Change{{Key: k, Data: []byte("x")}})
				if err == nil {
					if !won.CompareAndSwap(0, revisions.First) {
						t.Errorf("two creations of %s succeeded", k)
					}
					return
				}
				var conflict *store.ConflictError
				if !errors.As(err, &conflict) {
					t.Error(err)
					return
				}
				if v, ok := x.Get(k); !ok || v.Revision != conflict.Have || x.Revision() < conflict.Have {
					t.Errorf("a conflict with revision %d, which is not visible", conflict.Have)
				}
			})
		}
		wait.Wait()
		if v, ok := x.Get(k); !ok || v.Revision != won.Load() {
			t.Fatalf("the live version is %v, should have the revision of its creation, %d", v, won.Load())
		}
	}
}

// testLive: a version that is reported as current is no older than the commits before the call, and with sure set it
// always is current.
//
// SPEC: STORE-2
func testLive(t *testing.T, b Implementation) {
	x := newStore(t, b)
	live := func(k store.Key, sure bool) (*store.Version, bool) {
		t.Helper()
		v, current, err := x.Live(context.Background(), k, sure)
		if err != nil || sure && !current {
			t.Fatal(current, err)
		}
		return v, current
	}
	if v, _ := live(pod("a"), true); v != nil {
		t.Fatal(v)
	}
	var committed atomic.Int64
	var wait sync.WaitGroup
	for w := range 4 {
		wait.Go(func() {
			for range 50 {
				revision := x.put(pod("a"), fmt.Sprint(w))
				for before := committed.Load(); before < revision && !committed.CompareAndSwap(before, revision); {
					before = committed.Load()
				}
			}
		})
		wait.Go(func() {
			for i := range 200 {
				before := committed.Load()
				v, current := live(pod("a"), i%2 == 0)
				if have := revisionOf(v); current && have < before {
					t.Errorf("the live version is %d, and %d was committed before the call", have, before)
				}
			}
		})
	}
	wait.Wait()
	x.commit(store.Change{Key: pod("a")})
	if v, _ := live(pod("a"), true); v != nil {
		t.Error(v)
	}
}

func revisionOf(v *store.Version) int64 {
	if v == nil {
		return 0
	}
	return v.Revision
}

// testParallelSums: many writers read, add one and write back under a precondition, and again after a conflict. No
// addition is lost, and a watcher sees every step of every counter once.
//
// SPEC: STORE-1, WATCH-1
func testParallelSums(t *testing.T, b Implementation) {
	x := newStore(t, b)
	const writers, rounds, counters = 8, 60, 3
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for i := range rounds {
				k := pod(fmt.Sprint("c", (w+i)%counters))
				for done := false; !done; {
					n, revision := 0, int64(0)
					if v, ok := x.Get(k); ok {
						n, _ = strconv.Atoi(string(v.Data()))
						revision = v.Revision
					}
					_, err := x.Commit(context.Background(), []store.Precondition{{Key: k, Revision: revision}},
						[]store.Change{{Key: k, Data: []byte(strconv.Itoa(n + 1))}})
					var conflict *store.ConflictError
					if done = err == nil; err != nil && !errors.As(err, &conflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	sum, last := 0, int64(1)
	counts := map[string]int{}
	c := x.watch("/pods", "", 1)
	for sum < writers*rounds {
		for _, r := range next(t, c) {
			n, _ := strconv.Atoi(string(r.New.Data()))
			if n != counts[r.Key.Name]+1 || r.Revision != last+1 {
				t.Fatalf("%s goes from %d to %d, revision %d to %d", r.Key, counts[r.Key.Name], n, last, r.Revision)
			}
			counts[r.Key.Name] = n
			last = r.Revision
			sum++
		}
	}
	wait.Wait()
	x.reopen()
	for name, n := range counts {
		if v, ok := x.Get(pod(name)); !ok || string(v.Data()) != strconv.Itoa(n) {
			t.Errorf("%s is %s, should be %d", name, v.Data(), n)
		}
	}
}

func testClose(t *testing.T, b Implementation) {
	x := newStore(t, b)
	c := x.watch("/pods", "", 1)
	ended := make(chan error, 2)
	go func() { _, err := c.Next(context.Background()); ended <- err }()
	go func() { ended <- x.WaitFor(context.Background(), 1<<60) }()
	eventually(t, "the cursor waits", func() bool { return x.Stats().Waiting == 1 })
	// Writers run all the time: each gets a success, which then holds, or ErrClosed.
	var wait sync.WaitGroup
	var newest atomic.Int64
	for w := range 4 {
		wait.Go(func() {
			for i := 0; ; i++ {
				revisions, err := x.Commit(context.Background(), nil,
					[]store.Change{{Key: store.Key{Resource: "/nodes", Name: fmt.Sprint(w, i)}, Data: []byte("x")}})
				if err != nil {
					if !errors.Is(err, store.ErrClosed) {
						t.Error(err)
					}
					return
				}
				for {
					n := newest.Load()
					if n >= revisions.First || newest.CompareAndSwap(n, revisions.First) {
						break
					}
				}
			}
		})
	}
	if err := x.WaitFor(context.Background(), 20); err != nil {
		t.Fatal(err)
	}
	if err := x.Store.Close(); err != nil {
		t.Fatal(err)
	}
	wait.Wait()
	for range 2 {
		if err := <-ended; err != store.ErrClosed {
			t.Error(err)
		}
	}
	if _, err := x.Watch(t.Context(), "/pods", "", 1); err != store.ErrClosed {
		t.Error(err)
	}
	if err := x.Store.Close(); err != nil {
		t.Error(err)
	}
	if b.Durable {
		x.start()
		if x.Revision() != newest.Load() {
			t.Errorf("reopened at revision %d, the last acknowledged commit was %d", x.Revision(), newest.Load())
		}
	}
}

// testAbandoned: a writer that stops waiting for a commit that has its place in the order does not hold up the others.
func testAbandoned(t *testing.T, b Implementation) {
	x := newStore(t, b)
	var wait sync.WaitGroup
	for i := range 200 {
		wait.Go(func() {
			ctx := context.Background()
			if i%2 == 0 {
				ctx = &endedMeanwhile{Context: ctx}
			}
			if _, err := x.Commit(ctx, nil,
				[]store.Change{{Key: pod(fmt.Sprint(i)), Data: []byte("x")}}); err != nil && err != context.Canceled {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	eventually(t, "all commits happened", func() bool { return x.snapshot(0).Count("/pods", "") == 200 })
}

// endedMeanwhile is a context that ends after it was first asked whether it has.
type endedMeanwhile struct {
	context.Context
	asked atomic.Bool
}

func (c *endedMeanwhile) Err() error {
	if c.asked.CompareAndSwap(false, true) {
		return nil
	}
	return context.Canceled
}

func (c *endedMeanwhile) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// testLate: a commit whose context has ended is not written, and takes no revision.
func testLate(t *testing.T, b Implementation) {
	x := newStore(t, b)
	past, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	before := x.Revision()
	late := []store.Change{{Key: pod("late"), Data: []byte("x")}}
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{past, context.DeadlineExceeded}, {canceled, context.Canceled}} {
		if revision, err := x.Commit(c.ctx, nil, late); err != c.want {
			t.Errorf("a commit of a context that has ended: revision %d, %v; want %v", revision.First, err, c.want)
		}
	}
	// A commit that is in time comes after all that was sequenced before it.
	revision, err := x.Commit(context.Background(), nil, []store.Change{{Key: pod("a"), Data: []byte("x")}})
	if err != nil || revision.First != before+1 {
		t.Errorf("the next commit has revision %d, want %d; %v", revision.First, before+1, err)
	}
	if n := x.snapshot(0).Count("/pods", ""); n != 1 {
		t.Errorf("%d objects are stored, want 1", n)
	}
}

// facts is a change to data with a sidecar of these facts about the object.
func facts(k store.Key, data, uid string, form uint64, deleting bool) store.Change {
	return store.Change{Key: k, Data: []byte(data), Sidecar: &store.Sidecar{UID: uid, Form: form, Deleting: deleting}}
}

// testFence: a fence holds while the object is the same, in the same form, and not being deleted, regardless of other
// changes.
//
// SPEC: URI-5, STORE-1
func testFence(t *testing.T, b Implementation) {
	x := newStore(t, b)
	ns := store.Key{Resource: "/namespaces", Name: "n"}
	fenced := func(v *store.Version) error {
		_, err := x.Commit(context.Background(), []store.Precondition{store.Fence(v)}, nil)
		return err
	}
	x.commit(facts(ns, "1", "u1", 7, false))
	v, _ := x.Get(ns)
	x.commit(facts(ns, "annotated", "u1", 7, false))
	if err := fenced(v); err != nil {
		t.Fatal(err)
	}
	for _, change := range []store.Change{
		facts(ns, "2", "u1", 8, false), facts(ns, "3", "u1", 7, true), facts(ns, "4", "u2", 7, false), {Key: ns},
	} {
		x.commit(facts(ns, "1", "u1", 7, false))
		if err := fenced(v); err != nil {
			t.Fatal(err)
		}
		have := x.commit(change)
		if change.Data == nil {
			have = 0
		}
		var conflict *store.ConflictError
		if err := fenced(v); !errors.As(err, &conflict) ||
			*conflict != (store.ConflictError{Key: ns, Type: store.ThisFence, Have: have}) {
			t.Errorf("%s: %v", change.Data, err)
		}
	}
}

// testFenceRace: no object is created in a namespace after its deletion.
//
// SPEC: URI-5
func testFenceRace(t *testing.T, b Implementation) {
	x := newStore(t, b)
	ns := store.Key{Resource: "/namespaces", Name: "n"}
	x.commit(facts(ns, "1", "u1", 0, false))
	v, _ := x.Get(ns)
	var wait sync.WaitGroup
	var refused atomic.Int64
	for w := range 8 {
		wait.Go(func() {
			for i := 0; ; i++ {
				k := pod(fmt.Sprintf("n/%d-%d", w, i))
				_, err := x.Commit(context.Background(), []store.Precondition{store.Fence(v), store.Absent(k)},
					[]store.Change{{Key: k, Data: []byte("x")}})
				var conflict *store.ConflictError
				if errors.As(err, &conflict) && conflict.Key == ns {
					// The conflict is returned once its reason is visible.
					if now, ok := x.Get(ns); !ok || !now.Sidecar.Deleting {
						t.Error("refused before the deletion of the namespace is visible")
					}
					refused.Add(1)
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 20 {
		x.commit(facts(ns, "annotated", "u1", 0, false))
	}
	end := x.commit(facts(ns, "3", "u1", 0, true))
	wait.Wait()
	if refused.Load() != 8 {
		t.Errorf("%d of 8 were refused", refused.Load())
	}
	x.snapshot(0).Ascend("/pods", "n/", "", func(v *store.Version) bool {
		if v.Revision > end {
			t.Errorf("%s was created at revision %d, after the deletion at %d", v.Key, v.Revision, end)
		}
		return true
	})
}

// testIdentity: an identity holds while the object exists with the same UID, in whatever form, and while it is being
// deleted.
//
// SPEC: EXT-3, STORE-1
func testIdentity(t *testing.T, b Implementation) {
	x := newStore(t, b)
	k := store.Key{Resource: "/definitions", Name: "d"}
	commit := func() error {
		_, err := x.Commit(context.Background(), []store.Precondition{store.Identity(k, "u1")}, nil)
		return err
	}
	for _, change := range []store.Change{
		facts(k, "1", "u1", 7, false), facts(k, "2", "u1", 8, false), facts(k, "3", "u1", 8, true),
	} {
		x.commit(change)
		if err := commit(); err != nil {
			t.Errorf("%s: %v", change.Data, err)
		}
	}
	for _, change := range []store.Change{facts(k, "4", "u2", 8, false), {Key: k}} {
		have := x.commit(change)
		if change.Data == nil {
			have = 0
		}
		var conflict *store.ConflictError
		if err := commit(); !errors.As(err, &conflict) ||
			*conflict != (store.ConflictError{Key: k, Type: store.ThisObject, Have: have}) {
			t.Errorf("%s: %v", change.Data, err)
		}
	}
}

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// panicky is a gate whose Append panics if the answer is errPanic.
type panicky struct{ *gate }

var errPanic = errors.New("panic")

func (p panicky) Append(commits []*Commit) error {
	err := p.gate.Append(commits)
	if err == errPanic {
		panic("the log is not well")
	}
	return err
}

// TestPanicInLog: a panic of the log breaks the store, which says so: the writers that wait for it, those that wait
// for its batch, and all later ones are refused.
//
// SPEC: STORE-1
func TestPanicInLog(t *testing.T) { synctest.Test(t, testPanicInLog) }

func testPanicInLog(t *testing.T) {
	g := newGate()
	s, err := Open(Config{Log: panicky{g}, Describe: func(Key, []byte) *Sidecar { return &Sidecar{} }})
	if err != nil {
		t.Fatal(err)
	}
	a := Key{"/pods", "a"}
	leader := s.commit(nil, Change{Key: a, Data: []byte("1")})
	<-g.arrived
	loser := s.commit([]Precondition{{Key: a}}, Change{Key: a, Data: []byte("2")})
	queued := s.commit(nil, Change{Key: Key{"/pods", "b"}, Data: []byte("3")})
	synctest.Wait()
	g.answer <- errPanic
	if err := <-leader; err == nil || !strings.Contains(err.Error(), "the log is not well") {
		t.Errorf("the commit whose Append panicked: %v", err)
	}
	for name, done := range map[string]<-chan error{"the loser": loser, "the queued one": queued,
		"the next one": s.commit(nil)} {
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Healthy(); !errors.Is(err, ErrClosed) {
		t.Errorf("the store says that its health is %v", err)
	}
	if _, ok := s.Get(a); ok {
		t.Error("the commit is visible")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestPanicInState: so does a panic while a commit is applied. No lock stays held, and whoever waits is woken.
//
// SPEC: STORE-1
func TestPanicInState(t *testing.T) { synctest.Test(t, testPanicInState) }

func testPanicInState(t *testing.T) {
	s, g := openGate(t)
	watch, err := s.WatchAll(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { _, err := watch.Next(context.Background()); ended <- err }()
	go func() { ended <- s.WaitFor(context.Background(), 2) }()
	synctest.Wait()
	s.mu.Lock()
	s.history.feeds = nil // a record of a new resource panics
	s.mu.Unlock()
	leader := s.commit(nil, Change{Key: Key{"/pods", "a"}, Data: []byte("1")})
	<-g.arrived
	queued := s.commit(nil, Change{Key: Key{"/pods", "b"}, Data: []byte("2")})
	synctest.Wait()
	g.answer <- nil
	if err := <-leader; err == nil {
		t.Error("a commit that could not be applied succeeded")
	}
	if err := <-queued; !errors.Is(err, ErrClosed) {
		t.Errorf("the queued one: %v", err)
	}
	for range 2 {
		if err := <-ended; err != ErrClosed {
			t.Errorf("a reader that waited: %v", err)
		}
	}
	if err := s.Healthy(); !errors.Is(err, ErrClosed) {
		t.Errorf("the store says that its health is %v", err)
	}
	s.Get(Key{"/pods", "a"}) // it must not wait for a lock
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestNoRoom: a full disk refuses the commits that it cannot take, and no others. The revisions of those that failed
// are given out again.
//
// SPEC: STORE-1
func TestNoRoom(t *testing.T) { synctest.Test(t, testNoRoom) }

func testNoRoom(t *testing.T) {
	s, g := openGate(t)
	defer s.Close()
	a := Key{"/pods", "a"}
	failing := s.commit(nil, Change{Key: a, Data: []byte("1")})
	<-g.arrived
	queued := s.commit([]Precondition{{Key: a, Revision: 2}}, Change{Key: a, Data: []byte("2")})
	synctest.Wait()
	g.answer <- fmt.Errorf("%w: the disk is full", ErrNoRoom)
	for name, done := range map[string]<-chan error{"the failing one": failing, "the queued one": queued} {
		if err := <-done; !errors.Is(err, ErrNoRoom) || errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, ok := s.Get(a); ok || s.Revision() != 1 || s.Healthy() != nil {
		t.Errorf("at %d there is a Pod: %t; the health is %v", s.Revision(), ok, s.Healthy())
	}
	next := s.commit([]Precondition{{Key: a}}, Change{Key: a, Data: []byte("3")})
	if commits := <-g.arrived; len(commits) != 1 || commits[0].First() != 2 {
		t.Errorf("%d commits from %d follow revision 1", len(commits), commits[0].First())
	}
	g.answer <- nil
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	if v, ok := s.Get(a); !ok || string(v.Data()) != "3" || v.Revision != 2 {
		t.Error(v)
	}
}

// TestFeedsAreForgotten: what was served once, and has no history and no watch any more, takes no memory. A watch of it
// goes on all the same, and misses nothing.
//
// SPEC: WATCH-7
func TestFeedsAreForgotten(t *testing.T) {
	var now atomic.Int64
	g := newGate()
	go func() {
		for range g.arrived {
			g.answer <- nil
		}
	}()
	s, err := Open(Config{Log: g, Describe: func(Key, []byte) *Sidecar { return &Sidecar{} }, HistoryAge: time.Minute,
		Now: func() time.Time { return time.Unix(now.Load(), 0) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer close(g.arrived)
	resource := func(i int) string { return fmt.Sprintf("example.com/r%d", i) }
	watches := make([]*Cursor, 200)
	for i := range watches {
		k := Key{resource(i), "a"}
		if watches[i], err = s.Watch(t.Context(), k.Resource, "", s.Revision()); err != nil {
			t.Fatal(err)
		}
		for _, change := range []Change{{Key: k, Data: []byte("x")}, {Key: k}} {
			if err := <-s.commit(nil, change); err != nil {
				t.Fatal(err)
			}
		}
		for n := 0; n < 2; {
			records, err := watches[i].Poll()
			if err != nil {
				t.Fatal(err)
			}
			n += len(records)
		}
	}
	used := s.Collection(resource(7))
	sizes := func() (feeds, collections int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.history.feeds), s.live.collections.Len()
	}
	before, _ := sizes()
	// shrink lets time pass until at most n collections are left, and no feed but that of the handle.
	shrink := func(n int) {
		t.Helper()
		end := time.Now().Add(20 * time.Second)
		for feeds, collections := sizes(); feeds > 1 || collections > n; feeds, collections = sizes() {
			if time.Now().After(end) {
				t.Fatalf("of %d feeds %d are left, with %d collections", before, feeds, collections)
			}
			now.Add(5)
			time.Sleep(time.Millisecond)
		}
	}
	shrink(0)
	// A cursor whose feed was forgotten sees what happens later.
	for n, i := range []int{3, 7} {
		c, err := s.Watch(t.Context(), resource(i), "", s.Revision())
		if err != nil {
			t.Fatal(err)
		}
		shrink(n)
		if err := <-s.commit(nil, Change{Key: Key{resource(i), "b"}, Data: []byte("y")}); err != nil {
			t.Fatal(err)
		}
		if records, err := c.Next(t.Context()); err != nil || len(records) != 1 || records[0].Key.Name != "b" {
			t.Errorf("a watch of %s: %v, %v", resource(i), records, err)
		}
	}
	if used.Revision() != s.Revision() || used.Snapshot().CollectionRevision(resource(7)) != s.Revision() {
		t.Errorf("the collection changed at %d, the store is at %d", used.Revision(), s.Revision())
	}
}

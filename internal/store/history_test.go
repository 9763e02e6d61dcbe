package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestQueue compares the ring with a slice.
func TestQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var q queue[int]
	var want []int
	for i := range 20000 {
		if grow := i/2000%2 == 0; len(want) == 0 || rng.IntN(3) > 0 == grow {
			q.push(i)
			want = append(want, i)
		} else {
			if v := q.pop(); v != want[0] {
				t.Fatalf("popped %d, should be %d", v, want[0])
			}
			want = want[1:]
		}
		if q.len() != len(want) {
			t.Fatalf("%d, should be %d", q.len(), len(want))
		}
		if n := len(want); n > 0 {
			if k := rng.IntN(n); q.at(k) != want[k] {
				t.Fatalf("element %d is %d, should be %d", k, q.at(k), want[k])
			}
		}
	}
}

// gate is a log whose Append waits until the test answers.
type gate struct {
	arrived chan []*Commit
	answer  chan error
}

func newGate() *gate { return &gate{arrived: make(chan []*Commit), answer: make(chan error)} }

func (g *gate) Append(commits []*Commit) error {
	g.arrived <- commits
	return <-g.answer
}
func (g *gate) Checkpoint() (*Checkpoint, error) { return EmptyCheckpoint(), nil }
func (g *gate) Replay(context.Context, int64, []string, func(*Commit) error) error {
	return nil
}
func (g *gate) Compact(int64, *Checkpoint) error { return nil }
func (g *gate) Close() error                     { return nil }

func openGate(t *testing.T) (*Store, *gate) {
	t.Helper()
	g := newGate()
	s, err := Open(Config{Log: g, Describe: func(Key, []byte) *Sidecar { return &Sidecar{} },
		MemoryHistoryBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s, g
}

// commit starts a commit in the background.
func (s *Store) commit(pre []Precondition, changes ...Change) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := s.Commit(context.Background(), pre, changes)
		done <- err
	}()
	return done
}

// TestPending: a commit that is not durable is invisible, except that it decides which of two commits succeeds.
//
// SPEC: STORE-1
func TestPending(t *testing.T) { synctest.Test(t, testPending) }

func testPending(t *testing.T) {
	s, g := openGate(t)
	defer s.Close()
	a, b := Key{"/pods", "a"}, Key{"/pods", "b"}
	cursor, err := s.Watch(t.Context(), "/pods", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	first := s.commit([]Precondition{{Key: a}}, Change{Key: a, Data: []byte("1")})
	<-g.arrived

	if _, ok := s.Get(a); ok || s.Revision() != 1 {
		t.Error("a pending write is visible")
	}
	if records, err := cursor.Poll(); len(records) > 0 || err != nil || cursor.Revision() != 1 {
		t.Error("a cursor returned a pending write")
	}
	loser := s.commit([]Precondition{{Key: a}}, Change{Key: a, Data: []byte("lost")})
	synctest.Wait()
	second := s.commit([]Precondition{{Key: a, Revision: 2}}, Change{Key: a, Data: []byte("2")})
	synctest.Wait()
	third := s.commit([]Precondition{{Key: a, Revision: 3}, {Key: b}}, Change{Key: b, Data: []byte("3")})
	synctest.Wait()
	select {
	case err := <-loser:
		t.Fatalf("a conflict, %v, was returned before the other write was durable", err)
	default:
	}
	g.answer <- nil
	if err := <-first; err != nil {
		t.Error(err)
	}
	var conflict *ConflictError
	if err := <-loser; !errors.As(err, &conflict) || conflict.Have != 2 {
		t.Error(err)
	}
	if together := <-g.arrived; len(together) != 2 {
		t.Errorf("%d commits share the second sync, should be 2", len(together))
	}
	g.answer <- nil
	if err := errors.Join(<-second, <-third); err != nil {
		t.Error(err)
	}
	if v, _ := s.Get(a); v.Revision != 3 {
		t.Error(v)
	}
	if len(s.Writer.(*writer).pending) != 0 {
		t.Errorf("%d writes are still pending", len(s.Writer.(*writer).pending))
	}
}

// TestLogFails: after a failed sync the pending writes are refused, no part of them is visible, and reads continue.
//
// SPEC: STORE-1
func TestLogFails(t *testing.T) { synctest.Test(t, testLogFails) }

func testLogFails(t *testing.T) {
	s, g := openGate(t)
	defer s.Close()
	a, b := Key{"/pods", "a"}, Key{"/pods", "b"}
	first := s.commit(nil, Change{Key: a, Data: []byte("1")})
	<-g.arrived
	g.answer <- nil
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	failing := s.commit(nil, Change{Key: a, Data: []byte("2")})
	<-g.arrived
	loser := s.commit([]Precondition{{Key: a, Revision: 2}}, Change{Key: a})
	synctest.Wait()
	queued := s.commit(nil, Change{Key: b, Data: []byte("3")})
	synctest.Wait()
	g.answer <- broken
	if err := <-failing; err != broken {
		t.Errorf("the commit whose Append failed: %v", err)
	}
	for name, done := range map[string]<-chan error{"the queued one": queued, "the loser": loser,
		"the next one": s.commit(nil)} {
		if err := <-done; !errors.Is(err, ErrClosed) || !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v, ok := s.Get(a); !ok || string(v.Data()) != "1" || s.Revision() != 2 {
		t.Error(v)
	}
	if sn, err := s.Snapshot(0); err != nil || sn.Count("/pods", "") != 1 {
		t.Error(err)
	}
	c, err := s.Watch(t.Context(), "/pods", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	if records, err := c.Poll(); len(records) != 1 || err != nil {
		t.Error(records, err)
	}
}

// TestMemo: encoded forms are kept for the newest records only, whenever they are stored.
//
// SPEC: WATCH-6
func TestMemo(t *testing.T) {
	s, g := openGate(t)
	defer s.Close()
	go func() {
		for range g.arrived {
			g.answer <- nil
		}
	}()
	data := []byte(strings.Repeat("x", 10<<10))
	for i := range 300 {
		if err := <-s.commit(nil, Change{Key: Key{"/pods", string(rune('a' + i%26))}, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := s.Watch(t.Context(), "/pods", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	warm, total := 0, 0
	for {
		records, err := c.Poll()
		if err != nil {
			t.Fatal(err)
		}
		if len(records) == 0 {
			break
		}
		for _, r := range records {
			if r.Memo.Load(1) != nil {
				t.Fatal("a slot has a memo before one was stored")
			}
			r.Memo.Store(1, data)
			if r.Memo.Load(1) != nil {
				warm++
			}
			total++
		}
	}
	if limit := 1 << 20 / len(data); total != 300 || warm > limit || warm < limit/2 {
		t.Errorf("%d of %d records keep memos, should be about %d", warm, total, limit)
	}
	close(g.arrived)
}

// TestRebuiltForOthers: reading a resource for which a snapshot was not rebuilt panics, and does not give an empty
// list.
func TestRebuiltForOthers(t *testing.T) {
	s, g := openGate(t)
	defer s.Close()
	done := s.commit(nil, Change{Key: Key{"/pods", "a"}, Data: []byte("1")})
	<-g.arrived
	g.answer <- nil
	<-done
	sn, err := s.Snapshot(1, "/pods")
	if err != nil {
		t.Fatal(err)
	}
	if n := sn.Count("/pods", ""); n != 0 {
		t.Errorf("%d Pods in a snapshot before the first one", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("reading another resource of a rebuilt snapshot did not panic")
		}
	}()
	sn.Count("/nodes", "")
}

// TestRebuiltDuringPurge: a snapshot whose making had begun before a purge may have what was purged, so no later read
// gets it. One that was begun after it is kept for the next page.
//
// SPEC: BEY-4
func TestRebuiltDuringPurge(t *testing.T) {
	s, g := openGate(t)
	defer s.Close()
	done := s.commit(nil, Change{Key: Key{"/pods", "a"}, Data: []byte("1")})
	<-g.arrived
	g.answer <- nil
	<-done
	for _, during := range []bool{true, false} {
		before := s.purges
		sn, _, err := s.rebuild(t.Context(), 1, []string{"/pods"})
		if err != nil {
			t.Fatal(err)
		}
		if during {
			s.forgetPurged()
		}
		s.keep(sn, before)
		if kept := s.rebuilt == sn; kept == during {
			t.Errorf("with a purge meanwhile (%v) the snapshot is kept: %v", during, kept)
		}
	}
	if s.forgetPurged(); s.rebuilt != nil {
		t.Error("a purge keeps a snapshot from before")
	}
}

// compacted is a log that tells of each Compact.
type compacted struct {
	*gate
	horizons chan int64
}

func (c compacted) Compact(horizon int64, _ *Checkpoint) error {
	c.horizons <- horizon
	return nil
}

func (c compacted) Checkpoint() (*Checkpoint, error) {
	base := EmptyCheckpoint()
	base.Revision, base.Window.Horizon = 70, 60
	return base, nil
}

// TestCompactedAtTheStart: the log is compacted when a store is opened, up to the horizon that an earlier process has
// left: what that has dropped from the history, by a purge for one, may still be in the log.
//
// SPEC: BEY-4
func TestCompactedAtTheStart(t *testing.T) {
	log := compacted{newGate(), make(chan int64, 1)}
	s, err := Open(Config{Log: log, Describe: func(Key, []byte) *Sidecar { return &Sidecar{} }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	select {
	case horizon := <-log.horizons:
		if horizon != 60 {
			t.Errorf("it is compacted up to %d", horizon)
		}
	case <-time.After(20 * time.Second):
		t.Error("it is not compacted")
	}
}

func TestConfig(t *testing.T) {
	describe := func(Key, []byte) *Sidecar { return &Sidecar{} }
	for name, c := range map[string]Config{
		"no log":       {Describe: describe},
		"no describe":  {Log: newGate()},
		"negative age": {Log: newGate(), Describe: describe, HistoryAge: -1},
		"negative":     {Log: newGate(), Describe: describe, HistoryBytes: -1},
	} {
		if _, err := Open(c); err == nil {
			t.Errorf("Open accepts a configuration: %s", name)
		}
	}
}

// movedPast is a log with the first version of an object. While it is read, the window leaves it behind.
type movedPast struct{ move func() }

func (m movedPast) Replay(_ context.Context, after int64, _ []string, yield func(*Commit) error) error {
	if after >= 2 {
		return nil
	}
	first := NewVersion(Key{"/pods", "a"}, 2, []byte("first"), &Sidecar{})
	if err := yield(&Commit{Revision: 2, Records: []*Record{{Key: first.Key, Revision: 2, New: first}}}); err != nil {
		return err // somebody asks only how far the log reaches
	}
	m.move()
	return nil
}

// Changes that are read of the history are the newest ones: if some are not kept any more that follow those which were
// read from the log, neither are these.
//
// SPEC: BEY-4
func TestChangesOfMovedHistory(t *testing.T) {
	for _, moved := range []bool{false, true} {
		var s *State
		apply := func(revision int64, name string, at time.Time) {
			k := Key{"/pods", name}
			r := &Record{Key: k, Revision: revision, New: NewVersion(k, revision, []byte("next"), &Sidecar{})}
			r.Old, _ = s.Get(k)
			s.Apply(&Commit{Revision: revision, Time: at.UnixNano(), Records: []*Record{r}})
		}
		first := NewVersion(Key{"/pods", "a"}, 2, []byte("first"), &Sidecar{})
		var err error
		s, err = NewState(Config{Describe: func(Key, []byte) *Sidecar { return &Sidecar{} }, HistoryAge: time.Minute,
			Now: func() time.Time { return time.Unix(2, 0) }},
			&Checkpoint{Revision: 3, Window: Window{Horizon: 1}, Versions: func(yield func(*Version, error) bool) {
				yield(first, nil)
			}},
			movedPast{func() {
				if moved {
					apply(5, "b", time.Unix(3600, 0))
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		apply(4, "a", time.Unix(10, 0)) // long enough after the start to have a mark of its own
		var have []int64
		err = s.Changes(t.Context(), first.Key, 0, func(p *PastChange) bool {
			have = append(have, p.Revision)
			return true
		})
		if want := map[bool][]int64{false: {4, 2}}[moved]; err != nil || !slices.Equal(have, want) {
			t.Errorf("with a window that moved %t: the changes %v, %v; want %v", moved, have, err, want)
		}
		s.End()
	}
}

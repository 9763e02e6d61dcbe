package filelog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

// small is a configuration with many segments, and with a checkpoint after a few dozen commits.
func small(fs vfs.FS) filelog.Options { return filelog.Options{FS: fs, SegmentBytes: 4 << 10} }

func openStore(fs vfs.FS) (*store.Store, error) {
	log, err := filelog.Open("data", small(fs))
	if err != nil {
		return nil, err
	}
	s, err := store.Open(store.Config{Log: log, Describe: storetest.Describe, MemoryHistoryBytes: 2 << 10,
		HistoryBytes: 24 << 10, CompactBytes: 8 << 10})
	if err != nil {
		log.Close()
	}
	return s, err
}

func mustOpen(t testing.TB, fs vfs.FS) *store.Store {
	t.Helper()
	s, err := openStore(fs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// model has all changes that were ever tried, by the revision they got. Each commit changes one to four keys, so that
// half a commit would be noticed.
type model struct {
	mu      sync.Mutex
	changes map[int64]store.Change
	unknown [][]store.Change // refused commits
}

func newModel() *model { return &model{changes: map[int64]store.Change{}} }

func randomChanges(rng *rand.Rand, writer int) []store.Change {
	var changes []store.Change
	for i := range 1 + rng.IntN(4) {
		ch := store.Change{Key: store.Key{Resource: "/pods", Name: fmt.Sprintf("w%d/%d-%d", writer, i, rng.IntN(4))}}
		if rng.IntN(5) > 0 {
			ch.Data = fmt.Appendf(nil, "%d %s", rng.Uint64(), strings.Repeat("x", rng.IntN(300)))
		}
		changes = append(changes, ch)
	}
	return changes
}

// write commits random changes and records the result.
func (m *model) write(s *store.Store, rng *rand.Rand, writer int) (int64, error) {
	changes := randomChanges(rng, writer)
	revisions, err := s.Commit(context.Background(), nil, changes)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.unknown = append(m.unknown, changes)
		return 0, err
	}
	m.put(revisions.First, changes)
	return revisions.Of(len(changes) - 1), nil
}

// put records a commit with the revisions from first on.
func (m *model) put(first int64, changes []store.Change) {
	for i, ch := range changes {
		m.changes[first+int64(i)] = ch
	}
}

// state is the state as of a revision, as text by name.
func (m *model) state(revision int64) map[string]string {
	state := map[string]string{}
	for r := int64(2); r <= revision; r++ {
		m.apply(state, r)
	}
	return state
}

func (m *model) apply(state map[string]string, revision int64) {
	if ch := m.changes[revision]; ch.Data == nil {
		delete(state, ch.Key.Name)
	} else {
		state[ch.Key.Name] = fmt.Sprintf("%d %s", revision, ch.Data)
	}
}

// stateOf is the same for a snapshot.
func stateOf(sn *store.Snapshot) map[string]string {
	state := map[string]string{}
	sn.Ascend("/pods", "", "", func(v *store.Version) bool {
		state[v.Key.Name] = fmt.Sprintf("%d %s", v.Revision, v.Data())
		return true
	})
	return state
}

// check compares a reopened store with the model: it must have everything up to a revision of at least acked, and each
// later commit as a whole or not at all; and its history must lead from the horizon to its state.
func (m *model) check(s *store.Store, acked int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.Revision() < acked {
		return fmt.Errorf("revision %d was acknowledged, and the log ends at %d", acked, s.Revision())
	}
	for r := int64(2); r <= s.Revision(); r++ {
		if _, known := m.changes[r]; !known {
			if err := m.adopt(s, r); err != nil {
				return err
			}
		}
	}
	sn, err := s.Snapshot(0)
	if err != nil {
		return err
	}
	if err := same(stateOf(sn), m.state(s.Revision())); err != nil {
		return fmt.Errorf("the state at %d: %w", s.Revision(), err)
	}
	horizon := s.Stats().Horizon
	old, err := s.Snapshot(horizon, "/pods")
	if err != nil {
		return fmt.Errorf("snapshot at the horizon, %d of %d: %w", horizon, s.Revision(), err)
	}
	state := stateOf(old)
	if err := same(state, m.state(horizon)); err != nil {
		return fmt.Errorf("the state at the horizon, %d: %w", horizon, err)
	}
	c, err := s.Watch(context.Background(), "/pods", "", horizon)
	if err != nil {
		return err
	}
	for c.Revision() < s.Revision() {
		records, err := c.Poll()
		if err != nil {
			return fmt.Errorf("history after %d: %w", c.Revision(), err)
		}
		for _, r := range records {
			if r.Old != nil && state[r.Key.Name] != fmt.Sprintf("%d %s", r.Old.Revision, r.Old.Data()) {
				return fmt.Errorf("%s at %d was %s", r.Key, r.Revision, r.Old.Data())
			}
			delete(state, r.Key.Name)
			if r.New != nil {
				state[r.Key.Name] = fmt.Sprintf("%d %s", r.Revision, r.New.Data())
			}
		}
	}
	if err := same(state, m.state(s.Revision())); err != nil {
		return fmt.Errorf("the state that history leads to: %w", err)
	}
	return nil
}

// adopt finds the refused commits from a revision on that exist all the same, up to a known one. Each must exist as a
// whole.
func (m *model) adopt(s *store.Store, revision int64) error {
	c, err := s.Watch(context.Background(), "/pods", "", revision-1)
	if err != nil {
		return err
	}
	there := map[int64]string{}
	for c.Revision() < s.Revision() {
		records, err := c.Poll()
		if err != nil {
			return err
		}
		for _, r := range records {
			there[r.Revision] = r.Key.Name + " "
			if r.New != nil {
				there[r.Revision] += string(r.New.Data())
			}
		}
	}
	if !m.explain(revision, s.Revision(), there) {
		return fmt.Errorf("revision %d has changes of no commit, or a part of one: %v", revision, there)
	}
	return nil
}

// explain searches for refused commits that would give the observed changes. A deletion of a missing key leaves no
// trace by which to assign it to a commit, so the search backtracks: if one choice fails, the next one is tried.
func (m *model) explain(revision, last int64, there map[int64]string) bool {
	if _, known := m.changes[revision]; known || revision > last {
		return true
	}
	before, unknown := m.state(revision-1), m.unknown
	for i, changes := range unknown {
		matches := revision+int64(len(changes))-1 <= last
		for n, ch := range changes {
			want := ch.Key.Name + " " + string(ch.Data)
			if _, was := before[ch.Key.Name]; !was && ch.Data == nil {
				want = "" // nothing to delete
			}
			matches = matches && there[revision+int64(n)] == want
		}
		if !matches {
			continue
		}
		m.put(revision, changes)
		m.unknown = slices.Delete(slices.Clone(unknown), i, i+1)
		if m.explain(revision+int64(len(changes)), last, there) {
			return true
		}
		for n := range changes {
			delete(m.changes, revision+int64(n))
		}
		m.unknown = unknown
	}
	return false
}

// TestModelExplains: if two refused commits begin alike, the model finds the one that exists.
func TestModelExplains(t *testing.T) {
	s := mustOpen(t, vfs.NewMem())
	defer s.Close()
	there := []store.Change{{Key: store.Key{Resource: "/pods", Name: "a"}},
		{Key: store.Key{Resource: "/pods", Name: "b"}, Data: []byte("b")}}
	if _, err := s.Commit(context.Background(), nil, there); err != nil {
		t.Fatal(err)
	}
	m := newModel()
	m.unknown = [][]store.Change{{{Key: store.Key{Resource: "/pods", Name: "c"}}}, there}
	if err := m.check(s, 1); err != nil {
		t.Fatal(err)
	}
	m = newModel()
	m.unknown = [][]store.Change{there[:1], {there[1], {Key: store.Key{Resource: "/pods", Name: "d"}}}}
	if err := m.check(s, 1); err == nil {
		t.Fatal("the model accepts half of a commit")
	}
}

func same(have, want map[string]string) error {
	for name, w := range want {
		if h := have[name]; h != w {
			return fmt.Errorf("%s is %.60q, should be %.60q", name, h, w)
		}
	}
	if len(have) != len(want) {
		return fmt.Errorf("%d objects, should be %d", len(have), len(want))
	}
	return nil
}

package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

// served is a store on a disk, with small files, and a model of it: what each plane had after each commit.
type served struct {
	*store.Store
	log *filelog.Log
	dir string
	rng *rand.Rand

	mu     sync.Mutex
	events []event // in the order of their revisions, if there is one writer
	live   []string
}

// event is a commit: changes in a plane, which may begin with it or end.
type event struct {
	first, last  int64
	before       time.Time // a time before it, and after the one before it
	plane        string
	begins, from string
	ends         string
	changes      []store.Change
	beginning    []store.Change
}

func describe(k store.Key, data []byte) *store.Sidecar {
	if k.Resource == "/planes" {
		return &store.Sidecar{UID: k.Name}
	}
	return storetest.Describe(k, data)
}

func openLog(t testing.TB, dir string) *filelog.Log {
	t.Helper()
	log, err := filelog.Open(dir, filelog.Options{SegmentBytes: 4 << 10, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func openStore(t testing.TB, dir string) (*store.Store, *filelog.Log) {
	t.Helper()
	log := openLog(t, dir)
	return storeOver(t, log), log
}

func storeOver(t testing.TB, log store.Log) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{Log: log, Describe: describe, MemoryHistoryBytes: 2 << 10, HistoryBytes: 16 << 10,
		CompactBytes: 8 << 10, PlaneResources: []string{"/planes"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func serve(t testing.TB, seed uint64) *served {
	t.Helper()
	s := &served{dir: t.TempDir(), rng: rand.New(rand.NewPCG(seed, 3))}
	s.Store, s.log = openStore(t, s.dir)
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *served) some(n int) (changes []store.Change) {
	for i := range n {
		ch := store.Change{Key: store.Key{Resource: "/pods", Name: fmt.Sprintf("n/%d-%d", i, s.rng.IntN(8))}}
		if s.rng.IntN(5) > 0 {
			ch.Data = fmt.Appendf(nil, "%d %s", s.rng.Uint64(), strings.Repeat("x", s.rng.IntN(200)))
		}
		changes = append(changes, ch)
	}
	return changes
}

// write makes a random commit.
func (s *served) write(t testing.TB) {
	t.Helper()
	e := event{before: time.Now()}
	of := s.Store
	switch n := s.rng.IntN(20); {
	case n < 3 && len(s.live) < 6:
		e.begins = fmt.Sprintf("%016x", s.rng.Uint64())
		if len(s.live) > 0 && s.rng.IntN(4) > 0 {
			e.from = s.live[s.rng.IntN(len(s.live))]
		}
		e.beginning = s.some(s.rng.IntN(4))
		e.changes = []store.Change{{Key: store.Key{Resource: "/planes", Name: e.begins}, Data: []byte("{}"),
			Sidecar: &store.Sidecar{UID: e.begins},
			Begin:   &store.Begin{Plane: e.begins, Origin: e.from, Changes: e.beginning}}}
	case n == 3 && len(s.live) > 2:
		e.ends = s.live[s.rng.IntN(len(s.live))]
		e.changes = []store.Change{{Key: store.Key{Resource: "/planes", Name: e.ends}}}
	default:
		e.changes = s.some(1 + s.rng.IntN(3))
		if len(s.live) > 0 && n > 6 {
			e.plane = s.live[s.rng.IntN(len(s.live))]
			var err error
			if of, err = s.Plane(e.plane); err != nil {
				t.Fatal(err)
			}
		}
	}
	revisions, err := of.Commit(context.Background(), nil, e.changes)
	if err != nil {
		t.Fatal(err)
	}
	e.first = revisions.First
	e.last = e.first + int64(len(e.changes)+len(e.beginning)) - 1
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	if e.begins != "" {
		s.live = append(s.live, e.begins)
	}
	s.live = slices.DeleteFunc(s.live, func(id string) bool { return id == e.ends })
}

// state is what each plane had as of a revision: the version of each name, as text.
func (s *served) state(revision int64) map[string]map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[string]map[string]string{"": {}}
	apply := func(plane string, changes []store.Change, first int64) {
		for i, ch := range changes {
			if ch.Data == nil {
				delete(now[plane], ch.Key.String())
			} else {
				now[plane][ch.Key.String()] = fmt.Sprint(first+int64(i), " ", string(ch.Data))
			}
		}
	}
	for _, e := range s.events {
		if e.last > revision {
			continue
		}
		apply(e.plane, e.changes, e.first)
		if e.begins != "" {
			now[e.begins] = map[string]string{}
			if e.from != "" {
				maps.Copy(now[e.begins], now[e.from])
			}
			apply(e.begins, e.beginning, e.first+int64(len(e.changes)))
		}
		if e.ends != "" {
			delete(now, e.ends)
		}
	}
	return now
}

// content is what each plane of a store has.
func content(t testing.TB, s *store.Store) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	for _, id := range append(slices.Collect(s.Planes()), "") {
		of, err := s.Plane(id)
		if err != nil {
			t.Fatal(err)
		}
		sn, err := of.Snapshot(0)
		if err != nil {
			t.Fatal(err)
		}
		all[id] = map[string]string{}
		for _, resource := range []string{"/pods", "/planes"} {
			sn.Ascend(resource, "", "", func(v *store.Version) bool {
				all[id][v.Key.String()] = fmt.Sprint(v.Revision, " ", string(v.Data()))
				return true
			})
		}
	}
	return all
}

// same says how two contents differ.
func same(have, want map[string]map[string]string) error {
	if len(have) != len(want) {
		return fmt.Errorf("%d planes, should be %d", len(have), len(want))
	}
	for id, w := range want {
		if !maps.Equal(have[id], w) {
			return fmt.Errorf("the plane %q has %d objects, should have %d, or they differ", id, len(have[id]), len(w))
		}
	}
	return nil
}

// archive returns an archive of the store as it is now.
func (s *served) archive(t testing.TB, d Document) []byte {
	t.Helper()
	d.Time = time.Now().UTC()
	snapshot, err := s.log.Freeze()
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	a, err := New(d, snapshot)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := a.Write(&b); err != nil {
		t.Fatal(err)
	}
	if int64(b.Len()) != a.Size() {
		t.Errorf("the archive has %d bytes, and says %d", b.Len(), a.Size())
	}
	return b.Bytes()
}

// restore makes a data directory of an archive.
func restore(archive []byte, o Restoring) (*Restored, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	return Restore(context.Background(), FromArchive(bytes.NewReader(archive)), o)
}

func mustRestore(t testing.TB, archive []byte, o Restoring) *Restored {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "new")
	}
	r, err := restore(archive, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tree lists what is in a directory, with modes.
func tree(t testing.TB, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		name, _ := filepath.Rel(dir, path)
		all = append(all, fmt.Sprintf("%s %s", info.Mode().Perm(), filepath.ToSlash(name)))
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

// end is the newest revision of all planes.
func (s *served) end() int64 {
	_, newest := s.log.Bounds()
	return newest
}

// namesOf are the names of all objects of a bucket.
func namesOf(t testing.TB, b Bucket) (names []string) {
	t.Helper()
	items, err := b.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		names = append(names, item.Name)
	}
	return names
}

package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/internal/store"
)

// planes is the stores of several planes in one log, and a model of each.
type planes struct {
	*testStore
	rng    *rand.Rand
	models map[string]*plane // by ID
	made   int
	newest int64 // revision
	// compared counts the histories that were compared with those of the models.
	compared int
}

// plane is the model of a plane. Its changes are those of its origin, too, from before it has begun.
type plane struct {
	model
	object store.Key // that stands for it
	begun  int64
}

func newPlanes(t *testing.T, b Implementation, seed uint64) *planes {
	p := &planes{rng: rand.New(rand.NewPCG(seed, 7)), newest: store.FirstRevision}
	p.testStore = newStore(t, b, func(c *store.Config) {
		c.PlaneResources = []string{"planes"}
		c.CompactBytes, c.MemoryHistoryBytes = 4<<10, 8<<10
	})
	p.models = map[string]*plane{"": {model: model{revision: p.newest}}}
	return p
}

// of is the store of a plane.
func (p *planes) of(id string) *store.Store {
	p.t.Helper()
	s, err := p.Plane(id)
	if err != nil {
		p.t.Fatalf("plane %q: %v", id, err)
	}
	return s
}

// random is one of the planes.
func (p *planes) random(first bool) string {
	ids := slices.Sorted(maps.Keys(p.models))
	if !first {
		ids = ids[1:]
	}
	if len(ids) == 0 {
		return ""
	}
	return ids[p.rng.IntN(len(ids))]
}

// some are random changes.
func (p *planes) some(n int) (changes []store.Change) {
	seen := map[store.Key]bool{}
	for range n {
		resource := []string{"/pods", "apps/deployments"}[p.rng.IntN(2)]
		k := store.Key{Resource: resource, Name: fmt.Sprintf("n/%d", p.rng.IntN(12))}
		if seen[k] {
			continue
		}
		seen[k] = true
		ch := store.Change{Key: k}
		if p.rng.IntN(4) > 0 {
			ch.Data = []byte(words[p.rng.IntN(len(words))] + fmt.Sprintf(" %d", p.rng.IntN(1000)))
		}
		changes = append(changes, ch)
	}
	return changes
}

// add makes changes in a model, from the next revision on.
func (p *planes) add(to *plane, changes []store.Change) {
	to.revision = p.newest
	to.commit(changes)
	p.newest = to.revision
}

func (p *planes) write() {
	p.t.Helper()
	id := p.random(true)
	changes := p.some(1 + p.rng.IntN(3))
	if _, err := p.of(id).Commit(context.Background(), nil, changes); err != nil {
		p.t.Fatal(err)
	}
	p.add(p.models[id], changes)
}

// begin begins a plane: with nothing, with what another one has, or with what that had.
func (p *planes) begin() {
	p.t.Helper()
	p.made++
	object := store.Key{Resource: "planes", Name: fmt.Sprint(p.made)}
	data := []byte(fmt.Sprintf("the plane number %d", p.made))
	b := &store.Begin{Plane: Describe(object, data).UID, Changes: p.some(p.rng.IntN(3))}
	next := &plane{object: object}
	if p.rng.IntN(4) > 0 {
		b.Origin = p.random(false)
	}
	want := map[store.Key]string{} // what it is to have, if it is what another one had
	if b.Origin != "" {
		from := p.models[b.Origin]
		next.changes = slices.Clone(from.changes)
		if p.rng.IntN(2) == 0 {
			s := p.of(b.Origin)
			at := from.begun + p.rng.Int64N(s.Revision()-from.begun+1)
			_, changes, seen, err := s.AsOf(context.Background(), at)
			if err == nil {
				b.Changes, b.Seen, want = changes, seen, from.content(at)
			} else if !errors.Is(err, store.ErrCompacted) || p.b.Durable {
				p.t.Fatalf("%q as of %d: %v", b.Origin, at, err)
			}
		}
	}
	if _, err := p.Commit(context.Background(), []store.Precondition{store.Absent(object)},
		[]store.Change{{Key: object, Data: data, Begin: b}}); err != nil {
		p.t.Fatal(err)
	}
	p.add(p.models[""], []store.Change{{Key: object, Data: data}})
	p.add(next, b.Changes)
	if next.begun = p.newest; b.Seen != 0 && !maps.Equal(next.content(p.newest), want) {
		p.t.Fatalf("the plane begins with %v, should with %v", next.content(p.newest), want)
	}
	p.models[b.Plane] = next
}

// content is what the plane has at a revision.
func (m *plane) content(at int64) map[store.Key]string {
	all := map[store.Key]string{}
	for _, c := range m.changes {
		if data, _, ok := m.get(c.key, at); ok {
			all[c.key] = data
		}
	}
	return all
}

// end ends a plane.
func (p *planes) end() {
	p.t.Helper()
	id := p.random(false)
	if id == "" {
		return
	}
	m, s := p.models[id], p.of(id)
	watch, err := s.WatchAll(context.Background(), s.Revision())
	if err != nil {
		p.t.Fatal(err)
	}
	gone := []store.Change{{Key: m.object}}
	if _, err := p.Commit(context.Background(), nil, gone); err != nil {
		p.t.Fatal(err)
	}
	p.add(p.models[""], gone)
	delete(p.models, id)
	if _, err := watch.Next(context.Background()); !errors.Is(err, store.ErrClosed) {
		p.t.Fatalf("a watch of a plane that has ended: %v", err)
	}
	if _, err := s.Commit(context.Background(), nil, p.some(1)); !errors.Is(err, store.ErrClosed) {
		p.t.Fatalf("a write to a plane that has ended: %v", err)
	}
	if _, err := p.Plane(id); !errors.Is(err, store.ErrNoPlane) {
		p.t.Fatalf("a plane that has ended: %v", err)
	}
}

// check compares all planes with their models: what they have, what refers to what, what they were, and the history
// that a watch from some revision gets.
func (p *planes) check() {
	p.t.Helper()
	if want, have := slices.Sorted(maps.Keys(p.models))[1:], slices.Collect(p.Planes()); !slices.Equal(want, have) {
		p.t.Fatalf("the planes are %q, should be %q", have, want)
	}
	for id, m := range p.models {
		s := p.of(id)
		p.compare(s, m, 0, m.revision)
		var dependents strings.Builder
		for _, word := range words {
			s.Dependents(word, func(v *store.Version) bool {
				fmt.Fprintf(&dependents, "%s@%d=%s\n", v.Key, v.Revision, v.Data())
				return true
			})
			m.revision = p.newest
			if want := m.dependents(word); dependents.String() != want {
				p.t.Fatalf("of plane %q, %s has the dependents\n%s, should have\n%s", id, word, dependents.String(), want)
			}
			dependents.Reset()
		}
		stats := s.Stats()
		at := m.begun + p.rng.Int64N(s.Revision()-m.begun+1)
		p.checkPast(s, m, at)
		if at < stats.Horizon {
			if _, err := s.Watch(context.Background(), "/pods", "", at); !errors.Is(err, store.ErrCompacted) {
				p.t.Fatalf("plane %q, which begins at %d and has horizon %d, is watched from %d: %v", id, m.begun,
					stats.Horizon, at, err)
			}
			continue
		}
		p.compare(s, m, at, at)
		have, err := p.history(s, at)
		if errors.Is(err, store.ErrCompacted) && !p.b.Durable {
			continue // a store in memory drops the history of all planes in the background
		} else if err != nil {
			p.t.Fatal(err)
		}
		if want := m.history("", "", "", at, p.newest); have != want {
			p.t.Fatalf("after %d, plane %q has the history\n%s, should have\n%s", at, id, have, want)
		}
		p.compared++
	}
}

// checkPast compares some objects with what they were at a revision.
func (p *planes) checkPast(s *store.Store, m *plane, at int64) {
	if !p.b.Past {
		return
	}
	at = max(at, s.PastSince("/pods"))
	for range 4 {
		k := store.Key{Resource: []string{"/pods", "apps/deployments"}[p.rng.IntN(2)],
			Name: fmt.Sprintf("n/%d", p.rng.IntN(12))}
		data, since, ok := m.get(k, at)
		v, err := s.At(context.Background(), k, at)
		if err != nil {
			p.t.Fatalf("%s of plane %q as of %d: %v", k, s.ID(), at, err)
		}
		if (v != nil) != ok || ok && (string(v.Data()) != data || v.Revision != since) {
			p.t.Fatalf("%s of plane %q as of %d is %v, should be %q of %d", k, s.ID(), at, v, data, since)
		}
	}
}

// history is what a watch of a plane gets after a revision.
func (p *planes) history(s *store.Store, after int64) (string, error) {
	c, err := s.WatchAll(context.Background(), after)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return tryDrain(p.t, c)
}

// compare compares a plane at a revision, 0 for the newest one, with its model.
func (p *planes) compare(s *store.Store, m *plane, revision, at int64) {
	p.t.Helper()
	sn, err := s.Snapshot(revision)
	if errors.Is(err, store.ErrCompacted) && !p.b.Durable {
		return
	} else if err != nil {
		p.t.Fatalf("plane %q at %d, begun at %d, newest %d: %v", s.ID(), revision, m.begun, s.Revision(), err)
	}
	if revision == 0 {
		at = p.newest
	}
	for _, resource := range []string{"/pods", "apps/deployments", "planes"} {
		var have []string
		sn.Ascend(resource, "", "", func(v *store.Version) bool {
			checkSidecar(p.t, v)
			have = append(have, fmt.Sprintf("%s@%d=%s", v.Key.Name, v.Revision, v.Data()))
			return true
		})
		if want := m.list(resource, "", "", at); !slices.Equal(have, want) {
			p.t.Fatalf("plane %q has at %d\n%s, should have\n%s", s.ID(), at, have, want)
		}
	}
}

// testPlanes compares planes that begin, change and end at random with models, through restarts and checkpoints.
//
// SPEC: BEY-9, BEY-10, STORE-7
func testPlanes(t *testing.T, b Implementation) {
	if !hasPlanes(t, b) {
		return
	}
	for seed := range uint64(6) {
		p := newPlanes(t, b, seed)
		for step := range 400 {
			switch n := p.rng.IntN(40); {
			case n < 27:
				p.write()
			case n < 34 && len(p.models) < 12:
				p.begin()
			case n < 37 && p.rng.IntN(3) == 0:
				p.end()
			case n == 39 && p.reopen():
				p.check()
			}
			if step%20 == 0 {
				p.check()
			}
		}
		p.check()
		if p.compared < 60 {
			t.Errorf("seed %d: %d histories were compared", seed, p.compared)
		}
	}
}

// hasPlanes says whether stores can have several planes. Those that cannot have none, and say so.
func hasPlanes(t *testing.T, b Implementation) bool {
	s := newStore(t, b)
	_, err := s.Plane("x")
	for id := range s.Planes() {
		t.Errorf("a new store has the plane %q", id)
	}
	if unsupported := errors.Is(err, errors.ErrUnsupported); unsupported || !errors.Is(err, store.ErrNoPlane) {
		if !unsupported || b.Durable && !b.Shared && !b.OneRevision {
			t.Errorf("a plane of a new store: %v", err)
		}
		return false
	}
	return true
}

// testPlaneBounds: limits of a plane hold exactly, also for commits that are not durable yet, and concern no other one.
//
// SPEC: BEY-10
func testPlaneBounds(t *testing.T, b Implementation) {
	if !hasPlanes(t, b) {
		return
	}
	p := newPlanes(t, b, 1)
	p.begin()
	id := p.random(false)
	s := p.of(id)
	used := s.Usage()
	if err := s.SetBounds(store.Bounds{Objects: int64(used.Objects) + 5}); err != nil {
		t.Fatal(err)
	}
	made, refused := make(chan error, 40), 0
	for i := range 40 {
		go func() {
			_, err := s.Commit(context.Background(), nil, []store.Change{{Key: pod(fmt.Sprint("new-", i)), Data: []byte("x")}})
			made <- err
		}()
	}
	for range 40 {
		var over *store.BoundsError
		if err := <-made; errors.As(err, &over) {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	if now := s.Usage(); refused != 35 || now.Objects != used.Objects+5 {
		t.Errorf("%d of 40 creates were refused, and there are %d objects after %d", refused, now.Objects, used.Objects)
	}
	p.put(pod("new-0"), "the first plane has no limit")
	change := func(changes ...store.Change) error {
		_, err := s.Commit(context.Background(), nil, changes)
		return err
	}
	// An object may take the place of another one, but in one commit.
	name := pod("")
	sn, err := s.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	sn.Ascend("/pods", "new-", "", func(v *store.Version) bool { name = v.Key; return false })
	if err := change(store.Change{Key: name}, store.Change{Key: pod("other"), Data: []byte("x")}); err != nil {
		t.Errorf("one object in the place of another: %v", err)
	}
	bytes := s.Usage().Bytes
	if err := s.SetBounds(store.Bounds{Bytes: bytes + 10}); err != nil {
		t.Fatal(err)
	}
	if err := change(store.Change{Key: pod("eleven"), Data: []byte("12345678901")}); err == nil {
		t.Error("eleven bytes are accepted where ten are left")
	}
	if err := change(store.Change{Key: pod("ten"), Data: []byte("1234567890")}); err != nil {
		t.Errorf("ten bytes: %v", err)
	}
	if err := s.SetBounds(store.Bounds{Bytes: 1}); err != nil {
		t.Fatal(err)
	}
	if err := change(store.Change{Key: pod("ten"), Data: []byte("0987654321")}); err != nil {
		t.Errorf("a change that does not make the plane larger: %v", err)
	}
	if err := s.SetBounds(store.Bounds{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	if err := change(store.Change{Key: pod("ten")}); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("a deletion where nothing may be written: %v", err)
	}
}

// testPlaneExpiry: in each plane what expires is deleted, but not where nothing may be written.
//
// SPEC: BEY-10, URI-10
func testPlaneExpiry(t *testing.T, b Implementation) {
	if !hasPlanes(t, b) {
		return
	}
	now := newClock()
	p := newPlanes(t, b, 2)
	if err := p.Store.Close(); err != nil {
		t.Fatal(err)
	}
	p.config.Now = now.Now
	p.start()
	p.models = map[string]*plane{"": {model: model{revision: p.Revision()}}}
	p.newest = p.Revision()
	expires := func(s *store.Store, name string, after time.Duration) {
		sc := Describe(pod(name), []byte("x"))
		sc.Expire = now.Now().Add(after)
		change := store.Change{Key: pod(name), Data: []byte("x"), Sidecar: sc}
		if _, err := s.Commit(t.Context(), nil, []store.Change{change}); err != nil {
			t.Fatal(err)
		}
	}
	p.begin()
	first := p.random(false)
	expires(p.of(first), "inherited", time.Hour)
	b1 := &store.Begin{Plane: "second", Origin: first}
	if _, err := p.Commit(t.Context(), nil, []store.Change{{Key: store.Key{Resource: "planes", Name: "second"},
		Data: []byte("second"), Begin: b1}}); err != nil {
		t.Fatal(err)
	}
	expires(p.of("second"), "own", time.Minute)
	expires(p.of(first), "later", 2*time.Hour)
	has := func(id string, name string) bool { _, ok := p.of(id).Get(pod(name)); return ok }
	now.advance(2 * time.Minute)
	eventually(t, "the object of one plane has expired", func() bool { return !has("second", "own") })
	if err := p.of(first).SetBounds(store.Bounds{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	now.advance(time.Hour)
	eventually(t, "what both planes have has expired in one", func() bool { return !has("second", "inherited") })
	if !has(first, "inherited") || !has(first, "later") {
		t.Error("something has expired where nothing may be written")
	}
	if err := p.of(first).SetBounds(store.Bounds{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has expired there, too", func() bool { return !has(first, "inherited") })
	if !has(first, "later") {
		t.Error("an object has expired early")
	}
}

package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"plinth/internal/store"
)

var (
	resources  = []string{"/events", "/pods", "apps/deployments"}
	namespaces = []string{"a/", "a-b/", "b/", ""}
)

// workload drives a store and its model with the same random operations.
type workload struct {
	t    *testing.T
	x    *testStore
	m    *model
	rng  *rand.Rand
	curs []*follower
}

// follower is a cursor that is read from time to time, with its restrictions: a resource ("" for all), a prefix, and
// the word of a term.
type follower struct {
	c                       *store.Cursor
	resource, prefix, first string
	after                   int64 // compared up to here
}

func (p *workload) pick(list []string) string { return list[p.rng.IntN(len(list))] }

func (p *workload) key() store.Key {
	return store.Key{Resource: p.pick(resources),
		Name: p.pick(namespaces) + string(rune('p'+p.rng.IntN(6))) + strings.Repeat("x", p.rng.IntN(2))}
}

func (p *workload) prefix() string {
	return p.pick([]string{"", "", "a", "a/", "a-b/", "b/", "b/p", "q", "zz"})
}

func (p *workload) data() []byte {
	b := []byte{}
	for range p.rng.IntN(12) {
		b = append(b, p.pick(words)+" "...)
	}
	return b
}

// testHistory compares random histories with a model, with a window that holds all of them.
//
// SPEC: LIST-1, LIST-4, WATCH-1, WATCH-3, WATCH-7
func testHistory(t *testing.T, b Implementation) {
	seeds, steps := uint64(6), 600
	if b.Shared {
		seeds, steps = 2, 200 // each read of old history takes a tenth of a second
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { play(t, b, seed, steps, func(*store.Config) {}) })
	}
}

// testHistoryInLog is testHistory with almost no history in memory: it must be read from the log, or be compacted.
//
// SPEC: LIST-4, LIST-5, WATCH-3, WATCH-7
func testHistoryInLog(t *testing.T, b Implementation) {
	seeds, steps := uint64(6), 600
	if b.Shared {
		seeds, steps = 1, 200 // each read of old history takes a tenth of a second
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			play(t, b, 100+seed, steps, func(c *store.Config) {
				c.MemoryHistoryBytes = 8 << 10
				c.CompactBytes = 20 << 10
				if seed%2 == 1 {
					c.HistoryBytes = 30 << 10
				}
			})
		})
	}
}

func play(t *testing.T, b Implementation, seed uint64, steps int, configure func(*store.Config)) {
	p := &workload{t: t, x: newStore(t, b, configure), m: newModel(b), rng: rand.New(rand.NewPCG(seed, 1))}
	for range steps {
		switch n := p.rng.IntN(100); {
		case n < 55:
			p.commit()
		case n < 61:
			p.get()
		case n < 66:
			p.dependents()
		case n < 75:
			p.list()
		case n < 83:
			p.history()
		case n < 88:
			p.follow()
		case n < 94:
			p.read()
		case n < 98:
			p.at()
			p.changes()
		case n < 99:
			if p.x.reopen() {
				p.curs = nil
			}
		default:
			p.time()
		}
		if p.x.Revision() != p.m.revision {
			t.Fatalf("revision is %d, should be %d", p.x.Revision(), p.m.revision)
		}
	}
	for range 3 * len(p.curs) {
		p.read()
	}
	if p.x.reopen() {
		p.curs = nil
		for range 20 {
			p.list()
			p.history()
			p.dependents()
		}
	}
}

func (p *workload) commit() {
	var pre []store.Precondition
	var changes []store.Change
	holds := true
	for n := 1 + p.rng.IntN(3)*p.rng.IntN(2); len(changes) < n; {
		k := p.key()
		dup := false
		for _, ch := range changes {
			dup = dup || ch.Key == k
		}
		if dup {
			continue
		}
		ch := store.Change{Key: k}
		if p.rng.IntN(4) > 0 {
			ch.Data = p.data()
		}
		changes = append(changes, ch)
		if p.rng.IntN(2) == 0 {
			_, since, _ := p.m.get(k, p.m.revision)
			if p.rng.IntN(5) == 0 {
				since, holds = since+1, false
			}
			pre = append(pre, store.Precondition{Key: k, Revision: since})
		}
	}
	revisions, err := p.x.Commit(context.Background(), pre, changes)
	if !holds {
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) || conflict.Have != conflict.Want-1 {
			p.t.Fatalf("a precondition did not hold: %v, %v", revisions, err)
		}
		return
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.m.commit(changes)
	if revision := revisions.Of(len(changes) - 1); revision != p.m.revision {
		p.t.Fatalf("commit has revision %d, should have %d", revision, p.m.revision)
	}
}

func (p *workload) get() {
	k := p.key()
	data, since, ok := p.m.get(k, p.m.revision)
	v, found := p.x.Get(k)
	p.same(k, v, found, data, since, ok)
}

func (p *workload) same(k store.Key, v *store.Version, found bool, data string, since int64, ok bool) {
	p.t.Helper()
	if found != ok {
		p.t.Fatalf("%s exists: %t, should be %t", k, found, ok)
	}
	if found {
		if string(v.Data()) != data || v.Revision != since || v.Key != k {
			p.t.Fatalf("%s is %s at %d, should be %s at %d", v.Key, v.Data(), v.Revision, data, since)
		}
		checkSidecar(p.t, v)
	}
}

// past is a revision between the horizon and the newest one, and sometimes a little outside.
func (p *workload) past() int64 {
	if p.x.b.Past && p.rng.IntN(2) == 0 {
		return 1 + p.rng.Int64N(p.m.revision)
	}
	h := p.x.Stats().Horizon
	return h - 2 + p.rng.Int64N(p.m.revision-h+4)
}

func (p *workload) list() {
	revision, resource, prefix, from := p.past(), p.pick(resources), p.prefix(), ""
	if p.rng.IntN(2) == 0 {
		from = p.key().Name
	}
	var only []string
	if p.rng.IntN(3) > 0 {
		only = []string{resource}
	}
	sn, err := p.x.Snapshot(revision, only...)
	switch horizon := p.x.Stats().Horizon; {
	case revision == 0:
		return
	case revision > p.m.revision:
		p.want(err, store.ErrFuture)
		return
	case revision < p.x.PastSince(resource) || revision < horizon && only == nil && err != nil ||
		err == store.ErrCompacted && !p.x.b.Durable:
		p.want(err, store.ErrCompacted)
		return
	case err != nil:
		p.t.Fatalf("Snapshot(%d), from %d to %d: %v", revision, horizon, p.m.revision, err)
	}
	want := p.m.list(resource, prefix, from, revision)
	var have []string
	sn.Ascend(resource, prefix, from, func(v *store.Version) bool {
		checkSidecar(p.t, v)
		have = append(have, fmt.Sprintf("%s@%d=%s", v.Key.Name, v.Revision, v.Data()))
		return true
	})
	if strings.Join(have, "\n") != strings.Join(want, "\n") {
		p.t.Fatalf("%s %q from %q at %d of %d:\n%s\n\nshould be\n%s",
			resource, prefix, from, revision, p.m.revision, strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	if n := sn.CountFrom(resource, prefix, from); n != len(want) {
		p.t.Fatalf("%s %q from %q counts %d, should be %d", resource, prefix, from, n, len(want))
	}
	if all := len(p.m.list(resource, prefix, "", revision)); sn.Count(resource, prefix) != all {
		p.t.Fatalf("%s %q counts %d, should be %d", resource, prefix, sn.Count(resource, prefix), all)
	}
	k := p.key()
	k.Resource = resource
	data, since, ok := p.m.get(k, revision)
	v, found := sn.Get(k)
	p.same(k, v, found, data, since, ok)
}

func (p *workload) want(err, want error) {
	p.t.Helper()
	if err != want {
		p.t.Fatalf("%v, should be %v", err, want)
	}
}

// history opens a cursor at a random revision and reads all of it.
func (p *workload) history() {
	f := p.cursor()
	if f == nil {
		return
	}
	have := drain(p.t, f.c)
	if want := p.m.history(f.resource, f.prefix, f.first, f.after, p.m.revision); have != want {
		p.t.Fatalf("%s %q after %d:\n%s\nshould be\n%s", f.resource, f.prefix, f.after, have, want)
	}
	if want := max(p.m.revision, f.after); f.c.Revision() != want {
		p.t.Fatalf("cursor is at %d, should be at %d", f.c.Revision(), want)
	}
	f.c.Close()
	if _, err := f.c.Poll(); err != store.ErrClosed {
		p.t.Fatalf("a closed cursor: %v", err)
	}
}

func (p *workload) cursor() *follower {
	f := &follower{resource: p.pick(resources), prefix: p.prefix(), first: p.pick([]string{"", "", "a", "b", "x"}),
		after: p.past()}
	var err error
	if p.rng.IntN(3) == 0 {
		f.resource, f.prefix, f.first = "", "", ""
		f.c, err = p.x.WatchAll(context.Background(), f.after)
	} else {
		f.c, err = p.x.WatchTerm(context.Background(), f.resource, f.prefix, firstIs(f.first), f.after)
	}
	if err != nil {
		if f.after >= p.x.Stats().Horizon && p.x.b.Durable || err != store.ErrCompacted {
			p.t.Fatalf("Watch after %d, with the horizon %d: %v", f.after, p.x.Stats().Horizon, err)
		}
		return nil
	}
	return f
}

// dependents compares the dependents of every owner with those that a search of all objects finds.
func (p *workload) dependents() {
	for _, uid := range append(words, "nobody") {
		if have, want := dependents(p.t, p.x, uid), p.m.dependents(uid); have != want {
			p.t.Fatalf("at %d %s has the dependents\n%s\nshould be\n%s", p.m.revision, uid, have, want)
		}
	}
}

// follow opens a cursor that is kept.
func (p *workload) follow() {
	if f := p.cursor(); f != nil && len(p.curs) < 20 {
		p.curs = append(p.curs, f)
	}
}

// read reads one batch of one of the cursors.
func (p *workload) read() {
	if len(p.curs) == 0 {
		return
	}
	i := p.rng.IntN(len(p.curs))
	f := p.curs[i]
	before := f.after
	var records []*store.Record
	// A batch may end within a revision; the rest of that follows.
	for n := 0; len(records) == 0 || n > 0 && records[len(records)-1].Revision > f.c.Revision(); {
		batch, err := f.c.Poll()
		if err == store.ErrCompacted && (before < p.x.Stats().Horizon || !p.x.b.Durable) {
			p.curs = append(p.curs[:i], p.curs[i+1:]...)
			return
		}
		if err != nil {
			p.t.Fatal(err)
		}
		if n = len(batch); n == 0 {
			break
		}
		records = append(records, batch...)
	}
	f.after = f.c.Revision()
	if want := p.m.history(f.resource, f.prefix, f.first, before, f.after); lines(records) != want {
		p.t.Fatalf("%s %q from %d to %d:\n%s\nshould be\n%s",
			f.resource, f.prefix, before, f.after, lines(records), want)
	}
	for _, r := range records {
		checkRecord(p.t, r)
	}
}

// time lets the store's own goroutines run.
func (p *workload) time() { time.Sleep(time.Millisecond) }

package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/internal/store"
)

// testPast plays histories of which next to nothing is in memory, and little in the log.
//
// SPEC: BEY-4
func testPast(t *testing.T, b Implementation) {
	if !b.Past {
		x := newStore(t, b)
		if _, err := x.RevisionAt(context.Background(), time.Now()); !errors.Is(err, store.ErrNoPast) {
			t.Errorf("the revision at a time in a store without a past: %v", err)
		}
		return
	}
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			play(t, b, 200+seed, 1500, func(c *store.Config) {
				c.MemoryHistoryBytes, c.CompactBytes, c.HistoryBytes = 2<<10, 6<<10, 3<<10
			})
		})
	}
}

// at compares what an object was at a revision.
func (p *workload) at() {
	k, revision := p.key(), p.past()
	if revision <= 0 {
		return
	}
	v, err := p.x.At(context.Background(), k, revision)
	switch since := p.x.PastSince(k.Resource); {
	case revision > p.m.revision:
		p.want(err, store.ErrFuture)
		return
	case revision < since:
		p.want(err, store.ErrCompacted)
		return
	case err == store.ErrCompacted && !p.x.b.Durable:
		return
	case err != nil:
		p.t.Fatalf("%s as of %d, since %d: %v", k, revision, since, err)
	}
	data, since, ok := p.m.get(k, revision)
	if v == nil {
		v = &store.Version{}
		p.same(k, v, false, data, since, ok)
		return
	}
	p.same(k, v, true, data, since, ok)
}

// changes compares the changes of an object before a revision.
func (p *workload) changes() {
	k, before, most := p.key(), p.past(), p.rng.IntN(20)
	var have []string
	if before < 0 {
		return
	}
	err := p.x.Changes(context.Background(), k, before, func(c *store.PastChange) bool {
		if len(have) == most {
			return false
		}
		line := fmt.Sprintf("%d", c.Revision)
		if c.Old != nil {
			checkSidecar(p.t, c.Old)
			line += fmt.Sprintf(" ended %d=%s", c.Old.Revision, c.Old.Data())
		}
		if c.Deleted {
			line += " deleted"
		}
		have = append(have, line)
		return true
	})
	if err != nil {
		p.t.Fatal(err)
	}
	var want []string
	last := ""
	for _, c := range p.m.changes {
		if c.key != k || before > 0 && c.revision >= before {
			continue
		}
		line := fmt.Sprintf("%d%s", c.revision, last)
		last = ""
		if c.data != nil {
			last = fmt.Sprintf(" ended %d=%s", c.revision, *c.data)
		} else {
			line += " deleted"
		}
		want = append(want, line)
	}
	slices.Reverse(want)
	want = want[:min(most, len(want))]
	// Without a past they are those since the horizon, which may move meanwhile, and without files those in memory.
	if !p.x.b.Past && len(have) < most {
		least := 0
		for _, c := range p.m.changes {
			if c.key == k && (before == 0 || c.revision < before) && c.revision > p.x.PastSince(k.Resource) {
				least++
			}
		}
		if !p.x.b.Durable {
			least = 0
		}
		if since := p.x.PastSince(k.Resource); len(have) < min(most, least) || len(have) > len(want) {
			p.t.Fatalf("%d changes of %s are known since %d, should be %d to %d", len(have), k, since, least, len(want))
		}
		want = want[:len(have)]
	}
	if !slices.Equal(have, want) {
		p.t.Fatalf("the changes of %s before %d are\n%s\nshould be\n%s", k, before, strings.Join(have, "\n"),
			strings.Join(want, "\n"))
	}
}

//go:build !race

package engine_test

import (
	"testing"

	"plinth/internal/invariants"
)

// A selection reads sidecars and parses no objects: the allocations of a selected list depend neither on the size of
// the objects nor on their number. Under the race detector a sync.Pool drops some of what is put into it.
//
// SPEC: LIST-7, LIST-8
func TestSelectedListsParseNothing(t *testing.T) {
	small, rq := nodePods(t, 10)
	large, rqLarge := nodePods(t, 20_000)
	limit := 40.0
	if invariants.Enabled { // assertions allocate, here and in the store
		limit = 1000
	}
	for name, o := range selections(t) {
		want := listed / 100
		if o.Limit > 0 {
			want = int(o.Limit)
		}
		if n, m := count(t, small, rq, o), count(t, large, rqLarge, o); n != want || m != want {
			t.Errorf("%s: selects %d small and %d large objects, should be %d", name, n, m, want)
		}
		few := testing.AllocsPerRun(20, func() { count(t, small, rq, o) })
		many := testing.AllocsPerRun(20, func() { count(t, large, rqLarge, o) })
		t.Logf("%s: %v allocations with small objects, %v with large ones", name, few, many)
		if many > few || few > limit {
			t.Errorf("%s: %v allocations with small objects, %v with large ones", name, few, many)
		}
	}
}

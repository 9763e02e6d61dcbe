package store

import (
	"container/heap"
	"time"

	"plinth/internal/invariants"
)

// expiry is the live versions that expire, ordered by time in a binary heap. It belongs to the embedded writer: where
// other processes write, expiry is theirs, too. The sequencer's seq guards it.
//
// A key is in it at most once, however often it is written: an update moves its entry. A heap with an entry for each
// write, whose outdated ones are skipped when they are reached, grows with the number of writes, and Events are written
// much more often than they expire. A change costs O(log n), the search for due entries as many steps as there are due
// entries.
//
//	byKey[k] exists  ⇔  live.get(k) has an expiry, with that time and revision
//	heap[byKey[k].index] = byKey[k],  heap[i].at ≤ heap[2i+1].at, heap[2i+2].at
//
// A due object is not deleted yet: the sequencer deletes with the revision as a precondition, so an object that is
// written again in between stays.
type expiry struct {
	heap  []*expiring
	byKey map[Key]*expiring
}

// expiring is an entry of the heap: a key, its live version, and when that expires.
type expiring struct {
	key      Key
	revision int64
	at       time.Time
	index    int // in the heap
}

// newExpiry is the expiry of these versions.
func newExpiry(versions []*Version) expiry {
	e := expiry{byKey: map[Key]*expiring{}}
	for _, v := range versions {
		e.track(&Record{Key: v.Key, Revision: v.Revision, New: v})
	}
	return e
}

// expires says whether a version expires; a nil version does not.
func (v *Version) expires() bool { return v != nil && !v.Sidecar.Expire.IsZero() }

// check fails where an invariant does not hold, given the live versions. It takes time in the number of versions. The
// caller holds the state's mu, too.
func (e *expiry) check(live *versions) {
	for i, x := range e.heap {
		v := live.get(x.key)
		if x.index != i || e.byKey[x.key] != x || i > 0 && x.at.Before(e.heap[(i-1)/2].at) {
			invariants.Fail("store: the heap of expiries is wrong at %d, %s at %s", i, x.key, x.at)
		}
		if v == nil || v.Revision != x.revision || !v.Sidecar.Expire.Equal(x.at) {
			invariants.Fail("store: %s at %d expires at %s, and there is %v", x.key, x.revision, x.at, v)
		}
	}
	expire := 0
	live.collections.Scan(func(_ string, t *collection) bool {
		t.names.Scan(func(_ string, v *Version) bool {
			if v.expires() {
				expire++
			}
			return true
		})
		return true
	})
	if expire != len(e.heap) || expire != len(e.byKey) {
		invariants.Fail("store: %d versions expire, and %d of %d keys are planned",
			expire, len(e.heap), len(e.byKey))
	}
}

// track follows one change of a key: its entry is added, moved or removed.
func (e *expiry) track(r *Record) {
	if !r.Old.expires() && !r.New.expires() {
		return // most objects never do
	}
	old := e.byKey[r.Key]
	switch {
	case !r.New.expires():
		if old != nil {
			heap.Remove(e, old.index)
			delete(e.byKey, r.Key)
		}
	// An update moves the entry: its time may be earlier or later than before.
	case old != nil:
		old.at, old.revision = r.New.Sidecar.Expire, r.Revision
		heap.Fix(e, old.index)
	default:
		x := &expiring{key: r.Key, revision: r.Revision, at: r.New.Sidecar.Expire}
		e.byKey[r.Key] = x
		heap.Push(e, x)
	}
}

// due returns up to n versions that have expired by now, as preconditions for deleting them. It walks down from the
// top of the heap, and does not go below an entry that is not due: those below it are later. The heap is not changed;
// the deletions, once durable, remove the entries (track).
func (e *expiry) due(now time.Time, n int) []Precondition {
	var due []Precondition
	// The entries to look at: the top, and the children of each entry that is due.
	walk := []int{0}
	for len(walk) > 0 && len(due) < n {
		i := walk[len(walk)-1]
		walk = walk[:len(walk)-1]
		if i >= len(e.heap) || e.heap[i].at.After(now) {
			continue
		}
		due = append(due, Precondition{Key: e.heap[i].key, Revision: e.heap[i].revision})
		walk = append(walk, 2*i+2, 2*i+1)
	}
	return due
}

// next is when the first version expires; zero when none does.
func (e *expiry) next() time.Time {
	if len(e.heap) == 0 {
		return time.Time{}
	}
	return e.heap[0].at
}

// Len, Less, Swap, Push and Pop implement heap.Interface. Swap and Push keep the index of each entry, by which track
// finds it.
func (e *expiry) Len() int           { return len(e.heap) }
func (e *expiry) Less(i, j int) bool { return e.heap[i].at.Before(e.heap[j].at) }
func (e *expiry) Swap(i, j int) {
	e.heap[i], e.heap[j] = e.heap[j], e.heap[i]
	e.heap[i].index, e.heap[j].index = i, j
}

func (e *expiry) Push(x any) {
	it := x.(*expiring)
	it.index = len(e.heap)
	e.heap = append(e.heap, it)
}

func (e *expiry) Pop() any {
	last := len(e.heap) - 1
	it := e.heap[last]
	e.heap[last] = nil
	e.heap = e.heap[:last]
	return it
}

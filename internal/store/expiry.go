package store

import (
	"container/heap"
	"time"
)

// expiry knows which live versions expire, the first one first. An object is in it at most once, however often it is
// written.
type expiry struct {
	heap  []*expiring
	byKey map[Key]*expiring
}

type expiring struct {
	key      Key
	revision int64
	at       time.Time
	index    int // in the heap
}

// track follows one change of a key.
func (e *expiry) track(r *Record) {
	old := e.byKey[r.Key]
	switch {
	case r.New == nil || r.New.Sidecar.Expire.IsZero():
		if old != nil {
			heap.Remove(e, old.index)
			delete(e.byKey, r.Key)
		}
	case old != nil:
		old.at, old.revision = r.New.Sidecar.Expire, r.Revision
		heap.Fix(e, old.index)
	default:
		x := &expiring{key: r.Key, revision: r.Revision, at: r.New.Sidecar.Expire}
		e.byKey[r.Key] = x
		heap.Push(e, x)
	}
}

// due returns up to n of those that expired by then.
func (e *expiry) due(now time.Time, n int) []Precondition {
	var due []Precondition
	// The heap's order is not a sorted one, but children are never due before their parents: walk down while due.
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

// next is when the first one expires; zero when none does.
func (e *expiry) next() time.Time {
	if len(e.heap) == 0 {
		return time.Time{}
	}
	return e.heap[0].at
}

// Len, Less, Swap, Push and Pop are heap.Interface.
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

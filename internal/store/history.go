package store

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Record is one step of history: what one commit did to one key. It is shared by everybody who reads it.
type Record struct {
	Key      Key
	Revision int64
	Old, New *Version // Old nil: created; New nil: deleted
	Memo     Memo
}

// empty says that nothing was changed: a deletion found nothing.
func (r *Record) empty() bool { return r.Old == nil && r.New == nil }

// MemoSlots is how many encoded forms of one record can be remembered.
const MemoSlots = 4

// Memo is a place next to a record for its encoded forms, so that an event is encoded once for everybody. The slots
// belong to whoever encodes. It forgets: the store clears the memos of all but the newest records.
type Memo struct {
	slots [MemoSlots]atomic.Pointer[[]byte]
	cold  atomic.Bool // nothing is remembered any more
}

// Load returns what was stored in a slot, or nil.
func (m *Memo) Load(slot int) []byte {
	if p := m.slots[slot].Load(); p != nil {
		return *p
	}
	return nil
}

// Store remembers b, which nobody may change from here on, unless the record is too old for it.
func (m *Memo) Store(slot int, b []byte) {
	if m.cold.Load() {
		return
	}
	m.slots[slot].Store(&b)
	if m.cold.Load() { // cooled down in between
		m.slots[slot].Store(nil)
	}
}

func (m *Memo) cool() {
	m.cold.Store(true)
	for i := range m.slots {
		m.slots[i].Store(nil)
	}
}

// weight is about how much memory a record in the history takes that nothing else keeps: itself, and the old version,
// for the new one is live, or the old one of a later record.
func (r *Record) weight() int64 {
	const record, version = 160, 400
	if r.Old == nil {
		return record
	}
	return record + version + int64(len(r.Old.Data))
}

// history is the newest records, as far as memory holds them, and the knowledge how far back the log does.
//
//	horizon ≤ all.floor ≤ newest revision
//	every record behind all.floor is in memory, every one behind horizon in memory or in the log
//	all.records = ⋃ f.records and all.floor ≥ f.floor, for f in feeds
type history struct {
	maxAge, maxBytes, maxWeight, maxMemo int64

	feeds  map[string]*feed // by resource
	all    *feed            // the records of all feeds, in order; it is not among them
	weight int64            // of all records in memory
	hot    queue[*Record]   // those of all whose memos are kept
	memo   int64            // bytes that their memos may come to
	opened int64            // the revision at which the store was opened: no feed knows records up to there

	horizon int64
	marks   queue[Mark]
	bytes   int64 // of all changes ever counted
}

// feed is the history of one resource, or of all of them, and those who wait for more of it.
type feed struct {
	resource string       // "" for all
	whole    bool         // of all resources
	changed  atomic.Int64 // see Collection.Revision; from the first call of Store.Collection on
	records  queue[*Record]
	floor    int64 // revision of the newest record of this feed that memory lost

	mu      sync.Mutex // guards the following; taken with the state's lock held at least for reading, or alone
	waiting waiting
	pace    pace
}

func (h *history) feed(resource string) *feed {
	f := h.feeds[resource]
	if f == nil {
		f = &feed{resource: strings.Clone(resource), floor: h.opened, waiting: newWaiting()}
		h.feeds[f.resource] = f
	}
	return f
}

// everyFeed yields the feeds of all resources and the one of all together.
func (h *history) everyFeed(yield func(*feed) bool) {
	for _, f := range h.feeds {
		if !yield(f) {
			return
		}
	}
	yield(h.all)
}

// add appends a record and returns, added to woken, the groups to wake.
func (h *history) add(r *Record, woken []*group) []*group {
	f := h.feed(r.Key.Resource)
	f.records.push(r)
	f.changed.Store(r.Revision)
	h.all.records.push(r)
	h.weight += r.weight()
	h.hot.push(r)
	h.memo += memoWeight(r)
	h.bytes += changeBytes(r)
	return h.all.fire(r, f.fire(r, woken))
}

// changeBytes is about what a record takes in the log.
func changeBytes(r *Record) int64 {
	n := int64(len(r.Key.Resource) + len(r.Key.Name) + 40)
	if r.New != nil {
		n += int64(len(r.New.Data))
	}
	if r.Old != nil {
		n += int64(len(r.Old.Data))
	}
	return n
}

// memoWeight is what one remembered form of a record is likely to take.
func memoWeight(r *Record) int64 {
	if r.New != nil {
		return int64(len(r.New.Data)) + 100
	}
	return int64(len(r.Old.Data)) + 100
}

// trim forgets what lies outside of the window at this time.
func (h *history) trim(revision, now int64) {
	h.mark(revision, now)
	for h.marks.len() > 0 {
		m := h.marks.at(0)
		if m.Time > now-h.maxAge && h.bytes-m.Bytes < h.maxBytes {
			break
		}
		h.horizon = max(h.horizon, m.Revision)
		h.marks.pop()
	}
	for h.hot.len() > 0 && h.memo > h.maxMemo {
		r := h.hot.pop()
		h.memo -= memoWeight(r)
		r.Memo.cool()
	}
	for h.all.records.len() > 0 {
		r := h.all.records.at(0)
		if h.weight <= h.maxWeight && r.Revision > h.horizon {
			break
		}
		h.weight -= r.weight()
		for _, f := range [...]*feed{h.feeds[r.Key.Resource], h.all} {
			f.records.pop()
			f.floor = r.Revision
		}
		if h.hot.len() > 0 && h.hot.at(0) == r {
			h.hot.pop()
			h.memo -= memoWeight(r)
		}
	}
}

// mark adds a mark when the last one is far enough away.
func (h *history) mark(revision, now int64) {
	if n := h.marks.len(); n > 0 {
		last := h.marks.at(n - 1)
		if last.Revision == revision || now-last.Time < h.maxAge/64 && h.bytes-last.Bytes < h.maxBytes/256 {
			return
		}
	} else if revision == h.horizon {
		return
	}
	h.marks.push(Mark{Revision: revision, Time: now, Bytes: h.bytes})
}

// due is when trim has something to do next; zero when nothing happens by the passing of time.
func (h *history) due(revision int64) time.Time {
	if h.marks.len() == 0 {
		if revision == h.horizon {
			return time.Time{}
		}
		return time.Unix(0, 1)
	}
	due := h.marks.at(0).Time + h.maxAge
	if last := h.marks.at(h.marks.len() - 1); last.Revision < revision {
		due = min(due, last.Time+h.maxAge/64) // the newest records need a mark, too
	}
	return time.Unix(0, due)
}

// window is what a checkpoint holds of the history, and resume goes on from there.
func (h *history) window() Window {
	w := Window{Horizon: h.horizon, Bytes: h.bytes, Marks: make([]Mark, h.marks.len())}
	for i := range w.Marks {
		w.Marks[i] = h.marks.at(i)
	}
	return w
}

func (h *history) resume(w Window) {
	h.horizon, h.bytes = w.Horizon, w.Bytes
	for _, m := range w.Marks {
		h.marks.push(m)
	}
}

// holds says whether the records of a resource are in the feed.
func (f *feed) holds(resource string) bool { return f.whole || f.resource == resource }

// fire takes the groups that wait for r out of the feed. Those that are to be woken at once are appended to woken; the
// others are when their rest is over.
func (f *feed) fire(r *Record, woken []*group) []*group {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(woken, f.throttle(f.waiting.fire(r, nil))...)
}

// join returns the group of a prefix and a term. The state's lock is held, so nothing is missed in between.
func (f *feed) join(prefix string, t Term) *group {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting.join(prefix, t)
}

// leave takes one waiter out of a group that did not wake it.
func (f *feed) leave(prefix string, t Term, g *group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting.leave(prefix, t, g)
}

// queue is a ring that grows and shrinks, oldest first.
type queue[T any] struct {
	ring []T // its length is a power of two
	head int
	size int
}

func (q *queue[T]) len() int { return q.size }

func (q *queue[T]) at(i int) T { return q.ring[(q.head+i)&(len(q.ring)-1)] }

func (q *queue[T]) push(v T) {
	if q.size == len(q.ring) {
		q.resize(max(8, 2*q.size))
	}
	q.ring[(q.head+q.size)&(len(q.ring)-1)] = v
	q.size++
}

func (q *queue[T]) pop() T {
	var zero T
	v := q.ring[q.head]
	q.ring[q.head] = zero
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.size--
	if len(q.ring) > 64 && q.size < len(q.ring)/8 {
		q.resize(len(q.ring) / 4)
	}
	return v
}

func (q *queue[T]) resize(n int) {
	ring := make([]T, n)
	for i := range q.size {
		ring[i] = q.at(i)
	}
	q.ring, q.head = ring, 0
}

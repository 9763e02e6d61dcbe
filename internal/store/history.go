package store

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"plinth/internal/invariants"
)

// Record is one entry of the history: the change of one key by one commit. All readers share it. Only Memo changes
// after the record was made.
type Record struct {
	Key      Key
	Revision int64
	Old, New *Version // Old nil: created; New nil: deleted
	Memo     Memo
	// Unfinished says that others of the same revision follow: a watch after Revision would miss them.
	Unfinished bool
}

// empty says whether the record changed nothing: the deletion of a key that had no version. It takes a revision and is
// in no feed.
func (r *Record) empty() bool { return r.Old == nil && r.New == nil }

// MemoSlots is how many encoded forms of one record can be kept.
const MemoSlots = 4

// Memo caches the encoded forms of one record, so that an event is encoded once for all watchers. The caller defines
// the meaning of the slots. The store clears the memos of all but the newest records, and these stay empty from then
// on.
//
// Readers and the store use it without a lock, so a reader may store a form while drop clears the slots:
//
//	dropped ⇒ all slots are empty, or a Store that will empty its slot is running
//
// Without the second look at dropped in Store, a form could be stored after drop had cleared the slot, and stay in
// memory, uncounted, for as long as the record.
type Memo struct {
	slots   [MemoSlots]atomic.Pointer[[]byte]
	dropped atomic.Bool // true: values are no longer kept
}

// Load returns the value of a slot, or nil.
func (m *Memo) Load(slot int) []byte {
	if p := m.slots[slot].Load(); p != nil {
		return *p
	}
	return nil
}

// Store keeps b, which must not be changed from here on, unless the record is too old.
func (m *Memo) Store(slot int, b []byte) {
	if m.dropped.Load() {
		return
	}
	m.slots[slot].Store(&b)
	if m.dropped.Load() { // drop may have cleared the slot just before
		m.slots[slot].Store(nil)
	}
}

// drop clears the memo for good. dropped is set first: see Store.
func (m *Memo) drop() {
	m.dropped.Store(true)
	for i := range m.slots {
		m.slots[i].Store(nil)
	}
}

// memory is the approximate memory that only this record keeps: itself and its old version. The new version is either
// live or the old version of a later record, so the sum over all records in memory counts each version once.
func (r *Record) memory() int64 {
	const record, version = 160, 400
	if r.Old == nil {
		return record
	}
	return record + version + int64(r.Old.Len())
}

// history is the newest records, as many as memory holds, and the start of the history in the log.
//
// The problem: a watch may start from any revision of the last minutes, there may be thousands of watches, and one of
// them may stop reading for any time. A queue for each watch costs memory in watches × events, and a full queue leaves
// only bad choices: to block writers, or to end the watch. Here each record is kept once, a watch is a position among
// them (Cursor), and a slow reader costs nothing. Records that have left memory are read from the log, down to the
// horizon; a reader before the horizon gets ErrCompacted and has to list again.
//
// There is one feed for each resource, so that a watch of one reads no records of the others, and one feed of all.
// Records leave memory in the order of their revisions, so the oldest record of all is the oldest one of its resource:
//
//	horizon ≤ newest revision,  f.floor ≤ all.floor ≤ newest revision
//	f.records = {r : r.Revision > max(f.floor, horizon), r is of f.resource}, ascending; equal only within a commit
//	all.records = ⋃ f.records over feeds
//	every record after horizon that is not in memory is in the log
//	memory = Σ r.memory() ≤ maxMemory after trim, or there are no records
//	withMemos is the newest of all.records, and memoBytes = Σ memoBytesOf(r) over it
//
// The horizon follows that of the window, which all states of a log have in common.
type history struct {
	maxMemory, maxMemoBytes int64

	feeds     map[string]*feed // by resource
	all       *feed            // of all resources; not in feeds
	memory    int64
	withMemos queue[*Record] // the records whose memos were not dropped
	memoBytes int64          // the bytes that these may take
	opened    int64          // the revision at which the store was opened: memory holds no record up to it

	horizon int64 // watches and snapshots may start from here on
}

// feed is the history of one resource, or of all of them, and the cursors that wait for its next record. The state's
// mu guards records and floor; the feed's mu guards the rest, so that cursors which join a group under a read lock of
// the state do not get in each other's way across feeds.
type feed struct {
	resource string // "" in the feed of all
	whole    bool   // it is the feed of all
	// See Collection. Only set from the first call of State.Collection on, or the first record.
	changed atomic.Int64
	records queue[*Record]
	floor   int64 // revision of the newest record of this feed that left memory, or that of a new feed
	pinned  bool  // a Collection has it, so it is never forgotten
	// forgotten says that it is not in history.feeds any more: records go to another feed of the resource.
	forgotten bool

	mu       sync.Mutex // guards the following. Taken with the state's mu held at least for reading, or alone.
	waiting  waiting
	throttle throttle
}

// feed returns the feed of a resource, and makes it on the first call. The caller holds the state's mu for writing.
func (h *history) feed(resource string) *feed {
	f := h.feeds[resource]
	if f == nil {
		f = &feed{resource: strings.Clone(resource), floor: h.newFloor(), waiting: newWaiting()}
		h.feeds[f.resource] = f
	}
	return f
}

// newFloor is the floor of a resource that has no feed. A feed is forgotten only when its own is not above it.
func (h *history) newFloor() int64 { return max(h.opened, min(h.horizon, h.all.floor)) }

// forget removes the feeds that hold nothing: no records, no cursors that wait, and no floor that a reader within the
// history could meet. Without it there would be one for every definition that was ever served. A cursor may still have
// such a feed; its next read finds it forgotten, and takes the one that the resource has then (Cursor.read). The caller
// holds the state's mu for writing.
//
//	floor of a forgotten feed ≤ newFloor, so a feed that is made again claims no record that it does not have
func (h *history) forget() {
	for resource, f := range h.feeds {
		if f.pinned || f.records.len() > 0 || f.floor > h.newFloor() || f.awaited() {
			continue
		}
		f.forgotten = true
		delete(h.feeds, resource)
	}
}

// awaited says whether cursors wait in the feed.
func (f *feed) awaited() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.waiting.any) > 0 || len(f.waiting.terms) > 0
}

// everyFeed yields the feeds of all resources, and the feed of all.
func (h *history) everyFeed(yield func(*feed) bool) {
	for _, f := range h.feeds {
		if !yield(f) {
			return
		}
	}
	yield(h.all)
}

// add appends a record, and appends to woken the groups that the caller has to wake after it has released the lock.
// The caller holds the state's mu for writing, and calls trim once for all records that it adds.
func (h *history) add(r *Record, woken []*group) []*group {
	f := h.feed(r.Key.Resource)
	if n := f.records.len(); invariants.Enabled &&
		(r.Revision <= f.floor || n > 0 && r.Revision < f.records.at(n-1).Revision) {
		invariants.Fail("store: record %d of %s does not follow those in memory, floor %d",
			r.Revision, r.Key, f.floor)
	}
	f.records.push(r)
	f.changed.Store(r.Revision)
	h.all.records.push(r)
	h.memory += r.memory()
	h.withMemos.push(r)
	h.memoBytes += memoBytesOf(r)
	return h.all.fire(r, f.fire(r, woken))
}

// changeBytes is the approximate size of a record in the log. Old versions are stored there as a difference, so it is
// an upper bound for most. It depends on the record alone, so a replay counts as much as the first run did, and the
// window is the same after a restart.
func changeBytes(r *Record) int64 {
	n := int64(len(r.Key.Resource) + len(r.Key.Name) + 40)
	if r.New != nil {
		n += int64(r.New.Len())
	}
	if r.Old != nil {
		n += int64(r.Old.Len())
	}
	return n
}

// memoBytesOf is the approximate size of one encoded form of a record. It is counted whether the slots are filled or
// not: the bound is then on the number of records, and readers that store a form need no lock to count it.
func memoBytesOf(r *Record) int64 {
	if r.New != nil {
		return int64(r.New.Len()) + 100
	}
	return int64(r.Old.Len()) + 100
}

// trim drops history outside of the window, in three steps: it moves the horizon, which is no later than the newest
// revision; it clears memos above their bound; and it removes records from memory that are above its bound, not after
// the horizon, or not after floor, which the window says. Each record is dropped once, so the cost is constant for each
// record added.
func (h *history) trim(revision, horizon, floor int64) {
	h.horizon = max(h.horizon, min(horizon, revision))
	for h.withMemos.len() > 0 && h.memoBytes > h.maxMemoBytes {
		// The oldest record with a memo: clients that keep up no longer need its encoded forms.
		r := h.withMemos.pop()
		h.memoBytes -= memoBytesOf(r)
		r.Memo.drop()
	}
	for h.all.records.len() > 0 {
		r := h.all.records.at(0)
		// A revision leaves memory as a whole: a reader that finds floor before its position reads the rest in memory.
		if h.memory <= h.maxMemory && r.Revision > max(h.horizon, h.all.floor, floor) {
			break
		}
		// The oldest record of all is the oldest one of its resource, so it is the first one in both feeds.
		h.memory -= r.memory()
		for _, f := range [...]*feed{h.feeds[r.Key.Resource], h.all} {
			if oldest := f.records.pop(); invariants.Enabled && oldest != r {
				invariants.Fail("store: %d leaves memory, and the oldest of its feed is %d",
					r.Revision, oldest.Revision)
			}
			f.floor = r.Revision
		}
		if h.withMemos.len() > 0 && h.withMemos.at(0) == r {
			h.withMemos.pop()
			h.memoBytes -= memoBytesOf(r)
		}
	}
	if invariants.Enabled && (h.horizon > revision || h.all.floor > revision || h.memory < 0 || h.memoBytes < 0 ||
		h.all.records.len() == 0 && h.memory+h.memoBytes != 0 || h.withMemos.len() > h.all.records.len()) {
		invariants.Fail("store: at %d, horizon %d, floor %d: %d records in %d bytes, %d memos in %d bytes", revision,
			h.horizon, h.all.floor, h.all.records.len(), h.memory, h.withMemos.len(), h.memoBytes)
	}
}

// check fails where an invariant of history does not hold. It takes time in the number of records and feeds. The
// caller holds the state's mu.
func (h *history) check(newest int64) {
	count, memory := 0, int64(0)
	for f := range h.everyFeed {
		floor := max(f.floor, h.horizon)
		last := floor
		if f.floor > h.all.floor {
			invariants.Fail("store: %q lost records up to %d, and all up to %d", f.resource, f.floor, h.all.floor)
		}
		for i := range f.records.len() {
			r := f.records.at(i)
			if r.Revision <= floor || r.Revision < last || r.Revision > newest || !f.holds(r.Key.Resource) {
				invariants.Fail("store: feed %q has %s at %d after %d, newest %d",
					f.resource, r.Key, r.Revision, last, newest)
			}
			last = r.Revision
			if !f.whole {
				count++
				memory += r.memory()
			}
		}
		f.mu.Lock()
		f.waiting.check()
		f.mu.Unlock()
	}
	if count != h.all.records.len() || memory != h.memory {
		invariants.Fail("store: %d records in %d bytes in the feeds, %d in %d together",
			count, memory, h.all.records.len(), h.memory)
	}
	memos, first := int64(0), h.all.records.len()-h.withMemos.len()
	for i := range first {
		if r := h.all.records.at(i); !r.Memo.dropped.Load() {
			invariants.Fail("store: record %d keeps its memo and is not counted", r.Revision)
		}
	}
	for i := range h.withMemos.len() {
		r := h.withMemos.at(i)
		if memos += memoBytesOf(r); r != h.all.records.at(first+i) || r.Memo.dropped.Load() {
			invariants.Fail("store: record %d with a memo is not among the newest", r.Revision)
		}
	}
	if memos != h.memoBytes {
		invariants.Fail("store: memos of %d bytes, counted as %d", memos, h.memoBytes)
	}
}

// holds says whether the records of a resource are in the feed.
func (f *feed) holds(resource string) bool { return f.whole || f.resource == resource }

// resources are those whose records are in the feed; nil: all.
func (f *feed) resources() []string {
	if f.whole {
		return nil
	}
	return []string{f.resource}
}

// fire takes the groups that wait for r out of the feed. It appends to woken those that the caller has to wake;
// during a pause of the throttle there are none. The caller holds the state's mu for writing, so no cursor joins
// meanwhile.
func (f *feed) fire(r *Record, woken []*group) []*group {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(woken, f.wakeNow(f.waiting.fire(r, nil))...)
}

// join returns the group in which a cursor waits. wake is called when the group is woken; nil: nothing is. The caller
// holds the state's mu at least for reading, so that no record can be added between its look at the records and the
// join.
func (f *feed) join(c *Cursor, wake func()) *group {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.waiting.join(c.prefix, c.term)
	if wake != nil {
		g.calls = append(g.calls, call{c, wake})
	}
	return g
}

// leave removes a cursor from a group, and returns false if the group was woken.
func (f *feed) leave(c *Cursor, g *group) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.waiting.leave(c.prefix, c.term, g) {
		return false
	}
	g.calls = slices.DeleteFunc(g.calls, func(of call) bool { return of.cursor == c })
	return true
}

// queue is a ring buffer that grows and shrinks, oldest first. An index into it is taken modulo the length of the
// ring:
//
//	len(ring) = 2ⁿ or 0,  0 ≤ size ≤ len(ring)
//	element i, 0 ≤ i < size, is ring[(head+i) mod len(ring)]
type queue[T any] struct {
	ring []T
	head int
	size int
}

func (q *queue[T]) len() int { return q.size }

// at returns element i, the oldest being 0.
func (q *queue[T]) at(i int) T {
	if invariants.Enabled && (i < 0 || i >= q.size) {
		invariants.Fail("store: element %d of a queue of %d", i, q.size)
	}
	return q.ring[(q.head+i)&(len(q.ring)-1)]
}

// push appends an element.
func (q *queue[T]) push(v T) {
	if q.size == len(q.ring) {
		q.resize(max(8, 2*q.size))
	}
	q.ring[(q.head+q.size)&(len(q.ring)-1)] = v
	q.size++
}

// pop removes the oldest element; there must be one. The ring shrinks when it is nearly empty, so that one burst of
// changes does not keep its memory: to a quarter at an eighth, so that it does not grow again at once.
func (q *queue[T]) pop() T {
	if invariants.Enabled && q.size == 0 {
		invariants.Fail("store: pop of an empty queue")
	}
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

// resize moves the elements to a ring of length n, a power of two.
func (q *queue[T]) resize(n int) {
	if invariants.Enabled && (n&(n-1) != 0 || n < q.size) {
		invariants.Fail("store: a queue of %d in a ring of %d", q.size, n)
	}
	ring := make([]T, n)
	for i := range q.size {
		ring[i] = q.at(i)
	}
	q.ring, q.head = ring, 0
}

package store

import (
	"context"
	"strings"
	"sync/atomic"

	"plinth/internal/execution"
	"plinth/internal/invariants"
)

// A batch that Next returns ends at the first of these bounds, so that a consumer that stalls holds no more than that.
const (
	nextRecords = 64
	nextBytes   = 48 << 10
)

// Cursor is a position in a feed: the history of one resource, or of all. It holds no records except the last batch
// that it returned; the records that it has not read yet are in the history. One goroutine at a time uses it, except
// for Close.
//
// With R(a, b) = the records of the feed with a < Revision ≤ b that concern prefix and term, and w the revision that
// the watch began after:
//
//	the batches so far, one after another = R(w, after), and those of the first passed records of after+1,  ascending
//	w ≤ after, and after ≤ the state's revision unless w is in the future
//	passed ≤ the number of records of the feed at after+1;  0 unless the last batch ended within that revision
//
// The position is a revision and an index within the next one, because a commit of another process may have one
// revision for any number of records: the end of a lease of etcd deletes a thousand Events at one revision. A batch of
// whole revisions would not be bounded then; a position that is a revision alone would lose the rest, or return the
// beginning twice. Outside of the cursor only whole revisions show: Revision is after.
//
// Example: memory has the records after 900, and a client resumes a watch after 700. The first calls of Next read 701
// to 900 from the log, without a lock, and the next ones the rest from memory, under a read lock. At the newest
// revision, 950, the cursor joins a group and sleeps. Record 1000 is the first one that concerns the group: it removes
// the group from the index and closes its channel. The cursor wakes, moves to 999, as no record between concerned it,
// and reads 1000.
//
// after also advances over records that do not concern the cursor. So a watch without events keeps up with the horizon,
// and can send its client the revision to resume from (a bookmark).
type Cursor struct {
	state  *State
	feed   *feed
	prefix string
	term   Term
	after  int64
	passed int       // records of after+1 that were passed
	joined *group    // since a call of Ready that found no records
	buffer []*Record // the last batch
	closed atomic.Bool
}

// Watch returns a cursor over the records of a resource whose name has the prefix and whose revision is greater than
// after. It returns ErrCompacted when some of them no longer exist. It waits for a revision in the future. ctx is
// that of the call, which may have to ask the log, and not of the cursor.
func (s *State) Watch(ctx context.Context, resource, prefix string, after int64) (*Cursor, error) {
	return s.WatchTerm(ctx, resource, prefix, Term{}, after)
}

// WatchTerm is Watch restricted to objects that have a term, or had it before the change, or for which that is not
// known (Term). Other records do not wake the cursor: the cost of a change depends on how many cursors it concerns, and
// not on how many wait.
func (s *State) WatchTerm(ctx context.Context, resource, prefix string, t Term, after int64) (*Cursor, error) {
	s.mu.RLock()
	f := s.history.feeds[resource]
	s.mu.RUnlock()
	if f == nil {
		s.mu.Lock()
		f = s.history.feed(resource)
		s.window.join(s)
		s.mu.Unlock()
	}
	return s.cursor(ctx, f, prefix, t, after)
}

// WatchAll is Watch over all resources, in the order of the revisions. Every change wakes it.
func (s *State) WatchAll(ctx context.Context, after int64) (*Cursor, error) {
	return s.cursor(ctx, s.history.all, "", Term{}, after)
}

// cursor makes a cursor on a feed. The history is checked only now: it may be dropped before the first call of Next,
// which then returns ErrCompacted.
func (s *State) cursor(ctx context.Context, f *feed, prefix string, t Term, after int64) (*Cursor, error) {
	s.mu.RLock()
	closed, horizon, floor := s.ended, s.history.horizon, f.floor
	s.mu.RUnlock()
	switch {
	case closed:
		return nil, ErrClosed
	case after < horizon:
		return nil, ErrCompacted
	case after < floor:
		// Memory does not hold it; the log may not do so either.
		if err := reaches(ctx, s.log, after, f.resources()); err != nil {
			return nil, err
		}
	}
	// A watch lives long, and its strings may point into a request, whose memory they would keep.
	t.Name, t.Value = strings.Clone(t.Name), strings.Clone(t.Value)
	s.cursors.Add(1)
	return &Cursor{state: s, feed: f, prefix: strings.Clone(prefix), term: t, after: after}, nil
}

// Next returns the next records, in the order of their revisions; it waits until there are some. A batch may end
// within a commit, and within a revision. The slice is valid until the next call; the records stay valid. It returns
// ErrCompacted when the history no longer reaches back to the cursor, ErrClosed, or the error of ctx.
func (c *Cursor) Next(ctx context.Context) ([]*Record, error) {
	for {
		records, g, err := c.read(ctx, true, nil)
		if len(records) > 0 || err != nil {
			return records, err
		}
		if g == nil {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			continue
		}
		execution.AssertOutside(ctx, "a change")
		select {
		case <-g.wake:
			// No record between the join and the one that woke the group concerned this cursor.
			c.after = max(c.after, g.first-1)
		case <-ctx.Done():
			c.leave(g)
			return nil, ctx.Err()
		}
	}
}

// Poll is Next without waiting: it returns no records instead.
func (c *Cursor) Poll() ([]*Record, error) {
	for {
		records, g, err := c.read(context.Background(), false, nil)
		if len(records) > 0 || err != nil || g == wouldWait {
			return records, err
		}
	}
}

// Ready is Next for a reader that has no goroutine while it waits: if there are no records, it returns none, and wake
// is called once, as soon as there may be some, or the cursor has failed. wake must not wait; a call that is late,
// after the next call of Ready or after Close, has to be harmless. ctx is that of the call.
func (c *Cursor) Ready(ctx context.Context, wake func()) ([]*Record, error) {
	c.rejoin()
	for {
		records, g, err := c.read(ctx, true, wake)
		if len(records) > 0 || err != nil {
			return records, err
		}
		if g != nil {
			c.joined = g
			return nil, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// rejoin ends the wait that the last call of Ready has begun.
func (c *Cursor) rejoin() {
	if c.joined != nil {
		c.leave(c.joined)
		c.joined = nil
	}
}

// wouldWait is returned by read in the place of a group when it is not to join one.
var wouldWait = &group{}

// Revision is the revision up to which all records were returned, which is before that of the last one if the batch
// ended within its revision. Next and Poll advance it over records that do not concern the cursor, too, so it may be
// used for a bookmark.
func (c *Cursor) Revision() int64 { return c.after }

// Within says whether the last batch ended within a revision, after which the cursor stands at the revision before.
// That happens only on a store whose commits have one revision each.
func (c *Cursor) Within() bool { return c.passed > 0 }

// Close ends the cursor: the next call of Next or Poll returns ErrClosed. To end a call that waits, cancel its
// context. Who uses Ready calls Close between two calls of it.
func (c *Cursor) Close() {
	if !c.closed.Swap(true) {
		c.rejoin()
		c.state.cursors.Add(-1)
	}
}

// read takes one step through the history, from the log where memory does not reach back to the cursor, otherwise from
// memory. It returns one of four results: records; an error; the group to wait in, after the end of the history
// (wouldWait unless it is to join); or all nil, when the step found no records and there is more after it.
//
// The group is joined under the same hold of the state's mu that found the end of the history. Otherwise a record could
// be added between the two, and the cursor would miss its wake-up.
func (c *Cursor) read(ctx context.Context, join bool, wake func()) ([]*Record, *group, error) {
	before := c.after
	clear(c.buffer) // a cursor that waits keeps no records in memory
	c.buffer = c.buffer[:0]
	s := c.state
	s.mu.RLock()
	if s.ended || c.closed.Load() {
		s.mu.RUnlock()
		return nil, nil, ErrClosed
	}
	if c.feed.forgotten {
		s.mu.RUnlock()
		s.mu.Lock()
		c.feed = s.history.feed(c.feed.resource)
		s.window.join(s)
		s.mu.Unlock()
		return nil, nil, nil
	}
	if c.after < c.feed.floor {
		floor, horizon, newest := c.feed.floor, s.history.horizon, s.revision
		s.mu.RUnlock()
		if c.after < horizon {
			return nil, nil, ErrCompacted
		}
		err := c.readLog(ctx, min(floor, newest))
		if invariants.Enabled {
			c.check(before, newest)
		}
		return c.buffer, nil, err
	}
	defer s.mu.RUnlock()
	end := c.readMemory()
	if invariants.Enabled {
		c.check(before, s.revision)
	}
	if !end || len(c.buffer) > 0 {
		return c.buffer, nil, nil
	}
	if !join {
		return nil, wouldWait, nil
	}
	return nil, c.feed.join(c, wake), nil
}

// check fails unless the last step did not go back, and the batch is within the range of that step.
func (c *Cursor) check(before, newest int64) {
	if c.after < before || c.after > max(before, newest) {
		invariants.Fail("store: a cursor moved from %d to %d of %d", before, c.after, newest)
	}
	last := c.after
	if c.passed > 0 {
		last++
	}
	numbered := c.state.config.Log != nil // then no two records have one revision (sequencer.put)
	if numbered && c.passed > 0 {
		invariants.Fail("store: a cursor stands at %d and has passed %d records behind it", c.after, c.passed)
	}
	from := before + 1
	for i, r := range c.buffer {
		if numbered && i > 0 {
			from++
		}
		if r.Revision < from || r.Revision > last || !c.feed.holds(r.Key.Resource) ||
			!r.concerns(c.prefix, c.term) {
			invariants.Fail("store: a cursor of %q %q from %d to %d, %d, read %s at %d",
				c.feed.resource, c.prefix, before, c.after, c.passed, r.Key, r.Revision)
		}
		from = r.Revision
	}
}

// readMemory fills the buffer from the records in memory and says whether it reached their end. The number of steps is
// bounded, so that a cursor with a rare term does not hold the state's lock for long. The caller holds that lock.
func (c *Cursor) readMemory() (end bool) {
	records := &c.feed.records
	n := records.len()
	i := firstAfter(records, c.after) + c.passed
	bytes := 0
	for steps := 0; i < n; i, steps = i+1, steps+1 {
		r := records.at(i)
		// The next call reads the rest; all records before this one were read.
		if len(c.buffer) >= nextRecords || bytes >= nextBytes || steps > 16*nextRecords {
			c.after = r.Revision - 1
			c.passed = i - firstAfter(records, c.after)
			return false
		}
		if r.concerns(c.prefix, c.term) {
			c.push(r)
			bytes += int(changeBytes(r))
		}
	}
	// The cursor has also passed revisions without a record of this feed. The lock is held, so none can be added in
	// between. A cursor in the future stays there.
	c.after, c.passed = max(c.after, c.state.revision), 0
	return true
}

// push appends a record to the batch. Most batches have one record, so the buffer begins small: there are thousands
// of cursors.
func (c *Cursor) push(r *Record) {
	if c.buffer == nil {
		c.buffer = make([]*Record, 0, 4)
	}
	c.buffer = append(c.buffer, r)
}

// firstAfter is the index of the first record whose revision is greater. The most frequent case, none, needs no
// search.
func firstAfter(records *queue[*Record], revision int64) int {
	low, high := 0, records.len()
	if high > 0 && records.at(high-1).Revision <= revision {
		return high
	}
	for low < high {
		mid := int(uint(low+high) / 2)
		if records.at(mid).Revision > revision {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

// readLog fills the buffer from the log with records up to the revision until, after which memory has them. No lock
// is held meanwhile, so memory may lose more records to the log; then after is still below the floor, and the next
// step reads the log again.
func (c *Cursor) readLog(ctx context.Context, until int64) error {
	bytes, steps, passed := 0, 0, c.passed
	err := c.state.replay(ctx, c.after, until, c.feed.resources(), func(commit *Commit) error {
		if steps++; steps%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		for _, lent := range commit.Records {
			k := lent.Key
			if lent.Revision <= c.after || !c.feed.holds(k.Resource) || lent.empty() {
				continue
			}
			// Those of after+1 are the first ones that follow.
			if passed > 0 {
				passed--
				continue
			}
			if !strings.HasPrefix(k.Name, c.prefix) {
				continue
			}
			// The prefix is compared before the copy, the term after it: a lent version has no labels and
			// fields yet.
			if r := c.state.copyRecord(lent); r.concerns(c.prefix, c.term) {
				c.push(r)
				bytes += int(changeBytes(r))
			}
		}
		// A commit is read as a whole, so the batch may exceed its bounds by one commit.
		c.after, c.passed = commit.Revision, 0
		if len(c.buffer) >= nextRecords || bytes >= nextBytes {
			return errStop
		}
		return nil
	})
	switch err {
	case errStop:
		return nil
	case nil:
		c.after, c.passed = max(c.after, until), 0
	}
	if len(c.buffer) > 0 {
		return nil // these are returned first; the next call gets the error again
	}
	return err
}

// leave ends a wait before the group was woken, or after it. Without it the group of a closed watcher, and its memory,
// would stay in the index until a record arrives that concerns it.
func (c *Cursor) leave(g *group) {
	s := c.state
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case g.first > 0:
		// The group was removed: no record before the one that removed it concerned the cursor, and that record will be
		// read again.
		c.after = max(c.after, g.first-1)
	case c.feed.leave(c, g):
		// No record up to the newest revision concerned it.
		c.after = max(c.after, s.revision)
	}
	// Otherwise all were woken (wakeAll). The cursor stays where it is, so that it notices what it has missed.
}

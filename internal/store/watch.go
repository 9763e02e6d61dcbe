package store

import (
	"context"
	"strings"
	"sync/atomic"
)

// A batch that Next hands out ends at the first of these: a consumer that stalls holds no more than that.
const (
	nextRecords = 64
	nextBytes   = 48 << 10
)

// Cursor is a position in the history of one resource, or of all. It holds no records: what it has not read yet is in the history,
// or was there. One goroutine uses it, except for Close.
type Cursor struct {
	state  *State
	feed   *feed
	prefix string
	term   Term
	after  int64 // invariant: every record of this feed, prefix and term up to here was handed out
	buffer []*Record
	closed atomic.Bool
}

// Watch returns a cursor behind the revision after, over the records of a resource whose name has the prefix.
// ErrCompacted says that some of them are gone. A revision in the future is waited for.
func (s *State) Watch(resource, prefix string, after int64) (*Cursor, error) {
	return s.WatchTerm(resource, prefix, Term{}, after)
}

// WatchTerm is Watch of the records whose object has a term, or had it before. Nothing else wakes the cursor: what a
// change costs depends on how many it concerns, and not on how many wait.
func (s *State) WatchTerm(resource, prefix string, t Term, after int64) (*Cursor, error) {
	s.mu.RLock()
	f := s.history.feeds[resource]
	s.mu.RUnlock()
	if f == nil {
		s.mu.Lock()
		f = s.history.feed(resource)
		s.mu.Unlock()
	}
	return s.cursor(f, prefix, t, after)
}

// WatchAll is Watch of all resources: one cursor over every record there is, counters among them, in the order of the
// revisions. Every change wakes it.
func (s *State) WatchAll(after int64) (*Cursor, error) {
	return s.cursor(s.history.all, "", Term{}, after)
}

// cursor returns a cursor in a feed.
func (s *State) cursor(f *feed, prefix string, t Term, after int64) (*Cursor, error) {
	s.mu.RLock()
	closed, horizon, floor := s.ended, s.history.horizon, f.floor
	s.mu.RUnlock()
	switch {
	case closed:
		return nil, ErrClosed
	case after < horizon:
		return nil, ErrCompacted
	case after < floor:
		// Memory does not hold it; the past may not do so either.
		if err := s.reaches(after); err != nil {
			return nil, err
		}
	}
	t.Name, t.Value = strings.Clone(t.Name), strings.Clone(t.Value)
	return &Cursor{state: s, feed: f, prefix: strings.Clone(prefix), term: t, after: after}, nil
}

// Next returns the records behind the last ones, in the order of their revisions; it waits until there are some. They may
// end within a commit. The slice is valid until the next call; the records are for keeps.
// It returns ErrCompacted once the history went away under the cursor, ErrClosed, or the error of ctx.
func (c *Cursor) Next(ctx context.Context) ([]*Record, error) {
	for {
		records, g, err := c.read(ctx, true)
		if len(records) > 0 || err != nil {
			return records, err
		}
		if g == nil {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			continue
		}
		select {
		case <-g.wake:
			// Nothing of ours happened before the record that woke the group.
			c.after = max(c.after, g.first-1)
		case <-ctx.Done():
			c.leave(g)
			return nil, ctx.Err()
		}
	}
}

// Poll is Next that returns nothing where that would wait.
func (c *Cursor) Poll() ([]*Record, error) {
	for {
		records, g, err := c.read(context.Background(), false)
		if len(records) > 0 || err != nil || g == idle {
			return records, err
		}
	}
}

// idle stands for the group that a cursor would wait in, if it were to wait.
var idle = &group{}

// Revision is up to where everything was handed out. It moves on with every call of Next or Poll, also when nothing
// happened that concerns the cursor, and so may go into a bookmark.
func (c *Cursor) Revision() int64 { return c.after }

// Close ends the cursor: the next call of Next or Poll returns ErrClosed. To end one that waits, cancel its context.
func (c *Cursor) Close() { c.closed.Store(true) }

// read takes one step through the history. It returns records, or an error, or the group that will be woken by the
// next ones (idle, unless it is to join), or nothing at all when there may be more behind the step it took.
func (c *Cursor) read(ctx context.Context, join bool) ([]*Record, *group, error) {
	clear(c.buffer) // a waiting cursor keeps nothing alive
	c.buffer = c.buffer[:0]
	s := c.state
	s.mu.RLock()
	if s.ended || c.closed.Load() {
		s.mu.RUnlock()
		return nil, nil, ErrClosed
	}
	if c.after < c.feed.floor {
		floor, horizon, newest := c.feed.floor, s.history.horizon, s.revision
		s.mu.RUnlock()
		if c.after < horizon {
			return nil, nil, ErrCompacted
		}
		err := c.readLog(ctx, min(floor, newest))
		return c.buffer, nil, err
	}
	defer s.mu.RUnlock()
	if end := c.readMemory(); !end || len(c.buffer) > 0 {
		return c.buffer, nil, nil
	}
	if !join {
		return nil, idle, nil
	}
	return nil, c.feed.join(c.prefix, c.term), nil
}

// readMemory fills the buffer from the records in memory and says whether it came to their end. The caller holds the
// state's lock.
func (c *Cursor) readMemory() (end bool) {
	records := &c.feed.records
	n := records.len()
	i := firstAfter(records, c.after)
	bytes := 0
	for steps := 0; i < n; i, steps = i+1, steps+1 {
		r := records.at(i)
		if len(c.buffer) >= nextRecords || bytes >= nextBytes || steps > 16*nextRecords {
			c.after = r.Revision - 1
			return false
		}
		if r.concerns(c.prefix, c.term) {
			c.push(r)
			bytes += int(changeBytes(r))
		}
	}
	c.after = max(c.after, c.state.revision)
	return true
}

func (c *Cursor) push(r *Record) {
	if c.buffer == nil {
		c.buffer = make([]*Record, 0, 4)
	}
	c.buffer = append(c.buffer, r)
}

// firstAfter is the index of the first record behind a revision.
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

// readLog fills the buffer from the log, up to the revision until, from where memory goes on.
func (c *Cursor) readLog(ctx context.Context, until int64) error {
	bytes, steps := 0, 0
	err := c.state.replay(c.after, until, func(commit *Commit) error {
		if steps++; steps%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		for _, lent := range commit.Records {
			k := lent.Key
			if lent.Revision <= c.after || !c.feed.holds(k.Resource) || !strings.HasPrefix(k.Name, c.prefix) || lent.empty() {
				continue
			}
			if r := c.state.copyRecord(lent); r.concerns(c.prefix, c.term) {
				c.push(r)
				bytes += int(changeBytes(r))
			}
		}
		c.after = commit.Revision
		if len(c.buffer) >= nextRecords || bytes >= nextBytes {
			return errEnough
		}
		return nil
	})
	switch err {
	case errEnough:
		return nil
	case nil:
		c.after = max(c.after, until)
	}
	if len(c.buffer) > 0 {
		return nil // they are handed out first; the error comes again
	}
	return err
}

// leave ends a wait that ctx cut short.
func (c *Cursor) leave(g *group) {
	s := c.state
	s.mu.RLock()
	defer s.mu.RUnlock()
	if g.first > 0 {
		c.after = max(c.after, g.first-1)
		return
	}
	c.after = max(c.after, s.revision)
	c.feed.leave(c.prefix, c.term, g)
}

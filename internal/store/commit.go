package store

import (
	"context"
	"errors"
	"fmt"
)

// batch is the commits that one Append makes durable. Whoever finds nobody appending leads the first one; whoever
// comes meanwhile joins the next, and one of those is told to lead it when the log is free. So a lone writer walks
// down to the log on its own goroutine, and many share an fsync.
type batch struct {
	commits []*Commit
	lead    chan struct{} // receives once, when a waiter has to lead this batch
	done    chan struct{} // closed when the commits are durable and visible, or refused
	err     error         // set before done is closed
}

// write is a change of a key that was sequenced and is not durable yet.
type write struct {
	version  *Version // nil: a deletion
	revision int64
	batch    *batch
}

// Commit writes all changes under one revision, durably, provided that all preconditions hold: else it returns a
// *ConflictError and has written nothing. It returns ErrClosed when the store takes no more writes, and the log's error
// when that lost this one; whether the write survives a restart is open then, but it never survives in part.
// Ctx bounds only the waiting: a commit abandoned by it still happens.
//
// The store keeps the data of the changes; nobody may change it from here on.
func (s *Store) Commit(ctx context.Context, pre []Precondition, changes []Change) (int64, error) {
	versions, err := s.versions(changes)
	if err != nil {
		return 0, err
	}
	t := s.sequence(pre, changes, versions)
	switch {
	case t.err == nil && t.lead:
		s.append(t.batch)
		return t.revision, t.batch.err
	case t.err == nil:
		return t.revision, s.await(ctx, t.batch)
	case t.batch != nil:
		// It lost to a write that is pending. Only what is durable may be told, even as a reason for a refusal.
		if err := s.await(ctx, t.batch); err != nil {
			return 0, s.lost(err)
		}
	}
	return 0, t.err
}

// versions makes the new versions of changes, nil for deletions.
func (s *Store) versions(changes []Change) ([]*Version, error) {
	versions := make([]*Version, len(changes))
	var seen map[Key]bool
	if len(changes) > 1 {
		seen = make(map[Key]bool, len(changes))
	}
	for i, ch := range changes {
		if seen[ch.Key] {
			return nil, fmt.Errorf("store: commit changes %s twice", ch.Key)
		}
		if seen != nil {
			seen[ch.Key] = true
		}
		if ch.Data == nil {
			continue
		}
		if ch.Sidecar == nil {
			ch.Sidecar = s.config.Describe(ch.Key, ch.Data)
		}
		versions[i] = &Version{Key: ch.Key, Data: ch.Data, Sidecar: ch.Sidecar}
	}
	return versions, nil
}

// ticket is the place of a commit in the order of all: or, with an error, why it has none.
type ticket struct {
	revision int64
	batch    *batch // that the commit is in; with an error, the one to wait for before the error is told
	lead     bool   // the holder has to append the batch
	err      error
}

// sequence gives a commit its revision and its place in a batch, unless a precondition does not hold.
func (s *Store) sequence(pre []Precondition, changes []Change, versions []*Version) ticket {
	s.seq.Lock()
	defer s.seq.Unlock()
	if s.refused != nil {
		return ticket{err: s.refused}
	}
	if conflict, pending := s.check(pre); conflict != nil {
		return ticket{err: conflict, batch: pending}
	}
	s.next++
	b := s.queue
	if b == nil {
		b = &batch{lead: make(chan struct{}, 1), done: make(chan struct{})}
		s.queue = b
	}
	c := &Commit{Revision: s.next, Time: s.config.Now().UnixNano(), Records: make([]*Record, 0, len(changes))}
	for i, ch := range changes {
		r := &Record{Key: ch.Key, Revision: c.Revision, Old: s.latest(ch.Key), New: versions[i]}
		if r.Old == nil && r.New == nil {
			continue
		}
		if r.Old != nil {
			r.Key = r.Old.Key // one string for all versions of an object
		}
		if r.New != nil {
			r.New.Key, r.New.Revision = r.Key, c.Revision
		}
		s.pending[r.Key] = write{version: r.New, revision: c.Revision, batch: b}
		c.Records = append(c.Records, r)
	}
	b.commits = append(b.commits, c)
	lead := !s.appending
	s.appending = true
	return ticket{revision: c.Revision, batch: b, lead: lead}
}

// check returns the first precondition that does not hold, and the batch of the pending write that is to blame.
// The caller holds seq.
func (s *Store) check(pre []Precondition) (*ConflictError, *batch) {
	for _, p := range pre {
		var have int64
		w, isPending := s.pending[p.Key]
		if isPending {
			if w.version != nil {
				have = w.revision
			}
		} else if v := s.state.get(p.Key); v != nil {
			have = v.Revision
		}
		if have != p.Revision {
			return &ConflictError{Key: p.Key, Want: p.Revision, Have: have}, w.batch
		}
	}
	return nil, nil
}

// latest returns the version of a key that the next commit finds. The caller holds seq.
func (s *Store) latest(k Key) *Version {
	if w, ok := s.pending[k]; ok {
		return w.version
	}
	return s.state.get(k)
}

// await waits until a batch is durable, and leads it when told to.
func (s *Store) await(ctx context.Context, b *batch) error {
	select {
	case <-b.lead:
		s.append(b)
		return b.err
	case <-b.done:
		return b.err
	case <-ctx.Done():
		go s.await(context.Background(), b) //nolint:errcheck // it takes the place of a waiter that might have to lead
		return ctx.Err()
	}
}

// append makes the batch at the head of the queue durable and visible, and passes the lead on.
func (s *Store) append(b *batch) {
	s.seq.Lock()
	s.queue = nil
	s.seq.Unlock()

	err := s.config.Log.Append(b.commits)

	s.seq.Lock()
	if err == nil {
		s.apply(b.commits)
		for _, c := range b.commits {
			for _, r := range c.Records {
				if s.pending[r.Key].revision == c.Revision {
					delete(s.pending, r.Key)
				}
			}
		}
	} else {
		b.err = err
		s.broken = true
		s.refuse(fmt.Errorf("%w: no more writes until it is reopened, since the log failed: %w", ErrClosed, err))
		clear(s.pending)
		s.config.Logger.Error("the log failed; no more writes until the store is reopened", "error", err)
	}
	next := s.queue
	if next != nil && b.err != nil {
		next.err = s.refused
		close(next.done)
		s.queue, next = nil, nil
	}
	if next == nil {
		s.appending = false
		s.idle.Broadcast()
	}
	s.seq.Unlock()

	close(b.done)
	if next != nil {
		next.lead <- struct{}{}
	}
}

// refuse lets no write in any more. The caller holds seq.
func (s *Store) refuse(err error) {
	if s.refused == nil {
		s.refused = err
	}
}

// lost is what a write is told that lost to another one, which was then lost itself.
func (s *Store) lost(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	s.seq.Lock()
	defer s.seq.Unlock()
	if s.refused != nil {
		return s.refused
	}
	return err
}

// apply makes durable commits visible: state, history and revision change under one lock, and those who wait wake up
// behind it. The caller holds seq.
func (s *Store) apply(commits []*Commit) {
	var woken []*group
	s.mu.Lock()
	for _, c := range commits {
		for _, r := range c.Records {
			s.state.set(r.Key, r.New, r.Revision)
			s.expiry.track(r)
			woken = s.history.add(r, woken)
			s.growth += changeBytes(r)
		}
	}
	last := commits[len(commits)-1]
	s.revision = last.Revision
	s.history.trim(last.Revision, last.Time)
	s.forgetSnapshots()
	arrived := s.arrived
	s.arrived = nil
	early, full := s.early(), s.grewEnough()
	s.mu.Unlock()

	for _, g := range woken {
		close(g.wake)
	}
	if arrived != nil {
		close(arrived)
	}
	if early {
		nudge(s.keeper.wake)
	}
	if full {
		nudge(s.keeper.compact)
	}
}

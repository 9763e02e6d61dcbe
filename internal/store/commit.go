package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"plinth/internal/invariants"
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

// Commit writes all changes, durably, provided that all preconditions hold: else it returns a *ConflictError or a
// *LimitError and has written nothing. The revision is that of the last change; with n of them, change i has revision-n+1+i.
// Nobody sees some of them without the others. It returns ErrClosed when the store takes no more writes, and the log's error
// when that lost this one; whether the write survives a restart is open then, but it never survives in part.
// Ctx bounds only the waiting: a commit abandoned by it still happens.
//
// The store keeps the data of the changes; nobody may change it from here on.
func (s *Store) Commit(ctx context.Context, pre []Precondition, changes []Change) (int64, error) {
	versions, err := s.versions(pre, changes)
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
func (s *Store) versions(pre []Precondition, changes []Change) ([]*Version, error) {
	if k, ok := twice(pre, changes); ok {
		return nil, fmt.Errorf("store: commit changes %s twice", k)
	}
	versions := make([]*Version, len(changes))
	for i, ch := range changes {
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

// twice finds a key that a commit would write twice.
func twice(pre []Precondition, changes []Change) (k Key, found bool) {
	if len(changes) <= 1 && !slices.ContainsFunc(pre, func(p Precondition) bool { return p.Sort == ThisCounter }) {
		return Key{}, false
	}
	seen := make(map[Key]bool, len(pre)+len(changes))
	add := func(key Key) {
		if seen[key] {
			k, found = key, true
		}
		seen[key] = true
	}
	for i := range pre {
		if pre[i].Sort == ThisCounter {
			add(pre[i].Key)
		}
	}
	for i := range changes {
		add(changes[i].Key)
	}
	return k, found
}

// ticket is the place of a commit in the order of all: or, with an error, why it has none.
type ticket struct {
	revision int64
	batch    *batch // that the commit is in; with an error, the one to wait for before the error is told
	lead     bool   // the holder has to append the batch
	err      error
}

// sequence gives a commit its revisions and its place in a batch, unless a precondition does not hold.
func (s *Store) sequence(pre []Precondition, changes []Change, versions []*Version) ticket {
	s.seq.Lock()
	defer s.seq.Unlock()
	if s.refused != nil {
		return ticket{err: s.refused}
	}
	if pending, err := s.check(pre); err != nil {
		return ticket{err: err, batch: pending}
	}
	b := s.queue
	if b == nil {
		b = &batch{lead: make(chan struct{}, 1), done: make(chan struct{})}
		s.queue = b
	}
	c := &Commit{Time: s.config.Now().UnixNano(), Records: make([]*Record, 0, len(changes))}
	for i := range pre {
		if p := &pre[i]; p.Sort == ThisCounter && p.Add != 0 {
			number := strconv.AppendInt(nil, s.latest(p.Key).Number()+p.Add, 10)
			s.put(b, c, p.Key, &Version{Data: number, Sidecar: &Sidecar{}})
		}
	}
	for i, ch := range changes {
		s.put(b, c, ch.Key, versions[i])
	}
	if len(c.Records) == 0 {
		s.next++
	}
	c.Revision = s.next
	if invariants.Enabled {
		c.check()
	}
	b.commits = append(b.commits, c)
	lead := !s.appending
	s.appending = true
	return ticket{revision: c.Revision, batch: b, lead: lead}
}

// put gives one change the next revision. The caller holds seq.
func (s *Store) put(b *batch, c *Commit, k Key, v *Version) {
	s.next++
	r := &Record{Key: k, Revision: s.next, Old: s.latest(k), New: v}
	if r.Old != nil {
		r.Key = r.Old.Key // one string for all versions of an object
	}
	if v != nil {
		v.Key, v.Revision = r.Key, r.Revision
	}
	s.pending[r.Key] = write{version: v, revision: r.Revision, batch: b}
	c.Records = append(c.Records, r)
}

// check panics unless the revisions of a commit are as Commit has it.
func (c *Commit) check() {
	for i, r := range c.Records {
		if r.Revision != c.First()+int64(i) || r.New != nil && r.New.Revision != r.Revision || r.Old != nil && r.Old.Revision >= r.Revision {
			panic(fmt.Sprintf("store: commit %d to %d: record %d of %s is of %d", c.First(), c.Revision, i, r.Key, r.Revision))
		}
	}
}

// check says why the first precondition does not hold that does not, and which batch has the pending write that is to
// blame. The caller holds seq.
func (s *Store) check(pre []Precondition) (*batch, error) {
	for i := range pre {
		if err := pre[i].holds(s.latest(pre[i].Key)); err != nil {
			return s.pending[pre[i].Key].batch, err
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
				if s.pending[r.Key].revision == r.Revision {
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
			if r.empty() {
				continue
			}
			s.state.set(r.Key, r.New, r.Revision)
			s.expiry.track(r)
			s.owners.change(r.Key, r.Old.owners(), r.New.owners())
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

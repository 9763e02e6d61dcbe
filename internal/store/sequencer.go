package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
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

// sequencer is the embedded writer: it gives commits their order and makes them durable in a log. It is the only one that feeds
// its state.
//
// A commit is judged and gets its revisions under seq, against durable state plus what is pending; it becomes visible once the log
// has it. The obvious way, to hold one lock from the judgement to the sync, would give each commit a sync of its own; and to judge
// against durable state alone would let two commits that wait for the same sync both win.
//
//	latest(k) = pending[k] if there is one, else the live version
//	revision of the state ≤ revision of every pending commit ≤ next
//
// Two locks, taken in this order: seq, and the state's mu. Neither is held while the log writes. The live versions change with both
// held, so that seq alone is enough to read them.
type sequencer struct {
	state *State
	log   Log

	seq       sync.Mutex
	next      int64         // the newest revision given out
	pending   map[Key]write // what is sequenced and not durable
	queue     *batch        // what the next Append takes; nil when nothing waits
	appending bool          // somebody leads a batch
	idle      *sync.Cond    // over seq: appending became false
	refused   error         // why there are no more writes
	broken    bool          // the log failed
	closed    bool
	growth    int64 // bytes of changes since the last checkpoint

	expiring alarm         // rings when a version expires; seq guards it
	grown    chan struct{} // receives when it is time for a checkpoint
	quit     chan struct{}
	wait     sync.WaitGroup
}

func newSequencer(state *State) *sequencer {
	w := &sequencer{
		state: state, log: state.config.Log, next: state.revision, pending: map[Key]write{}, growth: state.replayed,
		grown: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	w.idle = sync.NewCond(&w.seq)
	w.expiring.start(state.config.fakeClock, state.config.Now, w.expire)
	w.wait.Go(w.compactor)
	return w
}

// Fresh is always true: nobody else writes, so what the state has is what there is.
func (w *sequencer) Fresh(context.Context, Key, bool) (current bool, err error) { return true, nil }

// Commit is Writer.Commit. With nobody else writing, it comes down to the log on the caller's goroutine.
func (w *sequencer) Commit(ctx context.Context, pre []Precondition, changes []Change) (int64, error) {
	versions, err := w.versions(pre, changes)
	if err != nil {
		return 0, err
	}
	t := w.sequence(pre, changes, versions)
	switch {
	case t.err == nil && t.lead:
		w.append(t.batch)
		return t.revision, t.batch.err
	case t.err == nil:
		return t.revision, w.await(ctx, t.batch)
	case t.batch != nil:
		// It lost to a write that is pending. Only what is durable may be told, even as a reason for a refusal.
		if err := w.await(ctx, t.batch); err != nil {
			return 0, w.lost(err)
		}
	}
	return 0, t.err
}

// versions makes the new versions of changes, nil for deletions.
func (w *sequencer) versions(pre []Precondition, changes []Change) ([]*Version, error) {
	if k, ok := twice(pre, changes); ok {
		return nil, fmt.Errorf("store: commit changes %s twice", k)
	}
	versions := make([]*Version, len(changes))
	for i, ch := range changes {
		if ch.Data == nil {
			continue
		}
		if ch.Sidecar == nil {
			ch.Sidecar = w.state.config.Describe(ch.Key, ch.Data)
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
func (w *sequencer) sequence(pre []Precondition, changes []Change, versions []*Version) ticket {
	w.seq.Lock()
	defer w.seq.Unlock()
	if w.refused != nil {
		return ticket{err: w.refused}
	}
	if pending, err := w.check(pre); err != nil {
		return ticket{err: err, batch: pending}
	}
	b := w.queue
	if b == nil {
		b = &batch{lead: make(chan struct{}, 1), done: make(chan struct{})}
		w.queue = b
	}
	c := &Commit{Time: w.state.config.Now().UnixNano(), Records: make([]*Record, 0, len(changes))}
	for i := range pre {
		if p := &pre[i]; p.Sort == ThisCounter && p.Add != 0 {
			number := strconv.AppendInt(nil, w.latest(p.Key).Number()+p.Add, 10)
			w.put(b, c, p.Key, &Version{Data: number, Sidecar: &Sidecar{}})
		}
	}
	for i, ch := range changes {
		w.put(b, c, ch.Key, versions[i])
	}
	if len(c.Records) == 0 {
		w.next++
	}
	c.Revision = w.next
	b.commits = append(b.commits, c)
	lead := !w.appending
	w.appending = true
	return ticket{revision: c.Revision, batch: b, lead: lead}
}

// put gives one change the next revision. The caller holds seq.
func (w *sequencer) put(b *batch, c *Commit, k Key, v *Version) {
	w.next++
	r := &Record{Key: k, Revision: w.next, Old: w.latest(k), New: v}
	if r.Old != nil {
		r.Key = r.Old.Key // one string for all versions of an object
	}
	if v != nil {
		v.Key, v.Revision = r.Key, r.Revision
	}
	w.pending[r.Key] = write{version: v, revision: r.Revision, batch: b}
	c.Records = append(c.Records, r)
}

// check says why the first precondition does not hold that does not, and which batch has the pending write that is to
// blame. The caller holds seq.
func (w *sequencer) check(pre []Precondition) (*batch, error) {
	for i := range pre {
		if err := pre[i].Holds(w.latest(pre[i].Key)); err != nil {
			return w.pending[pre[i].Key].batch, err
		}
	}
	return nil, nil
}

// latest returns the version of a key that the next commit finds. The caller holds seq.
func (w *sequencer) latest(k Key) *Version {
	if p, ok := w.pending[k]; ok {
		return p.version
	}
	return w.state.live.get(k)
}

// await waits until a batch is durable, and leads it when told to.
func (w *sequencer) await(ctx context.Context, b *batch) error {
	select {
	case <-b.lead:
		w.append(b)
		return b.err
	case <-b.done:
		return b.err
	case <-ctx.Done():
		go w.await(context.Background(), b) //nolint:errcheck // it takes the place of a waiter that might have to lead
		return ctx.Err()
	}
}

// append makes the batch at the head of the queue durable and visible, and passes the lead on.
func (w *sequencer) append(b *batch) {
	w.seq.Lock()
	w.queue = nil
	w.seq.Unlock()

	err := w.log.Append(b.commits)

	w.seq.Lock()
	if err == nil {
		w.publish(b.commits)
	} else {
		b.err = err
		w.broken = true
		w.refuse(fmt.Errorf("%w: no more writes until it is reopened, since the log failed: %w", ErrClosed, err))
		clear(w.pending)
		w.state.config.Logger.Error("the log failed; no more writes until the store is reopened", "error", err)
	}
	next := w.queue
	if next != nil && b.err != nil {
		next.err = w.refused
		close(next.done)
		w.queue, next = nil, nil
	}
	if next == nil {
		w.appending = false
		w.idle.Broadcast()
	}
	w.seq.Unlock()

	close(b.done)
	if next != nil {
		next.lead <- struct{}{}
	}
}

// publish makes durable commits visible. The caller holds seq.
func (w *sequencer) publish(commits []*Commit) {
	expires := w.state.apply(commits)
	for _, c := range commits {
		for _, r := range c.Records {
			if w.pending[r.Key].revision == r.Revision {
				delete(w.pending, r.Key)
			}
			if !r.empty() {
				w.growth += changeBytes(r)
			}
		}
	}
	if !expires.IsZero() && w.expiring.after(expires) {
		nudge(w.expiring.early)
	}
	if w.grewEnough() {
		nudge(w.grown)
	}
}

// Healthy says why there are no more writes.
func (w *sequencer) Healthy() error {
	w.seq.Lock()
	defer w.seq.Unlock()
	return w.refused
}

// Close is Writer.Close; it closes the log, too.
func (w *sequencer) Close() error {
	w.seq.Lock()
	again := w.closed
	w.closed = true
	w.refuse(ErrClosed)
	for w.appending {
		w.idle.Wait()
	}
	w.seq.Unlock()
	if again {
		return nil
	}
	w.state.End()
	w.expiring.stop()
	close(w.quit)
	w.wait.Wait()
	return w.log.Close()
}

// refuse lets no write in any more. The caller holds seq.
func (w *sequencer) refuse(err error) {
	if w.refused == nil {
		w.refused = err
	}
}

// lost is what a write is told that lost to another one, which was then lost itself.
func (w *sequencer) lost(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	w.seq.Lock()
	defer w.seq.Unlock()
	if w.refused != nil {
		return w.refused
	}
	return err
}

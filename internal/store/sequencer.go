package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"plinth/internal/execution"
	"plinth/internal/invariants"
)

// batch is the commits that share one Append, and so one sync (group commit). One of their goroutines, the leader,
// calls Append for all of them; the others wait for done.
//
//	a batch is in one of three places: sequencer.queue (filling), append (with its leader), or finished (done is closed)
//	commits grow only while it is in queue, under seq
//	err is written before done is closed, and read after
type batch struct {
	commits []*Commit
	lead    chan struct{} // of capacity 1: the receiver of its token is the leader
	done    chan struct{} // closed when the commits are durable and visible, or have failed
	err     error         // written before done is closed
}

// pendingWrite is a change of a key that was sequenced and is not durable yet. A commit whose precondition fails
// because of it waits for batch.
type pendingWrite struct {
	version  *Version // nil: a deletion
	revision int64
	batch    *batch
}

// sequencer is the embedded writer: it checks preconditions, gives commits their revisions, and makes them durable in
// a log. Only it applies commits to its states.
//
// The problem: a sync of the disk takes far longer than all the rest of a commit, and a commit must not be visible or
// reported before it is durable. One lock from the check of the preconditions to the end of the sync makes every commit
// pay for a separate sync. Checking against the durable state alone, and syncing later, lets two commits of one key
// that wait for the same sync both succeed. So a commit takes three steps:
//
//  1. seq:          check the preconditions against what is durable and pending; give out revisions; join a batch
//  2. no lock:      the leader of the batch calls log.Append for all of its commits
//  3. seq, then mu: apply them to the state; then wake the waiters, and make one of the next batch its leader
//
// While one batch is synced the next one fills, so the number of commits for each sync grows with the load by itself. A
// writer that finds no Append running is the leader of its batch at once: a lone writer calls Append on its own
// goroutine and wakes no other one.
//
//	latest(k) = pending[k] if there is one, else the live version
//	the commits of a batch follow one another without gaps; those that are appended begin with synced + 1
//	queue ≠ nil  ⇒  appending: this batch has a leader, or the one before it has one
//
// Example: A and B both update key k, which is at revision 7. A is sequenced first, as revision 8, and leads a batch.
// B is checked against pending[k], revision 8, and fails; it waits for the batch of A and then returns the conflict.
// C creates another key while that batch is being synced, and joins the next one, as revision 9. When the sync is
// done, 8 is applied, A returns, B returns its conflict with 8 visible, and C is made the leader of its batch.
//
// A commit that loses to a pending write gets the conflict only once that write is durable: otherwise it could be
// refused because of a write that a crash then undoes. If the log fails, the pending writes are dropped, so that the
// state shows only durable commits, and no more writes are accepted: the content of the disk is not known before it is
// read again (fail).
//
// A log may have the commits of several planes, each with a state and a writer of its own. They share the number line,
// the batches and their syncs; what is pending, what expires and what is allowed is that of each. A plane begins and
// ends with a commit of the first one: of an object that stands for it. So there is no plane without that object, and
// none that has only a part of what it begins with.
//
//	synced < revision of every pending write ≤ next,  synced ≥ the revisions of all states
//
// Commits have two locks, taken in this order: seq, and a state's mu. The live versions change with both held, so
// holding seq is enough to read them. Neither is held during Append.
type sequencer struct {
	config *Config
	log    Log
	window *window
	packer *packer

	// seq guards the following.
	seq       sync.Mutex
	next      int64 // the newest revision given out
	synced    int64 // the newest revision in the log
	writers   map[string]*writer
	begun     map[string]bool // the IDs of planes whose beginning is sequenced and not durable
	queue     *batch          // the batch that is filling; nil when no commit waits
	appending bool            // a batch has a leader that has not finished
	idle      *sync.Cond      // over seq: appending became false, or synced has grown
	refused   error           // why no more writes are accepted; nil: they are
	broken    bool            // the log failed
	full      bool            // the last append found the disk full
	closed    bool
	growth    int64 // bytes of changes since the last checkpoint
	layered   int64 // bytes of the layers of the last checkpoint
	resealing bool  // a checkpoint is due whatever the growth, see Store.Reseal
	across    map[*Across]struct{}

	compacting sync.Mutex // held by who compacts the log. It is taken before seq.

	plans    *btree.BTreeG[plan] // when the writers have to delete what has expired
	expiring alarm               // deletes the versions that have expired; seq guards expiring.at
	grown    chan struct{}       // of capacity 1; receives when a checkpoint is due
	quit     chan struct{}
	wait     sync.WaitGroup
}

// writer is the embedded writer of one plane. The lock seq guards its fields.
//
//	planned = when the first version of the plane expires, and plans has it; zero: none does
type writer struct {
	*sequencer
	state   *State
	pending map[Key]pendingWrite
	bounds  Bounds
	ending  bool // the end of the plane was sequenced
	planned time.Time
}

// newSequencer starts the writer of the states that a loader has made, with its goroutines for the window, for expiry
// and for compaction. What was replayed counts as growth of the log, so that a server that is restarted often still
// writes checkpoints.
func newSequencer(l *loader) *sequencer {
	q := &sequencer{
		config:  l.config,
		log:     l.config.Log,
		window:  l.window,
		packer:  l.packer,
		next:    l.revision,
		synced:  l.revision,
		writers: map[string]*writer{}, begun: map[string]bool{},
		growth:  l.replayed,
		layered: l.layered,
		plans:   newPlans(),
		grown:   make(chan struct{}, 1),
		quit:    make(chan struct{}),
	}
	for _, s := range l.states {
		q.add(s)
	}
	q.idle = sync.NewCond(&q.seq)
	q.window.writing = &q.seq
	q.window.start(q.config)
	q.expiring.start(q.config.fakeClock, q.config.Now, q.expire)
	q.wait.Go(q.compactor)
	return q
}

// add begins to write to a state.
func (w *sequencer) add(s *State) {
	of := &writer{sequencer: w, state: s, pending: map[Key]pendingWrite{}}
	w.writers[s.plane] = of
	of.plan()
}

// Commit is Writer.Commit. New versions and their sidecars are made before the lock is taken; only the check and the
// revisions need it.
func (w *writer) Commit(ctx context.Context, pre []Precondition, changes []Change) (Revisions, error) {
	versions, err := w.versions(changes)
	if err != nil {
		return Revisions{}, err
	}
	seals, err := w.seals(ctx, changes, versions)
	if err != nil {
		return Revisions{}, err
	}
	begins, err := w.beginning(ctx, changes)
	if err != nil {
		return Revisions{}, err
	}
	t := w.sequence(ctx, pre, changes, versions, seals, begins)
	given := Revisions{First: t.first, Step: 1}
	place := execution.From(ctx)
	outside := place.Leave()
	err = w.durable(ctx, &t)
	if outside {
		_ = place.Return(ctx) // the commit is done, whatever becomes of its request
	}
	switch {
	case t.err == nil:
		return given, err
	case err != nil:
		return Revisions{}, w.lost(err)
	}
	return Revisions{}, t.err
}

// durable waits until the batch of a commit is durable. If the commit was refused because of a pending write, it waits
// for that: only durable data may be reported, even as the reason of a conflict.
func (w *sequencer) durable(ctx context.Context, t *ticket) error {
	switch {
	case t.lead:
		w.append(t.batch)
		return t.batch.err
	case t.batch != nil:
		return w.await(ctx, t.batch)
	}
	return nil
}

// versions makes the new versions of changes; those of deletions are nil.
func (w *writer) versions(changes []Change) ([]*Version, error) {
	if k, ok := duplicateKey(changes); ok {
		return nil, fmt.Errorf("store: commit changes %s twice", k)
	}
	versions := make([]*Version, len(changes))
	for i, ch := range changes {
		if ch.Data == nil {
			continue
		}
		// Outside of seq, as Describe may parse the bytes.
		if ch.Sidecar == nil {
			ch.Sidecar = w.config.Describe(ch.Key, ch.Data)
		}
		versions[i] = w.state.NewVersion(ch.Key, 0, ch.Data, ch.Sidecar)
		if w.state.limited(ch.Key) {
			w.state.charge(versions[i])
		}
	}
	return versions, nil
}

// duplicateKey finds a key that a commit would write more than once: the second write would have the first one as its
// old version, and both would be visible at once under different revisions.
func duplicateKey(changes []Change) (k Key, found bool) {
	if len(changes) <= 1 {
		return Key{}, false
	}
	seen := make(map[Key]bool, len(changes))
	for i := range changes {
		if seen[changes[i].Key] {
			return changes[i].Key, true
		}
		seen[changes[i].Key] = true
	}
	return Key{}, false
}

// ticket is the place of a commit in the order of all commits, or the reason why it has none.
type ticket struct {
	first int64  // the first revision of the commit
	batch *batch // of the commit; with an error, the batch to wait for before the error is returned
	lead  bool   // the caller is the leader of the batch and has to append it
	err   error
}

// sequence gives a commit its revisions and its place in the batch that is filling, unless a precondition does not
// hold or its context has ended. It is the only place where commits get their order, and takes no longer than the
// number of preconditions and changes.
//
// It is therefore the one place that decides whether a request is in time:
//
//	a commit has revisions  ⇒  ctx had not ended when it got them
//
// The steps before it take any time, and may end after the deadline without having asked; those after it cannot be
// undone, as other commits may be sequenced on top.
func (w *writer) sequence(ctx context.Context, pre []Precondition, changes []Change, versions []*Version,
	seals []*Seal, begins *beginning) ticket {
	w.seq.Lock()
	defer w.seq.Unlock()
	// After a failure or Close no commit is sequenced. Those sequenced before are finished: Close waits for them.
	if w.refused != nil {
		return ticket{err: w.refused}
	}
	if w.ending {
		return ticket{err: ErrClosed}
	}
	if err := ctx.Err(); err != nil {
		return ticket{err: err}
	}
	// A precondition that fails because of a durable version is reported at once; the batch is nil then.
	if pending, err := w.check(pre); err != nil {
		return ticket{err: err, batch: pending}
	}
	if err := w.allows(changes, versions); err != nil {
		return ticket{err: err}
	}
	c := &Commit{Time: w.config.Now().UnixNano(), Plane: w.state.plane, Records: make([]*Record, 0, len(changes)),
		Seals: seals}
	if len(changes) > 0 {
		c.By = changes[0].By
	}
	if err := w.turns(c, changes, begins); err != nil {
		return ticket{err: err}
	}
	// The batch that is filling, or a new one. It fills until its leader takes it out of queue.
	b := w.queue
	if b == nil {
		b = &batch{lead: make(chan struct{}, 1), done: make(chan struct{})}
		w.queue = b
	}
	first := w.next + 1
	for i, ch := range changes {
		w.put(b, c, ch.Key, versions[i])
	}
	if c.Begins != nil {
		w.putBeginning(c.Begins, begins)
	}
	// A commit without changes takes a revision, too, so that its success can be distinguished from that of the commit
	// before it.
	if w.next < first {
		w.next++
	}
	c.Revision = w.next
	b.commits = append(b.commits, c)
	// If no Append runs, this goroutine is the leader. Otherwise the leader of the previous batch makes a waiter of
	// this one the leader when it has finished.
	lead := !w.appending
	w.appending = true
	if invariants.Enabled {
		w.checkPending()
	}
	return ticket{first: first, batch: b, lead: lead}
}

// checkPending fails where an invariant of the sequencer does not hold. The caller holds seq.
func (w *sequencer) checkPending() {
	if w.queue != nil {
		after := w.queue.commits[0].First() - 1
		for _, c := range w.queue.commits {
			if c.First() != after+1 {
				invariants.Fail("store: in a batch, commit %d to %d follows %d", c.First(), c.Revision, after)
			}
			after = c.Revision
		}
		if after != w.next || !w.appending {
			invariants.Fail("store: a batch ends with %d of %d, and somebody appends: %t",
				after, w.next, w.appending)
		}
	}
	for _, of := range w.writers {
		if len(of.pending) > 64 || len(w.writers) > 64 {
			return
		}
		for k, p := range of.pending {
			if p.revision <= w.synced || p.revision > w.next || p.version != nil &&
				p.version.Revision != p.revision {
				invariants.Fail("store: the write of %s at %d is pending, durable %d, newest %d",
					k, p.revision, w.synced, w.next)
			}
		}
	}
}

// put gives one change the next revision. The caller holds seq.
func (w *writer) put(b *batch, c *Commit, k Key, v *Version) {
	w.next++
	// The old version is the one of the previous commit, durable or pending: the record of history must have it once
	// both are durable.
	r := &Record{Key: k, Revision: w.next, Old: w.latest(k), New: v}
	if r.Old != nil {
		r.Key = r.Old.Key // so that all versions of an object share one string
	}
	if v != nil {
		v.Key, v.Revision = r.Key, r.Revision
	}
	w.pending[r.Key] = pendingWrite{version: v, revision: r.Revision, batch: b}
	c.Records = append(c.Records, r)
}

// check returns the error of the first precondition that does not hold, and, if the reason is a pending write, the
// batch of that write. The caller holds seq.
func (w *writer) check(pre []Precondition) (*batch, error) {
	for i := range pre {
		if pre[i].Type == WithinLimits {
			if pending, err := w.within(pre[i].Limits); err != nil {
				return pending, err
			}
			continue
		}
		if err := pre[i].Holds(w.latest(pre[i].Key)); err != nil {
			return w.pending[pre[i].Key].batch, err
		}
	}
	return nil, nil
}

// latest returns the version of a key that the next commit finds: the newest one that was sequenced. The caller holds
// seq.
func (w *writer) latest(k Key) *Version {
	if p, ok := w.pending[k]; ok {
		return p.version
	}
	return w.state.live.get(k)
}

// await waits until a batch is durable or has failed; if the caller is made its leader, it appends it. When ctx ends,
// another goroutine waits in its place: the lead may have been given to this waiter, and without a leader the batch
// would never be written. Only checking for a token and then returning fails if the token arrives just after that check
// and no other waiter of the batch is left.
func (w *sequencer) await(ctx context.Context, b *batch) error {
	select {
	case <-b.lead:
		w.append(b)
		return b.err
	case <-b.done:
		return b.err
	case <-ctx.Done():
		go w.await(context.Background(), b) //nolint:errcheck // its caller got ctx.Err()
		return ctx.Err()
	}
}

// append makes the batch that is filling durable and visible. As soon as it has started, commits fill the next one, and
// at its end a waiter of that batch is made its leader. The caller is the leader of b.
//
//	before: w.queue = b, appending    after: b is done; appending ⇔ there is a next batch, which has its lead token
func (w *sequencer) append(b *batch) {
	w.seq.Lock()
	if first := b.commits[0].First(); invariants.Enabled && (w.queue != b || first != w.synced+1) {
		invariants.Fail("store: a batch from %d is appended at revision %d, the one to fill: %t",
			first, w.synced, w.queue == b)
	}
	w.queue = nil
	w.seq.Unlock()

	defer w.finish(b)
	// No lock is held here: other commits are sequenced on top of b.commits meanwhile, and readers see the state
	// without them.
	if b.err = w.log.Append(b.commits); b.err != nil {
		return
	}
	w.seq.Lock()
	defer w.seq.Unlock()
	w.publish(b.commits)
}

// finish ends an append, also if that panicked: the leader writes for others, and on the goroutine of its own request,
// where net/http recovers and the process goes on. Without an end of its batch all later writers would wait for ever,
// and nothing would notice. So a panic is a failure of the batch, like that of the log.
func (w *sequencer) finish(b *batch) {
	if r := recover(); r != nil {
		w.config.Logger.Error("a commit panicked", "panic", r, "stack", string(debug.Stack()))
		b.err = fmt.Errorf("panic: %v", r)
	}
	w.seq.Lock()
	if b.err != nil {
		w.fail(b)
	}
	// From here on the batch that has filled meanwhile is the next one to append.
	next := w.queue
	if next == nil {
		w.appending = false
		w.idle.Broadcast()
	}
	w.seq.Unlock()

	// The waiters are woken without a lock. Exactly one of the waiters of next receives the token and leads it.
	close(b.done)
	if next != nil {
		next.lead <- struct{}{}
	}
}

// fail ends a batch that did not become durable and visible, and the queued one, which was sequenced on top of it. No
// part of them is visible, and latest must not find it any more, so pending is cleared.
//
// If the disk was full, the log takes the next commits, which get the same revisions: nobody has seen them. After every
// other error no more writes are accepted. The caller holds seq.
func (w *sequencer) fail(b *batch) {
	for _, of := range w.writers {
		clear(of.pending)
		of.ending = false
	}
	clear(w.begun)
	err, reason := b.err, b.err
	if errors.Is(err, ErrNoRoom) {
		w.next = w.synced
		if !w.full { // once: the messages may be written to the same disk
			w.config.Logger.Error("the disk is full; writes are refused until there is room", "error", err)
		}
		w.full = true
	} else {
		w.breaks(err)
		reason = w.refused
	}
	if next := w.queue; next != nil {
		next.err = reason
		close(next.done)
		w.queue = nil
	}
}

// breaks ends the writes, as the log has failed. The caller holds seq.
func (w *sequencer) breaks(err error) {
	w.broken = true
	w.refuse(fmt.Errorf("%w: no more writes until it is reopened, since the log failed: %w", ErrClosed, err))
	w.config.Logger.Error("the log failed; no more writes until the store is reopened", "error", err)
}

// checkRevisions fails unless commits follow those in the log without a gap, and each of their records has a revision
// of its own. The caller holds seq.
func (w *sequencer) checkRevisions(commits []*Commit) {
	next := w.synced + 1
	for _, c := range commits {
		if c.First() != next {
			invariants.Fail("store: commit %d to %d does not begin with %d", c.First(), c.Revision, next)
		}
		records := c.Records
		if c.Begins != nil {
			records = slices.Concat(records, c.Begins.Records)
		}
		for i, r := range records {
			if r.Revision != next+int64(i) {
				invariants.Fail("store: commit %d to %d: record %d is of %d", c.First(), c.Revision, i, r.Revision)
			}
		}
		next = c.Revision + 1
	}
}

// publish makes durable commits visible: it applies them to their states, and ends their pending writes. A key that was
// written again meanwhile stays pending. The caller holds seq, so no commit is sequenced between the two: it would
// find neither the pending write nor the live version.
//
// Commits of one plane that follow one another are applied together, unless a plane begins or ends in between: what it
// begins with is what the commits before have left.
func (w *sequencer) publish(commits []*Commit) {
	if invariants.Enabled {
		w.checkRevisions(commits)
	}
	w.synced = commits[len(commits)-1].Revision
	if w.full {
		w.full = false
		w.config.Logger.Info("there is room on the disk again")
	}
	for len(commits) > 0 {
		n := 1
		for n < len(commits) && commits[n].Plane == commits[0].Plane && !commits[n-1].turns() {
			n++
		}
		last := commits[n-1]
		w.writers[last.Plane].publish(commits[:n])
		for a := range w.across {
			a.commits(commits[:n])
		}
		if last.Begins != nil {
			w.begin(last.Begins, last.Revision)
			for a := range w.across {
				a.begins(last)
			}
		}
		if last.Ends != "" {
			for a := range w.across {
				a.ends(last)
			}
			w.end(last.Ends)
		}
		commits = commits[n:]
	}
	if w.grewEnough() {
		notify(w.grown)
	}
	w.idle.Broadcast() // costs two loads while nobody waits
	if invariants.Enabled {
		w.checkPending()
	}
}

// publish is sequencer.publish for commits of one plane.
func (w *writer) publish(commits []*Commit) {
	w.state.Apply(commits...)
	for _, c := range commits {
		for _, r := range c.Records {
			// A later commit may have written the key again; its write is still pending.
			if w.pending[r.Key].revision == r.Revision {
				delete(w.pending, r.Key)
			}
			if !r.empty() {
				w.growth += changeBytes(r)
			}
		}
	}
	w.plan()
}

// Healthy returns why no more writes are accepted; nil while they are.
func (w *sequencer) Healthy() error {
	w.seq.Lock()
	defer w.seq.Unlock()
	return w.refused
}

// Close is Writer.Close. That of the first plane closes the log, too, with all states; those of the others do nothing,
// as their states end with them. A second call waits for the first one's last batch and returns nil.
func (w *writer) Close() error {
	if w.state.plane != "" {
		return nil
	}
	w.seq.Lock()
	again := w.closed
	w.closed = true
	// No new batch gets a leader from here on, as no commit is sequenced; those that have one are finished first.
	w.refuse(ErrClosed)
	for w.appending {
		w.idle.Wait()
	}
	writers := slices.Collect(maps.Values(w.writers))
	w.seq.Unlock()
	if again {
		return nil
	}
	for _, of := range writers {
		of.state.End()
	}
	w.window.stop()
	w.expiring.stop()
	close(w.quit)
	w.wait.Wait()
	return w.log.Close()
}

// refuse makes every later write fail. The caller holds seq.
func (w *sequencer) refuse(err error) {
	if w.refused == nil {
		w.refused = err
	}
}

// lost returns the error for a write whose precondition failed because of another write, which then failed itself: this
// is not a conflict. If the caller's context ended, that is the error; otherwise it is the reason why no more writes
// are accepted.
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

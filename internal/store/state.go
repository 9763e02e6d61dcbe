package store

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"plinth/internal/execution"
	"plinth/internal/invariants"
)

// Config configures a State, and the embedded writer of Open.
type Config struct {
	// Log is where the embedded writer makes commits durable. The writer closes it.
	Log Log
	// Describe computes the sidecar of bytes that have none: those that another process wrote, or that are read from
	// the log. It returns a new sidecar, in which the state sets Expire and Form. It cannot fail, but may set
	// Unreadable. It is called from several goroutines at once.
	Describe func(Key, []byte) *Sidecar
	// Opened returns the stored bytes of what Sealing has decrypted, and a new sidecar with their stamp, or one that
	// describes them (State.DescribeStored); nil: what is decrypted is stored. It is for stores whose values have another
	// form (Store.Recover).
	Opened func(k Key, plain []byte) (data []byte, current *Sidecar, err error)
	// Charge computes what a version counts towards the limits of its namespace (Charge); nil: limits are not
	// supported. It is called for versions in namespaces with rules, for each of them once or a few times, from several
	// goroutines, and sometimes under a lock. It may return nil for a version that counts nothing.
	Charge func(*Version) *Charge
	// Rules is the resource whose versions set limits.
	Rules string
	// PlaneResources are the resources whose objects stand for planes in the log: with the creation of one a plane
	// begins (Change.Begin), which has the UID of the object as its ID and ends with its deletion.
	PlaneResources []string
	// Sealing says which versions the log encrypts; nil: none. The log has it, too.
	Sealing Sealing
	// HistoryAge and HistoryBytes limit the window, whichever ends first. Defaults: 5 min and 512 MiB.
	HistoryAge   time.Duration
	HistoryBytes int64
	// MemoryHistoryBytes limits the memory for history; older history is read from the log. Default: 16 MiB.
	MemoryHistoryBytes int64
	// CompactBytes is the least growth of the log after which the embedded writer writes a checkpoint. Default:
	// 16 MiB.
	CompactBytes int64
	// Now is the clock of a test. Timers do not follow it, so expiry and window are checked every few
	// milliseconds.
	Now    func() time.Time
	Logger *slog.Logger

	fakeClock bool // Now was given
	across    bool // it is the configuration of an Across
}

// validate checks the configuration and sets the defaults.
func (c *Config) validate() error {
	if c.Describe == nil {
		return errors.New("store: Config needs Describe")
	}
	if c.HistoryAge < 0 || c.HistoryBytes < 0 || c.MemoryHistoryBytes < 0 || c.CompactBytes < 0 {
		return errors.New("store: a size or the age of the history is negative")
	}
	if c.HistoryAge == 0 {
		c.HistoryAge = 5 * time.Minute
	}
	if c.HistoryBytes == 0 {
		c.HistoryBytes = 512 << 20
	}
	if c.MemoryHistoryBytes == 0 {
		c.MemoryHistoryBytes = 16 << 20
	}
	if c.CompactBytes == 0 {
		c.CompactBytes = 16 << 20
	}
	if c.fakeClock = c.Now != nil; !c.fakeClock {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Replayer yields commits of the history again. It is the part of a Log that a State needs; a state that is fed by
// other processes may have one that reads from them, or none.
type Replayer interface {
	// Replay yields the commits with a revision greater than after, oldest first, as Log lends them. It returns
	// ErrCompacted when some of them no longer exist. An error of yield ends it and is returned, and so does the end of
	// ctx, with the error of ctx. Only records of some resources are wanted; none: all. The others may be missing, and
	// so may commits that have none of them.
	//
	// A Replay for a request keeps its place while it decodes and yields, which is work, and goes outside wherever it
	// waits for a disk or another process (execution.Outside). The caller holds no lock.
	Replay(ctx context.Context, after int64, of []string, yield func(*Commit) error) error
}

// State is the live versions and the history that led to them: the data for snapshots, watches, and look-ups by owner.
// It makes no decisions, and reads no clock to make one: an object that expires is deleted by a commit. The writer
// applies commits to it in order, whichever process they are from, and the state drops history that has left the window
// by itself. All methods may be called concurrently, except Apply and End, which are for the writer.
//
//	live at revision R = live of the checkpoint + all records up to R
//	owners, ledgers = what is computed from live (see their types)
//	snapshots, watches and Get see whole commits only: revision is the last one of a commit
//
// mu guards all of it. It is never held while a goroutine waits for a disk or another machine: the log is read and
// written without it, and watches are woken after it was released. Readers hold it for a look-up, to copy roots, or to
// iterate over records in memory; a writer holds it for one batch of commits. The versions, records and snapshots that
// readers get never change, so they are used without a lock.
//
// The order of locks is: the writer's, mu, the mu of a feed.
type State struct {
	config *Config
	plane  string   // whose commits it has, see Commit.Plane
	log    Replayer // of what memory no longer holds; nil: ErrCompacted
	past   Past     // what has left the history; nil: nothing of it is kept
	window *window
	packer *packer

	mu sync.RWMutex
	content
	history   history
	ledgers   ledgers
	revision  int64
	begun     int64       // the revision with which it begins: before it there is no history
	resting   int64       // see State.Rest
	origin    *origin     // what it has begun with; nil: nothing, or nobody needs it
	recent    []*Snapshot // the snapshots that are kept, with rebuilt: see recentSnapshots
	rebuilt   *Snapshot
	rebuiltAt time.Time
	purges    int // how many there were, see State.forgetPurged
	// arrived is closed when revision advances; nil while there is no waiter.
	arrived chan struct{}
	ended   bool
	aging   bool // it is among window.aging; the window's mu guards it
	// endsWindow says that no other state has the window, and no writer ends it.
	endsWindow bool
	unread     chan struct{} // of capacity 1; receives when a version was added that could not be decrypted
	cursors    atomic.Int64  // those that were not closed
}

// NewState makes a state of a checkpoint and the commits that log has after it. A nil log means that there are no
// commits: the history is then that of the commits applied from here on, as far as memory holds it. NewState starts one
// goroutine, which trims the history by its age until End.
func NewState(c Config, from *Checkpoint, log Replayer) (*State, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	l := newLoader(&c, log)
	if err := l.load(from); err != nil {
		return nil, err
	}
	s := l.states[""]
	s.endsWindow = true
	l.window.start(&c)
	return s, nil
}

// newState makes the state of a plane with this content, as of a revision.
func newState(c *Config, w *window, p *packer, log Replayer, plane string, of content, revision int64) *State {
	memoBytes := c.MemoryHistoryBytes / 4
	if plane != "" {
		memoBytes /= 16 // there are thousands, and only the memory of records has a bound for all together
	}
	s := &State{
		config:  c,
		plane:   plane,
		log:     log,
		window:  w,
		packer:  p,
		content: of,
		unread:  make(chan struct{}, 1),
		history: history{
			maxMemory:    c.MemoryHistoryBytes,
			maxMemoBytes: memoBytes,
			feeds:        map[string]*feed{},
			all:          &feed{whole: true, waiting: newWaiting()},
		},
		revision: revision,
	}
	// No feed is filled: history from before the start is read from the log, and memory begins with the next commit.
	s.history.opened, s.history.all.floor = revision, revision
	s.past, _ = log.(Past)
	if s.undecrypted.Len() > 0 {
		notify(s.unread)
	}
	if rules, ok := s.live.collections.Get(c.Rules); ok {
		rules.names.Scan(func(_ string, v *Version) bool {
			s.record(v.Key, nil, v, v.Revision)
			return true
		})
	}
	return s
}

// Apply makes commits visible, each as a whole. They follow all that the state has, and their records are complete:
// each new version has its sidecar (Describe), and each old version is the one that the state has. The state keeps
// them; they must not be changed. Only one goroutine at a time may call it, in the order of revisions.
//
// State, history, indexes and revision change under one lock; cursors and WaitFor are woken after it is released, or
// each of them would wait for the lock first.
//
// A reader sees none of the commits, or all of them: it cannot take the lock in between. It may see one before its
// writer gets the result; the commit is durable by then.
func (s *State) Apply(commits ...*Commit) {
	if len(commits) == 0 {
		return
	}
	var w wakeups
	defer w.wake() // also after a panic
	s.apply(commits, &w)
	if w.ages {
		notify(s.window.alarm.recheck)
	}
}

// Restart makes a commit visible that stands for changes which are not known one by one: the writer has missed them, as
// the store that it follows has compacted its history. The commit has the newest version of each key that differs. The
// history begins after it, so that all watches end with ErrCompacted: they have missed changes, too.
func (s *State) Restart(c *Commit) {
	var w wakeups
	defer w.wake()
	// One step: a cursor that read the commit before the history was cut would go on after it.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change([]*Commit{c}, &w)
	h := &s.history
	s.window.restart(s.revision)
	h.trim(s.revision, s.revision, 0)
	for f := range h.everyFeed {
		f.floor = s.revision // no cursor before it reads on, whether or not its resource has changed
	}
	s.forgetSnapshots()
	s.wakeAll(&w)
	if invariants.Enabled {
		s.check()
	}
}

// wakeAll collects all cursors that wait. The caller holds mu.
func (s *State) wakeAll(w *wakeups) {
	for f := range s.history.everyFeed {
		// All groups are removed, so that none is woken twice.
		f.mu.Lock()
		for g := range f.waiting.all {
			w.groups = append(w.groups, g)
		}
		f.waiting = newWaiting()
		f.mu.Unlock()
	}
}

// wakeups are those that have to wait for a change of the state, and are woken when its lock is released.
type wakeups struct {
	groups  []*group
	arrived chan struct{} // State.arrived
	ages    bool          // the history ages earlier than the alarm expects
}

func (w *wakeups) wake() {
	for _, g := range w.groups {
		g.call()
	}
	if w.arrived != nil {
		close(w.arrived)
	}
}

// apply is Apply without the wake-ups. A panic may leave a part of a commit in the state, so it ends it: no watch may
// read records that may not be complete. The lock is released, and what Get and snapshots show from then on is durable,
// but perhaps not whole.
func (s *State) apply(commits []*Commit, w *wakeups) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(commits, w)
}

// change is apply for a caller that holds mu.
func (s *State) change(commits []*Commit, w *wakeups) {
	whole := false
	defer func() {
		if !whole {
			s.end(w)
		}
	}()
	// The history is last: it removes the groups that this record wakes from the feeds, and the watchers that are woken
	// must find the new state.
	bytes, memory := int64(0), s.history.memory
	for _, c := range commits {
		if invariants.Enabled {
			s.checkCommit(c)
		}
		for _, r := range c.Records {
			if r.empty() {
				continue
			}
			s.set(r.Key, r.Old, r.New, r.Revision)
			s.record(r.Key, r.Old, r.New, r.Revision)
			if r.New != nil && r.New.Sidecar.Undecrypted {
				notify(s.unread)
			}
			w.groups = s.history.add(r, w.groups)
			bytes += changeBytes(r)
		}
		s.revision = c.Revision
	}
	last := commits[len(commits)-1]
	memory = s.history.memory - memory
	horizon, floor, recheck := s.window.advance(s, last.Revision, last.Time, bytes, memory)
	w.ages = recheck
	s.history.trim(last.Revision, horizon, floor)
	s.forgetSnapshots()
	// All goroutines that wait for a revision share one channel. They check again which one has arrived, and make a new
	// channel if they continue to wait.
	w.arrived, s.arrived = s.arrived, nil
	if invariants.Enabled {
		s.check()
	}
	whole = true
}

// checkCommit fails unless a commit follows the state, and its records are complete. Between two commits there may be
// unused revisions: on etcd, other keys take them. The caller holds mu.
func (s *State) checkCommit(c *Commit) {
	if c.First() <= s.revision {
		invariants.Fail("store: commit %d to %d follows revision %d", c.First(), c.Revision, s.revision)
	}
	last := c.First()
	for i, r := range c.Records {
		if r.Revision < last || r.Revision > c.Revision ||
			r.New != nil && (r.New.Revision != r.Revision && !s.config.across || r.New.Revision > r.Revision ||
				r.New.Sidecar == nil) {
			invariants.Fail("store: commit %d to %d: record %d of %s is of %d, after %d",
				c.First(), c.Revision, i, r.Key, r.Revision, last)
		}
		last = r.Revision
		if live := s.live.get(r.Key); live != r.Old {
			invariants.Fail("store: commit %d to %d: record %d of %s changes %v, and there is %v",
				c.First(), c.Revision, i, r.Key, r.Old, live)
		}
	}
}

// check fails where an invariant of the state does not hold. A check takes time in the number of versions, so a small
// state is checked as a whole after each commit, a large one after about one commit in a thousand. The caller holds mu.
func (s *State) check() {
	for i, after := 0, s.history.all.floor; i < len(s.recent); i++ {
		sn := s.recent[i]
		if sn.revision < after || sn.revision > s.revision {
			invariants.Fail("store: snapshot %d is kept after %d, newest %d", sn.revision, after, s.revision)
		}
		after = sn.revision + 1
	}
	if s.live.count > 32 && s.revision%1024 != 0 {
		return
	}
	s.content.check(s.revision)
	s.history.check(s.revision)
	s.checkLedgers()
}

// age drops the history that has left the window.
func (s *State) age(horizon, floor int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.history.trim(s.revision, horizon, floor)
		s.forgetSnapshots()
		s.history.forget()
		s.live.forget(s.history.horizon)
		if invariants.Enabled {
			s.check()
		}
	}
	if s.ended || s.history.horizon == s.revision {
		s.window.leave(s) // nothing is left that could leave the window
	}
}

// End ends the watches, and all that wait: their next calls return ErrClosed. The writer calls it, once, when no more
// commits will follow. Get, snapshots and records that were read before stay usable.
func (s *State) End() {
	var w wakeups
	s.mu.Lock()
	s.end(&w)
	s.mu.Unlock()
	w.wake()
	if s.endsWindow {
		s.window.stop()
	}
}

// end marks the state as ended, and collects all that wait. The caller holds mu.
func (s *State) end(w *wakeups) {
	s.ended = true
	s.window.leave(s)
	s.wakeAll(w) // with ended set, no cursor joins a new group
	if s.arrived != nil {
		w.arrived, s.arrived = s.arrived, nil
	}
}

// Revision is that of the last commit applied.
func (s *State) Revision() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.revision
}

// Get returns the live version of a key. Where other processes write, it may be outdated: see Store.Live. It takes
// one look-up under a read lock, and no allocation.
func (s *State) Get(k Key) (*Version, bool) {
	s.mu.RLock()
	v := s.live.get(k)
	s.mu.RUnlock()
	return v, v != nil
}

// WaitFor waits until Revision is at least revision. It returns nil, ErrClosed, or the error of ctx.
func (s *State) WaitFor(ctx context.Context, revision int64) error {
	for {
		s.mu.Lock()
		// The check and the choice of the channel are one step under mu, or the revision could arrive between them
		// unnoticed.
		if s.revision >= revision {
			s.mu.Unlock()
			return nil
		}
		if s.ended {
			s.mu.Unlock()
			return ErrClosed
		}
		if s.arrived == nil {
			s.arrived = make(chan struct{})
		}
		arrived := s.arrived
		s.mu.Unlock()
		execution.Outside(ctx, func() {
			select {
			case <-arrived:
			case <-ctx.Done():
			}
		})
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Stats are figures about a store, for metrics.
type Stats struct {
	Revision      int64
	Horizon       int64 // watches may start after it, and snapshots at it
	Objects       int
	Bytes         int64         // of all live data
	HistoryBytes  int64         // of changes after the horizon
	HistoryAge    time.Duration // since the horizon
	HistoryMemory int64         // approximate memory that history takes
	Records       int           // in memory
	Cursors       int           // those that were not closed
	Waiting       int           // cursors that wait; the owners of the others have records that they have not dealt with
}

// Stats returns the current figures. Those about waiting cursors take time in the number of groups.
func (s *State) Stats() Stats {
	now := s.config.Now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	h := &s.history
	st := Stats{
		Revision: s.revision, Horizon: h.horizon, Objects: s.live.count, Bytes: s.live.bytes,
		HistoryMemory: h.memory, Records: h.all.records.len(), Cursors: int(s.cursors.Load()),
	}
	w := s.window
	w.mu.Lock()
	if w.marks.len() > 0 {
		st.HistoryBytes = w.bytes - w.marks.at(0).Bytes
		st.HistoryAge = now.Sub(time.Unix(0, w.marks.at(0).Time))
	}
	w.mu.Unlock()
	for f := range h.everyFeed {
		f.mu.Lock()
		for g := range f.waiting.all {
			st.Waiting += g.waiters
		}
		f.mu.Unlock()
	}
	return st
}

// Describe computes the sidecar of bytes. Expiry and form are arguments, as they are not part of the bytes.
func (s *State) Describe(k Key, data []byte, expire time.Time, form uint64) *Sidecar {
	return s.config.describe(k, data, expire, form)
}

func (c *Config) describe(k Key, data []byte, expire time.Time, form uint64) *Sidecar {
	sc := c.Describe(k, data)
	sc.Expire, sc.Form = expire, form
	return sc
}

// DescribeStored is Describe for a version that is read from a log or from another process. current has what is not
// part of the bytes: the form, the expiry, the key of the encryption, and why the bytes cannot be read. If they cannot,
// what they look like is not what is stored under the key. If it has a UID, it describes the bytes as well.
func (s *State) DescribeStored(k Key, data []byte, current *Sidecar) *Sidecar {
	return s.config.describeStored(k, data, current)
}

func (c *Config) describeStored(k Key, data []byte, current *Sidecar) *Sidecar {
	switch {
	case current.Unreadable != nil:
		data = nil
	case current.UID != "":
		return current
	}
	sc := c.describe(k, data, current.Expire, current.Form)
	if sc.SealedBy = current.SealedBy; current.Unreadable != nil {
		sc.Undecrypted, sc.Unreadable = current.Undecrypted, current.Unreadable
	}
	return sc
}

// replay yields the commits of the log that hold revisions in after < r ≤ until, as Log.Replay does: they are lent.
// The caller holds no lock: yield may wait for the disk between two commits.
func (s *State) replay(ctx context.Context, after, until int64, of []string, yield func(*Commit) error) error {
	if s.log == nil {
		return ErrCompacted
	}
	// The log is given the start only. The end is found here, by the first commit that is too new, and errStop
	// distinguishes it from an error of yield.
	over := false
	err := s.log.Replay(ctx, after, of, func(c *Commit) error {
		if over = c.First() > until; over {
			return errStop
		}
		if c.Plane != s.plane {
			return nil
		}
		return yield(c)
	})
	if err == errStop && over {
		return nil
	}
	return err
}

// reaches returns nil when the log has all commits of some resources after a revision, and otherwise the reason why
// not. It opens the file of the first one, and reads no further.
func reaches(ctx context.Context, log Replayer, after int64, of []string) error {
	if log == nil {
		return ErrCompacted
	}
	if err := log.Replay(ctx, after, of, func(*Commit) error { return errStop }); err != errStop {
		return err
	}
	return nil
}

// errStop is returned by a yield function to end a replay without an error.
var errStop = errors.New("stop")

// copyRecord returns a copy of a record that a log lends (see Log). A new version that is still live is shared and not
// copied: a version equals its form in the log.
//
//	r.Revision and both versions = those of lent; nothing in r points into lent
func (s *State) copyRecord(lent *Record) *Record {
	r := &Record{Key: lent.Key.clone(), Revision: lent.Revision, Unfinished: lent.Unfinished}
	// Most records of the log that a watch reads are about versions that are still live. These have a sidecar
	// already, and need no copy.
	if live, ok := s.Get(lent.Key); ok && live.Revision == lent.Revision {
		r.Key, r.New = live.Key, live
	} else {
		r.New = s.copyVersion(r.Key, lent.New)
	}
	r.Old = s.copyVersion(r.Key, lent.Old)
	return r
}

// copyVersion returns a copy of a lent version, with a complete sidecar; nil for nil. The sidecar is computed, which
// may parse the bytes: callers skip unwanted versions before they copy.
func (s *State) copyVersion(k Key, lent *Version) *Version {
	if lent == nil {
		return nil
	}
	data := bytes.Clone(lent.Data())
	return NewVersion(k, lent.Revision, data, s.DescribeStored(k, data, lent.Sidecar))
}

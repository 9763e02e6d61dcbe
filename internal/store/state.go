package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"plinth/internal/invariants"
)

// Config is what a state is made of, and the embedded writer that Open gives it.
type Config struct {
	// Log is where the embedded writer makes changes durable. It closes it.
	Log Log
	// Describe computes the sidecar of bytes that come without one, which is those that others wrote or that come back from the
	// log. It returns a new one, to be completed by the state; it must not fail (Sidecar.Unreadable is how it says so), and is
	// called from several goroutines at once.
	Describe func(Key, []byte) *Sidecar
	// HistoryAge and HistoryBytes are how far history reaches back, whichever ends first: 5 min and 512 MiB.
	HistoryAge   time.Duration
	HistoryBytes int64
	// MemoryHistoryBytes is how much memory may go into history: 16 MiB. What is older is read from the past.
	MemoryHistoryBytes int64
	// CompactBytes is the least growth of the log that makes the embedded writer write a checkpoint: 16 MiB.
	CompactBytes int64
	// Now is the clock, for tests. With one, expiry and window are looked at every few milliseconds.
	Now    func() time.Time
	Logger *slog.Logger

	fakeClock bool // Now was given
}

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

// Past yields commits that happened a while ago, as Log.Replay does.
type Past interface {
	Replay(after int64, yield func(*Commit) error) error
}

// State is what there is and how it came about, as far as it is known here: versions, history, snapshots and the watches over
// them, and what finds versions by owner and by expiry. It decides nothing. Whoever writes feeds it the commits in their order,
// with Apply; where they come from, from this process or from another one, makes no difference to it. It forgets by itself what
// has left the window. All methods may be called at any time from anywhere, but for Apply and End, which are the feeder's.
//
//	the state at revision R = what its checkpoint and all commits up to R make
//
// No lock is held while anybody waits for a disk or another machine.
type State struct {
	config Config
	past   Past // nil: nothing but what memory holds

	mu        sync.RWMutex
	live      *versions
	history   history
	expiry    expiry
	owners    owners
	revision  int64
	recent    []*Snapshot
	rebuilt   *Snapshot
	rebuiltAt time.Time
	arrived   chan struct{} // closed when revision moves on; nil when nobody waits
	ended     bool

	aging    alarm         // rings when history leaves the window by its age; mu guards it
	trimmed  chan struct{} // receives when that has moved the horizon
	replayed int64         // bytes of the changes that were replayed at the start
}

// NewState makes a state of a checkpoint and of the commits that the past has behind it. Without a past, history is what memory
// holds of the commits that are fed from here on.
func NewState(c Config, from *Checkpoint, past Past) (*State, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &State{
		config:  c,
		past:    past,
		live:    newVersions(),
		expiry:  expiry{byKey: map[Key]*expiring{}},
		owners:  newOwners(),
		trimmed: make(chan struct{}, 1),
		history: history{
			maxAge:    int64(c.HistoryAge),
			maxBytes:  c.HistoryBytes,
			maxWeight: c.MemoryHistoryBytes,
			maxMemo:   c.MemoryHistoryBytes / 4,
			feeds:     map[string]*feed{},
			all:       &feed{whole: true, waiting: newWaiting()},
		},
	}
	if err := s.load(from); err != nil {
		return nil, err
	}
	s.aging.start(c.fakeClock, c.Now, s.age)
	return s, nil
}

// Apply makes commits visible, each as a whole, behind all that the state has. Their records are complete: every new version has
// its sidecar (Describe), and every old one is what the state had. From here on they belong to the state.
//
// State, history and revision change under one lock, and those who wait wake up behind it.
func (s *State) Apply(commits ...*Commit) {
	if len(commits) > 0 {
		s.apply(commits)
	}
}

// apply is Apply, and returns when the first version expires: zero when none does.
func (s *State) apply(commits []*Commit) (expires time.Time) {
	var woken []*group
	s.mu.Lock()
	for _, c := range commits {
		if invariants.Enabled {
			s.check(c)
		}
		for _, r := range c.Records {
			if r.empty() {
				continue
			}
			s.live.set(r.Key, r.New, r.Revision)
			s.expiry.track(r)
			s.owners.change(r.Key, r.Old.owners(), r.New.owners())
			woken = s.history.add(r, woken)
		}
		s.revision = c.Revision
	}
	last := commits[len(commits)-1]
	s.history.trim(last.Revision, last.Time)
	s.forgetSnapshots()
	arrived := s.arrived
	s.arrived = nil
	expires = s.expiry.next()
	ages := s.history.due(s.revision)
	early := !ages.IsZero() && s.aging.after(ages.Add(s.tick()))
	s.mu.Unlock()

	for _, g := range woken {
		close(g.wake)
	}
	if arrived != nil {
		close(arrived)
	}
	if early {
		nudge(s.aging.early)
	}
	return expires
}

// check panics unless a commit follows what there is. The caller holds mu.
func (s *State) check(c *Commit) {
	if c.First() <= s.revision {
		panic(fmt.Sprintf("store: commit %d to %d follows revision %d", c.First(), c.Revision, s.revision))
	}
	for i, r := range c.Records {
		if r.Revision != c.First()+int64(i) || r.New != nil && (r.New.Revision != r.Revision || r.New.Sidecar == nil) {
			panic(fmt.Sprintf("store: commit %d to %d: record %d of %s is of %d", c.First(), c.Revision, i, r.Key, r.Revision))
		}
		if live := s.live.get(r.Key); live != r.Old {
			panic(fmt.Sprintf("store: commit %d to %d: record %d of %s changes %v, and there is %v", c.First(), c.Revision, i, r.Key, r.Old, live))
		}
	}
}

// tick is how often the window is looked at: often enough to keep it to within a few percent of its age.
func (s *State) tick() time.Duration { return s.config.HistoryAge / 64 }

// age lets go of the history that has left the window by this time, and says when there is more.
func (s *State) age(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	horizon := s.history.horizon
	s.history.trim(s.revision, now.UnixNano())
	s.forgetSnapshots()
	if s.history.horizon != horizon {
		nudge(s.trimmed)
	}
	next := s.history.due(s.revision)
	if soon := now.Add(s.tick()); !next.IsZero() && next.Before(soon) {
		next = soon
	}
	s.aging.at = next
}

// End ends the watches and everybody who waits. The feeder calls it when nothing more will come.
func (s *State) End() {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	var woken []*group
	for f := range s.history.everyFeed {
		f.mu.Lock()
		for g := range f.waiting.all {
			woken = append(woken, g)
		}
		f.waiting = newWaiting()
		f.mu.Unlock()
	}
	waiters := s.arrived
	s.arrived = nil
	s.mu.Unlock()
	for _, g := range woken {
		close(g.wake)
	}
	if waiters != nil {
		close(waiters)
	}
	s.aging.stop()
}

// Revision is the newest one.
func (s *State) Revision() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.revision
}

// Get returns the live version of a key, as far as it is known here: see Store.Live.
func (s *State) Get(k Key) (*Version, bool) {
	s.mu.RLock()
	v := s.live.get(k)
	s.mu.RUnlock()
	return v, v != nil
}

// WaitFor waits until Revision is at least revision.
func (s *State) WaitFor(ctx context.Context, revision int64) error {
	for {
		s.mu.Lock()
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
		select {
		case <-arrived:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Stats are figures for metrics.
type Stats struct {
	Revision      int64
	Horizon       int64 // watches may start behind it, and snapshots at it
	Objects       int
	Bytes         int64         // of all live data
	HistoryBytes  int64         // of changes behind the horizon
	HistoryAge    time.Duration // since the horizon
	HistoryMemory int64         // what history takes in memory, about
	Records       int           // in memory
	Waiting       int           // cursors that wait
}

// Stats returns the figures of this moment.
func (s *State) Stats() Stats {
	now := s.config.Now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	h := &s.history
	st := Stats{
		Revision: s.revision, Horizon: h.horizon, Objects: s.live.count, Bytes: s.live.bytes,
		HistoryMemory: h.weight, Records: h.all.records.len(),
	}
	if h.marks.len() > 0 {
		st.HistoryBytes = h.bytes - h.marks.at(0).Bytes
		st.HistoryAge = now.Sub(time.Unix(0, h.marks.at(0).Time))
	}
	for f := range h.everyFeed {
		f.mu.Lock()
		for g := range f.waiting.all {
			st.Waiting += g.waiters
		}
		f.mu.Unlock()
	}
	return st
}

// Describe computes the sidecar of bytes. When they expire, and their form, they do not tell themselves.
func (s *State) Describe(k Key, data []byte, expire time.Time, form uint64) *Sidecar {
	if k.Resource == Counters {
		return &Sidecar{}
	}
	sc := s.config.Describe(k, data)
	sc.Expire, sc.Form = expire, form
	return sc
}

// replay yields the commits of the past that end behind after and begin up to the revision until, as Log.Replay does.
func (s *State) replay(after, until int64, yield func(*Commit) error) error {
	if s.past == nil {
		return ErrCompacted
	}
	over := false
	err := s.past.Replay(after, func(c *Commit) error {
		if over = c.First() > until; over {
			return errEnough
		}
		return yield(c)
	})
	if err == errEnough && over {
		return nil
	}
	return err
}

// reaches says why the past does not reach back to a revision; nil where it does.
func (s *State) reaches(after int64) error {
	if s.past == nil {
		return ErrCompacted
	}
	if err := s.past.Replay(after, func(*Commit) error { return errEnough }); err != errEnough {
		return err
	}
	return nil
}

// errEnough ends a replay that has seen what it came for.
var errEnough = errors.New("enough")

// copyRecord returns a copy of a record that is lent. A version that is still live is not copied.
func (s *State) copyRecord(lent *Record) *Record {
	r := &Record{Key: lent.Key.clone(), Revision: lent.Revision}
	if live, ok := s.Get(lent.Key); ok && live.Revision == lent.Revision {
		r.Key, r.New = live.Key, live
	} else {
		r.New = s.copyVersion(r.Key, lent.New)
	}
	r.Old = s.copyVersion(r.Key, lent.Old)
	return r
}

// copyVersion returns a copy of a version that is lent, with its sidecar; nil of none.
func (s *State) copyVersion(k Key, lent *Version) *Version {
	if lent == nil {
		return nil
	}
	v := &Version{Key: k, Revision: lent.Revision, Data: bytes.Clone(lent.Data)}
	v.Sidecar = s.Describe(k, v.Data, lent.Sidecar.Expire, lent.Sidecar.Form)
	return v
}

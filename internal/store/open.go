package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Config is what a store is made of.
type Config struct {
	// Log is where changes become durable. The store closes it.
	Log Log
	// Describe computes the sidecar of bytes that come without one, which is those read back from the log. It returns a new
	// one, to be completed by the store; it must not fail (Sidecar.Unreadable is how it says so), and is called from several
	// goroutines at once.
	Describe func(Key, []byte) *Sidecar
	// HistoryAge and HistoryBytes are how far history reaches back, whichever ends first: 5 min and 512 MiB.
	HistoryAge   time.Duration
	HistoryBytes int64
	// MemoryHistoryBytes is how much memory may go into history: 16 MiB. What is older is read from the log.
	MemoryHistoryBytes int64
	// CompactBytes is the least growth of the log that makes the store write a checkpoint: 16 MiB.
	CompactBytes int64
	// Now is the clock, for tests. With one, expiry and window are looked at every few milliseconds.
	Now    func() time.Time
	Logger *slog.Logger
}

func (c *Config) validate() error {
	if c.Log == nil || c.Describe == nil {
		return errors.New("store: Config needs a Log and Describe")
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Store is the state, its history and the watches over it. All methods may be called at any time from anywhere.
//
// Two locks, taken in this order: seq orders the writes and guards what is not durable yet, mu guards what is. No lock is
// held while the log writes.
type Store struct {
	config Config

	seq       sync.Mutex
	next      int64         // the newest revision given out; ≥ revision
	pending   map[Key]write // what is sequenced and not durable
	queue     *batch        // what the next Append takes; nil when nothing waits
	appending bool          // somebody leads a batch
	idle      *sync.Cond    // over seq: appending became false
	refused   error         // why there are no more writes
	broken    bool          // the log failed

	mu        sync.RWMutex
	state     *state // written with both locks held
	history   history
	expiry    expiry
	owners    owners
	revision  int64
	recent    []*Snapshot
	rebuilt   *Snapshot
	rebuiltAt time.Time
	arrived   chan struct{} // closed when revision moves on; nil when nobody waits
	closed    bool
	growth    int64 // bytes of changes since the last compaction

	keeper keeper
}

// Open replays the log and returns the store. The first revision of a new one is 1, with nothing in it.
func Open(config Config) (*Store, error) {
	fakeClock := config.Now != nil
	if !fakeClock {
		config.Now = time.Now
	}
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		config:  config,
		pending: map[Key]write{},
		state:   newState(),
		expiry:  expiry{byKey: map[Key]*expiring{}},
		owners:  newOwners(),
		history: history{
			maxAge:    int64(config.HistoryAge),
			maxBytes:  config.HistoryBytes,
			maxWeight: config.MemoryHistoryBytes,
			maxMemo:   config.MemoryHistoryBytes / 4,
			feeds:     map[string]*feed{},
			all:       &feed{whole: true, waiting: newWaiting()},
		},
	}
	s.idle = sync.NewCond(&s.seq)
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("store: cannot be opened: %w", err)
	}
	s.next = s.revision
	s.keeper.start(s, fakeClock)
	return s, nil
}

// load brings back what the log holds.
func (s *Store) load() error {
	expires := map[Key]time.Time{}
	forms := map[uint64]*Sidecar{} // of each form a sidecar that holds nothing else, until describeAll
	restore := func(k Key, lent *Version, revision int64) {
		if lent == nil {
			s.state.set(k, nil, revision)
			delete(expires, k)
			return
		}
		v := s.state.restore(lent)
		if lent.Sidecar.Expire.IsZero() {
			delete(expires, v.Key)
		} else {
			expires[v.Key] = lent.Sidecar.Expire
		}
		form := lent.Sidecar.Form
		if v.Sidecar = forms[form]; v.Sidecar == nil {
			v.Sidecar = &Sidecar{Form: form}
			forms[form] = v.Sidecar
		}
	}
	from, err := s.config.Log.Checkpoint()
	if err != nil {
		return err
	}
	for v, err := range from.Versions {
		if err != nil {
			return err
		}
		restore(v.Key, v, v.Revision)
	}
	// A checkpoint does not tell of what was deleted before it, so nothing is known to have been the same for longer.
	s.state.tables.Scan(func(_ string, t *table) bool {
		t.changed = max(t.changed, from.Revision)
		return true
	})
	h := &s.history
	h.resume(from.Window)
	s.revision = from.Revision
	err = s.config.Log.Replay(from.Revision, func(c *Commit) error {
		if c.First() != s.revision+1 {
			return fmt.Errorf("the log goes from revision %d to %d", s.revision, c.First())
		}
		for _, r := range c.Records {
			if r.empty() {
				continue
			}
			restore(r.Key, r.New, r.Revision)
			bytes := changeBytes(r)
			s.growth += bytes
			h.bytes += bytes
		}
		s.revision = c.Revision
		h.mark(c.Revision, c.Time)
		return nil
	})
	if err != nil {
		return err
	}
	s.describeAll(expires)
	h.opened, h.all.floor = s.revision, s.revision
	h.trim(s.revision, s.config.Now().UnixNano())
	return s.findHorizon()
}

// restore makes a copy of a version that is lent the live one.
func (st *state) restore(lent *Version) *Version {
	t := st.writable(lent.Key.Resource)
	v := &Version{Key: Key{Resource: t.resource}, Revision: lent.Revision, Data: bytes.Clone(lent.Data)}
	if old, ok := t.names.Get(lent.Key.Name); ok {
		v.Key.Name = old.Key.Name
	} else {
		v.Key.Name = strings.Clone(lent.Key.Name)
	}
	st.set(v.Key, v, v.Revision)
	return v
}

// describeAll computes the sidecars of what was loaded, and what is known by them: only now, as many versions do not outlive
// the replay.
func (s *Store) describeAll(expires map[Key]time.Time) {
	live := make([]*Version, 0, s.state.count)
	s.state.tables.Scan(func(_ string, t *table) bool {
		t.names.Scan(func(_ string, v *Version) bool {
			live = append(live, v)
			return true
		})
		return true
	})
	workers := runtime.GOMAXPROCS(0)
	var wait sync.WaitGroup
	for w := range workers {
		part := live[len(live)*w/workers : len(live)*(w+1)/workers]
		wait.Go(func() {
			for _, v := range part {
				v.Sidecar = s.describe(v.Key, v.Data, expires[v.Key], v.Sidecar.Form)
			}
		})
	}
	wait.Wait()
	for _, v := range live {
		s.owners.change(v.Key, nil, v.Sidecar.Owners)
	}
	for k := range expires {
		if v := s.state.get(k); v != nil {
			s.expiry.track(&Record{Key: v.Key, Revision: v.Revision, New: v})
		}
	}
}

// findHorizon moves the horizon to where the log really reaches back.
func (s *Store) findHorizon() error {
	h := &s.history
	for {
		err := s.config.Log.Replay(h.horizon, func(*Commit) error { return errEnough })
		switch {
		case err == nil || err == errEnough:
			return nil
		case !errors.Is(err, ErrCompacted):
			return err
		case h.marks.len() > 0:
			h.horizon = max(h.horizon, h.marks.pop().Revision)
		default:
			h.horizon = s.revision
			return nil
		}
	}
}

// Close ends the store: writes on their way are finished, later ones refused, watches and waiting reads ended.
func (s *Store) Close() error {
	s.seq.Lock()
	again := s.closed
	s.refuse(ErrClosed)
	for s.appending {
		s.idle.Wait()
	}
	if again {
		s.seq.Unlock()
		return nil
	}
	s.mu.Lock()
	s.closed = true
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
	s.seq.Unlock()
	for _, g := range woken {
		close(g.wake)
	}
	if waiters != nil {
		close(waiters)
	}
	s.keeper.stop()
	return s.config.Log.Close()
}

// Revision is the newest durable one.
func (s *Store) Revision() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.revision
}

// Get returns the live version of a key.
func (s *Store) Get(k Key) (*Version, bool) {
	s.mu.RLock()
	v := s.state.get(k)
	s.mu.RUnlock()
	return v, v != nil
}

// WaitFor waits until Revision is at least revision.
func (s *Store) WaitFor(ctx context.Context, revision int64) error {
	for {
		s.mu.Lock()
		if s.revision >= revision {
			s.mu.Unlock()
			return nil
		}
		if s.closed {
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
func (s *Store) Stats() Stats {
	now := s.config.Now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	h := &s.history
	st := Stats{
		Revision: s.revision, Horizon: h.horizon, Objects: s.state.count, Bytes: s.state.bytes,
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

// replay yields the commits of the log that end behind after and begin up to the revision until, as Log.Replay does.
func (s *Store) replay(after, until int64, yield func(*Commit) error) error {
	over := false
	err := s.config.Log.Replay(after, func(c *Commit) error {
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

// errEnough ends a replay that has seen what it came for.
var errEnough = errors.New("enough")

// copyRecord returns a copy of a record that is lent. A version that is still live is not copied.
func (s *Store) copyRecord(lent *Record) *Record {
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
func (s *Store) copyVersion(k Key, lent *Version) *Version {
	if lent == nil {
		return nil
	}
	v := &Version{Key: k, Revision: lent.Revision, Data: bytes.Clone(lent.Data)}
	v.Sidecar = s.describe(k, v.Data, lent.Sidecar.Expire, lent.Sidecar.Form)
	return v
}

// describe computes the sidecar of bytes; when they expire, and their form, the bytes do not tell.
func (s *Store) describe(k Key, data []byte, expire time.Time, form uint64) *Sidecar {
	if k.Resource == Counters {
		return &Sidecar{}
	}
	sc := s.config.Describe(k, data)
	sc.Expire, sc.Form = expire, form
	return sc
}

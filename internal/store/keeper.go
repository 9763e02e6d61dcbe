package store

import (
	"context"
	"sync"
	"time"
)

// expireAtOnce is how many expired objects go into the queue of the log before the first one is waited for.
const expireAtOnce = 256

// keeper is the store's own goroutines: one that deletes what expired and lets go of history by the passing of time,
// and one that compacts the log.
type keeper struct {
	poll    time.Duration // with a fake clock: how often it is read
	wake    chan struct{} // there may be something due before wakeAt
	compact chan struct{} // there may be something to compact
	quit    chan struct{}
	wait    sync.WaitGroup
	wakeAt  time.Time // guarded by the store's mu
}

func (k *keeper) start(s *Store, fakeClock bool) {
	if fakeClock {
		k.poll = 5 * time.Millisecond
	}
	k.wake, k.compact, k.quit = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	k.wait.Go(s.keep)
	k.wait.Go(s.compactor)
}

func (k *keeper) stop() {
	close(k.quit)
	k.wait.Wait()
}

// nudge sends without waiting: one token stands for any number of them.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tick is how often the window is looked at: often enough to keep it to within a few percent of its age.
func (s *Store) tick() time.Duration { return s.config.HistoryAge / 64 }

// early says whether something is due before the keeper wakes up by itself. The caller holds mu.
func (s *Store) early() bool {
	wakeAt := s.keeper.wakeAt
	before := func(t time.Time) bool { return wakeAt.IsZero() || t.Before(wakeAt) }
	expires, ages := s.expiry.next(), s.history.due(s.revision)
	return !expires.IsZero() && before(expires) || !ages.IsZero() && before(ages.Add(s.tick()))
}

// look lets go of history and returns what expired.
func (s *Store) look(now time.Time) []Precondition {
	s.mu.Lock()
	defer s.mu.Unlock()
	horizon := s.history.horizon
	s.history.trim(s.revision, now.UnixNano())
	s.forgetSnapshots()
	if s.history.horizon != horizon {
		nudge(s.keeper.compact)
	}
	return s.expiry.due(now, expireAtOnce)
}

// sleep sets when to wake up, and returns it; zero for never. What expired and could not be deleted is tried again a
// little later.
func (s *Store) sleep(now time.Time, failed bool) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.expiry.next()
	if failed {
		next = now.Add(time.Second)
	}
	if ages := s.history.due(s.revision); !ages.IsZero() {
		if soon := now.Add(s.tick()); ages.Before(soon) {
			ages = soon
		}
		if next.IsZero() || ages.Before(next) {
			next = ages
		}
	}
	s.keeper.wakeAt = next
	return next
}

// keep does what is due, until the store closes.
func (s *Store) keep() {
	k := &s.keeper
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := s.config.Now()
		expired := s.look(now)
		if len(expired) > 0 && s.expire(expired) {
			continue
		}
		wakeAt := s.sleep(now, len(expired) > 0)
		var after <-chan time.Time
		if k.poll > 0 {
			timer.Reset(k.poll)
			after = timer.C
		} else if !wakeAt.IsZero() {
			timer.Reset(wakeAt.Sub(now))
			after = timer.C
		}
		select {
		case <-after:
		case <-k.wake:
		case <-k.quit:
			return
		}
	}
}

// expire deletes versions that are past their time, as one batch, and says whether that went well. A version that was
// overwritten meanwhile stays.
func (s *Store) expire(expired []Precondition) bool {
	var lead, last *batch
	for _, p := range expired {
		t := s.sequence([]Precondition{p}, []Change{{Key: p.Key}}, []*Version{nil})
		if t.lead {
			lead = t.batch // everybody waits for us now; but there are only a few more to queue
		}
		if t.err == nil {
			last = t.batch
		}
	}
	if lead != nil {
		s.append(lead)
	}
	return last != nil && s.await(context.Background(), last) == nil
}

// compactor compacts the log whenever it grew enough, and lets go of history that is out of the window.
func (s *Store) compactor() {
	for {
		select {
		case <-s.keeper.quit:
			return
		case <-s.keeper.compact:
		}
		s.seq.Lock()
		broken := s.broken
		s.seq.Unlock()
		if broken {
			continue
		}
		s.mu.Lock()
		horizon, grown := s.history.horizon, s.growth
		var c *Checkpoint
		if s.grewEnough() {
			c = s.checkpoint()
			s.growth = 0
		}
		s.mu.Unlock()
		if err := s.config.Log.Compact(horizon, c); err != nil && !isClosing(s.keeper.quit) {
			s.config.Logger.Error("the log could not be compacted; it goes on growing until that works", "error", err)
			s.mu.Lock()
			s.growth = max(s.growth, min(grown, s.growth+grown/2))
			s.mu.Unlock()
		}
	}
}

func isClosing(quit <-chan struct{}) bool {
	select {
	case <-quit:
		return true
	default:
		return false
	}
}

// grewEnough says whether it is worth the while to write the state anew: when the log grew by the size of the state, so
// that a byte is written about twice over its life and a restart reads about twice the state; small states wait for
// more. The caller holds mu.
func (s *Store) grewEnough() bool { return s.growth >= max(s.config.CompactBytes, s.state.bytes) }

// checkpoint is the state as it is. It ends with ErrClosed when the store closes. The caller holds mu.
func (s *Store) checkpoint() *Checkpoint {
	tables := s.state.freeze()
	return &Checkpoint{Revision: s.revision, Window: s.history.window(), Versions: func(yield func(*Version, error) bool) {
		n, ok := 0, true
		tables.Scan(func(_ string, t *table) bool {
			t.names.Scan(func(_ string, v *Version) bool {
				if n++; n%256 == 0 && isClosing(s.keeper.quit) {
					yield(nil, ErrClosed)
					ok = false
				}
				ok = ok && yield(v, nil)
				return ok
			})
			return ok
		})
	}}
}

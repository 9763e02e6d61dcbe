package store

import (
	"context"
	"time"
)

// expireAtOnce is how many expired objects go into the queue of the log before the first one is waited for.
const expireAtOnce = 256

// expire deletes what has expired by now, and says when the next version does. What could not be deleted is tried again a little
// later.
func (w *sequencer) expire(now time.Time) {
	due := w.state.expired(now)
	for len(due) > 0 && w.deleteExpired(due) {
		now = w.state.config.Now()
		due = w.state.expired(now)
	}
	w.seq.Lock()
	defer w.seq.Unlock()
	w.expiring.at = w.state.expires()
	if len(due) > 0 {
		w.expiring.at = now.Add(time.Second)
	}
}

// deleteExpired deletes versions that are past their time, as one batch, and says whether that went well. A version that was
// overwritten meanwhile stays.
func (w *sequencer) deleteExpired(expired []Precondition) bool {
	var lead, last *batch
	for _, p := range expired {
		t := w.sequence([]Precondition{p}, []Change{{Key: p.Key}}, []*Version{nil})
		if t.lead {
			lead = t.batch // everybody waits for us now; but there are only a few more to queue
		}
		if t.err == nil {
			last = t.batch
		}
	}
	if lead != nil {
		w.append(lead)
	}
	return last != nil && w.await(context.Background(), last) == nil
}

// expired returns versions that are past their time.
func (s *State) expired(now time.Time) []Precondition {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.expiry.due(now, expireAtOnce)
}

// expires is when the first version expires; zero when none does.
func (s *State) expires() time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.expiry.next()
}

// compactor compacts the log whenever it grew enough, and lets go of history that is out of the window.
func (w *sequencer) compactor() {
	for {
		select {
		case <-w.quit:
			return
		case <-w.grown:
		case <-w.state.trimmed:
		}
		w.seq.Lock()
		broken, grown, enough := w.broken, w.growth, w.grewEnough()
		if enough {
			w.growth = 0
		}
		w.seq.Unlock()
		if broken {
			continue
		}
		horizon, c := w.checkpoint(enough)
		if err := w.log.Compact(horizon, c); err != nil && !isClosing(w.quit) {
			w.state.config.Logger.Error("the log could not be compacted; it goes on growing until that works", "error", err)
			w.seq.Lock()
			w.growth = max(w.growth, min(grown, w.growth+grown/2))
			w.seq.Unlock()
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
// more. The caller holds seq.
func (w *sequencer) grewEnough() bool {
	return w.growth >= max(w.state.config.CompactBytes, w.state.live.bytes)
}

// checkpoint returns the horizon and, if wanted, the state as it is; to yield it ends with ErrClosed when the writer closes.
func (w *sequencer) checkpoint(wanted bool) (horizon int64, c *Checkpoint) {
	s := w.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if !wanted {
		return s.history.horizon, nil
	}
	collections := s.live.freeze()
	return s.history.horizon, &Checkpoint{Revision: s.revision, Window: s.history.window(), Versions: func(yield func(*Version, error) bool) {
		n, ok := 0, true
		collections.Scan(func(_ string, t *collection) bool {
			t.names.Scan(func(_ string, v *Version) bool {
				if n++; n%256 == 0 && isClosing(w.quit) {
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

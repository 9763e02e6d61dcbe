package store

import (
	"context"
	"time"
)

// expireAtOnce is how many deletions of expired objects share a batch of the log: enough for the sync not to matter,
// and few enough not to hold up other writers.
const expireAtOnce = 256

// expire deletes the versions that have expired by now, and sets the alarm for the next one. Versions that could not be
// deleted are tried again after a second. The alarm's goroutine calls it.
//
// The time of the next one is read under seq, which publish holds while it changes the heap and compares (laterThan).
// So a commit either is seen here, or finds the time that was set here.
func (w *sequencer) expire(now time.Time) {
	due := w.expired(now)
	for len(due) > 0 && w.deleteExpired(due) {
		now = w.state.config.Now()
		due = w.expired(now)
	}
	w.seq.Lock()
	defer w.seq.Unlock()
	w.expiring.at = w.expiry.next()
	if len(due) > 0 {
		w.expiring.at = now.Add(time.Second)
	}
}

// deleteExpired deletes expired versions, each in a separate commit, and says whether that succeeded. The precondition
// protects an object that was overwritten since it was found expired.
//
// All commits are sequenced before the first sync, so that they share a batch. As the leader of the batch (see batch)
// this goroutine has to append it, or all other writers wait forever. The commits may still be spread over several
// batches: another leader may take the batch in between. The last batch is the last one to become durable, so it is
// enough to wait for that.
func (w *sequencer) deleteExpired(expired []Precondition) bool {
	var lead, last *batch
	for _, p := range expired {
		changes, none := []Change{{Key: p.Key}}, []*Version{nil}
		seals, err := w.seals(context.Background(), changes, none)
		if err != nil {
			return false
		}
		t := w.sequence(context.Background(), []Precondition{p}, changes, none, seals)
		if t.lead {
			lead = t.batch
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

// expired returns the first versions that have expired by now.
func (w *sequencer) expired(now time.Time) []Precondition {
	w.seq.Lock()
	defer w.seq.Unlock()
	return w.expiry.due(now, expireAtOnce)
}

// compactor compacts the log: with a new checkpoint whenever the log has grown enough, and without one when the horizon
// has moved, which only removes history. It runs on a goroutine of its own, as a checkpoint of a large state takes
// seconds. Commits continue meanwhile; their growth counts towards the next checkpoint.
func (w *sequencer) compactor() {
	for {
		select {
		case <-w.quit:
			return
		case <-w.grown:
		case <-w.state.trimmed:
		}
		w.seq.Lock()
		resealing := w.resealing
		broken, grown, enough := w.broken, w.growth, w.grewEnough() || resealing
		if enough {
			// Commits that arrive while the checkpoint is written count towards the next one.
			w.growth, w.resealing = 0, false
		}
		w.seq.Unlock()
		// The log takes no more writes, and its content is not known.
		if broken {
			continue
		}
		horizon, c := w.checkpoint(enough)
		if err := w.log.Compact(horizon, c); err != nil && !isClosing(w.quit) {
			w.state.config.Logger.Error("the log could not be compacted; it goes on growing until that works",
				"error", err)
			w.seq.Lock()
			// Try again after half as much growth, and not with each commit that follows.
			w.growth = max(w.growth, min(grown, w.growth+grown/2))
			w.resealing = w.resealing || resealing
			w.seq.Unlock()
		} else if resealing {
			w.state.config.Logger.Info("all versions were encrypted with the current keys; earlier keys are needed for " +
				"the history alone")
		}
	}
}

// isClosing says whether the writer is being closed.
func isClosing(quit <-chan struct{}) bool {
	select {
	case <-quit:
		return true
	default:
		return false
	}
}

// grewEnough says whether a checkpoint is due: when the log has grown by the size of the state since the last one. So
// checkpoints about double the bytes written, and a restart reads about twice the state. Small states wait for
// CompactBytes. The caller holds seq.
func (w *sequencer) grewEnough() bool {
	return w.growth >= max(w.state.config.CompactBytes, w.state.live.bytes)
}

// checkpoint returns the horizon and, if wanted, the frozen state: yielding its versions needs no lock, and takes as
// long as the disk does. It ends with ErrClosed when the writer closes.
//
//	horizon, revision, window and versions are of one moment, under one hold of mu
func (w *sequencer) checkpoint(wanted bool) (horizon int64, c *Checkpoint) {
	s := w.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if !wanted {
		return s.history.horizon, nil
	}
	collections := s.live.freeze()
	c = &Checkpoint{Revision: s.revision, Window: s.history.window()}
	c.Versions = func(yield func(*Version, error) bool) {
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
	}
	return s.history.horizon, c
}

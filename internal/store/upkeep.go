package store

import (
	"context"
	"iter"
	"time"

	"github.com/tidwall/btree"
)

// expireAtOnce is how many deletions of expired objects share a batch of the log: enough for the sync not to matter,
// and few enough not to hold up other writers.
const expireAtOnce = 256

// plan is when a writer has to delete what has expired.
type plan struct {
	at int64 // nanoseconds since 1970
	of *writer
}

func newPlans() *btree.BTreeG[plan] {
	before := func(a, b plan) bool { return a.at < b.at || a.at == b.at && a.of.state.plane < b.of.state.plane }
	return btree.NewBTreeGOptions(before, btree.Options{Degree: degree, NoLocks: true})
}

// plan notes when the first version of the plane expires, and wakes the alarm if that is earlier than it expects. What
// cannot be written does not expire. The caller holds seq.
func (w *writer) plan() {
	next := w.state.expiries.next()
	if w.bounds.ReadOnly {
		next = time.Time{}
	}
	if next.Equal(w.planned) {
		return
	}
	if !w.planned.IsZero() {
		w.plans.Delete(plan{w.planned.UnixNano(), w})
	}
	if w.planned = next; next.IsZero() {
		return
	}
	w.plans.Set(plan{next.UnixNano(), w})
	if w.expiring.recheck != nil && w.expiring.laterThan(next) {
		notify(w.expiring.recheck)
	}
}

// due is versions of a plane that have expired, as preconditions for deleting them.
type due struct {
	of      *writer
	expired []Precondition
}

// expire deletes the versions that have expired by now, and sets the alarm for the next one. Versions that could not be
// deleted are tried again after a second. The alarm's goroutine calls it.
//
// The time of the next one is read under seq, which publish holds while it changes the plans and compares (laterThan).
// So a commit either is seen here, or finds the time that was set here.
func (w *sequencer) expire(now time.Time) {
	all := w.due(now)
	for len(all) > 0 && w.deleteExpired(all) {
		now = w.config.Now()
		all = w.due(now)
	}
	w.seq.Lock()
	defer w.seq.Unlock()
	w.expiring.at = time.Time{}
	if first, ok := w.plans.Min(); ok {
		w.expiring.at = time.Unix(0, first.at)
	}
	if len(all) > 0 {
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
func (w *sequencer) deleteExpired(all []due) bool {
	var lead, last *batch
	for _, d := range all {
		for _, p := range d.expired {
			changes, none := []Change{{Key: p.Key}}, []*Version{nil}
			seals, err := d.of.seals(context.Background(), changes, none)
			if err != nil {
				return false
			}
			t := d.of.sequence(context.Background(), []Precondition{p}, changes, none, seals, nil)
			if t.lead {
				lead = t.batch
			}
			if t.err == nil {
				last = t.batch
			}
		}
	}
	if lead != nil {
		w.append(lead)
	}
	return last != nil && w.await(context.Background(), last) == nil
}

// due returns the first versions that have expired by now, of all planes.
func (w *sequencer) due(now time.Time) (all []due) {
	w.seq.Lock()
	defer w.seq.Unlock()
	left := expireAtOnce
	w.plans.Scan(func(p plan) bool {
		if p.at > now.UnixNano() || left == 0 {
			return false
		}
		d := due{of: p.of}
		for _, k := range p.of.state.expiries.due(now, left) {
			d.expired = append(d.expired, Precondition{Key: k, Revision: p.of.state.live.get(k).Revision})
		}
		left -= len(d.expired)
		all = append(all, d)
		return true
	})
	return all
}

// compactor compacts the log: with a new checkpoint whenever the log has grown enough, and without one when the horizon
// has moved, which only removes history. It runs on a goroutine of its own, as a checkpoint of a large state takes
// seconds. Commits continue meanwhile; their growth counts towards the next checkpoint.
//
// It begins with what an earlier process has not done: its checkpoint may have dropped history that it had no time to
// remove.
func (w *sequencer) compactor() {
	w.compact(false)
	for {
		select {
		case <-w.quit:
			return
		case <-w.grown:
		case <-w.window.trimmed:
		}
		w.compact(true)
	}
}

// compact compacts the log, with a checkpoint if one is due and wanted.
func (w *sequencer) compact(wanted bool) {
	w.compacting.Lock()
	defer w.compacting.Unlock()
	w.seq.Lock()
	resealing := w.resealing && wanted
	broken, grown, enough := w.broken, w.growth, wanted && w.grewEnough() || resealing
	if enough {
		// Commits that arrive while the checkpoint is written count towards the next one.
		w.growth, w.resealing = 0, false
	}
	w.seq.Unlock()
	// The log takes no more writes, and its content is not known.
	if broken {
		return
	}
	w.window.drop(w.config.Now())
	horizon, c := w.checkpoint(enough)
	if err := w.log.Compact(horizon, c); err != nil && !isClosing(w.quit) {
		w.config.Logger.Error("the log could not be compacted; it goes on growing until that works",
			"error", err)
		w.seq.Lock()
		// Try again after half as much growth, and not with each commit that follows.
		w.growth = max(w.growth, min(grown, w.growth+grown/2))
		w.resealing = w.resealing || resealing
		w.seq.Unlock()
	} else if resealing {
		w.config.Logger.Info("all versions were encrypted with the current keys; earlier keys are needed for " +
			"the history alone")
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

// grewEnough says whether a checkpoint is due: when the log has grown by the size of the states since the last one. So
// checkpoints about double the bytes written, and a restart reads about twice the state. Small states wait for
// CompactBytes. The caller holds seq.
func (w *sequencer) grewEnough() bool {
	return w.growth >= max(w.config.CompactBytes, w.writers[""].state.live.bytes+w.layered)
}

// checkpoint returns the horizon and, if wanted, the frozen states: yielding their versions needs no lock, and takes as
// long as the disk does. It ends with ErrClosed when the writer closes.
//
//	horizon, revision, window and versions of all planes are of one moment, under one hold of seq
func (w *sequencer) checkpoint(wanted bool) (horizon int64, c *Checkpoint) {
	w.seq.Lock()
	defer w.seq.Unlock()
	w.window.mu.Lock()
	horizon = w.window.dropped
	w.window.mu.Unlock()
	if !wanted {
		return horizon, nil
	}
	c = &Checkpoint{Revision: w.synced, Window: w.window.extent()}
	var moments []*moment
	for plane, of := range w.writers {
		s := of.state
		s.mu.Lock()
		m := &moment{plane: plane, collections: s.live.freeze(), origin: s.origin, revision: s.revision, begun: s.begun,
			resting: s.resting, since: s.live.since}
		s.mu.Unlock()
		if plane != "" {
			moments = append(moments, m)
			continue
		}
		c.Versions = func(yield func(*Version, error) bool) {
			n := 0
			scan(m.collections, func(v *Version) bool {
				if n++; n%256 == 0 && isClosing(w.quit) {
					yield(nil, ErrClosed)
					return false
				}
				return yield(v, nil)
			})
		}
	}
	if len(moments) > 0 {
		origins := compress(moments)
		for _, m := range moments {
			s := w.writers[m.plane].state
			s.mu.Lock()
			s.origin = m.origin
			s.mu.Unlock()
		}
		c.Layers = w.counted(layers(moments, origins, w.quit))
	} else {
		w.layered = 0
	}
	return horizon, c
}

// counted counts the bytes of layers, as they are written.
func (w *sequencer) counted(all iter.Seq2[*Layer, error]) iter.Seq2[*Layer, error] {
	return func(yield func(*Layer, error) bool) {
		bytes, more := int64(0), true
		for l, err := range all {
			if err == nil {
				versions := l.Versions
				l.Versions = func(yield func(*Version, error) bool) {
					for v, err := range versions {
						if err == nil && v.Sidecar != nil {
							bytes += int64(v.Len())
						}
						if !yield(v, err) {
							return
						}
					}
				}
			}
			if more = yield(l, err); !more {
				break
			}
		}
		w.seq.Lock()
		defer w.seq.Unlock()
		w.layered = bytes
	}
}

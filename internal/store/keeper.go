package store

import (
	"context"
	"encoding/binary"
	"iter"
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

// nextDue is when something happens by the passing of time; zero for never. The caller holds mu.
func (s *Store) nextDue() time.Time {
	next, due := s.expiry.next(), s.history.due(s.revision)
	if next.IsZero() || !due.IsZero() && due.Before(next) {
		next = due
	}
	return next
}

// keep does what is due, until the store closes.
func (s *Store) keep() {
	k := &s.keeper
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := s.config.Now()
		s.mu.Lock()
		horizon := s.history.horizon
		s.history.trim(s.revision, now.UnixNano())
		s.forgetSnapshots()
		moved := s.history.horizon != horizon
		expired := s.expiry.due(now, expireAtOnce)
		// Not more often than is needed to keep the window to within a few percent.
		k.wakeAt = s.nextDue()
		if earliest := now.Add(s.config.HistoryAge / 64); k.wakeAt.Before(earliest) && !k.wakeAt.IsZero() && len(expired) == 0 {
			if next := s.expiry.next(); next.IsZero() || next.After(earliest) {
				k.wakeAt = earliest
			} else {
				k.wakeAt = next
			}
		}
		wakeAt := k.wakeAt
		s.mu.Unlock()
		if moved {
			nudge(k.compact)
		}
		if len(expired) > 0 && s.expire(expired) {
			continue
		}
		var after <-chan time.Time
		if !wakeAt.IsZero() || k.poll > 0 {
			wait := wakeAt.Sub(now)
			if k.poll > 0 {
				wait = k.poll
			}
			timer.Reset(wait)
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

// expire deletes versions that are past their time, and says whether that went well. One that was overwritten
// meanwhile stays.
func (s *Store) expire(expired []Precondition) bool {
	var last *batch
	for _, p := range expired {
		b, _, lead, err := s.sequence(context.Background(), []Precondition{p}, []Change{{Key: p.Key}})
		if lead {
			s.append(b)
		}
		if b != nil {
			last = b
		}
		if err != nil && !isConflict(err) {
			return false
		}
	}
	return last == nil || s.await(context.Background(), last) == nil
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
		var head []byte
		var sn *Snapshot
		if s.grewEnough() {
			sn = &Snapshot{revision: s.revision, tables: s.state.freeze()}
			head = s.history.appendHead(nil, s.revision)
			s.growth = 0
		}
		s.mu.Unlock()
		var err error
		if sn == nil {
			err = s.config.Log.Compact(horizon, 0, nil)
		} else {
			err = s.config.Log.Compact(horizon, sn.revision, s.base(head, sn))
		}
		if err != nil && !isClosing(s.keeper.quit) {
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

// base yields a snapshot in payloads of some 64 kB. It ends with ErrClosed when the store closes.
func (s *Store) base(head []byte, sn *Snapshot) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if !yield(head, nil) {
			return
		}
		var versions, b []byte
		count := 0
		flush := func() bool {
			if isClosing(s.keeper.quit) {
				yield(nil, ErrClosed)
				return false
			}
			b = append(b[:0], payloadVersions)
			b = binary.AppendUvarint(b, uint64(count))
			b = append(b, versions...)
			versions, count = versions[:0], 0
			return yield(b, nil)
		}
		ok := true
		sn.tables.Scan(func(_ string, t *table) bool {
			t.names.Scan(func(_ string, v *Version) bool {
				versions = appendVersion(versions, v)
				if count++; len(versions) >= 64<<10 {
					ok = flush()
				}
				return ok
			})
			return ok
		})
		if ok && count > 0 {
			flush()
		}
	}
}

// appendHead appends the first payload of a base: which revision it is, and how to go on measuring the window.
func (h *history) appendHead(b []byte, revision int64) []byte {
	b = append(b, payloadHead)
	b = binary.AppendUvarint(b, uint64(revision))
	b = binary.AppendUvarint(b, uint64(h.horizon))
	b = binary.AppendUvarint(b, uint64(h.bytes))
	b = binary.AppendUvarint(b, uint64(h.marks.len()))
	for i := range h.marks.len() {
		m := h.marks.at(i)
		b = binary.AppendUvarint(b, uint64(m.revision))
		b = binary.AppendVarint(b, m.time)
		b = binary.AppendUvarint(b, uint64(m.bytes))
	}
	return b
}

// parse reads what appendHead wrote behind the revision.
func (h *history) parse(d *decoder) error {
	h.horizon = int64(d.uvarint())
	h.bytes = int64(d.uvarint())
	for range d.uvarint() {
		h.marks.push(mark{revision: int64(d.uvarint()), time: d.varint(), bytes: int64(d.uvarint())})
		if d.bad {
			break
		}
	}
	if d.bad {
		return errPayload
	}
	return nil
}

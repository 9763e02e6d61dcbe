package store

import (
	"sync"
	"time"

	"plinth/internal/invariants"
)

// window says how far back the history of a log reaches, by its age and its bytes. All states whose commits are in one
// log have one window: their revisions are on one number line, and the log keeps its files for all of them.
//
// The age is measured by marks, and not by the times of all records, so that the memory for it does not grow with the
// number of changes. A commit moves the horizon by its own time, so no clock is read for each commit. A state drops
// what has left the window when it gets a commit; without commits an alarm has it done, for all states that have
// history. A state without history costs nothing here.
//
//	marks ascend; horizon < their revisions ≤ newest
//	a state has records, or its horizon is before its revision  ⇒  it is among aging
//	dropped ≤ horizon: no state has a horizon before dropped that has a commit after it
//
// The order of locks is: writing, that of a state, mu.
type window struct {
	maxAge, maxBytes, maxMemory int64

	mu      sync.Mutex
	horizon int64 // watches and snapshots may start from here on
	dropped int64 // what the log keeps no commits before
	newest  int64 // the newest revision
	bytes   int64 // of all changes ever made, see changeBytes
	marks   queue[Mark]
	// memory is what all records that were ever added take or took, and floors marks it. So the memory for history is
	// bounded for all states together, and of all records the oldest leave first.
	memory int64
	floors queue[Mark]
	floor  int64 // records up to here leave memory
	aging  map[*State]struct{}

	// writing is held while a state drops something: its writer reads the live versions under that lock alone. Nil: the
	// writer has none.
	writing sync.Locker
	alarm   alarm         // calls age; mu guards alarm.at
	trimmed chan struct{} // of capacity 1; receives when dropped has moved
}

func newWindow(c *Config) *window {
	return &window{maxAge: int64(c.HistoryAge), maxBytes: c.HistoryBytes, maxMemory: c.MemoryHistoryBytes,
		aging: map[*State]struct{}{}, trimmed: make(chan struct{}, 1)}
}

// start begins to drop what leaves the window, until stop.
func (w *window) start(c *Config) { w.alarm.start(c.fakeClock, c.Now, w.age) }

func (w *window) stop() { w.alarm.stop() }

// advance adds commits of a state up to a revision, with their bytes and the memory that their records take. It returns
// the horizon, up to what records leave memory, and whether the alarm has to look before the time that it expects. The
// caller holds the state's lock.
func (w *window) advance(s *State, revision, now, bytes, memory int64) (horizon, floor int64, recheck bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest = max(w.newest, revision)
	w.bytes += bytes
	w.memory += memory
	w.mark(revision, now)
	w.trim(now)
	if !s.aging {
		s.aging = true
		w.aging[s] = struct{}{}
	}
	// The alarm sleeps until the oldest mark leaves the window. It is woken only if this commit makes that earlier,
	// which is after a time without any history.
	ages := w.due()
	recheck = !ages.IsZero() && w.alarm.laterThan(ages.Add(w.tick()))
	return w.horizon, w.floor, w.bound() && len(w.aging) > 1 || recheck
}

// bound moves floor so that the records after it take no more than maxMemory, and says whether it has moved. The steps
// are an eighth of that, as all states have to be visited after each.
func (w *window) bound() (moved bool) {
	step := w.maxMemory / 8
	if n := w.floors.len(); n == 0 || w.memory-w.floors.at(n-1).Bytes >= step {
		w.floors.push(Mark{Revision: w.newest, Bytes: w.memory})
	}
	for w.floors.len() > 1 && w.memory-w.floors.at(0).Bytes > w.maxMemory {
		w.floor = w.floors.pop().Revision
		moved = true
	}
	return moved
}

// tick is how often the history is trimmed by age: often enough to keep it to within a few percent.
func (w *window) tick() time.Duration { return time.Duration(w.maxAge / 64) }

// mark adds a mark when the last one is far enough away.
//
//	number of marks ≤ about 64 + 256,  error of the age ≤ maxAge/64, of the bytes ≤ maxBytes/256
func (w *window) mark(revision, now int64) {
	if n := w.marks.len(); n > 0 {
		last := w.marks.at(n - 1)
		if last.Revision == revision || now-last.Time < w.maxAge/64 && w.bytes-last.Bytes < w.maxBytes/256 {
			return
		}
	} else if revision == w.horizon {
		return
	}
	w.marks.push(Mark{Revision: revision, Time: now, Bytes: w.bytes})
}

// trim moves the horizon to the newest mark that is too old at a time, or too many bytes ago.
func (w *window) trim(now int64) {
	for w.marks.len() > 0 {
		// The oldest mark stays as long as it is young enough, and fewer bytes than the bound were written since.
		m := w.marks.at(0)
		if m.Time > now-w.maxAge && w.bytes-m.Bytes < w.maxBytes {
			break
		}
		w.horizon = max(w.horizon, m.Revision)
		w.marks.pop()
	}
}

// due is the next time at which trim has work to do; zero if the passing of time changes nothing, because there are no
// changes after the horizon.
func (w *window) due() time.Time {
	if w.marks.len() == 0 {
		if w.newest == w.horizon {
			return time.Time{}
		}
		return time.Unix(0, 1) // at once: there are changes, and trim has not marked them yet
	}
	due := w.marks.at(0).Time + w.maxAge
	if last := w.marks.at(w.marks.len() - 1); last.Revision < w.newest {
		due = min(due, last.Time+w.maxAge/64) // the newest records need a mark, too
	}
	return time.Unix(0, due)
}

// age drops the history that has left the window by now, and sets the alarm for the next time. If the horizon has
// moved, the compactor is notified, which may remove segments of the log.
func (w *window) age(now time.Time) {
	moved := w.drop(now)
	w.mu.Lock()
	defer w.mu.Unlock()
	if moved {
		notify(w.trimmed)
	}
	// Not sooner than a tick from now: on a busy server marks leave the window all the time.
	next := w.due()
	if soon := now.Add(w.tick()); !next.IsZero() && next.Before(soon) {
		next = soon
	}
	w.alarm.at = next
}

// drop drops the history that has left the window by now in all states, and says whether there was any. The compactor
// calls it, too: commits move the horizon between two ticks.
func (w *window) drop(now time.Time) (moved bool) {
	w.mu.Lock()
	w.mark(w.newest, now.UnixNano())
	w.trim(now.UnixNano())
	horizon, floor := w.horizon, w.floor
	states := make([]*State, 0, len(w.aging))
	for s := range w.aging {
		states = append(states, s)
	}
	w.mu.Unlock()
	for _, s := range states {
		if w.writing != nil {
			w.writing.Lock()
		}
		s.age(horizon, floor)
		if w.writing != nil {
			w.writing.Unlock()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if invariants.Enabled {
		w.check()
	}
	moved = horizon > w.dropped
	w.dropped = max(w.dropped, horizon)
	return moved
}

// cut drops the history up to a revision in all states, as if it had left the window.
func (w *window) cut(revision int64, now time.Time) {
	w.mu.Lock()
	w.horizon = max(w.horizon, revision)
	for w.marks.len() > 0 && w.marks.at(0).Revision <= w.horizon {
		w.marks.pop()
	}
	w.mu.Unlock()
	w.drop(now)
}

// join adds a state that has something to forget: a feed without records. The caller holds the state's lock.
func (w *window) join(s *State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.aging = true
	w.aging[s] = struct{}{}
}

// leave takes a state off those that have history. The caller holds the state's lock.
func (w *window) leave(s *State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.aging = false
	delete(w.aging, s)
}

// restart lets the history begin after a revision.
func (w *window) restart(revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.horizon, w.dropped, w.newest = revision, revision, max(w.newest, revision)
	for w.marks.len() > 0 {
		w.marks.pop()
	}
}

// extent is the part of the window that a checkpoint stores; resume restores it.
func (w *window) extent() Window {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := Window{Horizon: w.horizon, Bytes: w.bytes, Marks: make([]Mark, w.marks.len())}
	for i := range e.Marks {
		e.Marks[i] = w.marks.at(i)
	}
	return e
}

// resume restores what extent returned. It is for a window that nobody has yet, as are the two below.
func (w *window) resume(e Window) {
	w.horizon, w.dropped, w.bytes = e.Horizon, e.Horizon, e.Bytes
	for _, m := range e.Marks {
		w.marks.push(m)
	}
}

// replayed adds a commit of the log.
func (w *window) replayed(c *Commit, bytes int64) {
	w.bytes += bytes
	w.newest = c.Revision
	w.mark(c.Revision, c.Time)
}

// begins moves the horizon to the revision at which the log begins: files may have been removed that the window of the
// checkpoint includes. It tries the marks, oldest first. Otherwise a watch would be accepted at a revision whose
// history no longer exists, and fail later. reaches says whether the log has all commits after a revision.
func (w *window) begins(now int64, reaches func(after int64) (bool, error)) error {
	w.mark(w.newest, now)
	w.trim(now)
	for {
		ok, err := reaches(w.horizon)
		switch {
		case ok || err != nil:
			w.dropped = w.horizon
			return err
		case w.marks.len() > 0:
			w.horizon = max(w.horizon, w.marks.pop().Revision)
		default:
			w.horizon, w.dropped = w.newest, w.newest
			return nil
		}
	}
}

// check fails where an invariant of the window does not hold. The caller holds mu.
func (w *window) check() {
	if w.horizon > w.newest || w.dropped > w.horizon {
		invariants.Fail("store: the window begins at %d, dropped at %d, of %d", w.horizon, w.dropped, w.newest)
	}
	for i, last := 0, (Mark{Revision: w.horizon}); i < w.marks.len(); i++ {
		m := w.marks.at(i)
		if m.Revision <= last.Revision || m.Revision > w.newest || m.Bytes < last.Bytes || m.Bytes > w.bytes {
			invariants.Fail("store: mark %+v after %+v, at %d after %d bytes", m, last, w.newest, w.bytes)
		}
		last = m
	}
}

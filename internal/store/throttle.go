package store

import (
	"runtime"
	"time"
)

const (
	// wakeCost is the approximate processor time to wake a watcher, to write to its connection and to have its client
	// read, independent of the number of events: the cost of eight events. docs/decisions/0007 has figures.
	wakeCost = 50 * time.Microsecond
	// A pause shorter than minPause saves nothing, and maxPause bounds the delay of an event.
	minPause = 2 * time.Millisecond
	maxPause = 20 * time.Millisecond
)

// throttle batches wake-ups, so that a burst of records wakes each watcher once.
//
// The problem: waking a watcher costs as much as eight events. When thousands wait for every record of a resource,
// waking all of them for each record takes all processors, and each watcher gets one event for its wake-up. A fixed
// delay of every wake-up delays a lone watcher without need. So the first record wakes at once, and then the feed
// pauses, for a time in proportion to the number of woken watchers; records that arrive during the pause wake their
// watchers together at its end:
//
//	pause = waiters woken × wakeCost × 4 ÷ processors, at most maxPause; none below minPause
//
// so, as long as the pause is shorter than maxPause, waking takes at most about a quarter of the processors, and on two
// processors up to nineteen watchers are never delayed. More watchers than that bound allows, 200 on two processors,
// take a larger part, since an event must not be late by more than maxPause. Each wake-up then returns all events of
// the pause: 1,000 watchers of a resource with 500 changes a second are woken 50 times a second, for ten events each.
//
//	pending ≠ ∅  ⇒  a timer is running that calls wakePending
//
// The zero throttle is ready to use. The feed's mu guards it.
type throttle struct {
	processors int       // 0: GOMAXPROCS; tests set it
	until      time.Time // the end of the pause
	pending    []*group  // taken out of feed.waiting during the pause, not woken yet
}

// pause is how long to wait after these groups were woken.
func (p *throttle) pause(groups []*group) time.Duration {
	processors := p.processors
	if processors == 0 {
		processors = runtime.GOMAXPROCS(0)
	}
	d := time.Duration(waiters(groups)) * 4 * wakeCost / time.Duration(processors)
	if d < minPause {
		return 0
	}
	return min(d, maxPause)
}

// wakeNow returns which of the fired groups the caller has to wake at once: all, or none during a pause. The caller
// holds f.mu.
func (f *feed) wakeNow(fired []*group) []*group {
	if len(fired) == 0 {
		return nil
	}
	now := time.Now()
	if left := f.throttle.until.Sub(now); left > 0 {
		if len(f.throttle.pending) == 0 {
			time.AfterFunc(left, f.wakePending)
		}
		f.throttle.pending = append(f.throttle.pending, fired...)
		return nil
	}
	f.throttle.until = now.Add(f.throttle.pause(fired))
	return fired
}

// wakePending ends a pause, and starts the next one.
func (f *feed) wakePending() {
	f.mu.Lock()
	due := f.throttle.pending
	f.throttle.pending = nil
	f.throttle.until = time.Now().Add(f.throttle.pause(due))
	f.mu.Unlock()
	for _, g := range due {
		g.call()
	}
}

// waiters is the number of cursors that wait in groups.
func waiters(groups []*group) int {
	n := 0
	for _, g := range groups {
		n += g.waiters
	}
	return n
}

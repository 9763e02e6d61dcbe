package store

import (
	"runtime"
	"time"
)

const (
	// wakeCost is about what it costs in processor time to wake a watcher up, to write to its connection and to have its
	// client read, however many events there are: as much as eight events do.
	wakeCost = 50 * time.Microsecond
	// A rest that is shorter than minRest does nothing for anybody, and maxRest bounds how much later an event may come
	// than it could.
	minRest = 2 * time.Millisecond
	maxRest = 20 * time.Millisecond
)

// pace keeps a stream of records from waking a crowd for each of them, in which it would be woken for little and find no
// time for more. After a waking the crowd has its rest; whatever happens meanwhile comes in one batch behind it. The first
// record after a rest wakes at once, and a few waiters, twenty on two processors, need no rest.
//
// The zero pace is ready. A feed's mu guards it.
type pace struct {
	processors int       // 0: those that the process has; a test may give any number
	until      time.Time // the end of the rest
	pending    []*group  // fired during the rest
}

// rest is how long the waiters of groups rest, so that to wake them takes about a quarter of what the processors have.
func (p *pace) rest(groups []*group) time.Duration {
	processors := p.processors
	if processors == 0 {
		processors = runtime.GOMAXPROCS(0)
	}
	d := time.Duration(waiters(groups)) * 4 * wakeCost / time.Duration(processors)
	if d < minRest {
		return 0
	}
	return min(d, maxRest)
}

// throttle returns those of the fired groups that may be woken at once: all or none.
func (f *feed) throttle(fired []*group) []*group {
	if len(fired) == 0 {
		return nil
	}
	now := time.Now()
	if left := f.pace.until.Sub(now); left > 0 {
		if len(f.pace.pending) == 0 {
			time.AfterFunc(left, f.release)
		}
		f.pace.pending = append(f.pace.pending, fired...)
		return nil
	}
	f.pace.until = now.Add(f.pace.rest(fired))
	return fired
}

// release wakes those whose rest is over.
func (f *feed) release() {
	f.mu.Lock()
	due := f.pace.pending
	f.pace.pending = nil
	f.pace.until = time.Now().Add(f.pace.rest(due))
	f.mu.Unlock()
	for _, g := range due {
		close(g.wake)
	}
}

func waiters(groups []*group) int {
	n := 0
	for _, g := range groups {
		n += g.waiters
	}
	return n
}

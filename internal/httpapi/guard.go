package httpapi

import (
	"net/http"
	"sync"
	"time"
)

// guard ends an answer whose client has stopped reading: armed before a write and disarmed after it, it makes the write
// fail when that takes too long (WATCH-6). Without it, a client that reads nothing holds the goroutine, the buffer and
// the snapshot of its answer for as long as its connection lasts. It does not limit how long an answer waits for its
// next part, because it is armed only during writes.
//
// Moving the write deadline of the connection before each write would cost more than resetting a timer.
//
//	armed for longer than timeout  ⇒  the write deadline has passed, and the write returns an error
type guard struct {
	control *http.ResponseController
	timeout time.Duration
	timer   *time.Timer
	counted bool // arm has passed the guard to stalls

	stalls        *stalls
	private       int64 // of the write under way; 0: the guard is not listed. It and the next two belong to stalls.mu.
	before, after *guard

	mu    sync.Mutex // between cut and end
	ended bool
}

// guard makes a guard for the answer. Its timer is stopped until arm.
func (rs *requestState) guard() *guard {
	g := &guard{control: http.NewResponseController(rs.w), timeout: rs.h.StallTimeout, stalls: &rs.h.stalls}
	g.timer = time.AfterFunc(time.Hour, g.cut)
	g.timer.Stop()
	return g
}

// arm is called before a write that holds so many private bytes while it waits. It starts the timer, and returns the
// guard.
func (g *guard) arm(private int) *guard {
	g.timer.Reset(g.timeout)
	if private > eventBuffer {
		g.counted = true
		g.stalls.add(g, int64(private)) // behind Reset: it may end this write, too, from now on
	}
	return g
}

// disarm is called after the write. If the timer is firing at that moment, the next write fails, although this one
// ended in time.
func (g *guard) disarm() {
	if g.counted {
		g.counted = false
		g.stalls.remove(g)
	}
	g.timer.Stop()
}

// end disarms the guard for good. A ResponseWriter must not be used after its handler has returned, but Stop does not
// wait for a cut that has begun. So cut checks ended under the lock.
func (g *guard) end() {
	g.disarm()
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
}

// cut makes the write that is under way fail. It runs on the goroutine of the timer.
func (g *guard) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		// Only the writers of tests and proxies have no deadlines; their writes cannot be ended.
		_ = g.control.SetWriteDeadline(time.Unix(1, 0))
	}
}

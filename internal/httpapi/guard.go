package httpapi

import (
	"net/http"
	"sync"
	"time"
)

// guard ends an answer whose client has stopped reading: armed before a write and disarmed after it, it makes the
// write fail when that takes too long (WATCH-6). Without it, a client that reads nothing holds the goroutine, the
// buffer and the snapshot of its answer for as long as its connection lasts.
//
// The obvious way, to move the write deadline of the connection before each write, costs more than a timer. An answer
// that waits for something to send is not ended by it.
//
//	armed for longer than timeout  ⇒  the write deadline has passed, and the write returns an error
type guard struct {
	control *http.ResponseController
	timeout time.Duration
	timer   *time.Timer

	mu    sync.Mutex // between the timer and the end of the requestState
	ended bool
}

// guard makes a guard for the answer. Its timer does not run.
func (rs *requestState) guard() *guard {
	g := &guard{control: http.NewResponseController(rs.w), timeout: rs.h.StallTimeout}
	g.timer = time.AfterFunc(time.Hour, g.cut)
	g.timer.Stop()
	return g
}

// arm starts the timer, and returns the guard.
func (g *guard) arm() *guard {
	g.timer.Reset(g.timeout)
	return g
}

// disarm stops the timer. It may just be firing: then the next write fails, although this one ended in time.
func (g *guard) disarm() { g.timer.Stop() }

// end disarms the guard for good. The ResponseWriter must not be used any more when its handler has returned, and the
// timer's goroutine may be about to: so cut looks at ended under the lock.
func (g *guard) end() {
	g.timer.Stop()
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
}

// cut makes the write that is under way fail. It runs on the goroutine of the timer.
func (g *guard) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		// A writer without deadlines belongs to a test or to a proxy; there is nothing else to be done to it.
		_ = g.control.SetWriteDeadline(time.Unix(1, 0))
	}
}

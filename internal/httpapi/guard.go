package httpapi

import (
	"net/http"
	"sync"
	"time"
)

// guard ends an answer whose reader has stalled: armed before a write and disarmed after it, it fails the write when
// that takes too long (WATCH-6). A timer of its own costs less than moving the connection's deadline with every
// write, and an answer that waits for something to say is not ended by it.
type guard struct {
	control *http.ResponseController
	timeout time.Duration
	timer   *time.Timer

	mu    sync.Mutex // between the timer and the end of the requestState
	ended bool
}

// guard makes one for the answer.
func (rs *requestState) guard() *guard {
	g := &guard{control: http.NewResponseController(rs.w), timeout: rs.h.StallTimeout}
	g.timer = time.AfterFunc(time.Hour, g.cut)
	g.timer.Stop()
	return g
}

func (g *guard) arm() *guard {
	g.timer.Reset(g.timeout)
	return g
}

func (g *guard) disarm() { g.timer.Stop() }

// end disarms the guard for good. The ResponseWriter must not be touched any more when its handler has returned.
func (g *guard) end() {
	g.timer.Stop()
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
}

// cut makes the write that is under way fail.
func (g *guard) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		// A writer without deadlines belongs to a test or to a proxy; there is nothing else to be done to it.
		_ = g.control.SetWriteDeadline(time.Unix(1, 0))
	}
}

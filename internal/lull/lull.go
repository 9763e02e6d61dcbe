// Package lull does what can wait until nothing else happens.
package lull

import (
	"sync"
	"time"
)

// Timer calls a function when it has not been touched for a while. To touch it costs next to nothing, however often it is
// done: the timer below is set once in that while, and not for each touch.
type Timer struct {
	after time.Duration
	do    func()

	mu      sync.Mutex
	timer   *time.Timer // nil before the first touch
	running bool
	touched bool // since it was set
	stopped bool
}

// New makes a timer that calls do between after and twice that from the last touch on, from a goroutine of its own.
func New(after time.Duration, do func()) *Timer { return &Timer{after: after, do: do} }

// Touch says that something has happened.
func (t *Timer) Touch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touched = true
	if t.running || t.stopped {
		return
	}
	t.running = true
	if t.timer == nil {
		t.timer = time.AfterFunc(t.after, t.expire)
		return
	}
	t.timer.Reset(t.after)
}

func (t *Timer) expire() {
	if t.over() {
		t.do()
	}
}

// over says whether nothing has happened since the timer was set; else it is set again.
func (t *Timer) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.stopped:
		return false
	case t.touched:
		t.touched = false
		t.timer.Reset(t.after)
		return false
	}
	t.running = false
	return true
}

// Stop ends the timer for good. A call that has begun goes on.
func (t *Timer) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

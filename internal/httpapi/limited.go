package httpapi

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// limited is a context with a deadline that has no timer until somebody waits for it. Few requests ever wait: most
// ask for Err only, between two steps, and a timer for each of them would be the larger part of the cost of a
// context.
//
// As context.Context demands, Err is nil as long as Done is open, and is not nil from then on: a context derived from
// this one, in package context, panics on a parent that is done without an error. So there is one source of the truth
// at a time:
//
//	timed = nil  ⇒  nobody has called Done, and Err compares the clock with the deadline
//	timed ≠ nil  ⇒  Err and Done are those of timed
type limited struct {
	context.Context
	deadline time.Time

	once  sync.Once
	timed atomic.Pointer[timed] // from the first Done on
}

type timed struct {
	context.Context
	cancel context.CancelFunc
}

// Deadline is when the context ends by itself.
func (c *limited) Deadline() (time.Time, bool) { return c.deadline, true }

// Done is closed when the context ends.
func (c *limited) Done() <-chan struct{} { return c.start().Done() }

// start makes the context with a timer, once.
func (c *limited) start() *timed {
	c.once.Do(func() {
		ctx, cancel := context.WithDeadline(c.Context, c.deadline)
		c.timed.Store(&timed{ctx, cancel})
	})
	return c.timed.Load()
}

// Err is why the context has ended; nil if it has not.
func (c *limited) Err() error {
	if t := c.timed.Load(); t != nil {
		return t.Err()
	}
	if c.Context.Err() == nil && time.Now().Before(c.deadline) {
		return nil
	}
	return c.start().Err() // Done closes with it
}

// end gives the timer back, if there is one. Nobody uses the context any more.
func (c *limited) end() {
	if c == nil {
		return
	}
	if t := c.timed.Load(); t != nil {
		t.cancel()
	}
}

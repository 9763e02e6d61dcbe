package httpapi

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"plinth/internal/webhook"
)

// limited is a context with a deadline that starts its timer when Done is first called. Few requests ever wait: most
// only call Err between two steps, and a timer for each of them would be the larger part of the cost of a context.
//
// context.Context demands that Err is nil as long as Done is open, and not nil from then on: package context panics
// when the parent of a derived context is done without an error. So at any time, one of two sources decides:
//
//	timed = nil  ⇒  Done has not been called, and Err compares the clock with the deadline
//	timed ≠ nil  ⇒  Err and Done are those of timed
type limited struct {
	context.Context
	deadline time.Time

	once  sync.Once
	timed atomic.Pointer[timed] // set by the first call of Done
	hooks webhook.Waiting       // of the request
}

// Value returns the values of a request, and how long it waits for webhooks.
func (c *limited) Value(key any) any {
	if key == webhook.WaitingKey {
		return &c.hooks
	}
	return c.Context.Value(key)
}

type timed struct {
	context.Context
	cancel context.CancelFunc
}

// Deadline returns the time at which the context ends by itself.
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

// Err returns the reason why the context has ended; nil if it has not.
func (c *limited) Err() error {
	if t := c.timed.Load(); t != nil {
		return t.Err()
	}
	if c.Context.Err() == nil && time.Now().Before(c.deadline) {
		return nil
	}
	return c.start().Err() // closes Done, too
}

// end stops the timer, if it was started. It must be the last use of the context.
func (c *limited) end() {
	if c == nil {
		return
	}
	if t := c.timed.Load(); t != nil {
		t.cancel()
	}
}

package httpapi

import (
	"context"
	"sync"
	"time"
)

// limited is a context with a deadline. Few requests ever wait for anything, so it takes a timer only when somebody does.
type limited struct {
	context.Context
	deadline time.Time

	once   sync.Once
	timed  context.Context // from the first Done on
	cancel context.CancelFunc
}

// Deadline is when the context ends by itself.
func (c *limited) Deadline() (time.Time, bool) { return c.deadline, true }

// Done is closed when the context ends.
func (c *limited) Done() <-chan struct{} {
	c.once.Do(func() { c.timed, c.cancel = context.WithDeadline(c.Context, c.deadline) })
	return c.timed.Done()
}

// Err is why the context has ended; nil if it has not.
func (c *limited) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if time.Now().Before(c.deadline) {
		return nil
	}
	return context.DeadlineExceeded
}

// end gives the timer back. Nobody uses the context any more.
func (c *limited) end() {
	if c != nil && c.cancel != nil {
		c.cancel()
	}
}

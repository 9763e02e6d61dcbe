package httpapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		c := &limited{Context: parent, deadline: began.Add(time.Minute)}
		if deadline, ok := c.Deadline(); !ok || !deadline.Equal(began.Add(time.Minute)) || c.Err() != nil {
			t.Errorf("%v %v %v", deadline, ok, c.Err())
		}
		<-c.Done()
		if took := time.Since(began); took != time.Minute || c.Err() != context.DeadlineExceeded {
			t.Errorf("ended after %v with %v", took, c.Err())
		}
		c.end()

		c = &limited{Context: parent, deadline: time.Now().Add(time.Minute)}
		cancel()
		<-c.Done()
		if c.Err() != context.Canceled || time.Since(began) != time.Minute {
			t.Errorf("a request that its client has given up: %v", c.Err())
		}
		c.end()

		c = &limited{Context: t.Context(), deadline: began}
		if c.Err() != context.DeadlineExceeded {
			t.Error("nobody waited, and the deadline did not count")
		}
		c.end()
	})
}

// The contract of context.Context: Err and Done tell of the end together.
func TestLimitedIsConsistent(t *testing.T) {
	for range 100 {
		c := &limited{Context: t.Context(), deadline: time.Now().Add(100 * time.Microsecond)}
		done := c.Done()
		for c.Err() == nil {
		}
		select {
		case <-done:
		default:
			t.Fatal("there is an error before the context is done")
		}
	}
	c := &limited{Context: t.Context(), deadline: time.Now().Add(time.Minute)}
	done := c.Done()
	c.end()
	<-done
	if c.Err() == nil {
		t.Error("the context is done without an error")
	}
	c = &limited{Context: t.Context(), deadline: time.Now().Add(-time.Minute)}
	if c.Err() == nil {
		t.Error("the deadline has passed without an error")
	}
	select {
	case <-c.Done():
	default:
		t.Error("there is an error, and the context is not done")
	}
}

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
			t.Errorf("the parent was cancelled: %v", c.Err())
		}
		c.end()

		c = &limited{Context: t.Context(), deadline: began}
		if c.Err() != context.DeadlineExceeded {
			t.Error("without a call of Done, Err is nil after the deadline")
		}
		c.end()
	})
}

// The contract of context.Context: Err is not nil if and only if Done is closed.
func TestLimitedIsConsistent(t *testing.T) {
	for range 100 {
		c := &limited{Context: t.Context(), deadline: time.Now().Add(100 * time.Microsecond)}
		done := c.Done()
		for c.Err() == nil {
		}
		select {
		case <-done:
		default:
			t.Fatal("Err is not nil before Done is closed")
		}
	}
	c := &limited{Context: t.Context(), deadline: time.Now().Add(time.Minute)}
	done := c.Done()
	c.end()
	<-done
	if c.Err() == nil {
		t.Error("Done is closed and Err is nil")
	}
	c = &limited{Context: t.Context(), deadline: time.Now().Add(-time.Minute)}
	if c.Err() == nil {
		t.Error("Err is nil after the deadline")
	}
	select {
	case <-c.Done():
	default:
		t.Error("Err is not nil and Done is open")
	}
}

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
		c.end() // nothing to give back
	})
}

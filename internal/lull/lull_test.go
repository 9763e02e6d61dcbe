package lull

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTimer(t *testing.T) {
	const after = 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var calls []time.Time
		timer := New(after, func() {
			mu.Lock()
			calls = append(calls, time.Now())
			mu.Unlock()
		})
		wait := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(calls) != want {
				t.Fatalf("called at %v, want %d calls", calls, want)
			}
		}
		wait(time.Second, 0) // nobody has touched it
		var last time.Time
		for range 100 {
			timer.Touch()
			last = time.Now()
			wait(after/2, 0)
		}
		wait(2*after, 1)
		if since := calls[0].Sub(last); since < after || since > 2*after {
			t.Errorf("called %v after the last touch", since)
		}
		wait(time.Second, 1) // once is enough
		timer.Touch()
		wait(2*after, 2)
		timer.Touch()
		timer.Stop()
		wait(time.Second, 2)
		timer.Touch()
		wait(time.Second, 2)
	})
}

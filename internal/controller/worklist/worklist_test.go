package worklist

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"plinth/internal/controller/steps"
)

// A list that is never empty keeps no room for the tasks that were executed.
//
// SPEC: DEL-5
func TestListForgetsWhatIsDone(t *testing.T) {
	const tasks, waiting = 20_000, 10
	var l *List[int64, struct{}]
	var added, most atomic.Int64
	var done sync.WaitGroup
	done.Add(tasks)
	group := steps.NewPool(64).Group(t.Context(), 64)
	defer group.Close()
	l = New(t.Context(), group, Config[int64, struct{}]{Do: func(context.Context, int64, struct{}) error {
		defer done.Done()
		if n := added.Add(1); n <= tasks {
			l.Add(n, struct{}{})
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		most.Store(max(most.Load(), int64(cap(l.ready))))
		return nil
	}})
	for range waiting {
		l.Add(added.Add(1), struct{}{})
	}
	done.Wait()
	if room := most.Load(); room > 16*waiting {
		t.Errorf("there was room for %d tasks, of which %d were queued at a time", room, waiting)
	}
}

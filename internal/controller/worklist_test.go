package controller

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"plinth/internal/engine"
)

// A worklist that is never empty keeps no room for the tasks that were executed.
//
// SPEC: DEL-5
func TestWorklistForgetsWhatIsDone(t *testing.T) {
	const tasks, queued = 20_000, 10
	w := &worklist{ctx: t.Context(), items: map[task]*workItem{}}
	add := func(n int64) { w.add(task{key: engine.Key{Name: fmt.Sprint(n)}}, notes{}) }
	var added, most atomic.Int64
	var done sync.WaitGroup
	done.Add(tasks)
	w.do = func(context.Context, task, notes) error {
		defer done.Done()
		if n := added.Add(1); n <= tasks {
			add(n)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		most.Store(max(most.Load(), int64(cap(w.ready))))
		return nil
	}
	for range queued {
		add(added.Add(1))
	}
	done.Wait()
	if room := most.Load(); room > 16*queued {
		t.Errorf("there was room for %d tasks, of which %d were queued at a time", room, queued)
	}
}

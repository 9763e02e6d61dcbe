// Package worklist has the queue of the tasks of a controller.
package worklist

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
)

// List is a queue of tasks without duplicates: a task that is added again before it is executed is executed once, and
// one that is added while it is being executed is executed again. Tasks are executed as steps of a group. Notes are the
// facts that were known when a task was added.
type List[Task comparable, Notes any] struct {
	Config[Task, Notes]

	ctx   context.Context
	group *steps.Group
	loop  *steps.Loop // ends the rests of failed tasks, and the list

	mu        sync.Mutex
	items     map[Task]*item[Task, Notes]
	ready     []*item[Task, Notes] // items in state queued, oldest first
	rests     rests[Task, Notes]
	running   int // steps that execute tasks, or will
	executing int
	closed    bool
	idle      chan struct{} // closed when no task is being executed; nil: nobody waits for that
}

// rest is when an item is executed again that has failed; it is out of date if the item has another rest, or none.
type rest[Task comparable, Notes any] struct {
	of *item[Task, Notes]
	at time.Time
}

// rests is a heap, by time.
type rests[Task comparable, Notes any] []rest[Task, Notes]

func (r rests[Task, Notes]) Len() int           { return len(r) }
func (r rests[Task, Notes]) Less(i, j int) bool { return r[i].at.Before(r[j].at) }
func (r rests[Task, Notes]) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *rests[Task, Notes]) Push(x any)        { *r = append(*r, x.(rest[Task, Notes])) }
func (r *rests[Task, Notes]) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// Config is what a list does with its tasks.
type Config[Task comparable, Notes any] struct {
	// Do executes a task. The context is that of the list.
	Do func(context.Context, Task, Notes) error
	// Failed is called with an error of a task, unless it is the same one as before. The task is executed again.
	Failed func(Task, error)
	// Join returns the facts of both. Nil if notes say nothing.
	Join func(Notes, Notes) Notes
	Busy *pace.Busy // nil: nobody asks
	// Name is the queue's in the metrics: that of its controller. Several lists may have one name.
	Name    string
	Observe Observe
}

// Observe are the functions that are told what a list does. Nil ones are not called.
type Observe struct {
	// Queued is called when tasks become ready, or, with a negative number, when ones are given up that were.
	Queued func(name string, tasks int)
	// Retried is called when a task has failed and is to be executed again.
	Retried func(name string)
	// Began is called when a task begins that was ready for so long. It returns what is called at its end.
	Began func(name string, ready time.Duration) (ended func())
}

// item is a task on the list.
type item[Task comparable, Notes any] struct {
	task     Task
	notes    Notes
	state    state
	again    bool      // added while it was executed
	since    time.Time // of being queued; only for Observe
	rested   time.Time // the end of its rest
	failures int       // in a row
	last     string
}

type state uint8

const (
	queued state = iota
	working
	resting // after a failure
)

const (
	// AtOnce is how many tasks are executed concurrently: their commits share a sync of the log. It is small, because
	// those that share a sync can all go on at the same moment, and a request waits for all of them: with 32, the 99th
	// percentile of GETs beside the deletion of 10,000 dependents was three times as high as without, with 4 it is less
	// than twice.
	AtOnce = 4
	// A failed task is executed again after minRest, and twice as long each time, up to maxRest.
	minRest, maxRest = 10 * time.Millisecond, time.Minute
)

// New returns an empty list, whose tasks are executed by a group until ctx ends, which is that of the group or ends
// earlier. The list is closed with the group.
func New[Task comparable, Notes any](ctx context.Context, g *steps.Group, c Config[Task, Notes]) *List[Task, Notes] {
	l := &List[Task, Notes]{Config: c, ctx: ctx, group: g, items: map[Task]*item[Task, Notes]{}}
	l.loop = g.Loop(l.endRests, l.giveUp)
	return l
}

// Add puts a task on the list.
func (l *List[Task, Notes]) Add(t Task, n Notes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	i := l.items[t]
	if i == nil {
		i = &item[Task, Notes]{task: t, notes: n}
		l.items[t] = i
		l.queue(i)
		return
	}
	l.note(i, n)
	switch i.state {
	case working:
		i.again = true
	case resting:
		l.queue(i)
	}
}

// note adds facts to an item. The caller holds mu.
func (l *List[Task, Notes]) note(i *item[Task, Notes], n Notes) {
	if l.Join != nil {
		i.notes = l.Join(i.notes, n)
	}
}

// queue makes an item ready. The caller holds mu.
func (l *List[Task, Notes]) queue(i *item[Task, Notes]) {
	i.state = queued
	l.Busy.Add(1)
	if l.Observe.Queued != nil {
		l.Observe.Queued(l.Name, 1)
	}
	if l.Observe.Began != nil {
		i.since = time.Now()
	}
	l.ready = append(l.ready, i)
	if l.running < AtOnce && l.ctx.Err() == nil {
		l.running++
		l.group.Do(l.run)
	}
}

// run executes a task, and is run again if more are ready: other steps may be first.
func (l *List[Task, Notes]) run() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ready) > 0 && l.ctx.Err() == nil {
		i := l.ready[0]
		l.ready[0] = nil
		l.ready = l.ready[1:] // append drops what is before it when it needs more room
		i.state, i.again = working, false
		known := i.notes
		var none Notes
		i.notes = none
		ended := func() {}
		if l.Observe.Began != nil {
			ended = l.Observe.Began(l.Name, time.Since(i.since))
		}
		l.executing++
		l.mu.Unlock()
		err := l.Do(l.ctx, i.task, known)
		ended()
		l.mu.Lock()
		l.done(i, known, err)
		l.Busy.Add(-1)
		if l.executing--; l.executing == 0 && l.idle != nil {
			close(l.idle)
			l.idle = nil
		}
	}
	if len(l.ready) > 0 && l.ctx.Err() == nil {
		l.group.Do(l.run)
		return
	}
	if len(l.ready) == 0 {
		l.ready = nil
	}
	l.running--
}

// done records the result of a task. The caller holds mu.
func (l *List[Task, Notes]) done(i *item[Task, Notes], known Notes, err error) {
	if err == nil {
		i.failures, i.last = 0, ""
		if !i.again {
			delete(l.items, i.task)
			return
		}
		l.queue(i)
		return
	}
	if l.ctx.Err() != nil {
		return
	}
	l.note(i, known)
	if text := err.Error(); text != i.last {
		i.last = text
		l.Failed(i.task, err)
	}
	i.rested = time.Now().Add(min(maxRest, minRest<<min(i.failures, 20)))
	i.failures++
	i.state = resting
	if l.Observe.Retried != nil {
		l.Observe.Retried(l.Name)
	}
	heap.Push(&l.rests, rest[Task, Notes]{i, i.rested})
	l.loop.Wake()
}

// endRests queues the items whose rest is over, and returns when that of the next one is.
func (l *List[Task, Notes]) endRests(context.Context, *steps.Loop) (next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.rests) > 0 && !l.closed {
		first := l.rests[0]
		current := first.of.state == resting && first.of.rested.Equal(first.at)
		if current && first.at.After(time.Now()) {
			return first.at
		}
		heap.Pop(&l.rests)
		if current {
			l.queue(first.of)
		}
	}
	return next
}

// Len is the number of tasks that are not done, with those that are executed again after a rest.
func (l *List[Task, Notes]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.items)
}

// Close waits for the tasks that are being executed, and gives the others up. It is called when the context of the list
// has ended, if that is earlier than the group is closed.
func (l *List[Task, Notes]) Close() {
	l.loop.Stop()
	l.mu.Lock()
	if l.executing > 0 && l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// giveUp gives up the tasks that are ready.
func (l *List[Task, Notes]) giveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.Busy.Add(-int64(len(l.ready)))
	if l.Observe.Queued != nil && len(l.ready) > 0 {
		l.Observe.Queued(l.Name, -len(l.ready))
	}
	l.ready = nil
}

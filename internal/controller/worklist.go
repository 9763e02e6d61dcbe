package controller

import (
	"context"
	"sync"
	"time"

	"plinth/internal/engine"
)

// worklist is what is to be done about objects, each thing once: what is added again before it is done is done once,
// and what is added while it is being done is done again. It costs nothing while it is empty: workers are there as
// long as there is work.
type worklist struct {
	do func(context.Context, task, notes) error
	// failed is told of an error when it is not the one that the task had before.
	failed func(task, error)

	ctx     context.Context
	mu      sync.Mutex
	items   map[task]*workItem
	ready   []*workItem // items in state queued, in the order in which they came, from first on
	first   int
	running int
	work    sync.WaitGroup
}

// task is one thing to be done about one object.
type task struct {
	what taskKind
	key  engine.Key
}

// taskKind says what is to be done.
type taskKind uint8

// notes is what whoever adds a task knows already.
type notes struct {
	gone []*departed // owners that are known to be gone
	// seen says that the references of the object are new, and have not been looked at yet.
	seen bool
}

func (n *notes) add(m notes) {
	n.gone = append(n.gone, m.gone...)
	n.seen = n.seen || m.seen
}

// workItem is a task on the worklist.
type workItem struct {
	task
	notes
	state    workState
	again    bool // added while it was being done
	failures int  // in a row
	last     string
}

type workState uint8

const (
	queued workState = iota
	working
	resting // after a failure
)

const (
	// tasksAtOnce is how many tasks are done side by side, so that their commits share the waits for the disk.
	tasksAtOnce = 32
	// A task that has failed is done again after minRest, and twice as long each time, up to maxRetry.
	minTaskRest, maxTaskRest = 10 * time.Millisecond, time.Minute
)

// add puts a task on the list.
func (w *worklist) add(t task, n notes) {
	w.mu.Lock()
	defer w.mu.Unlock()
	item := w.items[t]
	if item == nil {
		item = &workItem{task: t, notes: n}
		w.items[t] = item
		w.queue(item)
		return
	}
	item.notes.add(n)
	switch item.state {
	case working:
		item.again = true
	case resting:
		w.queue(item)
	}
}

// queue makes an item ready. The caller holds mu.
func (w *worklist) queue(item *workItem) {
	item.state = queued
	w.ready = append(w.ready, item)
	if w.running < tasksAtOnce && w.ctx.Err() == nil {
		w.running++
		w.work.Go(w.run)
	}
}

// run does tasks until none is ready.
func (w *worklist) run() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.first < len(w.ready) && w.ctx.Err() == nil {
		item := w.ready[w.first]
		w.ready[w.first] = nil
		w.first++
		item.state, item.again = working, false
		known := item.notes
		item.notes = notes{}
		w.mu.Unlock()
		err := w.do(w.ctx, item.task, known)
		w.mu.Lock()
		w.done(item, known, err)
	}
	if w.first == len(w.ready) {
		w.ready, w.first = nil, 0
	}
	w.running--
}

// done notes how a task has ended. The caller holds mu.
func (w *worklist) done(item *workItem, known notes, err error) {
	if err == nil {
		item.failures, item.last = 0, ""
		if !item.again {
			delete(w.items, item.task)
			return
		}
		w.queue(item)
		return
	}
	if w.ctx.Err() != nil {
		return
	}
	item.notes.add(known)
	if text := err.Error(); text != item.last {
		item.last = text
		w.failed(item.task, err)
	}
	rest := min(maxTaskRest, minTaskRest<<min(item.failures, 20))
	item.failures++
	item.state = resting
	time.AfterFunc(rest, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if item.state == resting {
			w.queue(item)
		}
	})
}

// wait returns when the work under way is done; ctx has ended.
func (w *worklist) wait() { w.work.Wait() }

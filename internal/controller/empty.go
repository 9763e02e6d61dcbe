package controller

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/controller/pace"
	"plinth/internal/engine"
)

// emptier deletes the contents of deleted objects of one type: namespaces or definitions.
//
// Each object that is being deleted has a separate worker, so that one that cannot be emptied (a webhook does not
// answer) does not delay the others. A worker makes a pass over the contents, and then waits until some of what is
// left has changed: it watches the types that have objects left, in that namespace, from the revision at which the
// pass counted them. Listing everything again every few seconds costs as much for objects that are stuck as for those
// that make progress, and is late. Here lists are not repeated by the clock, and while no object is being deleted the
// only watch is the one of the objects themselves.
type emptier struct {
	engine *engine.Engine
	logger *slog.Logger
	now    func() time.Time
	of     *engine.Resource // nil: the type is not served, and there is no work
	what   string           // "namespace"
	user   access.User
	pace   *rate.Limiter // of its deletes
	busy   *pace.Busy
	// onChange is called for every change of an object; gone means that it was deleted. Nil disables it.
	onChange func(ctx context.Context, o *engine.Object, gone bool)
	// empty makes one pass: it deletes the contents of an object, and removes its finalizer when its contents are gone.
	empty func(ctx context.Context, o *engine.Object) (leftovers, error)
}

// leftovers are the objects that a pass has left, and the time of the next pass.
type leftovers struct {
	kinds     []leftKind
	namespace string    // of the objects; "": all
	until     time.Time // when to make a pass without a change; zero: never
	wrote     int64     // the revision of the last write of the pass to the object; 0: none
}

// leftKind is how many objects of a type are left, as of a revision.
type leftKind struct {
	resource *engine.Resource
	count    int
	revision int64
	// related are objects that are not deleted, but whose deletion is a reason for another pass: Nodes, as the Pods of
	// a deleted Node are deleted without a grace period.
	related bool
}

func (l *leftovers) count() (n int) {
	for _, k := range l.kinds {
		n += k.count
	}
	return n
}

const (
	// passesAtOnce is how many objects are emptied concurrently, and deletesAtOnce how many deletes a pass makes
	// concurrently: their commits share a sync of the log. Few, for the reason of tasksAtOnce.
	passesAtOnce  = 10
	deletesAtOnce = 4

	// After a pass that has left objects, the worker waits restFactor times as long as the pass took, and at least
	// minRest. So objects whose finalizers are removed one after another do not cause a pass each.
	restFactor = 10
	minRest    = 100 * time.Millisecond
)

// run works until ctx ends.
func (c *emptier) run(ctx context.Context) {
	for c.of != nil && ctx.Err() == nil {
		if err := c.watch(ctx); err != nil && ctx.Err() == nil {
			c.logger.Warn("watching "+c.what+"s failed, trying again", "error", err)
			pace.Pause(ctx, pace.MinRetry)
		}
	}
}

// watch follows the objects and starts a worker for each that is being deleted.
func (c *emptier) watch(ctx context.Context) error {
	watch, err := c.engine.Watch(ctx, &engine.Request{Resource: c.of, User: c.user}, engine.WatchOptions{})
	if err != nil {
		return err
	}
	defer watch.Close()
	var working sync.WaitGroup
	defer working.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workers, slots := map[string]*worker{}, make(chan struct{}, passesAtOnce)
	for {
		events, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		for _, event := range events {
			if c.onChange != nil {
				c.onChange(ctx, event.Object, event.Type == engine.Deleted)
			}
			name := event.Object.Key.Name
			w := workers[name]
			if event.Type == engine.Deleted || !event.Object.Sidecar.Deleting {
				if w != nil {
					w.stop()
					delete(workers, name)
				}
				continue
			}
			if w == nil {
				w = c.newWorker(slots, event.Object)
				workers[name] = w
				var its context.Context
				its, w.stop = context.WithCancel(ctx)
				working.Go(func() { w.work(its) })
			}
			w.newest.Store(event.Object)
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
}

// worker empties one object that is being deleted.
type worker struct {
	*emptier
	stop    context.CancelFunc
	slots   chan struct{}                 // a pass takes one
	newest  atomic.Pointer[engine.Object] // never nil
	changed chan struct{}                 // receives when newest has changed
}

func (c *emptier) newWorker(slots chan struct{}, o *engine.Object) *worker {
	w := &worker{emptier: c, slots: slots, changed: make(chan struct{}, 1)}
	w.newest.Store(o)
	return w
}

// work makes passes until ctx ends, because the object is gone or the server closes.
func (w *worker) work(ctx context.Context) {
	last := ""
	w.busy.Add(1)
	defer w.busy.Add(-1)
	for failed := 0; ctx.Err() == nil; {
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		o := w.newest.Load()
		left, err := w.empty(ctx, o)
		<-w.slots
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failed, last = 0, ""
		} else {
			failed++
			if at := w.now().Add(pace.Retry(failed)); left.until.IsZero() || at.Before(left.until) {
				left.until = at
			}
			if err.Error() != last { // logged once
				last = err.Error()
				w.logger.Warn("emptying a "+w.what+" failed, trying again", w.what, o.Key.Name, "error", err)
			}
		}
		left.wrote = max(left.wrote, o.Revision)
		w.wait(ctx, left, max(minRest, restFactor*time.Since(began)))
	}
}

// wait returns when there is a reason for another pass: all objects left are gone; or one of them, or the object
// itself, has changed and the pause is over; or left.until is reached. It also returns when ctx ends.
func (w *worker) wait(ctx context.Context, left leftovers, rest time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	ended := make(chan int)
	for _, kind := range left.kinds {
		following.Go(func() { w.follow(ctx, kind, left.namespace, ended) })
	}
	rested := time.NewTimer(rest)
	defer rested.Stop()
	var again <-chan time.Time
	if !left.until.IsZero() {
		timer := time.NewTimer(max(left.until.Sub(w.now()), minRest))
		defer timer.Stop()
		again = timer.C
	}
	remain, look, over := left.count(), false, false
	w.busy.Add(-1) // until there is something to look at
	reason := func() {
		if !look {
			look = true
			w.busy.Add(1)
		}
	}
	defer reason()
	for !look || !over {
		select {
		case n := <-ended:
			if remain -= n; n > 0 && remain <= 0 {
				return
			}
			reason()
		case <-w.changed:
			if w.newest.Load().Revision > left.wrote {
				reason()
			}
		case <-rested.C:
			over = true
		case <-again:
			return
		case <-ctx.Done():
			return
		}
	}
}

// follow sends changes of the objects left of a kind, and how many of these are gone, until ctx ends.
func (w *worker) follow(ctx context.Context, kind leftKind, namespace string, ended chan<- int) {
	tell := func(n int) {
		select {
		case ended <- n:
		case <-ctx.Done():
		}
	}
	rq := &engine.Request{Resource: kind.resource, User: w.user}
	if kind.resource.Namespaced {
		rq.Namespace = namespace
	}
	watch, err := w.engine.Watch(ctx, rq, engine.WatchOptions{
		ListOptions: engine.ListOptions{ResourceVersion: strconv.FormatInt(kind.revision, 10)},
	})
	if err == nil {
		defer watch.Close()
	}
	for err == nil {
		var events []engine.Event
		if events, err = watch.Next(ctx); err != nil {
			break
		}
		gone := 0
		for _, event := range events {
			if event.Type == engine.Deleted {
				gone++
			}
		}
		switch {
		case kind.related && gone > 0:
			tell(0)
		case !kind.related && len(events) > 0:
			tell(gone)
		}
	}
	// The history does not reach back so far, or the type is served in another form or no longer: make another pass.
	if pace.Pause(ctx, pace.MinRetry) {
		tell(0)
	}
}

// deletion returns the options with which a controller deletes an object.
type deletion func(o *engine.Object) engine.DeleteOptions

// inBackground is the deletion of the contents of a namespace or a definition: it neither waits for dependents nor
// orphans them.
func inBackground(*engine.Object) engine.DeleteOptions {
	return engine.DeleteOptions{PropagationPolicy: "Background"}
}

// emptyOf deletes the objects of one type in a namespace, or in all, and returns a list of those that are left. No
// new ones can be created: the namespace or the definition is marked as deleted, and objects that were created before
// that are in the first list.
func (c *emptier) emptyOf(
	ctx context.Context, r *engine.Resource, namespace string, how deletion,
) (rest *engine.Collection, err error) {
	rq := &engine.Request{Resource: r, Namespace: namespace, User: c.user}
	list, err := c.engine.List(ctx, rq, engine.ListOptions{})
	if err != nil {
		return nil, err
	}
	deletes, failing := errgroup.WithContext(ctx) // an error ends the loop, and not the deletes that are on their way
	deletes.SetLimit(deletesAtOnce)
	any := false
	for item := range list.Items {
		any = true
		if failing.Err() != nil {
			break
		}
		if deleteIsNoop(r, item) {
			continue
		}
		options := how(item)
		deletes.Go(func() error { return c.delete(ctx, r, item, options) })
	}
	if err := errors.Join(deletes.Wait(), ctx.Err(), list.Err()); err != nil || !any {
		return list, err
	}
	return c.engine.List(ctx, rq, engine.ListOptions{})
}

// deleteIsNoop says that a delete in the background would not change an object: it is being deleted already, and waits
// for finalizers that such a delete does not remove. (Types with a grace period are deleted again, as that may shorten
// it.)
func deleteIsNoop(r *engine.Resource, item *engine.Object) bool {
	if !item.Sidecar.Deleting || r.GracefulDelete != nil {
		return false
	}
	for _, f := range finalizers(item) {
		if f == "orphan" || f == "foregroundDeletion" {
			return false
		}
	}
	return true
}

// delete deletes one object of a list. It is not an error if the object is gone, or another object has its name.
func (c *emptier) delete(ctx context.Context, r *engine.Resource, item *engine.Object, o engine.DeleteOptions) error {
	rq := &engine.Request{Resource: r, Name: item.Key.Name, User: c.user}
	if r.Namespaced {
		rq.Namespace, rq.Name, _ = strings.Cut(item.Key.Name, "/")
	}
	if err := c.pace.Wait(ctx); err != nil {
		return err
	}
	o.PreconditionUID = item.Sidecar.UID
	_, err := c.engine.Delete(ctx, rq, o)
	if apierr.Is(err, apierr.NotFound) || apierr.Is(err, apierr.Conflict) {
		return nil
	}
	return err
}

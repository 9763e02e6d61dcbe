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

	"golang.org/x/time/rate"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/engine"
)

// emptier empties the deleted objects of one type that hold others: namespaces and definitions.
//
// Each object that is being deleted has a worker, so that one that cannot be emptied (a webhook that does not answer)
// keeps no other. A worker makes a pass over what is in its object, and then waits until something happens to what
// the pass has left: it watches the types that have objects left, in that namespace, from the version of which the
// pass counted them. Nothing is listed again by the clock, and a server in which nothing is being deleted follows
// nothing but the objects themselves.
type emptier struct {
	engine *engine.Engine
	logger *slog.Logger
	now    func() time.Time
	of     *engine.Resource // nil: the type is not served, and there is nothing to do
	what   string           // "namespace"
	user   access.User
	pace   *rate.Limiter // of its deletes
	// seen is told of every change of an object; nil disables it.
	seen func(ctx context.Context, o *engine.Object)
	// empty is one pass: it deletes what is in an object, and lets the object go when nothing is left.
	empty func(ctx context.Context, o *engine.Object) (leftovers, error)
}

// leftovers is what a pass has left behind, and what is worth another pass.
type leftovers struct {
	kinds     []leftKind
	namespace string    // in which the objects are; "": in all
	until     time.Time // when to look again although nothing has happened; zero: never
	wrote     int64     // the revision of what the pass itself has written to the object; 0: nothing
}

// leftKind is a type and how many of its objects are left, as of a revision.
type leftKind struct {
	resource *engine.Resource
	count    int
	revision int64
	// related are objects that are not to be emptied: their deletion is worth another pass. (A Node, whose Pods
	// nobody ends.)
	related bool
}

func (l *leftovers) count() (n int) {
	for _, k := range l.kinds {
		n += k.count
	}
	return n
}

const (
	// passesAtOnce is how many objects are emptied side by side, and deletesAtOnce how many deletes of a pass
	// are: these share the waits for the disk.
	passesAtOnce  = 10
	deletesAtOnce = 16

	// A pass is followed by a rest of restFactor times as long as it took, and of minRest at least, unless
	// nothing is left: objects whose finalizers go one after the other are not worth a pass each.
	restFactor = 10
	minRest    = 100 * time.Millisecond

	// After an error the next pass comes by itself: after minRetry, and twice as long each time, up to maxRetry,
	// as in the reference.
	minRetry = time.Second
	maxRetry = time.Minute
)

// retry is how long to wait after a number of failed passes in a row.
func retry(failed int) time.Duration {
	return min(maxRetry, minRetry<<min(failed-1, 6))
}

// run works until ctx ends.
func (c *emptier) run(ctx context.Context) {
	for c.of != nil && ctx.Err() == nil {
		if err := c.watch(ctx); err != nil && ctx.Err() == nil {
			c.logger.Warn("watching "+c.what+"s failed, trying again", "error", err)
			pause(ctx, minRetry)
		}
	}
}

// watch follows the objects and gives each that is being deleted a worker.
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
			if c.seen != nil {
				c.seen(ctx, event.Object)
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
			case w.told <- struct{}{}:
			default:
			}
		}
	}
}

// worker empties one object that is being deleted.
type worker struct {
	*emptier
	stop   context.CancelFunc
	slots  chan struct{}                 // a pass takes one
	newest atomic.Pointer[engine.Object] // never nil
	told   chan struct{}                 // receives when newest has changed
}

func (c *emptier) newWorker(slots chan struct{}, o *engine.Object) *worker {
	w := &worker{emptier: c, slots: slots, told: make(chan struct{}, 1)}
	w.newest.Store(o)
	return w
}

// work makes passes until ctx ends: the object is gone, then, or the server closes.
func (w *worker) work(ctx context.Context) {
	last := ""
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
			if at := w.now().Add(retry(failed)); left.until.IsZero() || at.Before(left.until) {
				left.until = at
			}
			if err.Error() != last { // it is told of once
				last = err.Error()
				w.logger.Warn("emptying a "+w.what+" failed, trying again", w.what, o.Key.Name, "error", err)
			}
		}
		left.wrote = max(left.wrote, o.Revision)
		w.wait(ctx, left, max(minRest, restFactor*time.Since(began)))
	}
}

// wait returns when there is a reason for another pass: nothing is left of what was; or something has become of what
// is left, or of the object itself, and the rest is over; or the time has come. It also returns when ctx ends.
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
	for !look || !over {
		select {
		case n := <-ended:
			if remain -= n; n > 0 && remain <= 0 {
				return
			}
			look = true
		case <-w.told:
			look = look || w.newest.Load().Revision > left.wrote
		case <-rested.C:
			over = true
		case <-again:
			return
		case <-ctx.Done():
			return
		}
	}
}

// follow tells of changes of the objects that are left of a kind, and how many of these are gone, until ctx ends.
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
	// The history has gone away, or the type is served in another form or not any more: only another pass can
	// tell.
	if pause(ctx, minRetry) {
		tell(0)
	}
}

// deletion says what a controller asks of the delete of an object.
type deletion func(o *engine.Object) engine.DeleteOptions

// inBackground is the propagation of deletes of all that there is: nothing is to be kept for its dependents, nor
// because of them.
func inBackground(*engine.Object) engine.DeleteOptions {
	return engine.DeleteOptions{PropagationPolicy: "Background"}
}

// emptyOf deletes the objects of one type in a namespace, or in all, and yields those that something holds. Nothing
// new can come: the namespace or the definition is marked, and what was created before it was is in the first list.
func (c *emptier) emptyOf(
	ctx context.Context, r *engine.Resource, namespace string, how deletion,
) (rest *engine.Collection, err error) {
	rq := &engine.Request{Resource: r, Namespace: namespace, User: c.user}
	list, err := c.engine.List(ctx, rq, engine.ListOptions{})
	if err != nil {
		return nil, err
	}
	var failed firstError
	var work sync.WaitGroup
	slots := make(chan struct{}, deletesAtOnce)
	any := false
	for item := range list.Items {
		any = true
		if ctx.Err() != nil || failed.get() != nil {
			break
		}
		if deleteIsNoop(r, item) {
			continue
		}
		options := how(item)
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			if err := c.delete(ctx, r, item, options); err != nil {
				failed.set(err)
			}
		})
	}
	work.Wait()
	if err := errors.Join(failed.get(), ctx.Err(), list.Err()); err != nil || !any {
		return list, err
	}
	return c.engine.List(ctx, rq, engine.ListOptions{})
}

// deleteIsNoop says that a delete in the background would change nothing of an object: it has been told before, and
// waits for finalizers that such a delete leaves alone. (Types with a grace period are told again: it may be a
// shorter one.)
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

// delete deletes one object of a list. That it is gone, or that another one has taken its name, is no error: the
// latter was created after what the list is of.
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

// firstError keeps the first of the errors of several goroutines.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// pause waits, and says whether it has not been cut short.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

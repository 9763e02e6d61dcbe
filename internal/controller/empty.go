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
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
)

// emptier deletes the contents of deleted objects of one type: namespaces or definitions.
//
// Each object that is being deleted has a worker of its own, a loop, so that one that cannot be emptied (a webhook does
// not answer) does not delay the others. A worker makes a pass over the contents, and then waits until some of what is
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

	group   *steps.Group
	passes  passes
	workers map[string]*worker // by the name of the object
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

// start begins to follow the objects.
func (c *emptier) start(g *steps.Group) {
	c.group, c.passes.free = g, passesAtOnce
	(&watcher{engine: c.engine, of: c.of, user: c.user, handle: c.handle, ended: c.stop,
		begin: func(context.Context) { c.workers = map[string]*worker{} },
		failed: func(err error) {
			c.stop()
			c.logger.Warn("watching "+c.what+"s failed, trying again", "error", err)
		},
	}).start(g)
}

// stop ends all workers.
func (c *emptier) stop() {
	for _, w := range c.workers {
		w.loop.Stop()
	}
	c.workers = nil
}

// handle starts a worker for each object that is being deleted.
func (c *emptier) handle(ctx context.Context, _ *steps.Loop, events []engine.Event) (never time.Time, err error) {
	for _, event := range events {
		if c.onChange != nil {
			c.onChange(ctx, event.Object, event.Type == engine.Deleted)
		}
		name := event.Object.Key.Name
		w := c.workers[name]
		if event.Type == engine.Deleted || !event.Object.Sidecar.Deleting {
			if w != nil {
				w.loop.Stop()
				delete(c.workers, name)
			}
			continue
		}
		if w != nil {
			w.newest.Store(event.Object)
			w.changed.Store(true)
			w.loop.Wake()
			continue
		}
		w = &worker{emptier: c}
		w.newest.Store(event.Object)
		w.busy.Note(&w.counted, true)
		w.loop = c.group.Loop(w.step, w.end)
		c.workers[name] = w
	}
	return never, nil
}

// passes bounds how many passes are made at a time.
type passes struct {
	mu      sync.Mutex
	free    int
	waiting []*steps.Loop // for one to be free
}

// begin says whether a pass may be made; if not, the loop is woken later.
func (p *passes) begin(l *steps.Loop) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == 0 {
		p.waiting = append(p.waiting, l)
		return false
	}
	p.free--
	return true
}

// end is called after a pass. All that wait are woken, in their order, since some of them may have been stopped.
func (p *passes) end() {
	p.mu.Lock()
	waiting := p.waiting
	p.waiting = nil
	p.free++
	p.mu.Unlock()
	for _, l := range waiting {
		l.Wake()
	}
}

// worker empties one object that is being deleted.
type worker struct {
	*emptier
	loop    *steps.Loop
	newest  atomic.Pointer[engine.Object] // never nil
	changed atomic.Bool                   // newest has changed

	// The following are of the loop.
	failed  int    // in a row
	last    string // error
	rest    *rest  // until the next pass; nil: it is due
	counted bool   // there is something to do (pace.Busy)
}

func (w *worker) end() {
	w.rest.close()
	w.busy.Note(&w.counted, false)
}

// step makes a pass, if there is a reason for one.
func (w *worker) step(ctx context.Context, l *steps.Loop) (next time.Time) {
	if w.rest != nil {
		next, over := w.rest.look(ctx, l)
		if w.busy.Note(&w.counted, over || w.rest.reason); !over {
			return next
		}
		w.rest.close()
		w.rest = nil
	}
	if !w.passes.begin(l) {
		return next
	}
	began := time.Now()
	o := w.newest.Load()
	left, err := w.empty(ctx, o)
	w.passes.end()
	if ctx.Err() != nil {
		return next
	}
	if err == nil {
		w.failed, w.last = 0, ""
	} else {
		w.failed++
		if at := w.now().Add(pace.Retry(w.failed)); left.until.IsZero() || at.Before(left.until) {
			left.until = at
		}
		if err.Error() != w.last { // logged once
			w.last = err.Error()
			w.logger.Warn("emptying a "+w.what+" failed, trying again", w.what, o.Key.Name, "error", err)
		}
	}
	left.wrote = max(left.wrote, o.Revision)
	w.rest = w.newRest(left, max(minRest, restFactor*time.Since(began)))
	return time.Now() // it begins to follow what is left
}

// rest is what a worker knows between two passes. It is over when there is a reason for another pass: all objects left
// are gone; or one of them, or the object itself, has changed and the pause is over; or the time of the next pass has
// come.
type rest struct {
	*worker
	kinds  []*followedKind
	wrote  int64
	remain int       // objects left
	reason bool      // something has changed
	pause  time.Time // until then several changes are a reason for one pass
	until  time.Time // of the next pass in any case; zero: there is none
}

func (w *worker) newRest(left leftovers, pause time.Duration) *rest {
	r := &rest{worker: w, wrote: left.wrote, remain: left.count(), pause: time.Now().Add(pause)}
	for _, kind := range left.kinds {
		rq := &engine.Request{Resource: kind.resource, User: w.user}
		if kind.resource.Namespaced {
			rq.Namespace = left.namespace
		}
		r.kinds = append(r.kinds, &followedKind{leftKind: kind, rq: rq})
	}
	if !left.until.IsZero() {
		r.until = time.Now().Add(max(left.until.Sub(w.now()), minRest))
	}
	return r
}

func (r *rest) close() {
	if r == nil {
		return
	}
	for _, k := range r.kinds {
		k.close()
	}
}

// look says whether the rest is over; if not, next is when to look again at the latest.
func (r *rest) look(ctx context.Context, l *steps.Loop) (next time.Time, over bool) {
	gone := 0
	for _, k := range r.kinds {
		n, reason, again := k.look(ctx, r.engine, l.Waker())
		gone += n
		r.reason = r.reason || reason
		next = sooner(next, again)
	}
	if r.remain -= gone; gone > 0 && r.remain <= 0 {
		return next, true
	}
	if r.changed.Swap(false) && r.newest.Load().Revision > r.wrote {
		r.reason = true
	}
	now := time.Now()
	if r.reason && !now.Before(r.pause) || !r.until.IsZero() && !now.Before(r.until) {
		return next, true
	}
	if r.reason {
		next = sooner(next, r.pause)
	}
	return sooner(next, r.until), false
}

// sooner is the earlier one of two times, each of which may be zero: never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// followedKind follows the objects left of a kind.
type followedKind struct {
	leftKind
	rq    *engine.Request
	watch *engine.Watch
	// failed is when the watch has failed: the history does not reach back so far, or the type is served in another form
	// or no longer. After a pause that is a reason for another pass. Zero: it has not failed.
	failed time.Time
}

// look returns how many of the objects are gone, whether there is a reason for another pass, and when to look again if
// there is no change; zero: never.
func (k *followedKind) look(ctx context.Context, e *engine.Engine, wake func()) (gone int, reason bool,
	again time.Time) {
	for k.failed.IsZero() {
		events, err := k.next(ctx, e, wake)
		if err != nil {
			k.failed = time.Now()
			break
		}
		if len(events) == 0 {
			return gone, reason, again
		}
		deleted := 0
		for _, event := range events {
			if event.Type == engine.Deleted {
				deleted++
			}
		}
		if !k.related {
			gone += deleted
		}
		reason = reason || !k.related || deleted > 0
	}
	again = k.failed.Add(pace.MinRetry)
	if !time.Now().Before(again) {
		return gone, true, time.Time{}
	}
	return gone, reason, again
}

// next returns the next events.
func (k *followedKind) next(ctx context.Context, e *engine.Engine, wake func()) ([]engine.Event, error) {
	if k.watch == nil {
		watch, err := e.Watch(ctx, k.rq, engine.WatchOptions{
			ListOptions: engine.ListOptions{ResourceVersion: strconv.FormatInt(k.revision, 10)},
		})
		if err != nil {
			return nil, err
		}
		k.watch = watch
	}
	return k.watch.Ready(ctx, wake)
}

func (k *followedKind) close() {
	if k.watch != nil {
		k.watch.Close()
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

package controller

import (
	"context"
	"errors"
	"time"

	"plinth/internal/access"
	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/internal/store"
)

// watcher is a loop that hands the events of a type to a function. After an error it watches anew, so that the first
// events are about all objects.
type watcher struct {
	engine *engine.Engine
	of     *engine.Resource
	user   access.User
	// begin is called when a watch has begun. Nil: nothing.
	begin func(ctx context.Context)
	// handle is called with events, and without any when its moment has come or the loop was woken. next is when it is
	// to be called again at the latest; zero: with the next events.
	handle func(ctx context.Context, l *steps.Loop, events []engine.Event) (next time.Time, err error)
	// failed is called with each error.
	failed func(error)
	ended  func() // is called at the end; nil: nothing

	watch *engine.Watch // nil: it is to begin
}

// start begins the loop. It returns nil if the type is not served.
func (w *watcher) start(g *steps.Group) *steps.Loop {
	if w.of == nil {
		return nil
	}
	return g.Loop(w.step, w.end)
}

func (w *watcher) step(ctx context.Context, l *steps.Loop) (next time.Time) {
	next, err := w.round(ctx, l)
	if err == nil || ctx.Err() != nil {
		return next
	}
	if errors.Is(err, store.ErrClosed) { // the plane was deleted, and ends the loop at once
		return time.Time{}
	}
	w.failed(err)
	w.close()
	return time.Now().Add(pace.MinRetry)
}

func (w *watcher) round(ctx context.Context, l *steps.Loop) (next time.Time, err error) {
	if w.watch == nil {
		watch, err := w.engine.Watch(ctx, &engine.Request{Resource: w.of, User: w.user}, engine.WatchOptions{})
		if err != nil {
			return next, err
		}
		w.watch = watch
		if w.begin != nil {
			w.begin(ctx)
		}
	}
	events, err := w.watch.Ready(ctx, l.Waker())
	if err != nil {
		return next, err
	}
	next, err = w.handle(ctx, l, events)
	if len(events) > 0 {
		next = time.Now() // there may be more
	}
	return next, err
}

func (w *watcher) close() {
	if w.watch != nil {
		w.watch.Close()
		w.watch = nil
	}
}

func (w *watcher) end() {
	w.close()
	if w.ended != nil {
		w.ended()
	}
}

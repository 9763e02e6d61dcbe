package controller

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/engine"
)

// emptier empties the deleted objects of one type: those that hold others, namespaces and definitions.
type emptier struct {
	engine *engine.Engine
	logger *slog.Logger
	of     *engine.Resource // nil: the type is not served, and there is nothing to do
	what   string           // "namespace"
	// seen is told of every change of an object; nil: nobody asks.
	seen func(ctx context.Context, o *engine.Object)
	// empty deletes what is in one, and lets it go when nothing is left; not done: something holds what is left.
	empty func(ctx context.Context, o *engine.Object) (done bool, err error)
}

// atOnce is how many objects are deleted side by side, so that they share the waits for the disk.
const atOnce = 16

// run works until ctx ends.
func (c *emptier) run(ctx context.Context) {
	for c.of != nil && ctx.Err() == nil {
		if err := c.watch(ctx); err != nil && ctx.Err() == nil {
			c.logger.Warn("watching "+c.what+"s failed, trying again", "error", err)
			pause(ctx, retryAfter)
		}
	}
}

// watch follows the objects and empties those that are deleted, when they are due.
func (c *emptier) watch(ctx context.Context) error {
	watch, err := c.engine.Watch(ctx, &engine.Request{Resource: c.of}, engine.WatchOptions{})
	if err != nil {
		return err
	}
	defer watch.Close()
	left, newest := agenda{}, map[string]*engine.Object{}
	for {
		events, err := next(ctx, watch, left)
		if err != nil {
			return err
		}
		for _, event := range events {
			name := event.Object.Key.Name
			if c.seen != nil {
				c.seen(ctx, event.Object)
			}
			if event.Type != engine.Deleted && event.Object.Sidecar.Deleting {
				left.changed(name, time.Now())
				newest[name] = event.Object
			} else {
				delete(left, name)
				delete(newest, name)
			}
		}
		for _, name := range left.due(time.Now()) {
			done, err := c.empty(ctx, newest[name])
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if left.tried(name, done, err, time.Now()) {
				c.logger.Warn("emptying a "+c.what+" failed, trying again", c.what, name, "error", err)
			}
		}
	}
}

// next waits for events, but no longer than until something is due.
func next(ctx context.Context, watch *engine.Watch, left agenda) ([]engine.Event, error) {
	at, any := left.next()
	if !any {
		return watch.Next(ctx)
	}
	short, cancel := context.WithDeadline(ctx, at)
	defer cancel()
	events, err := watch.Next(short)
	if err != nil && ctx.Err() == nil && short.Err() != nil {
		return nil, nil
	}
	return events, err
}

// emptyOf deletes the objects of one type in a namespace, or in all, and counts those that something holds. Nothing new can
// come: the namespace or the definition is marked, and what was created before it was is in this list.
func emptyOf(ctx context.Context, e *engine.Engine, r *engine.Resource, namespace string) (left int, err error) {
	list, err := e.List(ctx, &engine.Request{Resource: r, Namespace: namespace}, engine.ListOptions{})
	if err != nil {
		return 0, err
	}
	var failed firstError
	var work sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for item := range list.Items {
		if ctx.Err() != nil || failed.get() != nil {
			break
		}
		if item.Sidecar.Deleting && r.GracefulDelete == nil {
			continue // it has been told, and waits for its finalizers: telling it again would only cost
		}
		room <- struct{}{}
		work.Go(func() {
			defer func() { <-room }()
			rq := &engine.Request{Resource: r, Name: item.Key.Name}
			if r.Namespaced {
				rq.Namespace, rq.Name, _ = strings.Cut(item.Key.Name, "/")
			}
			_, err := e.Delete(ctx, rq, engine.DeleteOptions{GracePeriodSeconds: new(int64)})
			if err != nil && !apierr.Is(err, apierr.NotFound) {
				failed.set(err)
			}
		})
	}
	work.Wait()
	if err := errors.Join(failed.get(), ctx.Err()); err != nil {
		return 0, err
	}
	rest, err := e.List(ctx, &engine.Request{Resource: r, Namespace: namespace}, engine.ListOptions{})
	if err != nil {
		return 0, err
	}
	for range rest.Items {
		left++
	}
	return left, rest.Err()
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

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Package controller does what a server on its own must do for its documentation to be true: it empties deleted
// namespaces (DEL-5). It speaks to the engine like any client.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// namespaceFinalizer is the entry of spec.finalizers that the namespace controller answers for.
const namespaceFinalizer = "kubernetes"

// atOnce is how many objects are deleted side by side, so that they share the waits for the disk.
const atOnce = 16

// Namespaces empties and finalizes deleted namespaces until its context ends (URI-5).
type Namespaces struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
}

// Run works until ctx ends.
func (c *Namespaces) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.watch(ctx); err != nil && ctx.Err() == nil {
			c.Logger.Warn("watching namespaces failed, trying again", "error", err)
			pause(ctx, retryAfter)
		}
	}
}

// watch follows the namespaces and empties those that are deleted, when they are due.
func (c *Namespaces) watch(ctx context.Context) error {
	namespaces := c.Registry.Now().Find("", "v1", "namespaces")
	watch, err := c.Engine.Watch(ctx, &engine.Request{Resource: namespaces}, engine.WatchOptions{})
	if err != nil {
		return err
	}
	defer watch.Close()
	left := agenda{}
	for {
		events, err := next(ctx, watch, left)
		if err != nil {
			return err
		}
		for _, event := range events {
			name := event.Object.Key.Name
			if event.Type != engine.Deleted && event.Object.Sidecar.Deleting {
				left.changed(name, time.Now())
			} else {
				delete(left, name)
			}
		}
		for _, name := range left.due(time.Now()) {
			done, err := c.empty(ctx, namespaces, name)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if left.tried(name, done, err, time.Now()) {
				c.Logger.Warn("emptying a namespace failed, trying again", "namespace", name, "error", err)
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

// empty deletes all that is in a namespace and, when nothing is left, takes the finalizer from it. A type that cannot be
// emptied does not keep the others.
func (c *Namespaces) empty(ctx context.Context, namespaces *engine.Resource, name string) (done bool, err error) {
	left := 0
	var failed []error
	seen := map[string]bool{}
	for r := range c.Registry.Now().All() {
		if !r.Namespaced || !r.Has("delete") || !r.Has("list") || seen[r.Stored.Path] {
			continue
		}
		seen[r.Stored.Path] = true
		n, err := c.emptyOf(ctx, r, name)
		if err != nil {
			failed = append(failed, fmt.Errorf("deleting %s: %w", r.Type(), err))
		}
		left += n
	}
	if left > 0 || len(failed) > 0 {
		return false, errors.Join(failed...)
	}
	err = c.finalize(ctx, namespaces, name)
	switch {
	case apierr.Is(err, apierr.NotFound):
		return true, nil
	case apierr.Is(err, apierr.Conflict): // somebody has changed it: what they did will come as an event
		return false, nil
	}
	return err == nil, err
}

// emptyOf deletes the objects of one type, and counts those that something holds. Nothing new can come: the namespace is
// marked, and what was created before it was is in this list.
func (c *Namespaces) emptyOf(ctx context.Context, r *engine.Resource, namespace string) (left int, err error) {
	list, err := c.Engine.List(ctx, &engine.Request{Resource: r, Namespace: namespace}, engine.ListOptions{})
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
			_, base, _ := strings.Cut(item.Key.Name, "/")
			_, err := c.Engine.Delete(ctx, &engine.Request{Resource: r, Namespace: namespace, Name: base},
				engine.DeleteOptions{GracePeriodSeconds: new(int64)})
			if err != nil && !apierr.Is(err, apierr.NotFound) {
				failed.set(err)
			}
		})
	}
	work.Wait()
	if err := errors.Join(failed.get(), ctx.Err()); err != nil {
		return 0, err
	}
	rest, err := c.Engine.List(ctx, &engine.Request{Resource: r, Namespace: namespace}, engine.ListOptions{})
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

// finalize removes the controller's finalizer, which lets the namespace go. It is on the condition that nobody has
// changed the namespace since it was read: the whole object is written back.
func (c *Namespaces) finalize(ctx context.Context, namespaces *engine.Resource, name string) error {
	rq := &engine.Request{Resource: namespaces, Name: name, Subresource: namespaces.Subresource("finalize")}
	live, err := c.Engine.Get(ctx, rq, "")
	if err != nil {
		return err
	}
	parsed, err := object.ParseJSON(live.Object.Data)
	if err != nil {
		return err
	}
	var rest []object.Value
	for _, f := range parsed.Value.At("spec", "finalizers").Items() {
		if f.Str() != namespaceFinalizer {
			rest = append(rest, f)
		}
	}
	body := parsed.Value.WithAt(object.ListOf(rest...), "spec", "finalizers").
		WithAt(object.StringOf(strconv.FormatInt(live.Object.Revision, 10)), "metadata", "resourceVersion")
	_, err = c.Engine.Update(ctx, rq, object.Parsed{Value: body})
	return err
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

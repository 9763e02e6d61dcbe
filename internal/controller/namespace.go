// Package controller does what a server on its own must do for its documentation to be true: it empties deleted
// namespaces (DEL-5). It speaks to the engine like any client.
package controller

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"plinth/internal/engine"
	"plinth/object"
)

// namespaceFinalizer is the entry of spec.finalizers that the namespace controller answers for.
const namespaceFinalizer = "kubernetes"

// retryAfter is how long a namespace that could not be emptied (objects with finalizers are left) waits for another try.
// Every change in the namespace's own object is a try, too.
const retryAfter = time.Second

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

// watch follows the namespaces. Those that could not be emptied at once are kept by name and tried again.
func (c *Namespaces) watch(ctx context.Context) error {
	namespaces := c.Registry.Find("", "v1", "namespaces")
	watch, err := c.Engine.Watch(ctx, &engine.Request{Resource: namespaces}, engine.WatchOptions{})
	if err != nil {
		return err
	}
	defer watch.Close()
	waiting := map[string]bool{}
	for {
		events, err := next(ctx, watch, len(waiting) > 0)
		if err != nil {
			return err
		}
		for _, event := range events {
			name := event.Object.Key.Name
			delete(waiting, name)
			if event.Type != engine.Deleted && event.Object.Sidecar.Deleting {
				waiting[name] = true
			}
		}
		for name := range waiting {
			done, err := c.empty(ctx, namespaces, name)
			if err != nil && ctx.Err() == nil {
				c.Logger.Warn("emptying a namespace failed, trying again", "namespace", name, "error", err)
			}
			if done {
				delete(waiting, name)
			}
		}
	}
}

// next waits for events, but not for long while something is to be tried again.
func next(ctx context.Context, watch *engine.Watch, retry bool) ([]engine.Event, error) {
	if !retry {
		return watch.Next(ctx)
	}
	short, cancel := context.WithTimeout(ctx, retryAfter)
	defer cancel()
	events, err := watch.Next(short)
	if err != nil && ctx.Err() == nil && short.Err() != nil {
		return nil, nil
	}
	return events, err
}

// empty deletes all that is in a namespace and, when nothing is left, takes the finalizer from it.
func (c *Namespaces) empty(ctx context.Context, namespaces *engine.Resource, name string) (done bool, err error) {
	all, _ := c.Registry.All()
	left := 0
	seen := map[string]bool{}
	for _, r := range all {
		if !r.Namespaced || !r.Has("deletecollection") || seen[r.Store] {
			continue
		}
		seen[r.Store] = true
		rq := &engine.Request{Resource: r, Namespace: name}
		if _, err := c.Engine.DeleteCollection(ctx, rq, engine.ListOptions{}, engine.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			return false, fmt.Errorf("deleting %s: %w", r.Type(), err)
		}
		rest, err := c.Engine.List(ctx, rq, engine.ListOptions{})
		if err != nil {
			return false, err
		}
		for range rest.Items {
			left++
		}
	}
	if left > 0 {
		return false, nil
	}
	return true, c.finalize(ctx, namespaces, name)
}

// finalize removes the controller's finalizer, which lets the namespace go.
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
	body := parsed.Value.WithAt(object.ListOf(rest...), "spec", "finalizers")
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

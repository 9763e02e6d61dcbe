// Package controller does what a server on its own must do for its documentation to be true: it empties deleted
// namespaces (DEL-5), and deletes the objects of custom resources that are no longer defined (EXT-1). It speaks to the
// engine like any client.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// namespaceFinalizer is the entry of spec.finalizers that the namespace controller answers for.
const namespaceFinalizer = "kubernetes"

// Namespaces empties and finalizes deleted namespaces until its context ends (URI-5).
type Namespaces struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
}

// Run works until ctx ends.
func (c *Namespaces) Run(ctx context.Context) {
	namespaces := c.Registry.Now().Find("", "v1", "namespaces")
	(&emptier{engine: c.Engine, logger: c.Logger, of: namespaces, what: "namespace", empty: func(ctx context.Context, o *engine.Object) (bool, error) {
		return c.empty(ctx, namespaces, o.Key.Name)
	}}).run(ctx)
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
		n, err := emptyOf(ctx, c.Engine, r, name)
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

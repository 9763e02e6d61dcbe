package controller

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// Definitions deletes the objects of definitions that are deleted, and then lets the definitions go (EXT-1). It
// belongs to the server itself, as in the reference, where no kube-controller-manager does it either.
type Definitions struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	// Objects is the type of the objects that a definition defines, in the version that they are stored in; nil:
	// it has never defined any.
	Objects func(definition *engine.Object) *engine.Resource
	// Finalizer is what keeps a definition until its objects are gone.
	Finalizer string
}

// serverItself is the user as whom the reference's API server does what it does of its own accord.
var serverItself = access.User{Name: "system:apiserver", Groups: []string{access.Masters, access.Authenticated}}

// Run works until ctx ends.
func (c *Definitions) Run(ctx context.Context) {
	definitions := c.Registry.Now().Find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	e := &emptier{
		engine: c.Engine, logger: c.Logger, now: time.Now, of: definitions, what: "definition", user: serverItself,
		seen: c.seen, pace: newPace(),
	}
	e.empty = func(ctx context.Context, o *engine.Object) (leftovers, error) { return c.empty(ctx, e, o) }
	e.run(ctx)
}

// seen has the types of a definition made as soon as it has changed, also when nobody asks for them: watches of what
// they were end then. A definition that another server has written, and has not finished, is finished: any write of
// its status does.
func (c *Definitions) seen(ctx context.Context, definition *engine.Object) {
	definitions := c.Registry.Now().Find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	obj, err := engine.ObjectOf(definition)
	if definitions == nil || err != nil || obj.At("status", "conditions").Len() > 0 {
		return
	}
	rq := statusOf(definitions, definition.Key.Name)
	if _, err := c.Engine.Update(ctx, rq, object.Parsed{Value: withRevision(obj, definition)}); err != nil {
		c.Logger.Warn("a definition could not be finished", "definition", definition.Key.Name, "error", err)
	}
}

// statusOf is a request for the status of a definition, which the server itself writes.
func statusOf(definitions *engine.Resource, name string) *engine.Request {
	return &engine.Request{
		Resource: definitions, Name: name, Subresource: definitions.Subresource("status"),
		User: serverItself, FieldManager: "kube-apiserver",
	}
}

// withRevision is an object as it is written back: on the condition that nobody has changed it.
func withRevision(obj object.Value, v *engine.Object) object.Value {
	return obj.WithAt(object.StringOf(strconv.FormatInt(v.Revision, 10)), "metadata", "resourceVersion")
}

// empty deletes the objects of a definition and, when none is left, takes the finalizer from it.
func (c *Definitions) empty(ctx context.Context, e *emptier, definition *engine.Object) (left leftovers, err error) {
	reason, message := "NeverEstablished", "resource was never established"
	switch r := c.Objects(definition); {
	case r == nil:
	case c.Registry.Now().HasBuiltinKind(r.Stored.Path): // they are not its own
		reason, message = "OverlappingBuiltInResource", "instances overlap with built-in resources in storage"
	default:
		list, err := e.emptyOf(ctx, r, "", inBackground)
		if err != nil {
			return left, err
		}
		n := 0
		for range list.Items {
			n++
		}
		if err := list.Err(); err != nil || n > 0 {
			left.kinds = []leftKind{{resource: r, count: n, revision: list.Revision}}
			return left, err
		}
		reason, message = "InstanceDeletionCompleted", "removed all instances"
	}
	err = c.release(ctx, e.of, definition.Key.Name, reason, message)
	if apierr.Is(err, apierr.NotFound) || apierr.Is(err, apierr.Conflict) { // what somebody else did comes as an event
		return left, nil
	}
	return left, err
}

// release takes the finalizer from a definition and says in its status why.
func (c *Definitions) release(ctx context.Context, definitions *engine.Resource, name, reason, message string) error {
	rq := statusOf(definitions, name)
	live, err := c.Engine.Get(ctx, rq, "")
	if err != nil {
		return err
	}
	obj, err := engine.ObjectOf(live.Object)
	if err != nil {
		return err
	}
	finalizers := slices.DeleteFunc(slices.Clone(obj.At("metadata", "finalizers").Items()), func(f object.Value) bool {
		return f.Str() == c.Finalizer
	})
	if len(finalizers) == obj.At("metadata", "finalizers").Len() {
		return nil // somebody else has taken it away; others hold the definition
	}
	var conditions []object.Value
	for _, condition := range obj.At("status", "conditions").Items() {
		if condition.At("type").Str() == "Terminating" {
			condition = condition.Edit([]object.Member{
				{Key: "status", Value: object.StringOf("False")}, {Key: "reason", Value: object.StringOf(reason)},
				{Key: "message", Value: object.StringOf(message)},
			})
		}
		conditions = append(conditions, condition)
	}
	body := obj.WithAt(object.ListOf(conditions...), "status", "conditions").
		WithAt(object.ListOf(finalizers...), "metadata", "finalizers")
	_, err = c.Engine.Update(ctx, rq, object.Parsed{Value: withRevision(body, live.Object)})
	return err
}

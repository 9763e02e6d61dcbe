package controller

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// Definitions deletes the objects of deleted definitions, and then removes the finalizer of these (EXT-1). It is a
// part of the API server itself in the reference, too, and not of kube-controller-manager.
type Definitions struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	// Objects returns the type of the objects of a definition, in their stored version; nil if it never defined a type.
	Objects func(definition *engine.Object) *engine.Resource
	// Finalizer is the finalizer that keeps a definition until its objects are deleted.
	Finalizer string
	Busy      *pace.Busy // nil: nobody asks
	// Shared says that other servers write to the store, too.
	Shared bool

	waiting map[string]map[string]*engine.Object // by group and name: definitions that wait for a name
}

// serverItself is the user of requests that the API server makes on its own behalf.
var serverItself = access.User{Name: "system:apiserver", Groups: []string{access.Masters, access.Authenticated}}

// Start begins its loops.
func (c *Definitions) Start(g *steps.Group) {
	c.waiting = nil
	definitions := c.Registry.Now().Find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	e := &emptier{
		engine: c.Engine, logger: c.Logger, now: time.Now, of: definitions, what: "definition", user: serverItself,
		onChange: c.seen, pace: pace.New(), busy: c.Busy,
	}
	e.empty = func(ctx context.Context, o *engine.Object) (leftovers, error) { return c.empty(ctx, e, o) }
	e.start(g)
}

// Follow compiles the types of definitions when they have changed, also when no request needs them, which ends the
// watches of their old form. It is for servers in which the controller does not always run.
func (c *Definitions) Follow(g *steps.Group) {
	definitions := c.Registry.Now().Find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	(&follower{engine: c.Engine, logger: c.Logger, name: "definitions", types: []*engine.Resource{definitions},
		sync: func(context.Context, *engine.Resource, *engine.Object, bool) (time.Duration, error) {
			c.Registry.Now()
			return 0, nil
		}}).start(g)
}

// seen compiles the types of a definition when it has changed, as Follow does. It also completes the status of a
// definition that another server wrote and did not complete; any write of its status does that.
func (c *Definitions) seen(ctx context.Context, definition *engine.Object, gone bool) {
	types := c.Registry.Now()
	if c.Shared {
		c.accept(ctx, definition, gone)
	}
	if gone || types.Defined(definition.Key.Name) && !c.Shared { // its status is complete
		return
	}
	obj, err := engine.ObjectOf(definition)
	if err != nil || isDecided(obj) || obj.At("status", "conditions").Len() > 0 && !c.Shared {
		return
	}
	c.decide(ctx, definition, obj)
}

// isDecided says whether the conditions of a definition say if it is accepted. A kube-apiserver sets one after the
// other.
func isDecided(obj object.Value) bool {
	return !conditionOf(obj, "NamesAccepted").IsNull() && !conditionOf(obj, "Established").IsNull()
}

func conditionOf(obj object.Value, kind string) object.Value {
	for _, condition := range obj.At("status", "conditions").Items() {
		if condition.At("type").Str() == kind {
			return condition
		}
	}
	return object.Nil
}

// decide makes the engine decide the status of a definition again (engine.ServerStatus): it does so at each write.
func (c *Definitions) decide(ctx context.Context, definition *engine.Object, obj object.Value) {
	definitions := c.Registry.Now().Find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	if definitions == nil {
		return
	}
	rq := statusOf(definitions, definition.Key.Name)
	_, err := c.Engine.Update(ctx, rq, object.Parsed{Value: withRevision(obj, definition)})
	// After a conflict or a deletion, the other change is seen next.
	if unlessChanged(nil, err) != nil && ctx.Err() == nil {
		c.Logger.Warn("a definition could not be finished", "definition", definition.Key.Name, "error", err)
	}
}

// accept decides again about the definitions that wait for a name, after a change of a definition of their group. Most
// have got the name already: the server that deletes or renames a definition changes those that waited for its name.
// But on a store that several servers share that is another commit, which is missing if the server ends before it, or
// if the server was a kube-apiserver whose controller has ended since.
func (c *Definitions) accept(ctx context.Context, definition *engine.Object, gone bool) {
	name := definition.Key.Name
	_, group, _ := strings.Cut(name, ".")
	if c.waiting == nil {
		c.waiting = map[string]map[string]*engine.Object{}
	}
	waiting := c.waiting[group]
	delete(waiting, name)
	if obj, err := engine.ObjectOf(definition); !gone && err == nil &&
		conditionOf(obj, "NamesAccepted").At("status").Str() == "False" {
		if waiting == nil {
			waiting = map[string]*engine.Object{}
			c.waiting[group] = waiting
		}
		waiting[name] = definition
	}
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		if obj, err := engine.ObjectOf(waiting[name]); err == nil {
			c.decide(ctx, waiting[name], obj)
		}
	}
}

// statusOf returns a request of the server itself for the status of a definition.
func statusOf(definitions *engine.Resource, name string) *engine.Request {
	return &engine.Request{
		Resource: definitions, Name: name, Subresource: definitions.Subresource("status"),
		User: serverItself, FieldManager: "kube-apiserver",
	}
}

// withRevision returns an object with its resourceVersion, which makes a write fail if the object has changed.
func withRevision(obj object.Value, v *engine.Object) object.Value {
	return obj.WithAt(object.StringOf(strconv.FormatInt(v.Revision, 10)), "metadata", "resourceVersion")
}

// empty deletes the objects of a definition and, when no object is left, removes its finalizer.
func (c *Definitions) empty(ctx context.Context, e *emptier, definition *engine.Object) (left leftovers, err error) {
	reason, message := "NeverEstablished", "resource was never established"
	switch r := c.Objects(definition); {
	case r == nil:
	case c.Registry.Now().HasBuiltinKind(r.Stored.Path): // the objects belong to a built-in kind
		reason, message = "OverlappingBuiltInResource", "instances overlap with built-in resources in storage"
	default:
		if err := c.begin(ctx, e.of, definition); err != nil {
			return left, unlessChanged(nil, err)
		}
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
	return left, unlessChanged(nil, c.release(ctx, e.of, definition.Key.Name, reason, message))
}

// begin records in the status of a definition that its objects are being deleted. It does so once, so that a
// definition that waits for a finalizer of an object is not written again and again.
func (c *Definitions) begin(ctx context.Context, definitions *engine.Resource, definition *engine.Object) error {
	const reason = "InstanceDeletionInProgress"
	obj, err := engine.ObjectOf(definition)
	if err != nil {
		return err
	}
	for _, condition := range obj.At("status", "conditions").Items() {
		if condition.At("type").Str() == "Terminating" && condition.At("reason").Str() == reason {
			return nil
		}
	}
	obj = withTerminating(obj, "True", reason, "CustomResource deletion is in progress")
	_, err = c.Engine.Update(ctx, statusOf(definitions, definition.Key.Name),
		object.Parsed{Value: withRevision(obj, definition)})
	return err
}

// withTerminating changes the condition Terminating of a definition, which the definition has since its deletion.
func withTerminating(obj object.Value, status, reason, message string) object.Value {
	var conditions []object.Value
	for _, condition := range obj.At("status", "conditions").Items() {
		if condition.At("type").Str() == "Terminating" {
			set := []object.Member{
				{Key: "status", Value: object.StringOf(status)}, {Key: "reason", Value: object.StringOf(reason)},
				{Key: "message", Value: object.StringOf(message)},
			}
			if condition.At("status").Str() != status {
				now := time.Now().UTC().Format(time.RFC3339)
				set = append(set, object.Member{Key: "lastTransitionTime", Value: object.StringOf(now)})
			}
			condition = condition.Edit(set)
		}
		conditions = append(conditions, condition)
	}
	return obj.WithAt(object.ListOf(conditions...), "status", "conditions")
}

// release removes the finalizer from a definition, and records the reason in its status.
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
		return nil // it was removed; other finalizers keep the definition
	}
	body := withTerminating(obj, "False", reason, message).
		WithAt(object.ListOf(finalizers...), "metadata", "finalizers")
	_, err = c.Engine.Update(ctx, rq, object.Parsed{Value: withRevision(body, live.Object)})
	return err
}

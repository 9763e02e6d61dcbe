package controller

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"plinth/internal/aggregation"
	"plinth/internal/apierr"
	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// Registration keeps an APIService for each group version that definitions serve. It is a part of the API server
// itself in the reference, too (crdregistration and autoregister). Those of built-in group versions are written when
// the server starts.
type Registration struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger

	services, definitions *engine.Resource

	mu      sync.Mutex
	serving map[string][]string        // by definition: the names of the APIServices of its group versions
	wanted  map[string]map[string]bool // by APIService: the definitions that serve its group version
	specs   map[string]object.Value    // by APIService
}

// The priorities of the group versions of definitions.
const (
	definedGroupPriority = 1000
	definedPriority      = 100
)

// Start begins its loops.
func (c *Registration) Start(g *steps.Group) {
	types := c.Registry.Builtin()
	c.definitions = types.Find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	c.services = types.Find("apiregistration.k8s.io", "v1", "apiservices")
	if c.services == nil || c.definitions == nil {
		return
	}
	c.serving, c.wanted = map[string][]string{}, map[string]map[string]bool{}
	c.specs = map[string]object.Value{}
	follow := &follower{
		engine: c.Engine, logger: c.Logger, name: "registration", types: []*engine.Resource{c.definitions, c.services},
		sync: func(ctx context.Context, of *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
			if of == c.services {
				return 0, c.keep(ctx, o.Key.Name)
			}
			for _, name := range c.note(o, gone) {
				if err := c.keep(ctx, name); err != nil {
					return 0, err
				}
			}
			return 0, nil
		},
	}
	g.Loop(func(ctx context.Context, l *steps.Loop) (again time.Time) {
		// Before an APIService is looked at, all definitions are known.
		if err := c.learn(ctx); err != nil && ctx.Err() == nil {
			c.Logger.Warn("definitions could not be listed, trying again", "error", err)
			return time.Now().Add(pace.MinRetry)
		}
		follow.start(g)
		l.Stop()
		return again
	}, nil)
}

// learn notes all definitions.
func (c *Registration) learn(ctx context.Context) error {
	list, err := c.Engine.List(ctx, &engine.Request{Resource: c.definitions, User: serverItself}, engine.ListOptions{})
	if err != nil {
		return err
	}
	for o := range list.Items {
		c.note(o, false)
	}
	return list.Err()
}

// note remembers which group versions a definition serves. It returns the names of the APIServices that may have to
// change.
func (c *Registration) note(o *engine.Object, gone bool) []string {
	var names []string
	if obj, err := engine.ObjectOf(o); !gone && err == nil {
		group := obj.At("spec", "group")
		for _, v := range obj.At("spec", "versions").Items() {
			if v.At("served").Bool() {
				names = append(names, c.specOf(group, v.At("name")))
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	definition := o.Key.Name
	before := c.serving[definition]
	for _, name := range before {
		delete(c.wanted[name], definition)
		if len(c.wanted[name]) == 0 {
			delete(c.wanted, name)
		}
	}
	if c.serving[definition] = names; len(names) == 0 {
		delete(c.serving, definition)
	}
	for _, name := range names {
		if c.wanted[name] == nil {
			c.wanted[name] = map[string]bool{}
		}
		c.wanted[name][definition] = true
	}
	changed := map[string]bool{}
	for _, name := range slices.Concat(before, names) {
		changed[name] = true
		if c.wanted[name] == nil {
			delete(c.specs, name)
		}
	}
	return slices.Sorted(maps.Keys(changed))
}

// specOf notes the spec of the APIService of a group version, and returns its name.
func (c *Registration) specOf(group, version object.Value) string {
	name := version.Str() + "." + group.Str()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.specs[name].IsNull() {
		c.specs[name] = object.Fields("group", group, "groupPriorityMinimum", object.IntOf(definedGroupPriority),
			"version", version, "versionPriority", object.IntOf(definedPriority))
	}
	return name
}

// wants returns the spec of an APIService; null if no definition serves its group version. A definition that was
// deleted between learn and the watch is still noted, so each is looked up.
func (c *Registration) wants(ctx context.Context, name string) (object.Value, error) {
	c.mu.Lock()
	spec, by := c.specs[name], slices.Collect(maps.Keys(c.wanted[name]))
	c.mu.Unlock()
	for _, definition := range by {
		_, err := c.Engine.Get(ctx, &engine.Request{Resource: c.definitions, Name: definition, User: serverItself}, "")
		if !apierr.Is(err, apierr.NotFound) {
			return spec, err
		}
	}
	return object.Nil, nil
}

// keep creates, changes or deletes an APIService. One that somebody has made, or has taken over by removing the
// label, is left alone.
func (c *Registration) keep(ctx context.Context, name string) error {
	wanted, err := c.wants(ctx, name)
	if err != nil {
		return err
	}
	rq := &engine.Request{Resource: c.services, Name: name, User: serverItself, FieldManager: "kube-apiserver"}
	live, err := c.Engine.Get(ctx, rq, "")
	switch {
	case apierr.Is(err, apierr.NotFound) && wanted.IsNull():
		return nil
	case apierr.Is(err, apierr.NotFound):
		made := *rq
		made.Name = ""
		_, err = c.Engine.Create(ctx, &made, object.Parsed{Value: object.Fields("metadata", object.Fields("labels",
			object.Fields(aggregation.Automanaged, object.StringOf(aggregation.ManagedContinuous)), "name",
			object.StringOf(name)), "spec", wanted)})
		if apierr.Is(err, apierr.AlreadyExists) {
			return nil // it is seen next
		}
		return err
	case err != nil:
		return err
	}
	obj, err := engine.ObjectOf(live.Object)
	if err != nil || obj.At("metadata", "labels", aggregation.Automanaged).Str() != aggregation.ManagedContinuous ||
		!obj.At("metadata", "deletionTimestamp").IsNull() {
		return err
	}
	switch {
	case wanted.IsNull():
		return unlessChanged(c.Engine.Delete(ctx, rq, engine.DeleteOptions{PreconditionUID: live.Object.Sidecar.UID}))
	case object.Equal(obj.At("spec"), wanted):
		return nil
	}
	body := withRevision(obj.With("spec", wanted), live.Object)
	return unlessChanged(c.Engine.Update(ctx, rq, object.Parsed{Value: body}))
}

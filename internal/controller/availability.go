package controller

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// Availability writes into the status of each APIService whether its server answers. It is a part of the API server
// itself in the reference, too (its controllers for local and for remote APIServices).
//
// A server is asked when its APIService, its Service or an EndpointSlice of that has changed, every 30 s, and after a
// failure again and again, first after 5 ms. Each is asked by a loop of its own: one that does not answer delays no
// other. As long as all APIServices are local, Services and EndpointSlices are not followed.
type Availability struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
	// Service returns a Service, and Slices its EndpointSlices.
	Service func(ctx context.Context, namespace, name string) (object.Value, error)
	Slices  func(ctx context.Context, namespace, service string) ([]object.Value, error)
	// Check asks the server of an APIService. wrong is why it is not available; err, why it could not be asked.
	Check func(ctx context.Context, obj object.Value) (wrong, err error)
	// Lost is told of an APIService that was available and is not any more. Nil: nobody is told.
	Lost func(name, reason string)

	types   *engine.Types
	of      *engine.Resource
	group   *steps.Group
	mu      sync.Mutex
	watched map[string]*watchedServer // by APIService
	follow  sync.Once                 // begins to follow Services
}

// watchedServer is a server that is asked from time to time.
type watchedServer struct {
	service string // NAMESPACE/NAME
	spec    object.Value
	is      finding // what was recorded last
	loop    *steps.Loop
}

const (
	// checkEvery is how long a server is believed to be as it was.
	checkEvery = 30 * time.Second
	// A failed check is repeated after minCheckRest, and twice as long each time, up to checkEvery.
	minCheckRest = 5 * time.Millisecond
)

// Start begins its loops.
func (c *Availability) Start(g *steps.Group) {
	c.types = c.Registry.Builtin()
	c.of = c.types.Find("apiregistration.k8s.io", "v1", "apiservices")
	c.mu.Lock()
	c.watched, c.follow, c.group = map[string]*watchedServer{}, sync.Once{}, g
	c.mu.Unlock()
	(&follower{engine: c.Engine, logger: c.Logger, name: "availability", types: []*engine.Resource{c.of},
		sync: func(ctx context.Context, _ *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
			return 0, c.changed(ctx, o, gone)
		}}).start(g)
}

// changed looks at an APIService that is new, has changed or was deleted.
func (c *Availability) changed(ctx context.Context, o *engine.Object, gone bool) error {
	name := o.Key.Name
	obj, err := engine.ObjectOf(o)
	if err != nil && !gone {
		return nil // it is mended or deleted by somebody else
	}
	service := obj.At("spec", "service")
	if gone || service.IsNull() {
		c.mu.Lock()
		if s := c.watched[name]; s != nil {
			s.loop.Stop()
			delete(c.watched, name)
		}
		c.mu.Unlock()
		if gone {
			return nil
		}
		return c.record(ctx, o, obj, local)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.watched[name]
	if s == nil {
		s = &watchedServer{}
		c.watched[name] = s
		s.loop = c.group.Loop((&serverCheck{Availability: c, name: name}).step, nil)
	}
	s.service = service.At("namespace").Str() + "/" + service.At("name").Str()
	// The condition that was written here is no reason to ask again: its message may be another one each time.
	if spec := obj.At("spec"); !object.Equal(spec, s.spec) || s.is != findingIn(obj) {
		s.spec = spec
		s.loop.Wake()
	}
	c.follow.Do(c.followServices)
	return nil
}

// followServices asks servers again when their Service has changed.
func (c *Availability) followServices() {
	services := c.types.Find("", "v1", "services")
	slices := c.types.Find("discovery.k8s.io", "v1", "endpointslices")
	(&follower{engine: c.Engine, logger: c.Logger, name: "availability", types: []*engine.Resource{services, slices},
		sync: func(_ context.Context, of *engine.Resource, o *engine.Object, _ bool) (time.Duration, error) {
			name := o.Key.Name
			if of == slices {
				namespace, _, _ := strings.Cut(name, "/")
				for _, label := range o.Sidecar.Labels {
					if label.Name == "kubernetes.io/service-name" {
						name = namespace + "/" + label.Value
					}
				}
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, s := range c.watched {
				if s.service == name {
					s.loop.Wake()
				}
			}
			return 0, nil
		}}).start(c.group)
}

// serverCheck is the loop that asks one server.
type serverCheck struct {
	*Availability
	name   string
	failed int
	last   string
}

func (c *serverCheck) step(ctx context.Context, _ *steps.Loop) (next time.Time) {
	fault, err := c.check(ctx, c.name)
	rest := checkEvery
	if err == nil {
		err = fault
	}
	if err == nil {
		c.failed, c.last = 0, ""
	} else if ctx.Err() == nil {
		rest = min(checkEvery, minCheckRest<<min(c.failed, 20))
		if c.failed++; err.Error() != c.last {
			c.last = err.Error()
			c.Logger.Info("an aggregated API server is not available", "apiservice", c.name, "error", err)
		}
	}
	return time.Now().Add(rest)
}

// finding is the condition Available of an APIService.
type finding struct{ status, reason, message string }

var (
	local  = finding{"True", "Local", "Local APIServices are always available"}
	passed = finding{"True", "Passed", "all checks passed"}
)

// findingIn is the condition Available of an APIService.
func findingIn(obj object.Value) finding {
	c := conditionOf(obj, "Available")
	return finding{c.At("status").Str(), c.At("reason").Str(), c.At("message").Str()}
}

// check looks whether the server of an APIService is available, and records it. fault is why it did not answer; what
// is wrong with its Service is no fault, as a change of that is seen.
func (c *Availability) check(ctx context.Context, name string) (fault, err error) {
	live, err := c.Engine.Get(ctx, &engine.Request{Resource: c.of, Name: name, User: serverItself}, "")
	if err != nil {
		return nil, unlessChanged(nil, err)
	}
	obj, err := engine.ObjectOf(live.Object)
	if err != nil || obj.At("spec", "service").IsNull() {
		return nil, nil // see seen
	}
	current, ok := c.service(ctx, obj.At("spec", "service"))
	if ok {
		if fault, err = c.Check(ctx, obj); err != nil {
			return nil, err
		}
		if current = passed; fault != nil {
			current = finding{"False", "FailedDiscoveryCheck", fault.Error()}
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	c.mu.Lock()
	if s := c.watched[name]; s != nil {
		s.is = current
	}
	c.mu.Unlock()
	return fault, c.record(ctx, live.Object, obj, current)
}

// service looks for what is wrong with the Service of an APIService. ok means that its server can be asked.
func (c *Availability) service(ctx context.Context, at object.Value) (f finding, ok bool) {
	namespace, name, port := at.At("namespace").Str(), at.At("name").Str(), at.At("port").Int()
	unknown := func(reason string, err error) (finding, bool) {
		return finding{"Unknown", reason, fmt.Sprintf("service/%s in %q cannot be checked due to: %v", name, namespace, err)},
			false
	}
	service, err := c.Service(ctx, namespace, name)
	switch {
	case apierr.Is(err, apierr.NotFound):
		return finding{"False", "ServiceNotFound", fmt.Sprintf("service/%s in %q is not present", name, namespace)}, false
	case err != nil:
		return unknown("ServiceAccessError", err)
	}
	if service.At("spec", "type").Str() != "ClusterIP" {
		return f, true
	}
	found, portName := false, ""
	for _, p := range service.At("spec", "ports").Items() {
		if p.At("port").Int() == port {
			found, portName = true, p.At("name").Str()
			break
		}
	}
	if !found {
		return finding{"False", "ServicePortError",
			fmt.Sprintf("service/%s in %q is not listening on port %d", name, namespace, port)}, false
	}
	slices, err := c.Slices(ctx, namespace, name)
	switch {
	case err != nil:
		return unknown("EndpointsAccessError", err)
	case len(slices) == 0:
		return finding{"False", "EndpointsNotFound",
			fmt.Sprintf("cannot find endpointslices for service/%s in %q", name, namespace)}, false
	}
	for _, slice := range slices {
		if hasReady(slice, portName) {
			return f, true
		}
	}
	return finding{"False", "MissingEndpoints",
		fmt.Sprintf("endpointslices for service/%s in %q have no addresses with port name %q", name, namespace, portName)}, false
}

// hasReady says whether an EndpointSlice has a ready endpoint and a port of this name.
func hasReady(slice object.Value, port string) bool {
	ready, named := false, false
	for _, e := range slice.At("endpoints").Items() {
		current := e.At("conditions", "ready")
		ready = ready || current.IsNull() || current.Bool()
	}
	for _, p := range slice.At("ports").Items() {
		named = named || !p.At("name").IsNull() && p.At("name").Str() == port && !p.At("port").IsNull()
	}
	return ready && named
}

// record writes the condition Available, unless the APIService has it already. Its time is that of the last change of
// its status.
func (c *Availability) record(ctx context.Context, live *engine.Object, obj object.Value, current finding) error {
	text := object.StringOf
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	conditions := append([]object.Value(nil), obj.At("status", "conditions").Items()...)
	at := -1
	for i, condition := range conditions {
		if condition.At("type").Str() == "Available" {
			at = i
			break
		}
	}
	made := object.Fields("type", text("Available"), "status", text(current.status), "reason", text(current.reason),
		"message", text(current.message), "lastTransitionTime", text(now().UTC().Format(time.RFC3339)))
	if at < 0 {
		conditions = append(conditions, made)
	} else {
		old := conditions[at]
		if since := old.At("lastTransitionTime"); old.At("status").Str() == current.status && !since.IsNull() {
			made = made.With("lastTransitionTime", since)
		}
		if object.Equal(made, old) {
			return nil
		}
		conditions[at] = made
	}
	rq := &engine.Request{Resource: c.of, Name: live.Key.Name, Subresource: c.of.Subresource("status"), User: serverItself,
		FieldManager: "kube-apiserver"}
	body := obj.WithAt(object.ListOf(conditions...), "status", "conditions")
	result, err := c.Engine.Update(ctx, rq, object.Parsed{Value: withRevision(body, live)})
	if err == nil && c.Lost != nil && findingIn(obj).status == "True" && current.status != "True" {
		c.Lost(live.Key.Name, current.reason)
	}
	return unlessChanged(result, err)
}

// Follow calls changed when the objects of a type have changed, and at first for those that exist. It is for parts of a
// server that have something to do in each server.
func Follow(g *steps.Group, e *engine.Engine, logger *slog.Logger, of *engine.Resource, changed func()) {
	(&follower{engine: e, logger: logger, name: "follow", types: []*engine.Resource{of},
		sync: func(context.Context, *engine.Resource, *engine.Object, bool) (time.Duration, error) {
			changed()
			return 0, nil
		}}).start(g)
}

package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
)

// initial is an object that every server has, as kube-apiserver creates it.
type initial struct {
	group, version, resource string
	namespace, name          string
	manager                  string       // default: kube-apiserver
	body                     object.Value // the new object, without its name
	// revise returns what the existing object is to be changed to, or live itself. If revise is nil the object stays.
	revise func(live object.Value) object.Value
	// replace says whether the existing object has to be deleted and created again. If replace is nil it never is.
	replace func(live object.Value) bool
	// status returns what statusManager applies to the object's status; null for no change. It may be nil.
	status        func(live object.Value) object.Value
	statusManager string
}

// systemNamespaces are created if they are missing: at every start, and while the server runs.
var systemNamespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

func initialNamespaces() (all []initial) {
	for _, name := range systemNamespaces {
		all = append(all, initial{version: "v1", resource: "namespaces", name: name})
	}
	return all
}

// clusterObjects returns the initial objects that are not namespaced.
func (s *Server) clusterObjects() ([]initial, error) {
	all := initialNamespaces()
	class := func(name string, value int64, description string) {
		all = append(all, initial{group: "scheduling.k8s.io", version: "v1", resource: "priorityclasses", name: name,
			body: object.Fields("value", object.IntOf(value), "description", object.StringOf(description))})
	}
	class("system-node-critical", 2_000_001_000,
		"Used for system critical pods that must not be moved from their current node.")
	class("system-cluster-critical", 2_000_000_000,
		"Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.")
	cidr, err := s.defaultCIDR()
	if err != nil {
		return nil, err
	}
	return append(append(all, cidr), flowControl(s.now, s.config.PriorityAndFairness)...), nil
}

// bootstrap creates the initial objects and the RBAC bootstrap policy, updates those that exist, and deletes objects
// of earlier releases.
func (s *Server) bootstrap(ctx context.Context) error {
	all, err := s.clusterObjects()
	if err != nil {
		return err
	}
	local := s.localAPIServices()
	if err := s.createMissing(ctx, append(all, local...)); err != nil {
		return err
	}
	if err := s.deleteObsoleteAPIServices(ctx, local); err != nil {
		return err
	}
	inherited, err := s.inherited(ctx)
	if err != nil {
		return err
	}
	if err := s.createMissing(ctx, inherited); err != nil {
		return err
	}
	if err := s.createMissing(ctx, s.bootstrapPolicy()); err != nil { // after the namespaces, in which some of them are
		return err
	}
	return s.deleteObsoleteFlowControl(ctx)
}

// createMissing creates the initial objects that do not exist, all in one commit, and updates the others. An object
// that is as it should be is not written, and neither is one that cannot be read: the server starts without it, so that
// it can be removed, or the key be found with which it was encrypted.
func (s *Server) createMissing(ctx context.Context, all []initial) error {
	var requests []*engine.Request
	var bodies []object.Value
	var applies []func() error
	for _, i := range all {
		r := s.registry.Builtin().Find(i.group, i.version, i.resource)
		if r == nil { // --runtime-config may have turned it off
			continue
		}
		rq := &engine.Request{Resource: r, Namespace: i.namespace, Name: i.name, FieldManager: "kube-apiserver",
			OwnStart: true}
		if i.manager != "" {
			rq.FieldManager = i.manager
		}
		live, err := s.revise(ctx, rq, &i)
		if err != nil && s.unreadable(rq) {
			s.config.Logger.Warn("an object of the server is left as it is", "error", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("bringing %s %s up to date: %w", i.resource, i.name, err)
		}
		if live.IsNull() {
			made := *rq
			made.Name = ""
			meta := i.body.At("metadata").With("name", object.StringOf(i.name))
			requests, bodies = append(requests, &made), append(bodies, i.body.With("metadata", meta))
		}
		if i.status == nil {
			continue
		}
		if status := i.status(live); !status.IsNull() {
			applies = append(applies, func() error { return s.applyStatus(ctx, rq, i.statusManager, status) })
		}
	}
	if len(requests) > 0 {
		if err := s.engine.CreateAll(ctx, requests, bodies); err != nil {
			return fmt.Errorf("making initial objects: %w", err)
		}
	}
	return concurrently(applies...)
}

var errUnreadable = errors.New("it cannot be read")

// unreadable says whether the object of a request cannot be read (store.Sidecar.Unreadable).
func (s *Server) unreadable(rq *engine.Request) bool {
	name := rq.Name
	if rq.Namespace != "" {
		name = rq.Namespace + "/" + name
	}
	v, found := s.store.Get(store.Key{Resource: rq.Resource.Stored.Path, Name: name})
	return found && v.Sidecar.Unreadable != nil
}

// live returns the object of this name and of the type of i; null if it does not exist, or the type is not served.
func (s *Server) live(ctx context.Context, i *initial, name string) (object.Value, error) {
	r := s.registry.Builtin().Find(i.group, i.version, i.resource)
	if r == nil {
		return object.Nil, nil
	}
	rq := &engine.Request{Resource: r, Namespace: i.namespace, Name: name}
	result, err := s.engine.Get(ctx, rq, "")
	switch {
	case err != nil && s.unreadable(rq):
		return object.Nil, fmt.Errorf("%w: %w", errUnreadable, err)
	case apierr.Is(err, apierr.NotFound):
		return object.Nil, nil
	case err != nil:
		return object.Nil, err
	}
	return engine.ObjectOf(result.Object)
}

// revise updates an existing object and returns it; null if it does not exist or was deleted to be created again.
func (s *Server) revise(ctx context.Context, rq *engine.Request, i *initial) (object.Value, error) {
	for {
		result, err := s.engine.Get(ctx, rq, "")
		if apierr.Is(err, apierr.NotFound) {
			return object.Nil, nil
		}
		if err != nil {
			return object.Nil, err
		}
		live, err := engine.ObjectOf(result.Object)
		if err != nil || i.revise == nil {
			return live, err
		}
		next := i.revise(live)
		switch {
		case i.replace != nil && i.replace(live):
			_, err := s.engine.Delete(ctx, rq, engine.DeleteOptions{PreconditionUID: live.At("metadata", "uid").Str()})
			if err == nil || apierr.Is(err, apierr.NotFound) {
				return object.Nil, nil
			}
			return object.Nil, err
		case object.Equal(next, live):
			return live, nil
		}
		next = next.WithAt(object.StringOf(fmt.Sprint(result.Object.Revision)), "metadata", "resourceVersion")
		_, err = s.engine.Update(ctx, rq, object.Parsed{Value: next})
		if err == nil {
			return next, nil
		}
		if !apierr.Is(err, apierr.Conflict) && !apierr.Is(err, apierr.NotFound) {
			return object.Nil, err
		}
	}
}

// applyStatus applies the status of an object (server-side apply).
func (s *Server) applyStatus(ctx context.Context, rq *engine.Request, manager string, status object.Value) error {
	apply := *rq
	apply.Subresource, apply.FieldManager, apply.Force = rq.Resource.Subresource("status"), manager, true
	body := object.Fields("apiVersion", object.StringOf(rq.Resource.APIVersion()), "kind",
		object.StringOf(rq.Resource.Kind),
		"metadata", object.Fields("name", object.StringOf(rq.Name)), "status", status)
	if _, err := s.engine.Apply(ctx, &apply, object.Parsed{Value: body}); err != nil {
		return fmt.Errorf("applying the status of %s %s: %w", rq.Resource.Name, rq.Name, err)
	}
	return nil
}

// concurrently runs functions at the same time, so that their commits share an fsync.
func concurrently(all ...func() error) error {
	errs := make([]error, len(all))
	var work sync.WaitGroup
	for i, do := range all {
		work.Go(func() { errs[i] = do() })
	}
	work.Wait()
	return errors.Join(errs...)
}

// conditionIn returns the condition of this type in an object's status; null if there is none.
func conditionIn(obj object.Value, kind string) object.Value {
	conditions := obj.At("status", "conditions").Items()
	if i := slices.IndexFunc(conditions, func(c object.Value) bool { return c.At("type").Str() == kind }); i >= 0 {
		return conditions[i]
	}
	return object.Nil
}

func deleting(obj object.Value) bool { return !obj.At("metadata", "deletionTimestamp").IsNull() }

// clock is the current time by the configured clock.
func (s *Server) clock() time.Time {
	if s.config.Now != nil {
		return s.config.Now()
	}
	return time.Now()
}

// now is the current time as objects contain it.
func (s *Server) now() object.Value { return object.StringOf(s.clock().UTC().Format(time.RFC3339)) }

// Package initial has the objects that every server has, as kube-apiserver makes them: the system namespaces, the
// roles, the Service kubernetes, what describes the server to other programs. It creates those that are missing when a
// server starts, and brings back while it runs what somebody takes away.
package initial

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/store"
	"plinth/object"
)

// Objects brings the objects of a server up to date.
type Objects struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Store    *store.Store
	Features features.Set
	Logger   *slog.Logger
	Now      func() time.Time
	Fairness bool           // the server has priority and fairness
	Ranges   []netip.Prefix // of cluster IPs; the Service kubernetes has the first address
	NodePort int            // of the Service kubernetes; 0: none
	Self     Self           // set before what describes the server is written

	// trackingMade is when this server has made the ConfigMap access.LegacyTokenTracking last. EnsureConfigMaps alone uses
	// it, which does not run twice at a time.
	trackingMade time.Time
}

// Self is what the objects say of the server itself.
type Self struct {
	Port     int        // at which it listens
	Endpoint netip.Addr // the endpoint of the Service kubernetes; invalid: it has none
	Peers    bool       // the Service kubernetes and its endpoints are written by package peers
	// Trusted are the authorities that sign client certificates, and those that sign the certificates of servers that
	// forward requests, as PEM. They may change.
	Trusted func() (clients, proxies []byte)
	// OnlyTrusted removes other authorities from what is published; false: those that other servers have added stay.
	OnlyTrusted bool
	// FrontProxy is by what other API servers believe this one who the user of a request is.
	FrontProxy FrontProxy
}

// FrontProxy is a part of the ConfigMap extension-apiserver-authentication.
type FrontProxy struct {
	Names []string
	// The names of the headers.
	Users, UIDs, Groups, Extra []string
}

// Object is an object that every server has, as kube-apiserver creates it.
type Object struct {
	Group, Version, Resource string
	Namespace, Name          string
	Manager                  string       // default: kube-apiserver
	Body                     object.Value // the new object, without its name
	// Revise returns what the existing object is to be changed to, or live itself. If Revise is nil the object stays.
	Revise func(live object.Value) object.Value
	// May says whether the object may be created now, if it is missing. If May is nil it always may.
	May func() bool
	// Replace says whether the existing object has to be deleted and created again. If Replace is nil it never is.
	Replace func(live object.Value) bool
	// Status returns what StatusManager applies to the object's status; null for no change. It may be nil.
	Status        func(live object.Value) object.Value
	StatusManager string
}

// systemNamespaces are created if they are missing: at every start, and while the server runs.
var systemNamespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

func initialNamespaces() (all []Object) {
	for _, name := range systemNamespaces {
		all = append(all, Object{Version: "v1", Resource: "namespaces", Name: name})
	}
	return all
}

// clusterObjects returns the initial objects that are not namespaced.
func (o *Objects) clusterObjects() []Object {
	all := initialNamespaces()
	class := func(name string, value int64, description string) {
		all = append(all, Object{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses", Name: name,
			Body: object.Fields("value", object.IntOf(value), "description", object.StringOf(description))})
	}
	class("system-node-critical", 2_000_001_000,
		"Used for system critical pods that must not be moved from their current node.")
	class("system-cluster-critical", 2_000_000_000,
		"Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.")
	return append(append(all, o.defaultCIDR()), o.FlowControl()...)
}

// Begin creates the initial objects and the RBAC bootstrap policy, updates those that exist, and deletes objects
// of earlier releases.
func (o *Objects) Begin(ctx context.Context) error {
	local := o.localAPIServices()
	if err := o.Ensure(ctx, append(o.clusterObjects(), local...)); err != nil {
		return err
	}
	if err := o.deleteObsoleteAPIServices(ctx, local); err != nil {
		return err
	}
	inherited, err := o.inherited(ctx)
	if err != nil {
		return err
	}
	if err := o.Ensure(ctx, inherited); err != nil {
		return err
	}
	if err := o.Ensure(ctx, o.bootstrapPolicy()); err != nil { // after the namespaces, in which some of them are
		return err
	}
	return o.deleteObsoleteFlowControl(ctx)
}

// Ensure creates the initial objects that do not exist, all in one commit, and updates the others. An object
// that is as it should be is not written, and neither is one that cannot be read: the server starts without it, so that
// it can be removed, or the key be found with which it was encrypted.
func (o *Objects) Ensure(ctx context.Context, all []Object) error {
	var requests []*engine.Request
	var bodies []object.Value
	var applies []func() error
	for _, i := range all {
		r := o.Registry.Builtin().Find(i.Group, i.Version, i.Resource)
		if r == nil { // --runtime-config may have turned it off
			continue
		}
		rq := &engine.Request{Resource: r, Namespace: i.Namespace, Name: i.Name, FieldManager: "kube-apiserver",
			OwnStart: true}
		if i.Manager != "" {
			rq.FieldManager = i.Manager
		}
		live, err := o.revise(ctx, rq, &i)
		if err != nil && o.unreadable(rq) {
			o.Logger.Warn("an object of the server is left as it is", "error", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("bringing %s %s up to date: %w", i.Resource, i.Name, err)
		}
		if live.IsNull() && (i.May == nil || i.May()) {
			made := *rq
			made.Name = ""
			meta := i.Body.At("metadata").With("name", object.StringOf(i.Name))
			requests, bodies = append(requests, &made), append(bodies, i.Body.With("metadata", meta))
		}
		if i.Status == nil {
			continue
		}
		if status := i.Status(live); !status.IsNull() {
			applies = append(applies, func() error { return o.applyStatus(ctx, rq, i.StatusManager, status) })
		}
	}
	if len(requests) > 0 {
		if err := o.Engine.CreateAll(ctx, requests, bodies); err != nil {
			return fmt.Errorf("making initial objects: %w", err)
		}
	}
	return Concurrently(applies...)
}

var errUnreadable = errors.New("it cannot be read")

// unreadable says whether the object of a request cannot be read (store.Sidecar.Unreadable).
func (o *Objects) unreadable(rq *engine.Request) bool {
	name := rq.Name
	if rq.Namespace != "" {
		name = rq.Namespace + "/" + name
	}
	v, found := o.Store.Get(store.Key{Resource: rq.Resource.Stored.Path, Name: name})
	return found && v.Sidecar.Unreadable != nil
}

// live returns the object of this name and of the type of i; null if it does not exist, or the type is not served.
func (o *Objects) live(ctx context.Context, i *Object, name string) (object.Value, error) {
	r := o.Registry.Builtin().Find(i.Group, i.Version, i.Resource)
	if r == nil {
		return object.Nil, nil
	}
	rq := &engine.Request{Resource: r, Namespace: i.Namespace, Name: name}
	result, err := o.Engine.Get(ctx, rq, "")
	switch {
	case err != nil && o.unreadable(rq):
		return object.Nil, fmt.Errorf("%w: %w", errUnreadable, err)
	case apierr.Is(err, apierr.NotFound):
		return object.Nil, nil
	case err != nil:
		return object.Nil, err
	}
	return engine.ObjectOf(result.Object)
}

// revise updates an existing object and returns it; null if it does not exist or was deleted to be created again.
func (o *Objects) revise(ctx context.Context, rq *engine.Request, i *Object) (object.Value, error) {
	for {
		result, err := o.Engine.Get(ctx, rq, "")
		if apierr.Is(err, apierr.NotFound) {
			return object.Nil, nil
		}
		if err != nil {
			return object.Nil, err
		}
		live, err := engine.ObjectOf(result.Object)
		if err != nil || i.Revise == nil {
			return live, err
		}
		next := i.Revise(live)
		switch {
		case i.Replace != nil && i.Replace(live):
			_, err := o.Engine.Delete(ctx, rq, engine.DeleteOptions{PreconditionUID: live.At("metadata", "uid").Str()})
			if err == nil || apierr.Is(err, apierr.NotFound) {
				return object.Nil, nil
			}
			return object.Nil, err
		case object.Equal(next, live):
			return live, nil
		}
		next = next.WithAt(object.StringOf(fmt.Sprint(result.Object.Revision)), "metadata", "resourceVersion")
		_, err = o.Engine.Update(ctx, rq, object.Parsed{Value: next})
		if err == nil {
			return next, nil
		}
		if !apierr.Is(err, apierr.Conflict) && !apierr.Is(err, apierr.NotFound) {
			return object.Nil, err
		}
	}
}

// applyStatus applies the status of an object (server-side apply).
func (o *Objects) applyStatus(ctx context.Context, rq *engine.Request, manager string, status object.Value) error {
	apply := *rq
	apply.Subresource, apply.FieldManager, apply.Force = rq.Resource.Subresource("status"), manager, true
	body := object.Fields("apiVersion", object.StringOf(rq.Resource.APIVersion()), "kind",
		object.StringOf(rq.Resource.Kind),
		"metadata", object.Fields("name", object.StringOf(rq.Name)), "status", status)
	if _, err := o.Engine.Apply(ctx, &apply, object.Parsed{Value: body}); err != nil {
		return fmt.Errorf("applying the status of %s %s: %w", rq.Resource.Name, rq.Name, err)
	}
	return nil
}

// Concurrently runs functions at the same time, so that their commits share an fsync.
func Concurrently(all ...func() error) error {
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

// now is the current time as objects contain it.
func (o *Objects) now() object.Value { return object.StringOf(o.Now().UTC().Format(time.RFC3339)) }

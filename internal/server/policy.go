package server

import (
	"context"
	"fmt"
	"slices"

	"plinth/internal/apierr"
	"plinth/internal/authz"
	"plinth/internal/engine"
	"plinth/object"
)

// bootstrapPolicy makes the roles and bindings that every server has, and gives those that are there what they lack. The first time
// all of them are one commit; where nothing lacks, nothing is written.
func bootstrapPolicy(ctx context.Context, e *engine.Engine, registry *engine.Registry) error {
	var requests []*engine.Request
	var bodies []object.Value
	for _, d := range authz.Bootstrap() {
		r := registry.Builtin().Find(authz.RBACGroup, "v1", d.Resource)
		if r == nil { // --runtime-config may have turned it off
			continue
		}
		rq := &engine.Request{Resource: r, Namespace: d.Namespace, Name: d.Name, FieldManager: "kube-apiserver"}
		missing, err := reconcile(ctx, e, rq, d.Body)
		if err != nil {
			return fmt.Errorf("bringing %s %s up to date: %w", d.Resource, d.Name, err)
		}
		if missing {
			rq.Name = ""
			requests, bodies = append(requests, rq), append(bodies, d.Body)
		}
	}
	if len(requests) == 0 {
		return nil
	}
	if err := e.CreateAll(ctx, requests, bodies); err != nil {
		return fmt.Errorf("making the bootstrap roles and bindings: %w", err)
	}
	return nil
}

// reconcile brings an object of the bootstrap policy up to date; missing says that there is none.
func reconcile(ctx context.Context, e *engine.Engine, rq *engine.Request, wanted object.Value) (missing bool, err error) {
	for {
		live, err := e.Get(ctx, rq, "")
		if apierr.Is(err, apierr.NotFound) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		parsed, err := object.ParseJSON(slices.Clone(live.Object.Data))
		if err != nil {
			return false, err
		}
		next, remedy := authz.Reconcile(parsed.Value, wanted)
		switch remedy {
		case authz.Leave:
			return false, nil
		case authz.Replace:
			_, err := e.Delete(ctx, rq, engine.DeleteOptions{PreconditionUID: parsed.Value.At("metadata", "uid").Str()})
			if err == nil || apierr.Is(err, apierr.NotFound) {
				return true, nil
			}
			return false, err
		}
		next = next.WithAt(object.StringOf(fmt.Sprint(live.Object.Revision)), "metadata", "resourceVersion")
		_, err = e.Update(ctx, rq, object.Parsed{Value: next})
		if !apierr.Is(err, apierr.Conflict) && !apierr.Is(err, apierr.NotFound) {
			return false, err
		}
	}
}

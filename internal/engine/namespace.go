package engine

import (
	"cmp"
	"context"
	"fmt"

	"plinth/internal/apierr"
	"plinth/internal/store"
)

// Namespaces is the store resource of namespaces.
const Namespaces = "/namespaces"

// admit is mutating admission. There is one plugin so far, the life cycle of namespaces (URI-5): nothing is created in one
// that is not there or is being emptied, and some cannot be deleted.
func (d *draft) admit(ctx context.Context) error {
	r := d.rq.Resource
	switch {
	case d.action == deletes && r.Undeletable != nil && !d.anyNamespace:
		if why := r.Undeletable(d.rq.Name); why != "" {
			return apierr.NewForbidden(r.Type(), d.rq.Name, why)
		}
	case d.action == creates && r.Answer == nil: // a review would tell which namespaces there are
		return d.requireParents(ctx)
	}
	return nil
}

// requireParents refuses to create an object where there can be none: without its namespace, or its definition.
func (d *draft) requireParents(ctx context.Context) error {
	d.fences = nil
	if err := d.requireNamespace(ctx); err != nil {
		return err
	}
	return d.requireDefinition(ctx)
}

// holder reads an object without which the draft's cannot be: nil if there is none. That it is gone or being deleted is said of the
// newest version alone. That it is there may be said of an older one, since the commit finds out; a dry run has none.
func (d *draft) holder(ctx context.Context, key store.Key) (*store.Version, error) {
	v, current, err := d.store.Live(ctx, key, d.dry)
	if err == nil && !current && (v == nil || v.Sidecar.Deleting) {
		v, _, err = d.store.Live(ctx, key, true)
	}
	if err != nil {
		return nil, commitFailed(err)
	}
	return v, nil
}

// requireDefinition refuses to create an object whose kind is no longer defined, or is about to be no longer (EXT-1). The
// definition may have been changed since the request came: what was made by an older one is brought into form when it is read.
func (d *draft) requireDefinition(ctx context.Context) error {
	r := d.rq.Resource
	if r.Stored == nil || r.Stored.Definition == (store.Key{}) {
		return nil
	}
	definition, err := d.holder(ctx, r.Stored.Definition)
	switch {
	case err != nil:
		return err
	case definition == nil:
		return apierr.NewNoSuchPath()
	case definition.Sidecar.Deleting:
		name := cmp.Or(d.rq.Name, d.obj.At("metadata", "name").Str())
		return apierr.NewForbidden(r.Type(), name, "create not allowed while custom resource definition is terminating")
	}
	d.fences = append(d.fences, store.Fence(definition))
	return nil
}

// requireNamespace refuses to create an object in a namespace that is not there or is being emptied. The fence keeps true
// until the commit what it has found, and does not mind if the namespace is annotated meanwhile.
func (d *draft) requireNamespace(ctx context.Context) error {
	rq := d.rq
	if !rq.Resource.Namespaced || rq.Namespace == "" || d.anyNamespace { // no namespace is for validation to refuse
		return nil
	}
	key := store.Key{Resource: Namespaces, Name: rq.Namespace}
	ns, err := d.holder(ctx, key)
	if err != nil {
		return err
	}
	if ns == nil {
		return apierr.NewNotFound(apierr.Type{Name: "namespaces"}, rq.Namespace)
	}
	if ns.Sidecar.Deleting {
		name := rq.Name
		if name == "" {
			meta := d.sent.At("metadata")
			name = cmp.Or(meta.At("name").Str(), meta.At("generateName").Str(), "Unknown")
		}
		err := apierr.NewForbidden(rq.Resource.Type(), name,
			fmt.Sprintf("unable to create new content in namespace %s because it is being terminated", rq.Namespace))
		err.Details.Causes = []apierr.Cause{{
			Reason:  "NamespaceTerminating",
			Message: fmt.Sprintf("namespace %s is being terminated", rq.Namespace),
			Field:   "metadata.namespace",
		}}
		return err
	}
	d.fences = append(d.fences, store.Fence(ns))
	return nil
}

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

// A new object depends on two others: on its namespace and, if its type is custom, on its definition. The commit has a
// fence for each of them (effects):
//
//	committed  ⇒  namespace and definition existed, undeleted, when the commit was sequenced
//
// Checking first and then writing would leave a gap in which the namespace is emptied and removed: the object would be
// created in a namespace that does not exist, and would never be deleted. A precondition on the revisions that were
// read would make every create begin again whenever the namespace is annotated. A fence depends on the identity of the
// object only.
//
// Objects in a namespace that is being deleted can still be updated and deleted: otherwise their controllers could not
// remove their finalizers, and the namespace would never be empty.

// requireParents reads the objects again on which the draft depends, after a commit that lost a race at one of them.
func (d *draft) requireParents(ctx context.Context) error {
	if err := d.requireDefinition(ctx); err != nil {
		return err
	}
	if d.effects.inNamespace {
		return d.requireNamespace(ctx)
	}
	return nil
}

// prerequisite reads the object without which that of the draft cannot exist: its namespace or definition. uid is the
// UID that it must have; "": any. A refusal is based on the newest version only. If the object exists in an older
// state, that is enough, since the fence is checked by the commit; a dry run has no commit, so it reads the newest
// version at once.
func (d *draft) prerequisite(ctx context.Context, key store.Key, uid string) (*store.Version, error) {
	parents := d.main().store
	v, current, err := parents.Live(ctx, key, d.dry)
	if err == nil && !current && (v == nil || v.Sidecar.Deleting || uid != "" && v.Sidecar.UID != uid) {
		v, _, err = parents.Live(ctx, key, true)
	}
	if err != nil {
		return nil, commitFailed(err)
	}
	return v, nil
}

// requireDefinition refuses to create an object whose definition does not exist any more or is being deleted (EXT-1,
// EXT-3). A definition of the same name that was made since the request arrived is another one: it may have another
// scope, under which the object would be listed and could be neither read nor deleted. If the same definition has
// changed since the request arrived, the object is stored in the form of the older definition, with its stamp; reads
// bring it into the current form, so the fence does not depend on the revision.
func (d *draft) requireDefinition(ctx context.Context) error {
	d.effects.definition = nil
	r := d.rq.Resource
	if r.Stored == nil || r.Stored.Definition == (store.Key{}) {
		return nil
	}
	definition, err := d.prerequisite(ctx, r.Stored.Definition, r.Stored.DefinitionUID)
	switch {
	case err != nil:
		return err
	case definition == nil || definition.Sidecar.UID != r.Stored.DefinitionUID:
		return apierr.NewNoSuchPath()
	case definition.Sidecar.Deleting:
		name := cmp.Or(d.rq.Name, d.asked.At("metadata", "name").Str())
		return apierr.NewForbidden(r.Type(), name, "create not allowed while custom resource definition is terminating")
	}
	d.effects.definition = definition
	return nil
}

// requireNamespace refuses to create an object in a namespace that does not exist or is being deleted. Whether that is
// required is decided by an admission plugin, NamespaceLifecycle (Attributes.RequireNamespace). The errors are
// the reference's: 404 for the namespace, or 403 with a cause by which controllers decide to stop trying. The reference
// waits 50 ms for a namespace that its informer has not seen yet (missingNamespaceWait); here the store is read, and it
// has every namespace whose create was answered.
func (d *draft) requireNamespace(ctx context.Context) error {
	d.effects.namespace = nil
	rq := d.rq
	if !rq.Resource.Namespaced || rq.Namespace == "" { // validation refuses an empty namespace
		return nil
	}
	key := store.Key{Resource: Namespaces, Name: rq.Namespace}
	ns, err := d.prerequisite(ctx, key, "")
	if err != nil {
		return err
	}
	if ns == nil {
		return apierr.NewNotFound(apierr.Type{Name: "namespaces"}, rq.Namespace)
	}
	if ns.Sidecar.Deleting {
		name := rq.Name
		if name == "" {
			meta := d.asked.At("metadata")
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
	d.effects.namespace = ns
	return nil
}

package admission

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/internal/access"
	"plinth/internal/engine"
	"plinth/object"
)

// newOwnerReferencesPermissionEnforcement makes the plugin OwnerReferencesPermissionEnforcement: who changes the owners
// of an object must be allowed to delete it, since the garbage collector would; and who lets it block the deletion of
// an owner, to set the finalizers of the owner.
func newOwnerReferencesPermissionEnforcement(c *Config) (steps, error) {
	p := &ownerPermissions{c.Registry}
	return steps{validate: p.validate}, nil
}

type ownerPermissions struct{ registry *engine.Registry }

func (p *ownerPermissions) validate(ctx context.Context, a *engine.Attributes) error {
	// Old kubelets send Pods without owners to status, which cannot change them.
	if !writes(a) || about(a, "", "pods", "status") || !changesOwners(a) {
		return nil
	}
	if a.Operation != engine.OperationCreate {
		if ok, reason, err := a.Request.Allowed(ctx, p.ofRequest(a, "delete")); !ok {
			return forbidden(a, fmt.Sprintf("cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err))
		}
	}
	blocking := newlyBlocking(a)
	if len(blocking) == 0 {
		return nil
	}
	if ok, _, _ := a.Request.Allowed(ctx, access.Attributes{Verb: "update", IsResource: true, Group: "*", Version: "*",
		Resource: "*", Subresource: "finalizers", Name: "*"}); ok {
		return nil
	}
	for _, ref := range blocking {
		if err := p.mayFinalize(ctx, a, ref); err != nil {
			return err
		}
	}
	return nil
}

// ofRequest are the attributes of another verb on the object of the request.
func (p *ownerPermissions) ofRequest(a *engine.Attributes, verb string) access.Attributes {
	r := a.Request.Resource
	of := access.Attributes{Verb: verb, IsResource: true, Group: r.Group, Version: r.Version, Resource: r.Name,
		Namespace: a.Request.Namespace, Name: a.Name}
	if sub := a.Request.Subresource; sub != nil {
		of.Subresource = sub.Name
	}
	return of
}

// changesOwners says whether the owner references of the object differ from those of the old one.
func changesOwners(a *engine.Attributes) bool {
	now, before := a.Object.At("metadata", "ownerReferences").Items(), a.Old.At("metadata", "ownerReferences").Items()
	if len(now) != len(before) {
		return true
	}
	for i := range now {
		if !object.Equal(now[i], before[i]) {
			return true
		}
	}
	return false
}

// newlyBlocking are the references that block the deletion of their owner and did not before.
func newlyBlocking(a *engine.Attributes) (refs []object.Value) {
	before := map[string]bool{} // by UID: whether it blocked
	for _, ref := range a.Old.At("metadata", "ownerReferences").Items() {
		before[ref.At("uid").Str()] = ref.At("blockOwnerDeletion").Bool()
	}
	for _, ref := range a.Object.At("metadata", "ownerReferences").Items() {
		if ref.At("blockOwnerDeletion").Bool() && !before[ref.At("uid").Str()] {
			refs = append(refs, ref)
		}
	}
	return refs
}

// mayFinalize refuses a reference to an owner whose finalizers the user may not set.
func (p *ownerPermissions) mayFinalize(ctx context.Context, a *engine.Attributes, ref object.Value) error {
	version, kind := ref.At("apiVersion").Str(), ref.At("kind").Str()
	gv, err := schema.ParseGroupVersion(version)
	r := p.registry.Now().OfKind(version, kind)
	if err == nil && r == nil {
		err = fmt.Errorf("no matches for kind %q in version %q", kind, version)
	}
	if err != nil {
		return forbidden(a, fmt.Sprintf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for "+
			"APIVersion %s Kind %s: %v", version, kind, err))
	}
	of := access.Attributes{Verb: "update", IsResource: true, Group: gv.Group, Version: gv.Version, Resource: r.Name,
		Subresource: "finalizers", Name: ref.At("name").Str()}
	if r.Namespaced {
		of.Namespace = a.Request.Namespace
	}
	if ok, reason, err := a.Request.Allowed(ctx, of); !ok {
		return forbidden(a, fmt.Sprintf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't "+
			"set finalizers on: %v, %v", reason, err))
	}
	return nil
}

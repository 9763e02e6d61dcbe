package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/internal/access"
	"plinth/internal/engine"
	"plinth/object"
)

// newOwnerReferencesPermissionEnforcement makes the plugin OwnerReferencesPermissionEnforcement. Owner references
// delete: so who changes those of an object must be allowed to delete it, and who makes an object block the deletion of
// its owner must be allowed to change the finalizers of the owner.
func newOwnerReferencesPermissionEnforcement(c *Config) (steps, error) {
	return steps{validate: func(ctx context.Context, a *engine.Attributes) error {
		// Writes of the status of a Pod leave its owner references as they are.
		if !writes(a) || about(a, "", "pods", "status") {
			return nil
		}
		owners, before := ownerReferences(a.Object), ownerReferences(a.Old)
		if slices.EqualFunc(owners, before, object.Equal) {
			return nil
		}
		if a.Operation == engine.OperationUpdate {
			if ok, reason, err := a.Request.Allowed(ctx, deletion(a)); !ok {
				return forbidden(a,
					fmt.Sprintf("cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err))
			}
		}
		return mayBlock(ctx, a, c.Registry.Now(), newlyBlocking(owners, before))
	}}, nil
}

// ownerReferences are those of an object, or of the body of a subresource.
func ownerReferences(obj object.Value) []object.Value {
	return obj.At("metadata", "ownerReferences").Items()
}

// deletion asks whether the user may delete the object of the request. A subresource is asked about as such.
func deletion(a *engine.Attributes) access.Attributes {
	r := a.Request.Resource
	asked := access.Attributes{Verb: "delete", IsResource: true, Group: r.Group, Version: r.Version, Resource: r.Name,
		Namespace: a.Request.Namespace, Name: a.Name}
	if a.Request.Subresource != nil {
		asked.Subresource = a.Request.Subresource.Name
	}
	return asked
}

// newlyBlocking returns the references that block the deletion of an owner that was not blocked before. Of several
// former references to one owner the last one counts.
func newlyBlocking(owners, before []object.Value) (blocking []object.Value) {
	blocked := make(map[string]bool, len(before))
	for _, owner := range before {
		blocked[owner.At("uid").Str()] = owner.At("blockOwnerDeletion").Bool()
	}
	for _, owner := range owners {
		if owner.At("blockOwnerDeletion").Bool() && !blocked[owner.At("uid").Str()] {
			blocking = append(blocking, owner)
		}
	}
	return blocking
}

// mayBlock refuses references to owners whose finalizers the user may not change. One who may change all finalizers is
// asked about first, as no type has to be served for that.
func mayBlock(ctx context.Context, a *engine.Attributes, types *engine.Types, owners []object.Value) error {
	if len(owners) == 0 {
		return nil
	}
	asked := access.Attributes{Verb: "update", IsResource: true, Group: "*", Version: "*", Resource: "*",
		Subresource: "finalizers", Name: "*"}
	if ok, _, _ := a.Request.Allowed(ctx, asked); ok {
		return nil
	}
	for _, owner := range owners {
		apiVersion, kind := owner.At("apiVersion").Str(), owner.At("kind").Str()
		gv, resource, namespaced, err := mapping(types, apiVersion, kind)
		if err != nil {
			return forbidden(a, fmt.Sprintf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping "+
				"for APIVersion %s Kind %s: %v", apiVersion, kind, err))
		}
		asked.Group, asked.Version, asked.Resource, asked.Name = gv.Group, gv.Version, resource, owner.At("name").Str()
		asked.Namespace = ""
		if namespaced { // an owner is in the namespace of its dependents
			asked.Namespace = a.Request.Namespace
		}
		if ok, reason, err := a.Request.Allowed(ctx, asked); !ok {
			return forbidden(a, fmt.Sprintf("cannot set blockOwnerDeletion if an ownerReference refers to a resource "+
				"you can't set finalizers on: %v, %v", reason, err))
		}
	}
	return nil
}

// mapping finds the resource of a kind, as a mapper of the reference that is made from discovery does: that knows a
// kind in lower case, too, and guesses a resource for the list of each kind, which nobody serves.
func mapping(types *engine.Types, apiVersion, kind string) (gv schema.GroupVersion, resource string, namespaced bool,
	err error) {
	if gv, err = schema.ParseGroupVersion(apiVersion); err != nil {
		return gv, "", false, err
	}
	if served := types.GroupVersion(gv.Group, gv.Version); served != nil {
		item := strings.TrimSuffix(kind, "List")
		for _, r := range served.Resources {
			switch {
			case r.Kind == kind || strings.ToLower(r.Kind) == kind:
				return gv, r.Name, r.Namespaced, nil
			case r.Kind == item:
				resource, namespaced = strings.ToLower(kind)+"s", r.Namespaced
			}
		}
		if kind == "List" {
			resource = "lists"
		}
	}
	if resource == "" {
		return gv, "", false, fmt.Errorf("no matches for kind %q in version %q", kind, gv.String())
	}
	return gv, resource, namespaced, nil
}

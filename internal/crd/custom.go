package crd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/engine"
	"plinth/object"
)

// subdomain validates the name of a custom object.
func subdomain(name string, prefix bool) []string { return validation.NameIsDNSSubdomain(name, prefix) }

// modelName is the OpenAPI name of a custom kind: the reversed group, the version and the kind.
func modelName(group, version, kind string) string {
	parts := strings.Split(group, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(append(parts, version, kind), ".")
}

// prepareCreate removes the status if the type has a status subresource (WRITE-4).
func (c *custom) prepareCreate(obj object.Value, _ access.User) object.Value {
	if c.hasStatus {
		return obj.Without("status")
	}
	return obj
}

// prepareUpdate keeps the old status if the type has a status subresource.
func (c *custom) prepareUpdate(obj, old object.Value) object.Value {
	if c.hasStatus {
		return keepStatus(obj, old)
	}
	return obj
}

// keepStatus replaces the status of obj by that of from.
func keepStatus(obj, from object.Value) object.Value {
	if status, ok := from.Get("status"); ok {
		return obj.With("status", status)
	}
	return obj.Without("status")
}

// generation returns the part of an object whose changes increment metadata.generation: all but the metadata, and
// without the status if the type has a status subresource.
func (c *custom) generation(obj object.Value) object.Value {
	if c.hasStatus {
		return obj.Edit(nil, "metadata", "status")
	}
	return obj.Without("metadata")
}

// status is the status subresource, which writes only the status.
func (c *custom) status(r *engine.Resource, all *common) *engine.Subresource {
	return &engine.Subresource{
		Name: "status", Group: r.Group, Version: r.Version, Kind: r.Kind, Verbs: subresourceVerbs, Tables: true,
		Schema: r.Schema, Model: r.Model, Default: r.Default, Resets: all.resets,
		Write: func(old, body object.Value) (object.Value, error) { return keepStatus(old, body), nil },
		Validate: func(ctx context.Context, _, obj, old object.Value) field.ErrorList {
			return c.validateStatus(ctx, obj, old)
		},
	}
}

// validate returns the errors of a custom object, without those of its metadata and its CEL rules. old is null for a
// new object.
func (c *custom) validate(ctx context.Context, obj, old object.Value) field.ErrorList {
	errs := c.typ.get().Validate(obj, old, ctx.Err)
	if c.scaleErrors != nil {
		errs = append(errs, c.scaleErrors(obj)...)
	}
	return errs
}

// validateStatus is validate for writes of the status: it checks only the status.
func (c *custom) validateStatus(ctx context.Context, obj, old object.Value) field.ErrorList {
	errs := c.typ.get().ValidateStatus(obj, old, ctx.Err)
	if c.scaleStatusErrors != nil {
		errs = append(errs, c.scaleStatusErrors(obj)...)
	}
	return errs
}

// standardFinalizers are valid without a domain.
var standardFinalizers = map[string]bool{"orphan": true, "foregroundDeletion": true, "kubernetes": true}

// finalizerWarnings warns of new finalizers without a domain, which other controllers may use for another purpose.
func finalizerWarnings(obj, old object.Value) []string {
	had := map[string]bool{}
	for _, f := range old.At("metadata", "finalizers").Items() {
		had[f.Str()] = true
	}
	added := map[string]bool{}
	for _, f := range obj.At("metadata", "finalizers").Items() {
		if name := f.Str(); !had[name] {
			added[name] = true
		}
	}
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(added)) {
		for _, wrong := range utilvalidation.IsQualifiedName(name) {
			warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: %s", name, wrong))
		}
		if strings.Contains(name, "/") || standardFinalizers[name] {
			continue
		}
		advice := "prefer a domain-qualified finalizer name"
		if strings.Contains(name, ".") {
			advice += " including a path (/)"
		}
		warnings = append(warnings,
			fmt.Sprintf("metadata.finalizers: %q: %s to avoid accidental conflicts with other finalizer writers", name,
				advice))
	}
	return warnings
}

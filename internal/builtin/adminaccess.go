package builtin

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/authz"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

// adminLabel is the label of a namespace in which ResourceClaims may have administrative access to devices (KEP-5018):
// to those that others use.
const adminLabel = "resource.kubernetes.io/admin-access"

// adminAccess has the creates of a type refused that request administrative access, in a namespace without the label.
// requests is the path of the requests in the object. The spec is immutable, so updates need no check.
func adminAccess(requests ...string) func(r *engine.Resource, parts *Parts) {
	return func(r *engine.Resource, parts *Parts) {
		validate := r.Validate
		r.Validate = func(ctx context.Context, obj object.Value) field.ErrorList {
			var errs field.ErrorList
			for i, request := range obj.At(requests...).Items() {
				// In v1beta1 the members of exactly are in the request itself.
				if request.At("exactly", "adminAccess").Bool() || request.At("adminAccess").Bool() {
					// The path is that of a claim in a template, too, as in the reference.
					at := field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess")
					errs = parts.requireAdminLabel(ctx, obj, at)
					break
				}
			}
			return append(errs, validate(ctx, obj)...)
		}
	}
}

// claimAccess restricts ResourceClaims: administrative access in the spec, and writes of the status. An allocation with
// administrative access needs the label of the namespace, and then the user needs rights (authz.PermitClaimStatus).
func (c *Config) claimAccess(r *engine.Resource, parts *Parts) {
	adminAccess("spec", "devices", "requests")(r, parts)
	byUser := c.Features.On(features.DRAResourceClaimGranularStatusAuthorization)
	r.Subresource("status").Permit = func(ctx context.Context, rq *engine.Request, obj, old object.Value) (
		errs field.ErrorList) {
		if grantsAdminAccess(old) < 0 { // an allocation is immutable
			if i := grantsAdminAccess(obj); i >= 0 {
				errs = parts.requireAdminLabel(ctx, obj,
					field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess"))
			}
		}
		if byUser {
			errs = append(errs, authz.PermitClaimStatus(ctx, rq, obj, old)...)
		}
		return errs
	}
}

// grantsAdminAccess is the index of the first result of an allocation with administrative access; -1 if none has.
func grantsAdminAccess(claim object.Value) int {
	for i, result := range claim.At("status", "allocation", "devices", "results").Items() {
		if result.At("adminAccess").Bool() {
			return i
		}
	}
	return -1
}

// requireAdminLabel returns an error for the field at a path if the namespace of an object has not the label.
func (p *Parts) requireAdminLabel(ctx context.Context, obj object.Value, at *field.Path) field.ErrorList {
	if p.NamespaceLabel == nil {
		return nil
	}
	value, err := p.NamespaceLabel(ctx, obj.At("metadata", "namespace").Str(), adminLabel)
	switch {
	case err != nil:
		err = fmt.Errorf("could not retrieve namespace to verify admin access: %w", err)
		return field.ErrorList{field.InternalError(at, err)}
	case value != "true":
		return field.ErrorList{field.Forbidden(at, fmt.Sprintf(
			"admin access to devices requires the `%s: true` label on the containing namespace", adminLabel))}
	}
	return nil
}

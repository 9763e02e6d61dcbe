package authz

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// fullAuthority are the rules of cluster-admin.
var fullAuthority = []Rule{
	{Verbs: everything, APIGroups: everything, Resources: everything},
	{Verbs: everything, NonResourceURLs: everything},
}

// PermitRole is the engine.Resource.Permit of Roles and ClusterRoles: the writer must hold the rules of the role, or
// the verb escalate on it. It matches the reference's policybased storage, which wraps that of roles.
func (y *Authority) PermitRole(ctx context.Context, rq *engine.Request, obj, old object.Value) error {
	if rq.User.In(access.Masters) || objectmeta.OnlyCollectorFields(obj, old) {
		return nil
	}
	may, _, _ := rq.Allowed(ctx, access.Attributes{
		Verb: "escalate", IsResource: true, Group: rq.Resource.Group, Version: all, Resource: rq.Resource.Name,
		Namespace: rq.Namespace, Name: rq.Name,
	})
	if may {
		return nil
	}
	p := y.roles.now()
	held, unresolved := p.rulesFor(&rq.User, rq.Namespace, plural)
	if why := notHeld(&rq.User, held, rulesOf(obj.At("rules")), unresolved); why != "" {
		return forbidden(rq, obj, why)
	}
	if (aggregates(obj) || aggregates(old)) && len(uncovered(held, fullAuthority)) > 0 {
		return forbidden(rq, obj, "must have cluster-admin privileges to use the aggregationRule")
	}
	return nil
}

// PermitBinding is the engine.Resource.Permit of RoleBindings and ClusterRoleBindings: the writer must hold the rules
// of the role, or the verb bind on it.
func (y *Authority) PermitBinding(ctx context.Context, rq *engine.Request, obj, old object.Value) error {
	if rq.User.In(access.Masters) || objectmeta.OnlyCollectorFields(obj, old) {
		return nil
	}
	ref := obj.At("roleRef")
	kind, name := ref.At("kind").Str(), ref.At("name").Str()
	asked := access.Attributes{
		Verb: "bind", IsResource: true, Group: ref.At("apiGroup").Str(), Version: all, Namespace: rq.Namespace, Name: name,
	}
	switch kind {
	case clusterRoleKind:
		asked.Resource = "clusterroles"
	case roleKind:
		asked.Resource = "roles"
	}
	if asked.Resource != "" {
		if may, _, _ := rq.Allowed(ctx, asked); may {
			return nil
		}
	}
	if why := unnameable(kind, rq.Namespace, name); why != "" {
		return apierr.NewBadRequest(why)
	}
	p := y.roles.now()
	wanted, err := p.rulesOf(kind, rq.Namespace, name, plural)
	if err != nil {
		var missing *NotFoundError
		if errors.As(err, &missing) {
			return apierr.NewNotFound(apierr.Type{Group: RBACGroup, Name: missing.Resource}, missing.Name)
		}
		return apierr.NewInternal(err)
	}
	held, unresolved := p.rulesFor(&rq.User, rq.Namespace, plural)
	if why := notHeld(&rq.User, held, wanted, unresolved); why != "" {
		return forbidden(rq, obj, why)
	}
	return nil
}

// unnameable says why no role can have this namespace and name; "": one can. The reference reads the role as a GET
// does, whose errors these are.
func unnameable(kind, namespace, name string) string {
	switch {
	case kind != clusterRoleKind && kind != roleKind:
		return ""
	case kind == roleKind && namespace == "":
		return "Namespace parameter required."
	case name == "":
		return "Name parameter required."
	}
	if wrong := content.IsPathSegmentName(name); len(wrong) > 0 {
		return fmt.Sprintf("Name parameter invalid: %q: %s", name, strings.Join(wrong, ";"))
	}
	return ""
}

func forbidden(rq *engine.Request, obj object.Value, why string) error {
	return apierr.NewForbidden(rq.Resource.Type(), obj.At("metadata", "name").Str(), why)
}

func aggregates(role object.Value) bool {
	return role.At("aggregationRule", "clusterRoleSelectors").Len() > 0
}

package authz

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"plinth/internal/access"
	"plinth/internal/store"
	"plinth/internal/view"
)

// RBACGroup is the API group of roles and bindings.
const RBACGroup = "rbac.authorization.k8s.io"

// RoleBased implements the mode RBAC: a request is allowed if the user is bound to a role with a rule that allows it.
// Roles and bindings are views of their collections, so a change takes effect with the next request. A request costs
// one lookup for its user and each of its groups, and the rules of their bindings.
type RoleBased struct {
	roles, clusterRoles       *view.View[*roles]
	bindings, clusterBindings *view.View[*bindings]
}

func (r *RoleBased) open(collection func(path string) *store.Collection) {
	r.roles = view.New(collection(RBACGroup+"/roles"), compileRoles)
	r.clusterRoles = view.New(collection(RBACGroup+"/clusterroles"), compileRoles)
	r.bindings = view.New(collection(RBACGroup+"/rolebindings"), compileBindings)
	r.clusterBindings = view.New(collection(RBACGroup+"/clusterrolebindings"), compileBindings)
}

// policy is all roles and bindings. They are read one collection after the other, so they may be of different
// revisions, as in the reference; each includes what was durable when the request arrived.
type policy struct {
	roles, clusterRoles       *roles
	bindings, clusterBindings *bindings
	// unreadable are the errors of bindings that cannot be read. They grant nothing, which is safe, as nothing is
	// forbidden by a rule; but who is refused for that is told so. Roles that cannot be read are errors of rulesOf.
	unreadable []error
}

func (r *RoleBased) now() policy {
	var p policy
	p.roles, _ = r.roles.Now()
	p.clusterRoles, _ = r.clusterRoles.Now()
	var err error
	if p.clusterBindings, err = r.clusterBindings.Now(); err != nil {
		p.unreadable = append(p.unreadable, err)
	}
	if p.bindings, err = r.bindings.Now(); err != nil {
		p.unreadable = append(p.unreadable, err)
	}
	return p
}

// Authorize implements access.Authorizer. It allows or has no opinion.
func (r *RoleBased) Authorize(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
	p := r.now()
	unresolved := len(p.unreadable) > 0
	by := p.allowing(p.clusterBindings, "", a, &unresolved)
	if by == nil && a.Namespace != "" {
		by = p.allowing(p.bindings, a.Namespace, a, &unresolved)
	}
	switch {
	case by != nil:
		return access.Allow, by.reason(&a.User), nil
	case !unresolved:
		return access.NoOpinion, "", nil
	}
	_, err := p.rulesFor(&a.User, a.Namespace, singular)
	return access.NoOpinion, "RBAC: " + err.Error(), nil
}

// allowing returns a binding of a namespace that allows a request; nil if there is none. It sets unresolved if the role
// of a binding does not exist or cannot be parsed.
func (p *policy) allowing(in *bindings, namespace string, a *access.Attributes, unresolved *bool) *binding {
	of, _ := in.users.get(scopedName{namespace, a.User.Name})
	if b := p.firstAllowing(of, a, unresolved); b != nil {
		return b
	}
	for _, group := range a.User.Groups {
		of, _ := in.groups.get(scopedName{namespace, group})
		if b := p.firstAllowing(of, a, unresolved); b != nil {
			return b
		}
	}
	return nil
}

func (p *policy) firstAllowing(list []*binding, a *access.Attributes, unresolved *bool) *binding {
	for _, b := range list {
		rules, ok := p.find(b)
		if !ok {
			*unresolved = true
		}
		for i := range rules {
			if rules[i].allows(a) {
				return b
			}
		}
	}
	return nil
}

// find returns the rules that a binding grants; ok is false if its role does not exist or cannot be parsed. For
// ClusterRoles it creates no error, which would be allocated for each request.
func (p *policy) find(b *binding) (rules []Rule, ok bool) {
	if b.kind == clusterRoleKind {
		role, ok := p.clusterRoles.byName.get(b.role)
		if !ok {
			return nil, false
		}
		rules, err := role.Get()
		return rules, err == nil
	}
	rules, err := p.rulesOf(b.kind, b.namespace, b.role, singular)
	return rules, err == nil
}

// naming is the suffix of the resource of a role in errors: as in the reference, errors of authorization have the
// singular, errors of writes the plural.
type naming string

const (
	singular naming = ""
	plural   naming = "s"
)

// NotFoundError says that a role does not exist.
type NotFoundError struct{ Resource, Name string }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("%s.%s %q not found", e.Resource, RBACGroup, e.Name)
}

// rulesOf returns the rules of a role.
func (p *policy) rulesOf(kind, namespace, name string, as naming) ([]Rule, error) {
	in, key := p.clusterRoles, name
	switch kind {
	case clusterRoleKind:
	case roleKind:
		in, key = p.roles, namespace+"/"+name
	default:
		return nil, fmt.Errorf("unsupported role reference kind: %q", kind)
	}
	role, ok := in.byName.get(key)
	if !ok {
		return nil, &NotFoundError{strings.ToLower(kind) + string(as), name}
	}
	return role.Get()
}

// rulesFor returns all rules that a user has in a namespace, or without one in the cluster, sorted by binding, and an
// error that names the roles that do not exist.
func (p *policy) rulesFor(u *access.User, namespace string, as naming) (rules []Rule, err error) {
	errs := slices.Clone(p.unreadable)
	visit := func(in *bindings, namespace string) {
		list, _ := in.users.get(scopedName{namespace, u.Name})
		list = slices.Clone(list)
		for _, group := range u.Groups {
			of, _ := in.groups.get(scopedName{namespace, group})
			list = append(list, of...)
		}
		slices.SortFunc(list, func(a, b *binding) int { return strings.Compare(a.name, b.name) })
		for _, b := range slices.Compact(list) {
			found, err := p.rulesOf(b.kind, b.namespace, b.role, as)
			if err != nil {
				errs = append(errs, err)
			}
			rules = append(rules, found...)
		}
	}
	visit(p.clusterBindings, "")
	if namespace != "" {
		visit(p.bindings, namespace)
	}
	return rules, aggregate(errs)
}

func (r *RoleBased) rulesIn(_ context.Context, u *access.User, namespace string) (rules []Rule, incomplete bool,
	err error) {
	p := r.now()
	rules, err = p.rulesFor(u, namespace, singular)
	return rules, false, err
}

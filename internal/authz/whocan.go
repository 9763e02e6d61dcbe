package authz

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"plinth/internal/access"
)

// Subject is who may do something: a User, a Group or a ServiceAccount.
type Subject struct{ Kind, Namespace, Name string }

// Ref names a binding or a role. Its namespace is "" for one of the cluster.
type Ref struct{ Kind, Namespace, Name string }

// Grant says that a subject may do something, by a binding to a role. Both are zero where no role says so: the members
// of system:masters may do everything, and policies of the mode ABAC are no objects.
type Grant struct {
	Subject       Subject
	Binding, Role Ref
}

// WhoCan lists who may make a request, whatever the user of a is: the question that Authorize answers, the other way
// round. In the cluster (a.Namespace is "") it lists who may do it in all namespaces.
//
// incomplete says what it does not know: which authorizers cannot list whom they allow or deny, and which bindings name
// a role that there is not. A subject that is listed may be denied by such an authorizer.
//
// A Grant is a fact of RBAC's rules alone; it is not checked whether the User exists, which nobody knows.
func (y *Authority) WhoCan(a *access.Attributes) (grants []Grant, incomplete []string) {
	grants = append(grants, Grant{Subject: Subject{Kind: groupKind, Name: access.Masters}})
	for _, of := range y.authorizers() {
		switch l := of.lister.(type) {
		case *RoleBased:
			found, unknown := l.now().whoCan(a)
			grants, incomplete = append(grants, found...), append(incomplete, unknown...)
		case attributePolicies:
			grants = append(grants, l.whoCan(a)...)
		case always:
			if l.decision == access.Allow {
				for _, group := range []string{access.Authenticated, access.Unauthenticated} {
					grants = append(grants, Grant{Subject: Subject{Kind: groupKind, Name: group}})
				}
			}
		case *nodes:
			incomplete = append(incomplete, "the authorizer Node allows each node what its Pods need: nodes are not listed")
		default:
			incomplete = append(incomplete, fmt.Sprintf("the authorizer %q cannot be asked whom it allows or denies", of.name))
		}
	}
	slices.SortFunc(grants, Grant.compare)
	return slices.Compact(grants), incomplete
}

// compare orders grants by subject: groups, which are many users, before users, before service accounts.
func (g Grant) compare(h Grant) int {
	return cmp.Or(cmp.Compare(slices.Index(subjectKinds, g.Subject.Kind), slices.Index(subjectKinds, h.Subject.Kind)),
		Ref(g.Subject).compare(Ref(h.Subject)), g.Binding.compare(h.Binding), g.Role.compare(h.Role))
}

var subjectKinds = []string{groupKind, userKind, serviceAccountKind}

func (r Ref) compare(s Ref) int {
	return cmp.Or(strings.Compare(r.Namespace, s.Namespace), strings.Compare(r.Name, s.Name),
		strings.Compare(r.Kind, s.Kind))
}

// whoCan lists who may make a request by a binding of the cluster or of its namespace.
func (p policy) whoCan(a *access.Attributes) (grants []Grant, incomplete []string) {
	for _, err := range p.unreadable {
		incomplete = append(incomplete, err.Error())
	}
	// The rules of a role are looked through once, however many bindings name it.
	type decided struct{ allows, known bool }
	roles := map[Ref]decided{}
	visit := func(b *binding) {
		ref := Ref{Kind: b.kind, Name: b.role}
		if b.kind == roleKind {
			ref.Namespace = b.namespace
		}
		d, seen := roles[ref]
		if !seen {
			rules, err := p.rulesOf(b.kind, b.namespace, b.role, singular)
			d = decided{slices.ContainsFunc(rules, func(r Rule) bool { return r.allows(a) }), err == nil}
			if roles[ref] = d; err != nil {
				incomplete = append(incomplete, err.Error())
			}
		}
		if !d.allows {
			return
		}
		by := Ref{Kind: "ClusterRoleBinding", Name: b.name}
		if b.namespace != "" {
			by.Kind, by.Namespace = "RoleBinding", b.namespace
		}
		for _, s := range b.subjects {
			grants = append(grants, Grant{Subject{s.kind, s.namespace, s.name}, by, ref})
		}
	}
	for b := range p.clusterBindings.byName.values() {
		visit(b)
	}
	if a.Namespace != "" {
		for b := range p.bindings.byName.values() {
			if b.namespace == a.Namespace {
				visit(b)
			}
		}
	}
	slices.Sort(incomplete)
	return grants, incomplete
}

// whoCan lists who may make a request by a policy.
func (p attributePolicies) whoCan(a *access.Attributes) (grants []Grant) {
	for i := range p {
		q := &p[i]
		if q.Readonly && !a.ReadOnly() || !q.covers(a) {
			continue
		}
		switch {
		case q.User != "": // with a group, too, if the user is in it
			grants = append(grants, Grant{Subject: Subject{Kind: userKind, Name: q.User}})
		case q.Group != "":
			grants = append(grants, Grant{Subject: Subject{Kind: groupKind, Name: q.Group}})
		}
	}
	return grants
}

// Package authz decides what users may do (AUTH-2).
//
// An authorizer ([access.Authorizer]) allows a request, denies it, or leaves it to the next one. An [Authority] asks those of its
// [Config] in order, as --authorization-mode lists them. Whatever they say, members of system:masters may do everything, since
// they are asked about first.
//
// [RoleBased] is the mode RBAC, and nodes the mode Node, for kubelets. Whatever the modes, it also says who may write which roles and bindings: nobody gives what
// they do not have (see [Authority.PermitRole]).
package authz

import (
	"context"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"plinth/internal/access"
	"plinth/internal/store"
)

// Mode is a kind of authorizer, as --authorization-mode names it.
type Mode string

// The modes.
const (
	AlwaysAllow Mode = "AlwaysAllow"
	AlwaysDeny  Mode = "AlwaysDeny"
	Node        Mode = "Node"
	RBAC        Mode = "RBAC"
	Webhook     Mode = "Webhook"
	ABAC        Mode = "ABAC" // which is refused
)

// lister is an authorizer that can list what a user may do in a namespace.
type lister interface {
	access.Authorizer
	// rulesIn says with incomplete that there may be more.
	rulesIn(ctx context.Context, u *access.User, namespace string) (rules []Rule, incomplete bool, err error)
}

// named is an authorizer of a union under the name by which its reasons are told.
type named struct {
	name string
	lister
}

// Authority is all that decides what users may do.
type Authority struct {
	roles RoleBased
	nodes nodes
	chain []named
}

// New makes an authority of some modes.
func New(modes []Mode) *Authority {
	a := &Authority{}
	for _, mode := range modes {
		var of lister = always{decision: access.NoOpinion}
		switch mode {
		case AlwaysAllow:
			of = always{access.Allow, "", []Rule{{Verbs: everything, APIGroups: everything, Resources: everything}, {Verbs: everything, NonResourceURLs: everything}}}
		case AlwaysDeny:
			of = always{decision: access.NoOpinion, reason: "Everything is forbidden."}
		case Node:
			a.nodes.rules = nodeRules()
			of = &a.nodes
		case RBAC:
			of = &a.roles
		}
		a.chain = append(a.chain, named{strings.ToLower(string(mode)), of})
	}
	return a
}

// Open gives it the store. It is called before anybody else uses it.
func (y *Authority) Open(s *store.Store) {
	y.roles.open(s.Collection)
	y.nodes.open(s)
}

// Authorize implements access.Authorizer: the first authorizer that allows or denies the request decides. Where none of them has
// an opinion, the reason is what all of them have said.
func (y *Authority) Authorize(ctx context.Context, a *access.Attributes) (access.Decision, string, error) {
	if a.User.In(access.Masters) {
		return access.Allow, "", nil
	}
	var reasons []string
	var errs []error
	for i := range y.chain {
		decision, reason, err := y.chain[i].Authorize(ctx, a)
		if decision != access.NoOpinion {
			return decision, reason, err
		}
		if err != nil {
			errs = append(errs, err)
		}
		if reason != "" {
			reasons = append(reasons, y.chain[i].name+": "+reason)
		}
	}
	return access.NoOpinion, strings.Join(reasons, "\n"), aggregate(errs)
}

// aggregate is nil where there are no errors.
func aggregate(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return utilerrors.NewAggregate(errs)
}

// RulesFor lists what a user may do in a namespace, as far as the authorizers can tell; incomplete says that there may be more.
// As in the reference, that somebody is of system:masters is not told by it.
func (y *Authority) RulesFor(ctx context.Context, u *access.User, namespace string) (rules []Rule, incomplete bool, err error) {
	var errs []error
	for i := range y.chain {
		found, more, err := y.chain[i].rulesIn(ctx, u, namespace)
		rules, incomplete = append(rules, found...), incomplete || more
		if err != nil {
			errs = append(errs, err)
		}
	}
	return rules, incomplete, aggregate(errs)
}

// everything is a list of a rule that covers all.
var everything = []string{all}

// always is an authorizer that says the same of every request.
type always struct {
	decision access.Decision
	reason   string
	rules    []Rule
}

func (s always) Authorize(context.Context, *access.Attributes) (access.Decision, string, error) {
	return s.decision, s.reason, nil
}

func (s always) rulesIn(context.Context, *access.User, string) ([]Rule, bool, error) {
	return s.rules, false, nil
}

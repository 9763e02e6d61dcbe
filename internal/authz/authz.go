// Package authz decides what users may do (AUTH-2).
//
// An authorizer ([access.Authorizer]) allows a request, denies it, or leaves it to the next one. A [Union] asks several of them in
// order, as --authorization-mode or the file of --authorization-config lists them. Whatever these say, members of
// system:masters may do everything, since the first of a union is always [Masters].
package authz

import (
	"context"
	"slices"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"plinth/internal/access"
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

// Named is an authorizer of a union under the name by which its reasons are told.
type Named struct {
	Name string
	access.Authorizer
}

// Union asks its authorizers in order until one of them allows or denies the request.
type Union []Named

// Authorize implements access.Authorizer. Where none of them has an opinion, the reason is what all of them have said.
func (u Union) Authorize(ctx context.Context, a *access.Attributes) (access.Decision, string, error) {
	var reasons []string
	var errs []error
	for i := range u {
		decision, reason, err := u[i].Authorizer.Authorize(ctx, a)
		if decision != access.NoOpinion {
			return decision, reason, err
		}
		if err != nil {
			errs = append(errs, err)
		}
		if reason != "" {
			reasons = append(reasons, u[i].Name+": "+reason)
		}
	}
	if len(errs) > 0 {
		return access.NoOpinion, strings.Join(reasons, "\n"), utilerrors.NewAggregate(errs)
	}
	return access.NoOpinion, strings.Join(reasons, "\n"), nil
}

// Masters lets members of system:masters do everything.
var Masters access.Authorizer = access.AuthorizerFunc(
	func(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
		if a.User.In(access.Masters) {
			return access.Allow, "", nil
		}
		return access.NoOpinion, "", nil
	})

// always is an authorizer that says the same of every request.
type always struct {
	decision access.Decision
	reason   string
}

func (s always) Authorize(context.Context, *access.Attributes) (access.Decision, string, error) {
	return s.decision, s.reason, nil
}

// Everybody lets everybody do everything, and NobodyElse lets nobody do anything who is not allowed to by another authorizer.
var (
	Everybody  access.Authorizer = always{decision: access.Allow}
	NobodyElse access.Authorizer = always{access.NoOpinion, "Everything is forbidden."}
)

// public are the paths that everybody may read, as the reference's role system:public-info-viewer has it.
var public = []string{"/healthz", "/livez", "/readyz", "/version", "/version/"}

// Public lets everybody read what is public.
var Public access.Authorizer = access.AuthorizerFunc(
	func(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
		if !a.IsResource && a.Verb == "get" && slices.Contains(public, a.Path) {
			return access.Allow, "", nil
		}
		return access.NoOpinion, "", nil
	})

// Of makes the union of some modes.
func Of(modes []Mode) Union {
	u := Union{{"kubernetes.io/system-privileged-group", Masters}}
	for _, mode := range modes {
		of := access.Authorizer(always{decision: access.NoOpinion})
		switch mode {
		case AlwaysAllow:
			of = Everybody
		case AlwaysDeny:
			of = NobodyElse
		case RBAC:
			of = Public
		}
		u = append(u, Named{strings.ToLower(string(mode)), of})
	}
	return u
}

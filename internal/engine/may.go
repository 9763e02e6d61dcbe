package engine

import (
	"context"

	"plinth/internal/access"
	"plinth/internal/apierr"
)

// asking is what authorization decides about where the verb of a request turns out to be another one, too.
func (rq *Request) asking(verb string) access.Attributes {
	r := rq.Resource
	a := access.Attributes{
		User: rq.User, Verb: verb, IsResource: true, Group: r.Group, Version: r.Version, Resource: r.Name,
		Namespace: rq.Namespace, Name: rq.Name,
	}
	if rq.Subresource != nil {
		a.Subresource = rq.Subresource.Name
	}
	return a
}

// Allowed asks in mid-verb whether the user of the request may do something else, too. What the server itself requests is allowed.
// An error comes only with what is not.
func (rq *Request) Allowed(ctx context.Context, a access.Attributes) (ok bool, reason string, err error) {
	if rq.Authorizer == nil {
		return true, "", nil
	}
	a.User = rq.User
	decision, reason, err := rq.Authorizer.Authorize(ctx, &a)
	if decision == access.Allow {
		return true, reason, nil
	}
	return false, reason, err
}

// may refuses, in the words that the verb itself would have been refused with, what turns out to be another verb, too, which
// the user may not do to the object.
func (rq *Request) may(ctx context.Context, verb string) error {
	a := rq.asking(verb)
	ok, reason, err := rq.Allowed(ctx, a)
	switch {
	case ok:
		return nil
	case err != nil:
		return apierr.NewInternal(err)
	}
	return apierr.NewForbidden(rq.Resource.Type(), rq.Name, a.Refusal(reason))
}

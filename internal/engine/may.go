package engine

import (
	"context"

	"plinth/internal/access"
	"plinth/internal/apierr"
)

// asking returns the access attributes of the request with another verb.
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

// Allowed asks the authorizer in the middle of a verb whether the user may also do something else. The filters have
// authorized the verb of the URL before; the rights that the body needs, or those for a PUT that turns out to create,
// are known only here. The server's own requests have no Authorizer and may do everything. err is set only if ok is
// not.
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

// may refuses the request unless the user also has another verb, with the error with which that verb would have been
// refused. The filters authorize a PUT as update, before it is known whether the object exists; without this check, a
// user who may only update Leases could create them.
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

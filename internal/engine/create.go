package engine

import (
	"context"
	"slices"

	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/object"
)

// nameAttempts is how many generated names are tried before the server returns an error with a retry, as many as in the
// reference (KEP-4420). There are 27⁵ = 14 million suffixes. If a million objects share a prefix, one suffix in
// fourteen is taken, and all of eight are taken once in two billion creates.
const nameAttempts = 8

// Create creates an object (POST to a collection, URI-4), or runs the operation of a subresource or a virtual resource
// (URI-1).
func (e *Engine) Create(ctx context.Context, rq *Request, body object.Parsed) (result *Result, err error) {
	d := e.draft(rq, OperationCreate)
	defer d.addWarnings(&result)
	if err := d.decode(body); err != nil {
		return nil, err
	}
	d.receive()
	if err := rq.namespaceMatches(d.asked); err != nil {
		return nil, err
	}
	d.asked = d.dedupOwners(d.asked, false)
	switch {
	case rq.Subresource != nil:
		return d.act(ctx)
	// A POST to the collection of bindings is a POST to the binding of a Pod.
	case rq.Resource.Through != nil:
		return d.through(ctx)
	}
	if err := rq.met(0); err != nil {
		return nil, err
	}
	if rq.Resource.Answer != nil {
		return d.virtual(ctx)
	}
	return d.create(ctx)
}

// create creates a new object, also for an update or an apply of an object that does not exist.
//
// The problem: a create can lose its race in three ways, and each requires that another part of the work is repeated.
// Repeating all of it, as updates do, would call mutating webhooks again for each generated name that is taken, and
// creates in a namespace whose annotations change all the time would never end. So:
//
//	lost at                              repeated
//	its own key, name generated          make: another name and UID, and all steps behind that
//	its own key, name given              none: AlreadyExists
//	a claim (the address is taken)       make: another address
//	namespace, definition, guard         recheck, and the commit of the same bytes
//
// Mutating admission sees the object once, before it has a name and a UID. n is a copy of the draft as it was admitted,
// so make always begins with the same object.
func (d *draft) create(ctx context.Context) (*Result, error) {
	d.operation = OperationCreate
	// Zero and unparsable resourceVersions are ignored. Any other is refused, but only after validation, as in the
	// reference, and not in a dry run.
	seen, err := parseVersion(d.asked.At("metadata", "resourceVersion").Str())
	versioned := err == nil && seen != 0 && !d.upserts && !d.dry
	generated, prefixed := d.generated(), d.asked.At("metadata", "generateName").Str() != ""
	d.now = d.Engine.now()
	d.wipe()
	d.fill()
	d.own(ctx)
	if err := d.admit(ctx); err != nil {
		return nil, err
	}
	if err := d.permit(ctx); err != nil {
		return nil, err
	}
	for attempt := 1; ; {
		if err := ctx.Err(); err != nil {
			return nil, commitFailed(err)
		}
		// The copy shares the warnings with d; everything else that make sets belongs to the copy.
		n := *d
		if err := n.make(ctx); err != nil {
			return nil, err
		}
		if versioned {
			return nil, apierr.NewBadRequest("resourceVersion should not be set on objects to be created")
		}
		err := d.commit(ctx, n.transaction())
		d.tried = n.tried
		key, raced := lost(err)
		// Neither the name nor a claim was lost: the object is still valid if its namespace and definition are.
		for raced && key != n.key() && !n.effects.claimed.touches(key) {
			if err := n.recheck(ctx, key); err != nil {
				return nil, err
			}
			err = d.commit(ctx, n.transaction())
			key, raced = lost(err)
		}
		switch {
		case err == nil:
			return n.answer(ctx)
		case !raced:
			return nil, err
		case key != n.key(): // another request has taken an allocated value: allocate another one
			continue
		case !generated || attempt == nameAttempts:
			return nil, n.taken(ctx, prefixed)
		}
		attempt++
	}
}

// make turns the admitted object into one with a name, ready to be committed. It can be called again: it begins with
// d.body as admission has left it, and overwrites everything else. A second call sets another UID and
// creationTimestamp, too, since no client has seen the first ones.
func (d *draft) make(ctx context.Context) error {
	d.name()
	if err := d.allocate(ctx); err != nil {
		return err
	}
	if err := d.prepare(); err != nil {
		return err
	}
	d.settle()
	if err := d.validate(ctx); err != nil {
		return err
	}
	if err := d.check(ctx); err != nil {
		return err
	}
	if err := d.setStatus(ctx); err != nil {
		return err
	}
	if err := d.print(ctx); err != nil {
		return err
	}
	return d.claim(ctx)
}

// recheck checks again what the draft depends on besides its own key, after a commit that lost a race at that key. For
// the guard of a status, or an object whose status changes with this one, the status is computed and printed again. For
// the namespace or the definition, the fences are made again from the newest versions; it is an error if one of them
// does not exist any more or is being deleted.
func (d *draft) recheck(ctx context.Context, key store.Key) error {
	e := &d.effects
	if e.guard != nil && e.guard.pre.Key == key || slices.ContainsFunc(e.others,
		func(o *draft) bool { return o.live.Key == key }) {
		if err := d.setStatus(ctx); err != nil {
			return err
		}
		return d.print(ctx)
	}
	if err := d.requireParents(ctx); err != nil {
		return err
	}
	return d.stayWithin(ctx)
}

// taken is the error for a name that is taken. If the object that has the name is being deleted, the message says so:
// the client may wait for it. If the name was generated, the error has a Retry-After.
func (d *draft) taken(ctx context.Context, prefixed bool) error {
	err := apierr.NewAlreadyExists(d.rq.Resource.Type(), d.obj.At("metadata", "name").Str())
	if prefixed {
		err.Message += ", the server was not able to generate a unique name for the object"
		err.Details.RetryAfterSeconds = 1
	}
	// If the store returns an error here, the message is only less precise.
	if existing, _, _ := d.store.Live(ctx, d.key(), false); existing != nil && existing.Sidecar.Deleting {
		err.Message = "object is being deleted: " + err.Message
	}
	return err
}

// virtual is the create of a virtual resource, such as a SubjectAccessReview: nothing is stored, and Answer computes
// the response from the body. Of the steps of a create it takes decode, own, admit and check: the response shows
// managedFields (as in the reference, which runs the same handler), but has no name, UID or resourceVersion. A dry run
// is the same.
func (d *draft) virtual(ctx context.Context) (*Result, error) {
	d.now = d.Engine.now()
	d.body = d.rq.inNamespace(d.asked)
	d.own(ctx)
	if err := d.admit(ctx); err != nil {
		return nil, err
	}
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	answer, err := d.rq.Resource.Answer(ctx, d.rq, d.body)
	if err != nil {
		return nil, err
	}
	return &Result{Status: answer, Created: true}, nil
}

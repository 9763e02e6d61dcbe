package engine

import (
	"context"
	"slices"

	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/object"
)

// nameAttempts is how many generated names are tried before the client is asked to try again.
const nameAttempts = 8

// Create creates an object (POST to a collection, URI-4), or does the operation that a subresource or a virtual
// resource stands for (URI-1).
func (e *Engine) Create(ctx context.Context, rq *Request, body object.Parsed) (result *Result, err error) {
	d := e.draft(rq, creates)
	defer d.tell(&result)
	if err := d.decode(body); err != nil {
		return nil, err
	}
	d.receive()
	if err := rq.namespaceMatches(d.sent); err != nil {
		return nil, err
	}
	d.dedupOwners(false)
	switch {
	case rq.Subresource != nil:
		return d.act(ctx)
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

// create is the create of a new object; an update or an apply of an object that does not exist comes here, too.
//
// Mutating admission sees the object once, before it has a name and a UID. The steps behind it (make) are repeated if
// the generated name is taken, or if somebody else has taken an allocated address meanwhile. If only the namespace or
// the definition changed before the commit, the bytes need not be made again: recheck looks at those, and the same
// draft is committed once more. So a namespace that is written to all the time cannot keep creates in it from ending.
func (d *draft) create(ctx context.Context) (*Result, error) {
	d.action = creates
	// Zero and unparsable resourceVersions are ignored. Any other is refused, but by the commit: as in the reference
	// an object is validated first, and a dry run does not ask.
	seen, err := parseVersion(d.sent.At("metadata", "resourceVersion").Str())
	d.versioned = err == nil && seen != 0
	generated, prefixed := d.generated(), d.sent.At("metadata", "generateName").Str() != ""
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
		n := *d
		if err := n.make(ctx); err != nil {
			return nil, err
		}
		err := d.commit(ctx, &n)
		d.tried = n.tried
		key, raced := lost(err)
		for raced && key != n.key() && !n.claimed.touches(key) {
			if err := n.recheck(ctx, key); err != nil {
				return nil, err
			}
			err = d.commit(ctx, &n)
			key, raced = lost(err)
		}
		switch {
		case err == nil:
			return n.answer(ctx)
		case !raced:
			return nil, err
		case key != n.key(): // somebody else has taken what was allocated: it gets something else
			continue
		case !generated || attempt == nameAttempts:
			return nil, n.taken(ctx, prefixed)
		}
		attempt++
	}
}

// make turns what was admitted into an object with a name, ready to be committed.
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
	if err := d.report(ctx); err != nil {
		return err
	}
	if err := d.print(ctx); err != nil {
		return err
	}
	return d.claim(ctx)
}

// recheck looks again at what the draft depends on besides its own key, after a commit that lost a race at that key:
// the guard of a report, an object whose status it changes, or else its namespace and definition.
func (d *draft) recheck(ctx context.Context, key store.Key) error {
	if d.guard != nil && d.guard.pre.Key == key || slices.ContainsFunc(d.others,
		func(o *draft) bool { return o.live.Key == key }) {
		if err := d.report(ctx); err != nil {
			return err
		}
		return d.print(ctx)
	}
	return d.requireParents(ctx)
}

// taken is the error that the name is taken. It says so if the object that has it is being deleted. A client that
// left the name to the server is asked to try again.
func (d *draft) taken(ctx context.Context, prefixed bool) error {
	err := apierr.NewAlreadyExists(d.rq.Resource.Type(), d.obj.At("metadata", "name").Str())
	if prefixed {
		err.Message += ", the server was not able to generate a unique name for the object"
		err.Details.RetryAfterSeconds = 1
	}
	if existing, _, _ := d.store.Live(ctx, d.key(), false); existing != nil && existing.Sidecar.Deleting {
		err.Message = "object is being deleted: " + err.Message
	}
	return err
}

// virtual is the create of a virtual resource: nothing is stored.
func (d *draft) virtual(ctx context.Context) (*Result, error) {
	d.now = d.Engine.now()
	d.obj = d.sent
	d.own(ctx)
	if err := d.admit(ctx); err != nil {
		return nil, err
	}
	answer, err := d.rq.Resource.Answer(ctx, d.rq, d.obj)
	if err != nil {
		return nil, err
	}
	return &Result{Status: answer, Created: true}, nil
}

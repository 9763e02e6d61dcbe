package engine

import (
	"context"
	"fmt"

	"plinth/internal/apierr"
	"plinth/object"
)

// act is a POST to a subresource. There are three sorts, and the Subresource has a field for each: Answer computes a
// response and stores nothing (a token of a ServiceAccount); Eviction deletes the object if budgets allow it; otherwise
// Write changes the object as an update does (the binding of a Pod sets spec.nodeName). The response of the last two is
// a Status.
//
// An operation is retried like an update: it is computed from the live object, so after a lost race it is computed
// again from the newer one. For a binding, that is what makes two schedulers safe: Write of the second attempt sees
// the node that the first one set, and refuses.
//
// Admission sees the body alone, once, before the object is read, as in the reference. What it requires of the
// namespace is read again after a lost race, which may have been lost there.
func (d *draft) act(ctx context.Context) (*Result, error) {
	rq, sub := d.rq, d.rq.Subresource
	if sub.Answer != nil {
		return d.ask(ctx)
	}
	d.now = d.Engine.now()
	d.body = rq.inNamespace(d.asked)
	d.fill()
	if err := d.admit(ctx); err != nil {
		return nil, err
	}
	if name := d.body.At("metadata", "name").Str(); name != rq.Name {
		return nil, apierr.NewBadRequest(fmt.Sprintf("name in URL does not match name in %s object", sub.Kind))
	}
	if sub.Eviction != nil {
		return d.evict(ctx)
	}
	if sub.ValidateBody != nil {
		if err := sub.ValidateBody(d.body); err != nil {
			return nil, err
		}
	}
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	for sure := false; ; {
		n, err := d.onto(ctx, sure)
		if err != nil {
			return nil, err
		}
		if err = n.exists(); err == nil {
			err = n.rq.met(n.revision())
		}
		if err == nil {
			n.own(ctx)
			_, err = n.replace(ctx)
		}
		if n.again(ctx, err, &sure) {
			if err := d.requireParents(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		return &Result{Status: done(), Created: true}, nil
	}
}

// ask is a POST to a subresource that computes a response: Answer gets the live object and the decoded body, and
// returns the object to respond with. A dry run is the same, since nothing is stored either way.
//
// The live object is read with sure set, so a token is never issued for an object that another server has deleted.
// Admission runs before that read, as in the reference: the response to a request that admission refuses does not
// disclose whether the object exists.
func (d *draft) ask(ctx context.Context) (*Result, error) {
	rq, sub := d.rq, d.rq.Subresource
	d.now = d.Engine.now()
	d.body = rq.inNamespace(d.asked)
	d.fill()
	d.own(ctx)
	if err := d.admit(ctx); err != nil {
		return nil, err
	}
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	live, _, err := d.store.Live(ctx, rq.key(), true)
	switch {
	case err != nil:
		return nil, commitFailed(err)
	case live == nil:
		return nil, rq.notFound()
	}
	answer, warnings, err := sub.Answer(ctx, rq, live, d.body)
	d.warn(warnings...)
	if err != nil {
		return nil, err
	}
	return &Result{Status: answer, Created: true}, nil
}

// through is a create of a virtual resource that stands for a subresource of another type: a POST of a Binding to
// /namespaces/N/bindings is a POST to /namespaces/N/pods/NAME/binding, and the name is in the body.
//
// The body was decoded by the schema of the virtual resource; it has the same kind as that of the subresource. The
// target is looked up in the types that are served now, in the version of the virtual resource. It can be missing:
// flags can switch a type off.
func (d *draft) through(ctx context.Context) (*Result, error) {
	target, subresource := d.rq.Resource.Through()
	object := *d.rq
	object.Resource = d.registry.Now().Find(target.Group, d.rq.Resource.Version, target.Name)
	if object.Resource == nil {
		return nil, apierr.NewNoSuchPath()
	}
	object.Subresource = object.Resource.Subresource(subresource)
	if object.Name = d.asked.At("metadata", "name").Str(); object.Name == "" {
		return nil, apierr.NewBadRequest("Name parameter required.")
	}
	n := *d
	n.input = &input{Engine: d.Engine, rq: &object, admitted: d.rq, dry: d.dry, warnings: d.warnings}
	return n.act(ctx)
}

// exists returns the error for a request about an object that does not exist, nil if it exists.
func (d *draft) exists() error {
	if d.live == nil {
		return d.rq.notFound()
	}
	return nil
}

// done is the Status in the response to an operation.
func done() object.Value {
	return object.Fields("kind", object.StringOf("Status"), "apiVersion", object.StringOf("v1"), "metadata",
		object.MapOf(),
		"status", object.StringOf("Success"), "code", object.IntOf(created))
}

// created is the HTTP code in the Status of an operation.
const created = 201

package engine

import (
	"context"
	"fmt"

	"plinth/internal/apierr"
	"plinth/object"
)

// act is a POST to a subresource: an operation on an existing object, such as binding a Pod to a node or evicting it.
// The answer is a Status.
func (d *draft) act(ctx context.Context) (*Result, error) {
	rq, sub := d.rq, d.rq.Subresource
	if sub.Answer != nil {
		return d.ask(ctx)
	}
	if name := d.sent.At("metadata", "name").Str(); name != rq.Name {
		return nil, apierr.NewBadRequest(fmt.Sprintf("name in URL does not match name in %s object", sub.Kind))
	}
	if sub.Eviction != nil {
		return d.evict(ctx)
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
			_, err = n.change(ctx)
		}
		if n.again(err, &sure) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &Result{Status: done(), Created: true}, nil
	}
}

// ask is a POST to a subresource that stores nothing and is answered with an object of its own. It is the same for a
// dry run.
func (d *draft) ask(ctx context.Context) (*Result, error) {
	rq, sub := d.rq, d.rq.Subresource
	d.now = d.Engine.now()
	d.obj = d.sent
	d.fill()
	d.own(ctx)
	if err := d.admit(ctx); err != nil {
		return nil, err
	}
	live, _, err := d.store.Live(ctx, rq.key(), true)
	switch {
	case err != nil:
		return nil, commitFailed(err)
	case live == nil:
		return nil, rq.notFound()
	}
	answer, warnings, err := sub.Answer(ctx, rq, live, d.obj)
	d.warn(warnings...)
	if err != nil {
		return nil, err
	}
	return &Result{Status: answer, Created: true}, nil
}

// through is a create of a virtual resource that stands for an operation on an object of another type: the body names
// that object.
func (d *draft) through(ctx context.Context) (*Result, error) {
	target, subresource := d.rq.Resource.Through()
	object := *d.rq
	object.Resource = d.registry.Now().Find(target.Group, d.rq.Resource.Version, target.Name)
	if object.Resource == nil {
		return nil, apierr.NewNoSuchPath()
	}
	object.Subresource = object.Resource.Subresource(subresource)
	if object.Name = d.sent.At("metadata", "name").Str(); object.Name == "" {
		return nil, apierr.NewBadRequest("Name parameter required.")
	}
	n := *d
	n.rq = &object
	return n.act(ctx)
}

// exists is the error that there is no object, where there is none.
func (d *draft) exists() error {
	if d.live == nil {
		return d.rq.notFound()
	}
	return nil
}

func done() object.Value {
	return object.Fields("kind", object.StringOf("Status"), "apiVersion", object.StringOf("v1"), "metadata",
		object.MapOf(),
		"status", object.StringOf("Success"), "code", object.IntOf(created))
}

// created is the HTTP code in the Status of an operation.
const created = 201

package engine

import (
	"context"
	"fmt"

	"plinth/internal/apierr"
	"plinth/object"
)

// act is a POST to a subresource: an operation on the object that is there, such as binding a Pod to a node or evicting
// it. The answer is that it is done.
func (e *Engine) act(ctx context.Context, rq *Request, body object.Value) (*Result, error) {
	sub := rq.Subresource
	if name := body.At("metadata", "name").Str(); name != rq.Name {
		return nil, apierr.NewBadRequest(fmt.Sprintf("name in URL does not match name in %s object", sub.Kind))
	}
	if sub.Deletion != nil {
		options, err := sub.Deletion(body)
		if err != nil {
			return nil, err
		}
		object := *rq
		object.Subresource = nil
		if _, err := e.Delete(ctx, &object, options); err != nil {
			return nil, err
		}
		return &Result{Status: done(), Created: true}, nil
	}
	for {
		live, ok := e.store.Get(rq.key())
		if !ok {
			return nil, rq.notFound()
		}
		_, err := e.replace(ctx, rq, live, func(object.Value) (written, error) { return written{body: body}, nil })
		if raced(err) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &Result{Status: done(), Created: true}, nil
	}
}

// through is a create of a virtual type that stands for an operation on an object of another one: the body names it.
func (e *Engine) through(ctx context.Context, rq *Request, body object.Value) (*Result, error) {
	target, subresource := rq.Resource.Through()
	object := *rq
	object.Resource = e.registry.Find(target.Group, rq.Resource.Version, target.Name)
	if object.Resource == nil {
		return nil, apierr.NewNoSuchPath()
	}
	object.Subresource = object.Resource.Subresource(subresource)
	if object.Name = body.At("metadata", "name").Str(); object.Name == "" {
		return nil, apierr.NewBadRequest("Name parameter required.")
	}
	return e.act(ctx, &object, body)
}

func done() object.Value {
	return object.Fields("kind", object.StringOf("Status"), "apiVersion", object.StringOf("v1"), "metadata", object.MapOf(),
		"status", object.StringOf("Success"), "code", object.IntOf(created))
}

// created is the code in the Status of an operation that was done, as HTTP has it.
const created = 201

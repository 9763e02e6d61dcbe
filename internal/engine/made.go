package engine

import (
	"bytes"
	"context"

	"plinth/internal/execution"
	"plinth/internal/store"
	"plinth/object"
)

// Objects that are made when somebody reads them (Resource.Made): none is stored, so they have no UID and no
// resourceVersion, and neither has their list.

// getMade is Get for such a type.
func (rq *Request) getMade(ctx context.Context) (*Result, error) {
	for _, o := range rq.made(ctx, rq.Name) {
		return &Result{Object: o, Made: true}, nil
	}
	return nil, rq.notFound()
}

// listMade is List for such a type. As in the reference the list is whole: neither a limit nor a resourceVersion means
// anything.
func (rq *Request) listMade(ctx context.Context, sel *selection) *Collection {
	var items []*Object
	for _, o := range rq.made(ctx, sel.name) {
		if selected, err := sel.matches(ctx, o); err == nil && selected {
			items = append(items, o)
		}
	}
	c := &Collection{}
	for _, o := range items {
		c.Made += o.Len()
	}
	c.Items = func(yield func(*Object) bool) {
		for _, o := range items {
			if !yield(o) {
				return
			}
		}
	}
	return c
}

// made makes the object of a name, or all if it is "". It may take as long as the answers of other servers.
func (rq *Request) made(ctx context.Context, name string) (all []*Object) {
	r := rq.Resource
	var values []object.Value
	execution.Outside(ctx, func() { values = r.Made(ctx, name) })
	for _, v := range values {
		v = v.With("apiVersion", object.StringOf(r.APIVersion())).With("kind", object.StringOf(r.Kind))
		data := object.AppendObject(nil, r.Schema().Settle(v))
		// Without a revision nothing is inserted, and the metadata are searched from their beginning.
		metadata := []byte(`"metadata":{`)
		item := bytes.Index(data, metadata)
		at := object.Offsets{Item: item, Splice: item + len(metadata)}
		all = append(all, store.NewVersion(r.key("", v.At("metadata", "name").Str()), 0, data, NewSidecar(at)))
	}
	return all
}

package engine

import (
	"context"

	"plinth/internal/apierr"
)

// DeleteCollection deletes every object that a list selects (DEL-4) and answers with that list. An object that
// somebody else has deleted meanwhile is no error.
func (e *Engine) DeleteCollection(ctx context.Context, rq *Request, l ListOptions,
	d DeleteOptions) (*Collection, error) {
	if rq.Resource.Namespaced && rq.Namespace == "" { // all namespaces can only be looked at
		return nil, apierr.NewBadRequest("Namespace parameter required.")
	}
	switch { // a collection is there, but has no version
	case rq.IfMatch != nil && !rq.IfMatch.Any:
		return nil, rq.unmet("a collection has no resourceVersion that If-Match could name")
	case rq.IfNoneMatch != nil && rq.IfNoneMatch.Any:
		return nil, rq.unmet("there is the collection, which If-None-Match names")
	}
	if l.Match == "" && l.ResourceVersion != "" && l.ResourceVersion != "0" {
		l.Match = "Exact" // the reference reads it in chunks, and those are of one version
	}
	list, err := e.List(ctx, rq, l)
	if err != nil {
		return nil, err
	}
	if rq.Resource.WarnDelete != nil { // even if there is nothing to delete
		list.Warnings = rq.Resource.WarnDelete(d)
	}
	for item := range list.Items {
		if err := ctx.Err(); err != nil {
			return &Collection{Warnings: list.Warnings}, commitFailed(err)
		}
		one := *rq
		one.IfMatch, one.IfNoneMatch = nil, nil
		one.Namespace, one.Name = splitKey(item.Key.Name)
		if _, err := e.Delete(ctx, &one, d); err != nil && !apierr.Is(err, apierr.NotFound) {
			return &Collection{Warnings: list.Warnings}, err
		}
	}
	if err := list.Err(); err != nil {
		return &Collection{Warnings: list.Warnings}, commitFailed(err)
	}
	return list, nil
}

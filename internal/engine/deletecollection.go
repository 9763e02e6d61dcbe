package engine

import (
	"context"
	"errors"
	"slices"

	"plinth/internal/apierr"
)

// DeleteCollection deletes every object that a list selects (DEL-4) and answers with that list.
//
// It is a list, and then one delete for each item, in order; it is not atomic, as in the reference. Deleting all of
// them in one commit would let one object that cannot be deleted keep all others, and a collection of any size would
// have to fit into one commit. Each delete has its own retry loop. An object that another request has deleted meanwhile
// is not an error; any other error ends the request, and the objects deleted until then stay deleted.
//
// An object that was created after the list is not deleted, even if it has the name of one that was listed: each delete
// is of a name and a UID. The reference deletes by the name alone, so that it deletes an object which no selector of
// the request was compared with.
//
// Warnings are those of the request and of all deletes. They are returned with an error, too, so the Collection is not
// nil then.
func (e *Engine) DeleteCollection(ctx context.Context, rq *Request, l ListOptions,
	d DeleteOptions) (*Collection, error) {
	if rq.Resource.Namespaced && rq.Namespace == "" { // the collection over all namespaces can only be read
		return nil, apierr.NewBadRequest("Namespace parameter required.")
	}
	// A collection exists, so If-Match: * holds; but it has no resourceVersion.
	switch {
	case rq.IfMatch != nil && !rq.IfMatch.Any:
		return nil, rq.unmet("a collection has no resourceVersion that If-Match could name")
	case rq.IfNoneMatch != nil && rq.IfNoneMatch.Any:
		return nil, rq.unmet("there is the collection, which If-None-Match names")
	}
	if l.Match == "" && l.ResourceVersion != "" && l.ResourceVersion != "0" {
		l.Match = "Exact" // the reference reads the collection in chunks, which are all of one revision
	}
	list, err := e.List(ctx, rq, l)
	if err != nil {
		return nil, err
	}
	if rq.Resource.WarnDelete != nil { // even if there is nothing to delete
		list.warn(rq.Resource.WarnDelete(d))
	}
	for item := range list.Items {
		if err := ctx.Err(); err != nil {
			return &Collection{Warnings: list.Warnings}, commitFailed(err)
		}
		// The preconditions of the request are about the collection and were checked above.
		one := *rq
		one.IfMatch, one.IfNoneMatch = nil, nil
		one.Namespace, one.Name = splitKey(item.Key.Name)
		d.listed = item.Sidecar.UID
		result, err := e.deleteOne(ctx, &one, d, true)
		list.warn(result.GetWarnings())
		if err != nil && (errors.Is(err, errOtherDefinition) || !apierr.Is(err, apierr.NotFound)) {
			return &Collection{Warnings: list.Warnings}, err
		}
	}
	if err := list.Err(); err != nil {
		return &Collection{Warnings: list.Warnings}, commitFailed(err)
	}
	return list, nil
}

// maxWarnings bounds the warnings of a collection, which may have any number of items. An answer shows fewer: it has
// room for some thousands of characters.
const maxWarnings = 1024

// warn adds warnings, each once.
func (c *Collection) warn(texts []string) {
	for _, text := range texts {
		if len(c.Warnings) < maxWarnings && !slices.Contains(c.Warnings, text) {
			c.Warnings = append(c.Warnings, text)
		}
	}
}

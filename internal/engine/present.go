package engine

import (
	"context"
	"errors"
	"fmt"

	"plinth/internal/store"
	"plinth/object"
)

// maxConverted is the number of bytes of stored objects after which a conversion of many objects is split, so that
// the request to a webhook, and the memory for its answer, do not grow with the collection.
const maxConverted = 4 << 20

// ConversionError is the error of a conversion of several objects, with the index of the one that could not be
// converted.
type ConversionError struct {
	Index int // of the object
	Err   error
}

func (e *ConversionError) Error() string { return e.Err.Error() }

// Unwrap returns the error about the object.
func (e *ConversionError) Unwrap() error { return e.Err }

// present is a stored version as the request needs it: the stored bytes if they have the current form, are stored in
// the version of the URL, and no subresource shows them differently; otherwise an object that is made for this request
// (remade).
func (rq *Request) present(ctx context.Context, v *store.Version) (*Object, error) {
	if rq.presented(v) {
		return v, nil
	}
	obj, _, err := rq.Resource.live(ctx, v)
	if err != nil {
		return nil, err
	}
	if represent := rq.representation(); represent != nil {
		if obj, err = represent(obj); err != nil {
			return nil, err
		}
	}
	return remade(v, obj)
}

// presented says whether the stored bytes are the answer. It is called for each item of a list and each event of a
// watch, and costs a few comparisons.
func (rq *Request) presented(v *store.Version) bool {
	r := rq.Resource
	return v.Sidecar.Unreadable == nil && r.Served == r.Stored.Storage && r.Stored.current(v) && rq.representation() == nil
}

// presentAll is present for many versions, in place; nil ones stay. Those that need a conversion are converted
// together, up to maxConverted bytes at a time: a webhook that takes 5 ms would make a list of 1,000 objects last 5 s
// if it were called for each. If it fails, some of them are converted and some are not, so the caller must answer with
// the error and use none.
//
// The result takes memory in addition to the stored versions until the answer is written. That is why a list without a
// limit, which otherwise needs no memory, is read as one page if objects are converted (List). made is its size in
// bytes.
func (rq *Request) presentAll(ctx context.Context, all []*Object) (made int, err error) {
	together := rq.Resource.Stored.Convert != nil && rq.representation() == nil
	var batch []int
	bytes := 0
	for i, v := range all {
		if v == nil || rq.presented(v) {
			continue
		}
		// present returns the error that names an unreadable object.
		if !together || v.Sidecar.Unreadable != nil {
			shown, err := rq.present(ctx, v)
			if err != nil {
				return made, err
			}
			all[i] = shown
			made += shown.Len()
			continue
		}
		if batch, bytes = append(batch, i), bytes+v.Len(); bytes >= maxConverted {
			n, err := rq.presentTogether(ctx, all, batch)
			if made += n; err != nil {
				return made, err
			}
			batch, bytes = batch[:0], 0
		}
	}
	n, err := rq.presentTogether(ctx, all, batch)
	return made + n, err
}

// presentTogether presents the versions with the indexes in batch by one conversion. If the conversion names the object
// that failed (ConversionError), or there is only one, the error names it, too.
func (rq *Request) presentTogether(ctx context.Context, all []*Object, batch []int) (made int, err error) {
	if len(batch) == 0 {
		return 0, nil
	}
	r := rq.Resource
	objects, old := make([]object.Value, len(batch)), make([]bool, len(batch))
	for n, i := range batch {
		if objects[n], _, err = r.parsed(all[i]); err != nil {
			return 0, err
		}
		old[n] = !r.Stored.current(all[i])
	}
	objects, err = r.Stored.readAll(ctx, objects, old, r.Served)
	if err != nil {
		var one *ConversionError
		if errors.As(err, &one) || len(batch) == 1 {
			n := 0
			if one != nil {
				n = one.Index
			}
			return 0, unreadable(all[batch[n]], err)
		}
		return 0, fmt.Errorf("unable to read the stored object %s and %d others: %w", all[batch[0]].Key, len(batch)-1, err)
	}
	for n, i := range batch {
		if all[i], err = remade(all[i], objects[n]); err != nil {
			return made, err
		}
		made += all[i].Len()
	}
	return made, nil
}

// remade is a version with other content than the stored one, but the key, revision and selections of v. It has its own
// layout, since the offsets are those of its bytes, so encodings of it are not shared with v. Its bytes may not be the
// canonical form of an object that could be stored (a Scale): they are only sent.
func remade(v *store.Version, obj object.Value) (*Object, error) {
	data := object.AppendObject(nil, obj.WithoutAt("metadata", "resourceVersion"))
	at, ok := object.Locate(data)
	if !ok {
		return nil, fmt.Errorf("a representation of %s has no UID", v.Key)
	}
	s := NewSidecar(at)
	layout := s.Extra
	*s = *v.Sidecar
	s.Extra = layout
	return store.NewVersion(v.Key, v.Revision, data, s), nil
}

// representation makes the body of a response from the object; nil: the response is the object.
func (rq *Request) representation() func(object.Value) (object.Value, error) {
	if rq.Subresource == nil {
		return nil
	}
	return rq.Subresource.Represent
}

// base makes the body that a patch or an apply changes from the object; nil: it is the object.
func (rq *Request) base() func(object.Value) (object.Value, error) {
	if rq.Subresource == nil || rq.Subresource.Base == nil {
		return rq.representation()
	}
	return rq.Subresource.Base
}

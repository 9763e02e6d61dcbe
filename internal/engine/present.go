package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"plinth/internal/store"
	"plinth/object"
)

// maxConverted is the number of bytes of stored objects after which a conversion of many objects is split, so that
// the request to a webhook, and the memory for its answer, do not grow with the collection.
const maxConverted = 4 << 20

// ConversionError is the error of a conversion of several objects, with the index of the one that could not be
// converted.
type ConversionError struct {
	Index int // of the object; EveryObject
	Err   error
}

// EveryObject is the index in the error of a converter that could not be asked, as it would be for any other object.
const EveryObject = -1

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
	represent := rq.representation()
	if represent == nil && v.Sidecar.Unreadable == nil && rq.Resource.Stored.Converted != nil {
		return rq.Resource.converted(ctx, v)
	}
	obj, _, err := rq.Resource.live(ctx, v)
	if err != nil {
		return nil, err
	}
	if represent != nil {
		if obj, err = represent(obj); err != nil {
			return nil, err
		}
	}
	return remade(v, obj, nil)
}

// presented says whether the stored bytes are the answer. It is called for each item of a list and each event of a
// watch, and costs a few comparisons.
func (rq *Request) presented(v *store.Version) bool {
	r := rq.Resource
	return v.Sidecar.Unreadable == nil && r.Served == r.Stored.Storage && r.Stored.current(v) && rq.representation() == nil
}

// presentAll is present for many versions, in place; nil ones stay. Those that need a conversion are converted
// together. If it fails, some of them are converted and some are not, so the caller must answer with the error and use
// none.
//
// The result takes memory in addition to the stored versions until the answer is written. That is why a list without a
// limit, which otherwise needs no memory, is read as one page if objects are converted (List). made is its size in
// bytes: all of it is counted, as what Converted keeps may be dropped before the answer is written.
func (rq *Request) presentAll(ctx context.Context, all []*Object) (made int, err error) {
	together := rq.Resource.Stored.Convert != nil && rq.representation() == nil
	var those []int
	for i, v := range all {
		if v == nil || rq.presented(v) {
			continue
		}
		// present returns the error that names an unreadable object.
		if together && v.Sidecar.Unreadable == nil {
			those = append(those, i)
			continue
		}
		if all[i], err = rq.present(ctx, v); err != nil {
			return made, err
		}
		made += all[i].Len()
	}
	if err := rq.Resource.remake(ctx, all, those); err != nil {
		return made, err
	}
	for _, i := range those {
		made += all[i].Len()
	}
	return made, nil
}

// converted is a stored version in the version that the resource serves, of a kind with Kind.Converted.
func (r *Resource) converted(ctx context.Context, v *store.Version) (*Object, error) {
	one := []*Object{v}
	err := r.remake(ctx, one, []int{0})
	return one[0], err
}

// remake replaces those stored versions by what they are in the version that the resource serves. They are converted
// together, up to maxConverted bytes at a time: a webhook that takes 5 ms would make a list of 1,000 objects last 5 s
// if it were called for each.
func (r *Resource) remake(ctx context.Context, all []*Object, those []int) error {
	if r.Stored.Converted != nil {
		return r.Stored.Converted.remake(ctx, r, all, those)
	}
	for len(those) > 0 {
		var batch []*Object
		for bytes := 0; len(batch) < len(those) && bytes < maxConverted; {
			v := all[those[len(batch)]]
			batch, bytes = append(batch, v), bytes+v.Len()
		}
		made, err := r.convertTogether(ctx, batch)
		if err != nil {
			return notConverted(batch, err)
		}
		for n, i := range those[:len(batch)] {
			all[i] = made[n]
		}
		those = those[len(batch):]
	}
	return nil
}

// convertTogether brings versions into the version that the resource serves by one conversion. The error is that of the
// conversion: a ConversionError, or one about all of them.
func (r *Resource) convertTogether(ctx context.Context, batch []*Object) ([]*Object, error) {
	objects, old := make([]object.Value, len(batch)), make([]bool, len(batch))
	for n, v := range batch {
		parsed, _, err := r.parsed(v)
		if err != nil {
			return nil, &ConversionError{Index: n, Err: err}
		}
		objects[n], old[n] = parsed, !r.Stored.current(v)
	}
	objects, err := r.Stored.readAll(ctx, objects, old, r.Served)
	if err != nil {
		return nil, err
	}
	made := make([]*Object, len(batch))
	for n, obj := range objects {
		if made[n], err = remade(batch[n], obj, r.Served); err != nil {
			return nil, &ConversionError{Index: n, Err: err}
		}
	}
	return made, nil
}

// notConverted is the error that a conversion of several versions has failed. If it is about one of them
// (ConversionError), or there is only one, it names that one.
func notConverted(batch []*Object, err error) error {
	var one *ConversionError
	if errors.As(err, &one) && one.Index >= 0 {
		return unreadable(batch[one.Index], err)
	}
	switch n := len(batch) - 1; n {
	case 0:
		return unreadable(batch[0], err)
	case 1:
		return fmt.Errorf("unable to read the stored object %s and 1 other: %w", batch[0].Key, err)
	default:
		return fmt.Errorf("unable to read the stored object %s and %d others: %w", batch[0].Key, n, err)
	}
}

// remade is a version with other content than the stored one, but the key, revision and selections of v. It has its own
// layout, since the offsets are those of its bytes, so encodings of it are not shared with v. Its bytes may not be the
// canonical form of an object that could be stored (a Scale): they are only sent. in is the version of the kind that it
// is in, whose labels and selectable fields it gets; nil: it is no object of the kind.
func remade(v *store.Version, obj object.Value, in *Version) (*Object, error) {
	data, at := object.AppendLocated(nil, obj.WithoutAt("metadata", "resourceVersion"))
	if at.Splice == 0 {
		return nil, fmt.Errorf("a representation of %s has no UID", v.Key)
	}
	s := NewSidecar(at)
	layout := s.Extra
	*s = *v.Sidecar // nothing of it points to v, whose memory can be freed while s is kept (Converted)
	s.Extra = layout
	if labels := obj.At("metadata", "labels").Members(); in != nil && !slices.EqualFunc(labels, s.Labels, isPair) {
		s.Labels = pairs(labels)
	}
	if in != nil && in.Fields != nil {
		s.Fields, s.Selection = in.Fields(obj), in.selection
		for i := range s.Fields {
			s.Fields[i].Value = intern(s.Fields[i].Value)
		}
	}
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

// atRevision is a version of an object at the revision of another one, which has the same content: the last version of
// a removed object has the revision of the removal.
func atRevision(o *Object, other *store.Version) *Object {
	if o.Revision == other.Revision {
		return o
	}
	return o.At(other.Revision)
}

package engine

import (
	"context"
	"hash/fnv"
	"slices"
	"strconv"

	"plinth/internal/apierr"
)

// Versions are the revisions in a precondition of an HTTP request (If-Match, If-None-Match; WRITE-5), or any. The
// reference ignores both headers; here they let a client write safely that has an ETag and no resourceVersion in its
// body. "If-None-Match: *" on an apply means "create it or fail".
type Versions struct {
	Any bool
	Of  []int64
}

// include says whether a live revision is named. Revision 0, no object, never is.
func (v *Versions) include(revision int64) bool {
	return revision != 0 && (v.Any || slices.Contains(v.Of, revision))
}

// met checks the preconditions of the request against the revision of the live version, 0 if there is none.
//
//	an attempt of a verb commits  ⇒  met(d.revision()) = nil, and the commit depends on d.revision()
//
// So every attempt checks them again: after a lost race the live version is another one. met need not check whether the
// version is the newest: a failure ends the attempt, and draft.again decides whether it is the answer.
func (rq *Request) met(revision int64) error {
	if rq.IfMatch == nil && rq.IfNoneMatch == nil {
		return nil
	}
	current := "there is no such object"
	if revision != 0 {
		current = "the object is at resourceVersion " + strconv.FormatInt(revision, 10)
	}
	switch {
	case rq.IfMatch != nil && !rq.IfMatch.include(revision):
		return rq.unmet(current + ", which If-Match does not name")
	case rq.IfNoneMatch != nil && rq.IfNoneMatch.include(revision):
		return rq.unmet(current + ", which If-None-Match names")
	}
	return nil
}

// unmet is 412, with the reason.
func (rq *Request) unmet(why string) error {
	return apierr.NewPreconditionFailed(rq.Resource.Type(), rq.Name, why)
}

// show is the result with the object that is stored as v.
func (rq *Request) show(ctx context.Context, v *Object) (*Result, error) {
	shown, err := rq.present(ctx, v)
	if err != nil {
		return nil, err
	}
	return &Result{Object: shown, Variant: rq.variant(v, shown), Made: shown != v}, nil
}

// variant is Result.Variant of a stored version that is sent as stored, or as another object that was made from it: in
// another version of the kind, in the current form, or as a Scale. Callers make an ETag of it and the revision, so
//
//	equal revision and Variant  ⇒  equal bytes
//
// The stored bytes of a revision never change, so for them the stamp of the kind is enough. An object that is made from
// them depends on definitions and webhooks, so its bytes are hashed.
func (rq *Request) variant(stored, shown *Object) uint64 {
	stamp := rq.Resource.Stored.stamp()
	if shown == stored {
		return stamp
	}
	h := fnv.New64a()
	h.Write(shown.Data()) // never fails
	return stamp ^ h.Sum64() | 1
}

package engine

import (
	"context"
	"hash/fnv"
	"slices"
	"strconv"

	"plinth/internal/apierr"
)

// Versions are the versions of an object that a precondition of a request names (WRITE-5): those of these resourceVersions, or
// any that there is.
type Versions struct {
	Any bool
	Of  []int64
}

// include says whether the live version is one of them. An object that is not there has the revision 0, which nothing includes.
func (v *Versions) include(revision int64) bool {
	return revision != 0 && (v.Any || slices.Contains(v.Of, revision))
}

// met checks the preconditions of the request against the revision of the live version, 0 where there is none.
//
//	an attempt of a verb commits  ⇒  met(d.revision()) = nil, and the commit depends on d.revision()
//
// So every attempt checks them again: after a lost race the live version is another one, and a condition that held before may not
// hold any more. That a version is perhaps not the newest needs no thought here: the failure is an error of the attempt, and is
// only told of a version that is known to be current (draft.again).
func (rq *Request) met(revision int64) error {
	if rq.IfMatch == nil && rq.IfNoneMatch == nil {
		return nil
	}
	is := "there is no such object"
	if revision != 0 {
		is = "the object is at resourceVersion " + strconv.FormatInt(revision, 10)
	}
	switch {
	case rq.IfMatch != nil && !rq.IfMatch.include(revision):
		return rq.unmet(is + ", which If-Match does not name")
	case rq.IfNoneMatch != nil && rq.IfNoneMatch.include(revision):
		return rq.unmet(is + ", which If-None-Match names")
	}
	return nil
}

func (rq *Request) unmet(why string) error {
	return apierr.NewPreconditionFailed(rq.Resource.Type(), rq.Name, why)
}

// show is the answer with an object that is stored as v.
func (rq *Request) show(ctx context.Context, v *Object) (*Result, error) {
	shown, err := rq.present(ctx, v)
	if err != nil {
		return nil, err
	}
	return &Result{Object: shown, Variant: rq.variant(v, shown)}, nil
}

// variant is Result.Variant of a stored version that is shown as it is stored, or as something that was made of it: in another version
// of the kind, in the form of today, or as a Scale. The stored bytes never change while their revision stands, so the stamp of
// the kind, which the presentation has looked at anyway, tells enough. What is made of them depends on definitions, and where a
// webhook converts, on nothing that is known here: there the result decides.
func (rq *Request) variant(stored, shown *Object) uint64 {
	stamp := rq.Resource.Stored.stamp()
	if shown == stored {
		return stamp
	}
	h := fnv.New64a()
	h.Write(shown.Data) // never fails
	return stamp ^ h.Sum64() | 1
}

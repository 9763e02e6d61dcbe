package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"plinth/internal/apierr"
	"plinth/internal/store"
)

// futureWait is how long a read waits for a revision that this server has not reached yet (LIST-6). A client that reads
// from two servers may have a revision from one that the other has not received.
const futureWait = 3 * time.Second

// Get reads one object (LIST-2). Without a resourceVersion it is the newest version, for which the store may have to
// query another server; with one, the newest version that is known here, which must not be older than that.
func (e *Engine) Get(ctx context.Context, rq *Request, resourceVersion string) (*Result, error) {
	if rq.Resource.Made != nil {
		return rq.getMade(ctx)
	}
	e = e.of(rq.Resource)
	revision, err := parseVersion(resourceVersion)
	if err != nil {
		return nil, err
	}
	if err := e.waitFor(ctx, revision, resourceVersion); err != nil {
		return nil, err
	}
	if refresh := rq.Resource.Refresh; refresh != nil && resourceVersion == "" {
		refresh(ctx, rq.Namespace)
	}
	// With a resourceVersion, any version from that on is valid, so the state at hand is read.
	v, _, err := e.store.Live(ctx, rq.key(), resourceVersion == "")
	if err != nil {
		return nil, commitFailed(err)
	}
	if v == nil {
		return nil, rq.notFound()
	}
	if err := rq.met(v.Revision); err != nil {
		return nil, err
	}
	return rq.show(ctx, v)
}

// key is the key of the object that the request names.
func (rq *Request) key() store.Key { return rq.Resource.key(rq.Namespace, rq.Name) }

// notFound is the error that no object has the request's name, or, as in the reference, that none can have it, if the
// name is not a valid path segment. All verbs use it, so that a client gets the same answer from each of them.
func (rq *Request) notFound() error {
	if wrong := content.IsPathSegmentName(rq.Name); len(wrong) > 0 {
		return apierr.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", rq.Name, strings.Join(wrong, ";")))
	}
	typ := rq.Resource.Type()
	if as := rq.Resource.NotFoundAs; as != "" {
		typ.Name = as
	}
	return apierr.NewNotFound(typ, rq.Name)
}

// parseVersion parses a resourceVersion; "" and "0" are 0. It accepts 64 bits, as the reference does. Revisions are
// positive int64 numbers; a larger number is math.MaxInt64, which no commit reaches, so it is a version of the future.
// The meaning of 0 depends on the verb: the newest version for a get without one, any version for a list with "0".
func parseVersion(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	revision, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, apierr.NewBadRequest("invalid resource version: resourceVersion: Invalid value: " + strconv.Quote(text) +
			": " + err.Error())
	}
	return int64(min(revision, math.MaxInt64)), nil
}

// fresh waits until the state is as new as the newest write at the time of the call. With the embedded log it always
// is.
func (e *Engine) fresh(ctx context.Context) error {
	if _, err := e.store.Fresh(ctx, store.Key{}, true); err != nil {
		return commitFailed(err)
	}
	return nil
}

// waitFor waits for a revision that this server has not reached yet, for futureWait at most. The error has the cause
// ResourceVersionTooLarge and a Retry-After, and names the version as the client did: it may be above every revision.
func (e *Engine) waitFor(ctx context.Context, revision int64, asked string) error {
	if revision <= e.store.Revision() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, futureWait)
	defer cancel()
	err := e.store.WaitFor(ctx, revision)
	if errors.Is(err, context.DeadlineExceeded) {
		return apierr.NewTooLargeVersion(strings.TrimLeft(asked, "0"), e.store.Revision())
	}
	return err
}

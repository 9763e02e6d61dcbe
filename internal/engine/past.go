package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/object"
	"plinth/patch"
)

// Limits of a record that is asked for: without a limit, and at most.
const (
	defaultChanges = 50
	maxChanges     = 1000
)

// GetAsOf reads one object as it was at a revision, in the version of the URL: 404 if it was not there, and 410 if that
// is not known any more.
func (e *Engine) GetAsOf(ctx context.Context, rq *Request, resourceVersion string) (*Result, error) {
	v, err := e.versionAt(ctx, rq, resourceVersion)
	if err != nil {
		return nil, err
	}
	if err := rq.met(v.Revision); err != nil {
		return nil, err
	}
	return rq.show(asWas(ctx), v)
}

// versionOf is the version of an object as of a resourceVersion; "": the live one. It is 404 if there was none.
func (e *Engine) versionOf(ctx context.Context, rq *Request, resourceVersion string) (*store.Version, error) {
	if resourceVersion != "" {
		return e.versionAt(ctx, rq, resourceVersion)
	}
	v, _, err := e.of(rq.Resource).store.Live(ctx, rq.key(), true)
	if err != nil {
		return nil, commitFailed(err)
	}
	if v == nil {
		return nil, rq.notFound()
	}
	return v, nil
}

// versionAt is versionOf of a past version.
func (e *Engine) versionAt(ctx context.Context, rq *Request, resourceVersion string) (*store.Version, error) {
	e = e.of(rq.Resource)
	revision, err := parseVersion(resourceVersion)
	if err == nil && revision == 0 {
		err = apierr.NewBadRequest("resourceVersionMatch: Forbidden: resourceVersionMatch \"Exact\" is forbidden for " +
			"resourceVersion \"0\"")
	}
	if err == nil {
		err = e.waitFor(ctx, revision, resourceVersion)
	}
	if err != nil {
		return nil, err
	}
	v, err := e.asOf(ctx, rq, revision)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, rq.notFound()
	}
	return v, nil
}

// asOf is the version of an object as of a revision; nil: there was none.
func (e *Engine) asOf(ctx context.Context, rq *Request, revision int64) (*store.Version, error) {
	v, err := e.store.At(ctx, rq.key(), revision)
	if purged := (*store.PurgedError)(nil); errors.As(err, &purged) {
		return nil, rq.Resource.purged(purged)
	}
	if err != nil {
		return nil, e.snapshotFailed(err, revision, "")
	}
	return v, nil
}

// RevisionAt is the newest revision that was not written after a moment, by the clock of those who have written; 410:
// that is not known any more.
func (e *Engine) RevisionAt(ctx context.Context, r *Resource, moment time.Time) (int64, error) {
	e = e.of(r)
	if err := e.fresh(ctx); err != nil {
		return 0, err
	}
	revision, err := e.store.RevisionAt(ctx, moment)
	switch {
	case errors.Is(err, store.ErrCompacted):
		return 0, apierr.NewExpired("The time is before what is kept of the past.")
	case err != nil:
		return 0, pastFailed(err)
	}
	return revision, nil
}

// pastFailed is the error for a past that cannot be read.
func pastFailed(err error) error {
	if errors.Is(err, store.ErrNoPast) {
		return apierr.NewBadRequest("this server keeps no past: its objects are not in a data directory, or " +
			"--history-retention is 0")
	}
	return commitFailed(err)
}

// Record is the record of an object as a document: its changes, the newest first, each with who has made it and a merge
// patch (RFC 7386) that makes the version before into this one, in the version of the URL. An object that is gone has
// one, too. limit 0 is the default; continued is metadata.continue of the document before: the revision before which
// the changes begin. complete says that the last one has created the object. Of a change whose version was purged, or
// that before it, the record has who has made it, and when.
//
// Without managedFields and resourceVersions, which each write changes: the managers of an object as it is say who owns
// what, and a change says its own resourceVersion.
func (e *Engine) Record(ctx context.Context, rq *Request, limit int64, continued string) (object.Value, error) {
	e = e.of(rq.Resource)
	before, err := strconv.ParseInt(continued, 10, 64)
	if continued != "" && (err != nil || before <= 0) {
		return object.Nil, apierr.NewBadRequest(fmt.Sprintf("continue: Invalid value: %q: must be that of an answer",
			continued))
	}
	if limit <= 0 {
		limit = defaultChanges
	}
	if continued == "" {
		if err := e.fresh(ctx); err != nil {
			return object.Nil, err
		}
		before = e.store.Revision() + 1
	}
	r := record{rq: rq, limit: int(min(limit, maxChanges))}
	last, err := e.store.At(ctx, rq.key(), before-1)
	if r.purged = errors.As(err, new(*store.PurgedError)); err != nil && !r.purged {
		return object.Nil, e.snapshotFailed(err, before-1, "")
	}
	if r.after, err = rq.pastObject(ctx, last); err != nil {
		return object.Nil, err
	}
	err = e.store.Changes(ctx, rq.key(), before, func(p *store.PastChange) bool { return r.add(ctx, p) })
	if err = cmp.Or(err, r.err); err != nil {
		return object.Nil, pastFailed(err)
	}
	if last == nil && len(r.changes) == 0 {
		return object.Nil, rq.notFound()
	}
	metadata := object.MapOf()
	if r.next != "" {
		metadata = metadata.With("continue", object.StringOf(r.next))
	}
	return object.Fields("apiVersion", object.StringOf("plinth/v1"), "kind", object.StringOf("History"),
		"metadata", metadata, "complete", object.BoolOf(r.whole), "changes", object.ListOf(r.changes...)), nil
}

// record is the changes of a document, the newest first.
type record struct {
	rq      *Request
	limit   int
	bytes   int
	changes []object.Value
	after   object.Value // the object before the last change of changes; null: there was none
	purged  bool         // after is not known, as it was purged
	whole   bool         // the last one has created the object
	last    int64        // the revision of that change
	next    string       // the revision before which the next document begins; "": there is none
	err     error
}

// maxRecordBytes is how many bytes of versions the changes of one document have, but for the last one.
const maxRecordBytes = 4 << 20

// add adds a change, and says whether there is room for more.
func (r *record) add(ctx context.Context, p *store.PastChange) bool {
	if len(r.changes) == r.limit || r.bytes > maxRecordBytes {
		r.next = strconv.FormatInt(r.last, 10)
		return false
	}
	if p.Deleted {
		r.after, r.purged = object.Nil, false
	}
	var before object.Value
	if before, r.err = r.rq.pastObject(ctx, p.Old); r.err != nil {
		return false
	}
	var change object.Value
	if change, r.err = changeOf(p, before, r.after, r.purged); r.err != nil {
		return false
	}
	r.changes = append(r.changes, change)
	r.after, r.purged, r.whole, r.last = before, p.Purged, p.Old == nil && !p.Purged, p.Revision
	if p.Old != nil {
		r.bytes += p.Old.Len()
	}
	return true
}

// changeOf is a change in the document. after is ignored for a deletion; afterPurged says that it is not known.
func changeOf(p *store.PastChange, before, after object.Value, afterPurged bool) (object.Value, error) {
	what, key, shown := "modified", "patch", object.Nil
	var err error
	switch {
	case p.Deleted:
		what, key, shown = "deleted", "object", before
	case p.Old == nil && !p.Purged:
		what, key, shown = "created", "object", after
	case !p.Purged && !afterPurged:
		shown, err = patch.Between(before, after)
	}
	if p.Purged || afterPurged {
		key, shown = "purged", object.BoolOf(true)
	}
	return object.MapOf(append(attributionOf(p), object.Member{Key: "change", Value: object.StringOf(what)},
		object.Member{Key: key, Value: shown})...), err
}

// attributionOf is when a change was made, and by whom.
func attributionOf(p *store.PastChange) []object.Member {
	members := []object.Member{
		{Key: "resourceVersion", Value: object.StringOf(strconv.FormatInt(p.Revision, 10))},
	}
	if p.Time != 0 {
		at := time.Unix(0, p.Time).UTC().Format(time.RFC3339Nano)
		members = append(members, object.Member{Key: "time", Value: object.StringOf(at)})
	}
	if by := p.By; by != nil {
		for _, f := range []struct{ key, value string }{{"user", by.User}, {"impersonator", by.Impersonator},
			{"manager", by.Manager}, {"verb", by.Verb}, {"subresource", by.Subresource}, {"auditID", by.AuditID}} {
			if f.value != "" {
				members = append(members, object.Member{Key: f.key, Value: object.StringOf(f.value)})
			}
		}
	}
	return members
}

// pastObject is a version of the past as it is shown; null for none.
func (rq *Request) pastObject(ctx context.Context, v *store.Version) (object.Value, error) {
	if v == nil {
		return object.Nil, nil
	}
	shown, err := rq.present(asWas(ctx), v)
	if err != nil {
		return object.Nil, err
	}
	parsed, err := object.ParseJSON(shown.Data())
	if err != nil {
		return object.Nil, err
	}
	return parsed.Value.WithoutAt("metadata", "managedFields").WithoutAt("metadata", "resourceVersion"), nil
}

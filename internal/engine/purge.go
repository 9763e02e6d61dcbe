package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/object"
)

// Purge removes all that an object was before it became what it is, also of objects of this name that are gone, and
// returns what it has removed, as a document; with dryRun, what it would remove (BEY-4). It writes no object: a version
// that is live stays. What was copied before, such as a backup, is out of its reach, which the document says.
func (e *Engine) Purge(ctx context.Context, rq *Request, dryRun bool) (object.Value, error) {
	p, err := e.of(rq.Resource).store.Purge(ctx, rq.key(), dryRun)
	if err != nil {
		return object.Nil, purgeFailed(err)
	}
	if p.Live == nil && p.Changes == 0 {
		return object.Nil, rq.notFound()
	}
	members := []object.Member{{Key: "apiVersion", Value: object.StringOf("plinth/v1")},
		{Key: "kind", Value: object.StringOf("Purge")}, {Key: "metadata", Value: object.MapOf()},
		{Key: "dryRun", Value: object.BoolOf(dryRun)}, {Key: "changes", Value: object.IntOf(int64(p.Changes))},
		{Key: "versions", Value: object.IntOf(int64(p.Versions))}}
	var notes []string
	if p.Live != nil {
		members = append(members, object.Member{Key: "live", Value: object.StringOf(strconv.FormatInt(p.Live.Revision, 10))})
		notes = append(notes, "the object stays as it is: if it has what is to go, it has to be written, and purged again")
	}
	if p.Until != 0 {
		members = append(members, object.Member{Key: "until", Value: object.StringOf(strconv.FormatInt(p.Until, 10))})
	}
	if p.Copies != "" {
		notes = append(notes, "what was uploaded to "+p.Copies+" stays there, until --backup-retention has passed")
	}
	notes = append(notes, "backups, planes and other copies that were made before keep what they have of it",
		"file systems, snapshots of them, and disks may keep blocks that were freed")
	return object.MapOf(append(members, object.Member{Key: "notes", Value: object.Strings(notes...)})...), nil
}

// purgeFailed is the error for a purge that was not completed.
func purgeFailed(err error) error {
	switch {
	case errors.Is(err, store.ErrNoPurge):
		return apierr.NewNotImplemented("purge: the objects of this server are in an etcd, which has what they were until it "+
			"is compacted and defragmented; only the embedded store purges single objects", nil)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierr.NewTimeout("the purge is not complete, and can be repeated")
	case errors.Is(err, store.ErrClosed):
		return commitFailed(err)
	}
	return apierr.NewInternal(fmt.Errorf("the purge is not complete, and can be repeated: %w", err))
}

// purged is the error for a version that was purged: 410, as for all that is not kept any more.
func (r *Resource) purged(err *store.PurgedError) error {
	namespace, name := splitKey(err.Key.Name)
	if namespace != "" {
		name = namespace + "/" + name
	}
	return apierr.NewExpired(fmt.Sprintf("What %s %q was before its change of the resourceVersion %d was purged.", r.Type(),
		name, err.Revision))
}

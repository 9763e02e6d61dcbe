package engine

import (
	"context"
	"errors"

	"plinth/internal/apierr"
	"plinth/internal/invariants"
	"plinth/internal/store"
)

// commit writes what drafts have come to, all of them or none, provided that nobody was faster; then it returns the store's
// *store.ConflictError, and the verb decides how to go on. It is the only place that knows of dry runs (DRY-1): of them,
// nothing is written, and what is new has to find its name free.
func (e *Engine) commit(ctx context.Context, drafts ...*draft) error {
	if d := drafts[0]; len(drafts) == 1 && len(d.others) > 0 {
		drafts = append(drafts, d.others...)
	}
	for _, d := range drafts {
		if d.claimed != nil {
			drafts = append(drafts, d.claimed.companions...)
		}
	}
	pre := make([]store.Precondition, 0, 2*len(drafts))
	changes := make([]store.Change, 0, len(drafts))
	for _, d := range drafts {
		if d.dry {
			if err := d.rehearse(ctx); err != nil {
				return err
			}
			continue
		}
		if d.versioned {
			return apierr.NewBadRequest("resourceVersion should not be set on objects to be created")
		}
		if invariants.Enabled {
			d.assertCommit()
		}
		d.tried = true
		change := store.Change{Key: d.key()}
		switch {
		case !d.remove:
			change.Data, change.Sidecar = d.next.Data, d.next.Sidecar
		case d.renewed != nil:
			change.Data, change.Sidecar = d.renewed.Data, d.renewed.Sidecar
		}
		pre = append(append(pre, d.fences...), store.Precondition{Key: change.Key, Revision: d.revision()})
		changes = append(changes, change)
	}
	if len(changes) == 0 {
		return nil
	}
	if g := drafts[0].guard; g != nil {
		pre, changes = append(pre, g.pre), append(changes, g.change)
	}
	for _, d := range drafts {
		if d.claimed != nil {
			pre, changes = append(pre, d.claimed.pre...), append(changes, d.claimed.changes...)
		}
	}
	if invariants.Enabled {
		assertAtomic(pre, changes)
	}
	revision, err := e.store.Commit(ctx, pre, changes)
	if err != nil {
		if conflict := (*store.ConflictError)(nil); errors.As(err, &conflict) {
			return conflict
		}
		return commitFailed(err)
	}
	first := revision - int64(len(changes)) + 1
	for _, d := range drafts {
		if !d.dry {
			if invariants.Enabled {
				assert(first > d.revision(), "%s of revision %d is replaced at %d", d.key(), d.revision(), first)
			}
			d.committed = first
			first++
		}
	}
	return nil
}

// rehearse is the commit of a dry run.
func (d *draft) rehearse(ctx context.Context) error {
	if d.live != nil {
		return nil
	}
	taken, _, err := d.store.Live(ctx, d.key(), true)
	if err != nil {
		return commitFailed(err)
	}
	if taken != nil {
		return &store.ConflictError{Key: d.key(), Have: taken.Revision}
	}
	return nil
}

// revision is that of the live version, 0 where there is none.
func (d *draft) revision() int64 {
	if d.live == nil {
		return 0
	}
	return d.live.Revision
}

// commitFailed words an error of the store that is nobody's race.
func commitFailed(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierr.NewTimeout("request did not complete within the allotted timeout")
	case errors.Is(err, store.ErrClosed):
		return apierr.NewUnavailable("the store takes no writes: " + err.Error())
	}
	return apierr.NewInternal(err)
}

// lost is the key at which a commit lost a race; ok is false where that is not why it failed.
func lost(err error) (key store.Key, ok bool) {
	if conflict, ok := err.(*store.ConflictError); ok {
		return conflict.Key, true
	}
	return store.Key{}, false
}

// again says whether a verb has to begin again from the top, given how a draft has ended: the object has changed meanwhile,
// or what was decided without a commit (a refusal, or that there is nothing to do) was decided on a version that is perhaps
// not the newest. The latter sets sure, with which the next draft begins with the newest one.
//
//	the answer of a verb is a commit's, or was decided on a current version
//
// What a commit came to is never decided again, except for a lost race: not even its failure, for it may have been written.
func (d *draft) again(err error, sure *bool) bool {
	if _, raced := lost(err); raced {
		return true
	}
	if d.current || d.tried {
		return false
	}
	*sure = true
	return true
}

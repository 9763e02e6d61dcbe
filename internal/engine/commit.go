package engine

import (
	"context"
	"errors"

	"plinth/internal/apierr"
	"plinth/internal/invariants"
	"plinth/internal/store"
)

// commit gives drafts to the store, all of them or none, on the condition that the state on which each was decided
// still holds. If it does not, the error is the store's *store.ConflictError, and the verb decides how to go on
// (draft.again, draft.create).
//
//	∀ change: there is a precondition on its key     no key changes twice     (assertAtomic)
//	committed(d) > revision(d.live)
//
// The commit of one draft can have more parts: the drafts of other objects whose status changes with it (others), its
// companions and the keys of its claims (claimed), and the key of a guard. All preconditions of all of them are checked
// at one point in the order of commits, so a reader sees all of the changes or none.
//
// Each change gets a revision of its own, so a watch that ends between two of them can be resumed with the second. The
// changes of drafts are first, in the order of drafts: change i of n has revision − n + 1 + i (store.Writer), from
// which each draft's own revision is computed.
//
// Every verb relies on commit to leave out the changes of a dry run (DRY-1): only the name of a new object is checked
// for being free. Other code reads the flag where a dry run claims nothing or has another response.
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
		// From here on the outcome may be unknown: a commit that failed with an error other than a conflict may have been
		// written. The verb must not begin again (draft.again).
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

// rehearse is the commit of a dry run. It does not check that the live version is still the one that was read: the
// answer of a dry run is the result that a write would have had at the time of that read. A create is checked for a
// free name, against the newest state, because the client of such a dry run needs to know about "already exists". It
// reports a taken name as the store does, so that the verb tries another generated name or becomes an update, as for a
// write.
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

// revision is the revision of the live version, and 0 if there is none; as a precondition, 0 means that the key is
// absent.
func (d *draft) revision() int64 {
	if d.live == nil {
		return 0
	}
	return d.live.Revision
}

// commitFailed is the API error for an error of the store that is not a lost race. The end of the request's context is
// a time-out (504), after which the write may still become durable: the client has to check. A store that takes no
// writes, because its log failed or because it is shut down, is 503, so that clients try another server.
func commitFailed(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierr.NewTimeout("request did not complete within the allotted timeout")
	case errors.Is(err, store.ErrClosed):
		return apierr.NewUnavailable("the store takes no writes: " + err.Error())
	}
	return apierr.NewInternal(err)
}

// lost returns the key at which a commit lost a race, and whether that is why it failed. commit returns such an error
// unwrapped, and nothing between it and the verb wraps it.
func lost(err error) (key store.Key, ok bool) {
	if conflict, ok := err.(*store.ConflictError); ok {
		return conflict.Key, true
	}
	return store.Key{}, false
}

// again says whether the verb has to be repeated, given the error with which an attempt ended:
//
//   - after a lost race: another request committed first, so every attempt that is repeated means that another write
//     succeeded. There is no limit on the number of attempts; the context of the request ends them (onto).
//
//   - if the attempt ended without a commit (a refusal, or no change) on a version that may not be the newest. Then it
//     sets sure, with which the next attempt reads the newest one, so this happens at most once.
//
//     the answer of a verb is that of a commit, or was decided on a version that is known to be the newest
//
// After an attempt that tried to commit, only a lost race leads to another one: with any other error the commit may
// have been written although it failed.
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

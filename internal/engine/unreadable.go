package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/object"
)

// A stored object is unreadable if its bytes are not an object (store.Sidecar.Unreadable): a bit on the disk has
// changed, or another program has written to the log. Only its key and revision are known. Every read or write of it
// fails with an error that names it (DEL-7); only forceDelete removes it. Skipping it in lists would be worse: a
// controller would consider it deleted, and delete the objects that belong to it.
//
//	verb                          the effect of an unreadable object
//	get, update, patch, apply     500 that names it                        (Resource.live)
//	delete                        500 that names it, unless forced         (onto, forceDelete)
//	list, deletecollection        500 with a cause for each of them, before the first byte of the list
//	watch                         an ERROR event, and the watch ends; then the same for the list that follows
//	create of the same name       409: the key is taken
//	garbage collection            it has no known owners, so it is never collected
//
// A selector cannot exclude it, except by its name or namespace, which are in its key (selection.matches). So a
// collection with one such object cannot be listed until it is removed; the reference does the same (KEP-3926), and
// there, too, the delete needs a verb of its own.
//
// An object that parses but whose conversion fails is not in this state: its sidecar is known, so lists by labels pass
// over it, and it becomes readable when the webhook is back.

// unreadable is the error that names such an object.
func unreadable(v *store.Version, why error) error {
	return fmt.Errorf("unable to read the stored object %s: %w", v.Key, why)
}

// maxUnreadable is how many unreadable objects an error names, as in the reference (maxCorruptObjErrsToAggregate).
// There a lost key of the encryption at rest makes all objects of a cluster unreadable at once.
const maxUnreadable = 100

// readFailures collects the unreadable objects that a read of a collection has met.
type readFailures struct {
	causes []apierr.Cause
	// purged is the first object whose version was purged, and not damaged: the list is 410, as after a compaction.
	purged *store.PurgedError
	// more: there are others, which the error does not name.
	more bool
}

// add adds an object. full says that the search can stop.
func (f *readFailures) add(v *store.Version) (full bool) {
	if errors.As(v.Sidecar.Unreadable, &f.purged) {
		return true
	}
	if len(f.causes) == maxUnreadable {
		f.more = true
		return true
	}
	f.causes = append(f.causes, apierr.Cause{
		Reason: "UnexpectedServerResponse", Field: v.Key.String(), Message: unreadable(v, v.Sidecar.Unreadable).Error(),
	})
	return false
}

// err is the error about them, in the words of the reference; nil if there are none.
func (f *readFailures) err(r *Resource) error {
	if f.purged != nil {
		return r.purged(f.purged)
	}
	if len(f.causes) == 0 {
		return nil
	}
	typ := r.Type()
	message := fmt.Sprintf("failed to read one or more %s from the storage: %s", typ, f.causes[0].Message)
	if n := len(f.causes); n > 1 {
		message += fmt.Sprintf(" (and %d more)", n-1)
	}
	causes := f.causes
	if f.more {
		causes = append(causes, apierr.TooManyCauses)
	}
	return apierr.NewStoreRead(message, &apierr.Details{Name: "list", Group: typ.Group, Kind: typ.Name, Causes: causes})
}

// claimUnread is claim for the removal of an unreadable object. Without it the address of an unreadable Service would
// never be free again. Its claims are not known from its bytes, so the claims that name it are searched for: all claims
// in the store are read. If it is a companion, the holders are searched for the one that claims its key, and the
// companion is renewed (draft.renew). Such a delete is rare enough for a search of that length.
//
// The search reads a snapshot, without a lock, while other requests write. Its result is still right at the commit:
// each claim and companion is removed on the condition that it is unchanged (giveBack), and only a write of the
// unreadable object could add claims, which would move the revision that the commit has as a precondition.
func (d *draft) claimUnread(ctx context.Context) error {
	r := d.rq.Resource
	if d.dry || r.Claims == nil && r.Holder == nil {
		return nil
	}
	snapshot, err := d.store.Snapshot(0)
	if err != nil {
		return commitFailed(err)
	}
	if r.Claims != nil {
		d.effects.claimed = &claimed{}
		return d.giveAllBack(ctx, snapshot)
	}
	for t := range d.registry.Now().All() {
		if t.Claims == nil {
			continue
		}
		over := ascend(ctx, snapshot, t.Stored.Path, "", "", func(v *store.Version) bool {
			// A holder that cannot be read is skipped: its claims are not known.
			obj, _, failed := t.live(ctx, v)
			if failed != nil {
				return true
			}
			for _, c := range t.Claims(obj) {
				if c.Key == d.live.Key && c.Companion != nil {
					var n *draft
					if n, err = d.companion(ctx, &c); err == nil {
						d.effects.renewed = n.next
					}
				}
			}
			return err == nil && d.effects.renewed == nil
		})
		if err = cmp.Or(err, over); err != nil || d.effects.renewed != nil {
			return err
		}
	}
	return nil
}

// giveAllBack makes the commit remove all claims that name the object. For each companion that it finds, giveBack
// checks whether its holder is this object.
func (d *draft) giveAllBack(ctx context.Context, snapshot *store.Snapshot) error {
	var found []Claim
	name := []byte(d.key().Name)
	over := ascend(ctx, snapshot, claims, "", "", func(v *store.Version) bool {
		if bytes.Equal(v.Data(), name) {
			found = append(found, Claim{Key: v.Key})
		}
		return true
	})
	for t := range d.registry.Now().All() {
		if t.Holder == nil || over != nil {
			continue
		}
		over = ascend(ctx, snapshot, t.Stored.Path, "", "", func(v *store.Version) bool {
			if v.Sidecar.Unreadable == nil {
				found = append(found, Claim{Key: v.Key, Companion: t})
			}
			return true
		})
	}
	for i := range found {
		if over == nil {
			over = d.giveBack(ctx, &found[i])
		}
	}
	return over
}

// forceVerb is the verb that a user needs to delete unreadable objects, in addition to delete.
const forceVerb = "unsafe-delete-ignore-read-errors"

// forceDelete removes an unreadable object (DEL-6). Its finalizers and grace period are not known, and there is no
// object for admission. As in the reference, an object that cannot be converted to the version of the URL counts as
// unreadable. A readable object is refused, so that this option cannot be used to skip finalizers.
//
// Every attempt reads the newest version and checks again whether it is unreadable: it may have been replaced. An
// attempt is repeated only after a lost race, so each repetition means that another commit succeeded.
//
// As in the reference (corruptObjectDeleter), the preconditions in the body are not checked, since there is no UID to
// compare, and the answer is a Status that names the object by its kind.
func (d *draft) forceDelete(ctx context.Context) (*Result, error) {
	rq := d.rq
	ok, reason, err := rq.Allowed(ctx, rq.asking(forceVerb))
	switch {
	case err != nil && !ok:
		return nil, apierr.NewForbidden(rq.Resource.Type(), rq.Name, fmt.Sprintf("error while checking permission for %q, %v",
			forceVerb, err))
	case !ok:
		return nil, apierr.NewForbidden(rq.Resource.Type(), rq.Name,
			fmt.Sprintf("not permitted to do %q, reason: %s", forceVerb, reason))
	}
	for {
		n := *d
		n.now = d.Engine.now()
		if n.live, n.current, err = d.store.Live(ctx, rq.key(), true); err != nil {
			return nil, commitFailed(err)
		}
		if err := n.exists(); err != nil {
			return nil, err
		}
		if err := rq.met(n.revision()); err != nil {
			return nil, err
		}
		// The same read by which every other verb finds that it cannot read the object.
		_, _, failed := rq.Resource.live(ctx, n.live)
		switch {
		case ctx.Err() != nil: // a conversion that was cancelled does not mean that the object is unreadable
			return nil, commitFailed(ctx.Err())
		case failed == nil:
			return nil, apierr.NewConflict(rq.Resource.Type(), rq.Name,
				"unsafe deletion is not allowed because the object is decodable from storage")
		}
		n.remove = true
		if err := n.claimUnread(ctx); err != nil {
			return nil, err
		}
		err := d.commit(ctx, n.transaction())
		if _, raced := lost(err); raced {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &Result{Status: object.Fields(
			"kind", object.StringOf("Status"), "apiVersion", object.StringOf("v1"), "metadata", object.MapOf(),
			"status", object.StringOf("Success"), "code", object.IntOf(200),
			"details", object.Fields("name", object.StringOf(rq.Name), "kind", object.StringOf(rq.Resource.Kind)))}, nil
	}
}

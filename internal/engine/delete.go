package engine

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/object"
)

// Delete removes an object, or marks it as deleted and leaves the removal to a later write (DEL-1, DEL-2).
//
// Three things can hold a deleted object: finalizers, a grace period, and a condition of its type (Resource.Held: the
// spec.finalizers of a Namespace). The invariant is that a deleted object is removed as soon as nothing holds it:
//
//	released(o)  ⇔  finalizers(o) = ∅ ∧ deletionGracePeriodSeconds(o) = 0 ∧ ¬Held(o)
//	o is in the store and has a deletionTimestamp  ⇒  ¬released(o)
//
// A delete of an object that nothing holds removes it in its own commit. Any other write that takes away the last thing
// that held the object removes it in the same commit, too (draft.removes). A controller that looks for released objects
// would show clients deleted objects that nothing holds any more, and the controller would have to search for them
// after every restart.
//
// A delete of an object that is already marked as deleted can only shorten its grace period (grace, mark). What happens
// to its dependents is determined by two finalizers that the garbage collector removes (propagation.go).
//
// The steps of a delete are admit and check, with the live object, and then mark or the removal. As in the reference a
// delete that changes nothing is not admitted. A mark is a write like others: it goes through version and commit, and a
// watch sees MODIFIED. A second delete that changes nothing answers with the live object and writes nothing.
func (e *Engine) Delete(ctx context.Context, rq *Request, o DeleteOptions) (result *Result, err error) {
	return e.deleteOne(ctx, rq, o, false)
}

// deleteOne is Delete; unnamed: the object is an item of a deletecollection.
func (e *Engine) deleteOne(ctx context.Context, rq *Request, o DeleteOptions, unnamed bool) (result *Result,
	err error) {
	d := e.draft(rq, OperationDelete)
	d.dry, d.unnamed, d.deletion = rq.DryRun || o.DryRun, unnamed, &o
	defer d.addWarnings(&result)
	if rq.Resource.WarnDelete != nil {
		d.warn(rq.Resource.WarnDelete(o)...)
	}
	if o.IgnoreReadError {
		return d.forceDelete(ctx)
	}
	for sure := false; ; {
		n, err := d.onto(ctx, sure)
		if err != nil {
			return nil, err
		}
		n.obj = n.old
		result, err := n.delete(ctx, o)
		if !n.again(ctx, err, &sure) {
			return result, err
		}
	}
}

// delete is one attempt of a delete.
func (d *draft) delete(ctx context.Context, o DeleteOptions) (*Result, error) {
	if err := d.exists(); err != nil {
		return nil, err
	}
	if o.listed != "" && o.listed != d.live.Sidecar.UID { // the listed object is gone, and its name was taken again
		return nil, d.rq.notFound()
	}
	if err := d.rq.met(d.revision()); err != nil {
		return nil, err
	}
	if err := d.rq.deletable(d.live, o); err != nil {
		return nil, err
	}
	if d.deletes(o) {
		if err := d.admit(ctx); err != nil {
			return nil, err
		}
		if err := d.check(ctx); err != nil {
			return nil, err
		}
	}
	return d.drop(ctx, o)
}

// deletes says whether a delete changes anything. It does not if the object waits for a grace period already that the
// delete does not shorten, or for the controller that empties a namespace.
func (d *draft) deletes(o DeleteOptions) bool {
	r := d.rq.Resource
	_, _, pending := r.grace(d.old, o.GracePeriodSeconds)
	return !pending && !(deleting(d.old) && r.Held != nil && r.Held(d.old))
}

// drop marks the object as deleted, or removes it. It starts from d.obj, which is the live object, or, for an eviction,
// the live object with the condition DisruptionTarget.
func (d *draft) drop(ctx context.Context, o DeleteOptions) (*Result, error) {
	r := d.rq.Resource
	seconds, graceful, _ := r.grace(d.old, o.GracePeriodSeconds)
	// A delete that does not change the grace period adds no finalizer either.
	if d.deletes(o) {
		if !d.keepFinalizers {
			d.obj = r.propagation(d.old, o).with(d.obj)
		}
		// d.obj, and not d.old, so that the finalizer that propagation has just added counts.
		held := len(finalizers(d.obj)) > 0 || r.Held != nil && r.Held(d.obj)
		if !held && (!graceful || seconds == 0) {
			return d.removeNow(ctx, graceful)
		}
		d.obj = r.mark(d.obj, seconds, d.now)
	}
	if object.Equal(d.obj, d.old) { // deleted before, and this delete changes nothing
		d.next = d.live
		return d.answer(ctx)
	}
	var err error
	if d.next, err = d.version(ctx, r, d.live, d.obj, false, d.now); err != nil {
		return nil, err
	}
	d.next.Revision = d.live.Revision
	if err := d.commit(ctx, d.transaction()); err != nil {
		return nil, err
	}
	return d.answer(ctx)
}

// grace computes the grace period of a delete from the request and from the period that the object is already waiting
// for. graceful says that the type waits for a grace period at all, if only for 0 seconds. pending says that the object
// is waiting already and that this delete does not shorten its period, so it changes nothing.
//
//	old is deleting and pending   ⇒  the delete writes nothing
//	old is deleting and ¬pending  ⇒  seconds < deletionGracePeriodSeconds(old), or that is 0
func (r *Resource) grace(old object.Value, asked *int64) (seconds int64, graceful, pending bool) {
	if r.GracefulDelete == nil {
		return 0, false, false
	}
	if !deleting(old) {
		seconds, graceful = r.GracefulDelete(old, asked)
		return seconds, graceful, false
	}
	left := atLeast(old.At("metadata", "deletionGracePeriodSeconds").Int())
	// The period has ended; only finalizers hold the object.
	if left == 0 {
		return 0, false, false
	}
	if asked == nil || atLeast(*asked) >= left {
		return left, true, true
	}
	return atLeast(*asked), true, false
}

// atLeast is a grace period as the reference counts it: a negative one means one second.
func atLeast(seconds int64) int64 {
	if seconds < 0 {
		return 1
	}
	return seconds
}

// deletable checks the preconditions in the options of a delete against the live version. The commit is made on the
// condition that this version is still live, so they hold at the commit, too.
func (rq *Request) deletable(live *store.Version, o DeleteOptions) error {
	kind := apierr.Type{Group: rq.Resource.Group, Name: rq.Resource.Kind}
	if uid := o.PreconditionUID; uid != "" && uid != live.Sidecar.UID {
		return apierr.NewConflict(kind, rq.Name, fmt.Sprintf(
			"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", uid, live.Sidecar.UID))
	}
	have := strconv.FormatInt(live.Revision, 10)
	if rv := o.PreconditionRV; rv != "" && rv != have {
		return apierr.NewConflict(kind, rq.Name, fmt.Sprintf(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", rv, have))
	}
	return nil
}

// mark sets deletionTimestamp and deletionGracePeriodSeconds, or brings the former forward if the new grace period is
// shorter than the one that it was set with:
//
//	deletionTimestamp = time of the first delete + deletionGracePeriodSeconds, but not before now
//
// The time of the first delete is not stored, so it is computed from the two old values. A result in the past becomes
// now, with a period of at most one second: the node that runs the Pod must still see a deletion that it has to finish.
//
// The first mark also raises metadata.generation, as in the reference, and applies what the type changes in a deleted
// object (MarkDeleted).
func (r *Resource) mark(obj object.Value, seconds int64, now time.Time) object.Value {
	meta := obj.At("metadata")
	before := meta.At("deletionGracePeriodSeconds")
	end := now.Add(time.Duration(seconds) * time.Second)
	if deleting(obj) {
		last, err := time.Parse(time.RFC3339, meta.At("deletionTimestamp").Str())
		switch {
		case before.IsNull():
			end = last
		case before.Int() <= seconds:
			return obj
		default: // last − before is the time of the first delete
			if end = last.Add(time.Duration(seconds-before.Int()) * time.Second); err != nil || end.Before(now) {
				end, seconds = now, min(seconds, 1)
			}
		}
	}
	set := []object.Member{
		{Key: "deletionTimestamp", Value: timeOf(end)},
		{Key: "deletionGracePeriodSeconds", Value: object.IntOf(seconds)},
	}
	if deleting(obj) {
		return obj.With("metadata", meta.Edit(set))
	}
	if generation := meta.At("generation").Int(); generation > 0 {
		set = append(set, object.Member{Key: "generation", Value: object.IntOf(generation + 1)})
	}
	obj = obj.With("metadata", meta.Edit(set))
	if r.MarkDeleted != nil {
		obj = r.MarkDeleted(obj)
	}
	return obj
}

// removeNow commits the removal of the object. The answer is a Status that names it, or, for types that return the
// object from a delete, the object: at the revision of the removal, and with a grace period of 0 seconds if the type
// deletes gracefully. In a dry run there is no such revision, and the answer has the live one.
func (d *draft) removeNow(ctx context.Context, graceful bool) (*Result, error) {
	rq := d.rq
	d.remove = true
	if err := d.claim(ctx); err != nil {
		return nil, err
	}
	if err := d.commit(ctx, d.transaction()); err != nil {
		return nil, err
	}
	if rq.Resource.DeleteReturnsObject {
		// A new Version: the live one is shared by all readers, and its revision must not change.
		last := d.live.At(0)
		if graceful {
			var err error
			if last, err = d.version(ctx, rq.Resource, d.live, rq.Resource.mark(d.obj, 0, d.now), false, d.now); err != nil {
				return nil, err
			}
		}
		if last.Revision = d.committed; d.committed == 0 { // a dry run
			last.Revision = d.live.Revision
		}
		shown, err := rq.present(ctx, last)
		return &Result{Object: shown, Removed: true, Made: shown != last}, err
	}
	details := []object.Member{
		{Key: "name", Value: object.StringOf(rq.Name)},
		{Key: "kind", Value: object.StringOf(rq.Resource.Name)},
		{Key: "uid", Value: object.StringOf(d.live.Sidecar.UID)},
	}
	if rq.Resource.Group != "" {
		details = append(details, object.Member{Key: "group", Value: object.StringOf(rq.Resource.Group)})
	}
	return &Result{Removed: true, Status: object.Fields(
		"kind", object.StringOf("Status"), "apiVersion", object.StringOf("v1"), "metadata", object.MapOf(),
		"status", object.StringOf("Success"), "details", object.MapOf(details...))}, nil
}

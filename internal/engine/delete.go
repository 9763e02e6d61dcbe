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

// Delete removes an object, or marks it for removal when something holds it: finalizers, a grace period (DEL-1, DEL-2).
func (e *Engine) Delete(ctx context.Context, rq *Request, o DeleteOptions) (*Result, error) {
	rq.DryRun = rq.DryRun || o.DryRun
	if rq.Resource.WarnDelete != nil {
		rq.warn(rq.Resource.WarnDelete(o)...)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, commitFailed(err)
		}
		live, ok := e.store.Get(rq.key())
		if !ok {
			return nil, rq.notFound()
		}
		if err := rq.deletable(live, o); err != nil {
			return nil, err
		}
		result, err := e.remove(ctx, rq, live, o)
		if raced(err) {
			continue
		}
		return result, err
	}
}

// deletable checks the client's preconditions.
func (rq *Request) deletable(live *store.Version, o DeleteOptions) error {
	if rq.Resource.Undeletable != nil {
		if why := rq.Resource.Undeletable(rq.Name); why != "" {
			return apierr.NewForbidden(rq.Resource.Type(), rq.Name, why)
		}
	}
	kind := apierr.Type{Group: rq.Resource.Group, Name: rq.Resource.Kind}
	if uid := o.PreconditionUID; uid != "" && uid != live.Sidecar.UID {
		return apierr.NewConflict(kind, rq.Name, fmt.Sprintf(
			"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", uid, live.Sidecar.UID))
	}
	if o.IgnoreReadError && live.Sidecar.Unreadable == nil { // DEL-6: it is for objects that nothing else can delete
		return apierr.NewConflict(rq.Resource.Type(), rq.Name, "unsafe deletion is not allowed because the object is decodable from storage")
	}
	have := strconv.FormatInt(live.Revision, 10)
	if rv := o.PreconditionRV; rv != "" && rv != have {
		return apierr.NewConflict(kind, rq.Name, fmt.Sprintf(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", rv, have))
	}
	return rq.stale(live, live.Revision, object.Nil)
}

// remove deletes the live object, or marks it.
func (e *Engine) remove(ctx context.Context, rq *Request, live *store.Version, o DeleteOptions) (*Result, error) {
	r := rq.Resource
	old, _, err := r.live(live)
	if err != nil {
		return nil, err
	}
	now := e.now()
	seconds, graceful := int64(0), false
	if r.GracefulDelete != nil {
		seconds, graceful = r.GracefulDelete(old, o.GracePeriodSeconds)
	}
	held := len(finalizers(old)) > 0 || r.Held != nil && r.Held(old)
	if !held && (!graceful || seconds == 0) {
		return e.removeNow(ctx, rq, live, old)
	}
	obj := r.mark(old, seconds, now)
	if object.Equal(obj, old) { // marked before: nothing new
		shown, err := rq.present(live)
		return &Result{Object: shown}, err
	}
	next, err := e.version(r, live, obj, false, now)
	if err != nil {
		return nil, err
	}
	next.Revision = live.Revision
	if !rq.DryRun {
		if next.Revision, err = e.commit(ctx, live, next); err != nil {
			return nil, err
		}
	}
	shown, err := rq.present(next)
	return &Result{Object: shown}, err
}

// mark sets deletionTimestamp, or brings it forward when the new grace period is the shorter one.
func (r *Resource) mark(old object.Value, seconds int64, now time.Time) object.Value {
	meta := old.At("metadata")
	if deleting(old) && meta.At("deletionGracePeriodSeconds").Int() <= seconds {
		return old
	}
	end := now.Add(time.Duration(seconds) * time.Second)
	if last, err := time.Parse(time.RFC3339, meta.At("deletionTimestamp").Str()); err == nil { // it counts from the first delete
		shorter := meta.At("deletionGracePeriodSeconds").Int() - seconds
		if end = last.Add(-time.Duration(shorter) * time.Second); end.Before(now) {
			end = now
		}
	}
	set := []object.Member{
		{Key: "deletionTimestamp", Value: timeOf(end)},
		{Key: "deletionGracePeriodSeconds", Value: object.IntOf(seconds)},
	}
	if generation := meta.At("generation").Int(); generation > 0 && !deleting(old) {
		set = append(set, object.Member{Key: "generation", Value: object.IntOf(generation + 1)})
	}
	obj := old.With("metadata", meta.Edit(set))
	if r.MarkDeleted != nil {
		obj = r.MarkDeleted(obj)
	}
	return obj
}

// removeNow takes the object out of the store. Where the answer is the object, it is at the version of its removal; and where
// the kind has grace periods, it tells of the one that it did not get.
func (e *Engine) removeNow(ctx context.Context, rq *Request, live *store.Version, old object.Value) (*Result, error) {
	revision := live.Revision // what a dry run answers
	if !rq.DryRun {
		var err error
		if revision, err = e.commit(ctx, live, nil); err != nil {
			return nil, err
		}
	}
	if rq.Resource.DeleteReturnsObject {
		last := &store.Version{Key: live.Key, Data: live.Data, Sidecar: live.Sidecar}
		if rq.Resource.GracefulDelete != nil {
			now := e.now()
			var err error
			if last, err = e.version(rq.Resource, live, rq.Resource.mark(old, 0, now), false, now); err != nil {
				return nil, err
			}
		}
		last.Revision = revision
		shown, err := rq.present(last)
		return &Result{Object: shown}, err
	}
	details := []object.Member{
		{Key: "name", Value: object.StringOf(rq.Name)},
		{Key: "kind", Value: object.StringOf(rq.Resource.Name)},
		{Key: "uid", Value: object.StringOf(live.Sidecar.UID)},
	}
	if rq.Resource.Group != "" {
		details = append(details, object.Member{Key: "group", Value: object.StringOf(rq.Resource.Group)})
	}
	return &Result{Status: object.Fields(
		"kind", object.StringOf("Status"), "apiVersion", object.StringOf("v1"), "metadata", object.MapOf(),
		"status", object.StringOf("Success"), "details", object.MapOf(details...))}, nil
}

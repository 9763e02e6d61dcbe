package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/objectmeta"
	"plinth/internal/store"
	"plinth/object"
)

const modified = "the object has been modified; please apply your changes to the latest version and try again"

// Update replaces an object (PUT to a name, WRITE-1). Where the kind allows it, it creates one that is not there.
func (e *Engine) Update(ctx context.Context, rq *Request, body object.Parsed) (*Result, error) {
	obj, err := rq.decode(body)
	if err != nil {
		return nil, err
	}
	if err := rq.namesMatch(obj); err != nil {
		return nil, err
	}
	obj = rq.once(obj, false)
	for {
		if err := ctx.Err(); err != nil {
			return nil, commitFailed(err)
		}
		live, ok := e.store.Get(rq.key())
		if !ok {
			result, err := e.createOnUpdate(ctx, rq, obj)
			if apierr.Is(err, apierr.AlreadyExists) {
				continue // somebody else has made it meanwhile: now it is an update
			}
			return result, err
		}
		seen, err := parseVersion(obj.At("metadata", "resourceVersion").Str())
		if err != nil {
			return nil, err
		}
		if err := rq.stale(live, seen, obj); err != nil {
			return nil, err
		}
		result, err := e.replace(ctx, rq, live, func(object.Value) (written, error) { return written{body: obj}, nil })
		if raced(err) {
			continue
		}
		return result, err
	}
}

// createOnUpdate is a PUT to a name that nobody has (URI-4).
func (e *Engine) createOnUpdate(ctx context.Context, rq *Request, obj object.Value) (*Result, error) {
	if !rq.Resource.CreateOnUpdate || rq.Subresource != nil || rq.IfMatch != "" {
		return nil, rq.notFound()
	}
	if uid := obj.At("metadata", "uid").Str(); uid != "" { // it is meant for an object that was there
		return nil, apierr.NewConflict(rq.Resource.Type(), rq.Name, fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: ", uid))
	}
	if _, err := parseVersion(obj.At("metadata", "resourceVersion").Str()); err != nil {
		return nil, err
	}
	obj = obj.WithoutAt("metadata", "resourceVersion") // that of an object that is no more
	if rq.Authorize != nil {
		if err := rq.Authorize("create"); err != nil {
			return nil, err
		}
	}
	return e.create(ctx, rq, written{body: obj})
}

// namesMatch refuses a body whose name or namespace is not the URL's.
func (rq *Request) namesMatch(obj object.Value) error {
	if err := rq.namespaceMatches(obj); err != nil {
		return err
	}
	name := obj.At("metadata", "name").Str()
	if name == "" {
		return apierr.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", rq.Name))
	}
	if name != "" && name != rq.Name {
		return apierr.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, rq.Name))
	}
	return nil
}

// stale refuses a write on the condition of a version or a UID that the live object does not have.
func (rq *Request) stale(live *store.Version, seen int64, obj object.Value) error {
	if rq.IfMatch != "" && rq.IfMatch != strconv.FormatInt(live.Revision, 10) {
		return apierr.NewConflict(rq.Resource.Type(), rq.Name, fmt.Sprintf("the resourceVersion in If-Match (%s) is not the object's (%d)", rq.IfMatch, live.Revision))
	}
	if uid := obj.At("metadata", "uid").Str(); uid != "" && live.Sidecar.UID != "" && uid != live.Sidecar.UID {
		return apierr.NewConflict(rq.Resource.Type(), rq.Name,
			fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, live.Sidecar.UID))
	}
	if seen == 0 && !rq.unconditional() {
		return apierr.NewInvalid(rq.Resource.Type(), rq.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update"),
		})
	}
	if seen != 0 && seen != live.Revision {
		return apierr.NewConflict(rq.Resource.Type(), rq.Name, modified)
	}
	return nil
}

// unconditional says whether a write may leave out which version it is a change of. The body of a subresource that is a
// kind of its own never has to tell.
func (rq *Request) unconditional() bool {
	return rq.Resource.UnconditionalUpdate || rq.ownKind()
}

// ownKind says whether the body is of a kind that subresources alone have: a Scale.
func (rq *Request) ownKind() bool {
	return rq.Subresource != nil && rq.Subresource.Kind != rq.Resource.Kind
}

// errRaced means that somebody was faster: begin again from the top.
var errRaced = errors.New("engine: the object changed meanwhile")

func raced(err error) bool { return errors.Is(err, errRaced) }

// written is what a client wants an object to be.
type written struct {
	body  object.Value
	owned bool // its managedFields say already who owns what: it comes from an apply
}

// replace turns the live object into what change makes of it, and commits that. Every write to an object that is there
// goes through here: update, patch, and their subresources.
func (e *Engine) replace(ctx context.Context, rq *Request, live *store.Version, change func(old object.Value) (written, error)) (*Result, error) {
	r := rq.Resource
	old, settled, err := r.live(live)
	if err != nil {
		return nil, err
	}
	if rq.settled = object.Nil; settled {
		rq.settled = old
	}
	body, err := change(old)
	if err != nil {
		return nil, err
	}
	now := e.now()
	obj, err := e.remake(rq, body, old, now)
	if err != nil {
		return nil, err
	}
	if deleting(old) && e.released(r, obj) {
		return e.finish(ctx, rq, live, obj, now)
	}
	next, err := e.version(r, live, obj, !rq.settled.IsNull(), now)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(next.Data, live.Data) { // WRITE-3
		shown, err := rq.present(live)
		return &Result{Object: shown}, err
	}
	next.Revision = live.Revision // what a dry run answers
	if !rq.DryRun {
		if next.Revision, err = e.commit(ctx, live, next); err != nil {
			return nil, err
		}
	}
	shown, err := rq.present(next)
	return &Result{Object: shown}, err
}

// commit puts next in the place of live; errRaced if that is no longer there.
func (e *Engine) commit(ctx context.Context, live, next *store.Version) (int64, error) {
	change := store.Change{Key: live.Key}
	if next != nil {
		change.Data, change.Sidecar = next.Data, next.Sidecar
	}
	revision, err := e.store.Commit(ctx, []store.Precondition{{Key: live.Key, Revision: live.Revision}}, []store.Change{change})
	var conflict *store.ConflictError
	switch {
	case errors.As(err, &conflict):
		return 0, errRaced
	case err != nil:
		return 0, commitFailed(err)
	}
	return revision, nil
}

// remake turns what a client sent, and what is there, into what will be stored, and has it settled.
func (e *Engine) remake(rq *Request, w written, old object.Value, now time.Time) (object.Value, error) {
	body := w.body
	r := rq.Resource
	warnings := r.WarnUpdate
	var obj, settled object.Value
	var faults field.ErrorList
	if sub := rq.Subresource; sub != nil {
		if !rq.ownKind() { // a Scale writes the object as its own URL does
			warnings = sub.Warn
		}
		if sub.Default != nil {
			body = sub.Default(body)
		}
		var err error
		if obj, err = sub.Write(old, body); err != nil {
			return object.Nil, err
		}
		obj = withManagers(carry(obj, old), e.managersAfter(rq, w.owned, body, old, now))
		// What has become of an object, or been decided about it, is no change of what it is meant to be.
		if sub.Name != "status" && sub.does("update") {
			obj, settled = rq.bump(obj, old)
		} else {
			settled = rq.settle(obj)
		}
		faults = objectmeta.ObjectMetaUpdate(obj.At("metadata"), old.At("metadata"), field.NewPath("metadata"))
		if sub.Validate != nil {
			faults = append(faults, sub.Validate(body, obj, old)...)
		}
	} else {
		obj = carry(body, old)
		if r.Default != nil {
			obj = r.Default(obj)
		}
		if !w.owned {
			obj = e.own(rq, obj, old, now)
		}
		if r.PrepareUpdate != nil {
			obj = r.PrepareUpdate(obj, old)
		}
		obj, settled = rq.bump(obj, old)
		faults = objectmeta.ObjectMetaUpdate(obj.At("metadata"), old.At("metadata"), field.NewPath("metadata"))
		if r.ValidateUpdate != nil {
			faults = append(faults, r.ValidateUpdate(obj, old)...)
		}
	}
	if len(faults) > 0 {
		return object.Nil, apierr.NewInvalid(r.KindType(), rq.Name, faults)
	}
	if warnings != nil {
		rq.warn(warnings(obj, old)...)
	}
	if onlyTimes(obj, old) {
		return old, nil
	}
	return settled, nil
}

// settle brings an object that was made from the live one into the form in which it is stored.
func (rq *Request) settle(obj object.Value) object.Value {
	obj, stable := rq.Resource.Schema().SettleFrom(obj, rq.settled)
	if !stable {
		rq.settled = object.Nil // and nothing that comes of it is
	}
	return obj
}

// released says whether a deleted object waits for nothing any more.
func (e *Engine) released(r *Resource, obj object.Value) bool {
	return len(finalizers(obj)) == 0 && obj.At("metadata", "deletionGracePeriodSeconds").Int() == 0 && !(r.Held != nil && r.Held(obj))
}

// finish removes an object whose last finalizer this write has taken. The answer is the object as the write left it, at
// the version that it replaced (DEL-3).
func (e *Engine) finish(ctx context.Context, rq *Request, live *store.Version, obj object.Value, now time.Time) (*Result, error) {
	last, err := e.version(rq.Resource, live, obj, false, now)
	if err != nil {
		return nil, err
	}
	last.Revision = live.Revision
	if !rq.DryRun {
		if _, err := e.commit(ctx, live, nil); err != nil {
			return nil, err
		}
	}
	shown, err := rq.present(last)
	return &Result{Object: shown}, err
}

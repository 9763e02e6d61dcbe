package engine

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/objectmeta"
	"plinth/internal/store"
	"plinth/object"
)

// nameAttempts is how many generated names are tried before the client is told to try again.
const nameAttempts = 8

// Create makes an object (POST to a collection, URI-4).
func (e *Engine) Create(ctx context.Context, rq *Request, body object.Parsed) (*Result, error) {
	obj, err := rq.decode(body)
	if err != nil {
		return nil, err
	}
	if err := rq.namespaceMatches(obj); err != nil {
		return nil, err
	}
	obj = rq.once(obj, false)
	switch {
	case rq.Subresource != nil:
		return e.act(ctx, rq, obj)
	case rq.Resource.Through != nil:
		return e.through(ctx, rq, obj)
	case rq.Resource.Answer != nil:
		return rq.answer(obj)
	}
	return e.create(ctx, rq, written{body: obj})
}

// create goes on with a decoded object; an update of an object that is not there comes here, too.
func (e *Engine) create(ctx context.Context, rq *Request, w written) (*Result, error) {
	obj := w.body
	// A version of nothing, or that is none, does no harm.
	if seen, err := parseVersion(obj.At("metadata", "resourceVersion").Str()); err == nil && seen != 0 {
		return nil, apierr.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	name, prefix := obj.At("metadata", "name").Str(), obj.At("metadata", "generateName").Str()
	generated := name == "" && prefix != ""
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return nil, commitFailed(err)
		}
		inNamespace, err := e.admitNamespace(rq, name)
		if err != nil {
			return nil, err
		}
		if generated {
			name = generateName(prefix)
		}
		now := e.now()
		made, err := e.make(rq, w, name, now)
		if err != nil {
			return nil, err
		}
		key := rq.Resource.key(rq.Namespace, name)
		nothing := &store.Version{Key: key, Sidecar: &store.Sidecar{}}
		made, settled := rq.Resource.Schema().SettleFrom(made, object.Nil)
		version, err := e.version(rq.Resource, nothing, made, settled, now)
		if err != nil {
			return nil, err
		}
		err = e.commitNew(ctx, rq, version, inNamespace)
		var conflict *store.ConflictError
		switch {
		case err == nil:
			shown, err := rq.present(version)
			return &Result{Object: shown, Created: true}, err
		case !errors.As(err, &conflict):
			return nil, commitFailed(err)
		case conflict.Key != key:
			continue // the namespace has changed meanwhile
		case !generated || attempt == nameAttempts:
			return nil, e.taken(rq, key, name, prefix != "")
		}
	}
}

// taken says that a name is taken, and by what for a while longer. Who leaves the name to the server may come again.
func (e *Engine) taken(rq *Request, key store.Key, name string, prefixed bool) error {
	err := apierr.NewAlreadyExists(rq.Resource.Type(), name)
	if prefixed {
		err.Message += ", the server was not able to generate a unique name for the object"
		err.Details.RetryAfterSeconds = 1
	}
	if owner, ok := e.store.Get(key); ok && owner.Sidecar.Deleting {
		err.Message = "object is being deleted: " + err.Message
	}
	return err
}

// make turns what a client sent into what will be stored: system metadata, what the kind resets, defaults, validation.
func (e *Engine) make(rq *Request, w written, name string, now time.Time) (object.Value, error) {
	r := rq.Resource
	obj := rq.born(w.body, name, now)
	if r.Default != nil {
		obj = r.Default(obj)
	}
	if !w.owned {
		obj = e.own(rq, obj, object.Nil, now)
	}
	sent := obj
	if r.PrepareCreate != nil {
		obj = r.PrepareCreate(obj, rq.User)
	}
	faults := objectmeta.ObjectMeta(obj.At("metadata"), r.Namespaced, r.ValidateName, field.NewPath("metadata"))
	if r.Validate != nil {
		faults = append(faults, r.Validate(obj)...)
	}
	if len(faults) > 0 {
		return object.Nil, apierr.NewInvalid(r.KindType(), obj.At("metadata", "name").Str(), faults)
	}
	if r.WarnCreate != nil {
		rq.warn(r.WarnCreate(obj, sent)...)
	}
	return obj, nil
}

// commitNew stores a version under a key that nobody has, or only looks whether it could (DRY-1).
func (e *Engine) commitNew(ctx context.Context, rq *Request, v *store.Version, pre []store.Precondition) error {
	if rq.DryRun {
		if taken, ok := e.store.Get(v.Key); ok {
			return &store.ConflictError{Key: v.Key, Have: taken.Revision}
		}
		return nil
	}
	revision, err := e.store.Commit(ctx, append(pre, store.Precondition{Key: v.Key}),
		[]store.Change{{Key: v.Key, Data: v.Data, Sidecar: v.Sidecar}})
	v.Revision = revision
	return err
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

// answer serves a virtual type: nothing is stored.
func (rq *Request) answer(obj object.Value) (*Result, error) {
	answer, err := rq.Resource.Answer(rq, obj)
	if err != nil {
		return nil, err
	}
	return &Result{Status: answer, Created: true}, nil
}

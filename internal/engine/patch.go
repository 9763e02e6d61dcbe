package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/object"
	"plinth/patch"
)

// Patch changes an object by a patch (WRITE-2). One that carries no resourceVersion is tried again when somebody else
// was faster.
func (e *Engine) Patch(ctx context.Context, rq *Request, p Patch) (*Result, error) {
	apply, duplicates, err := p.parse()
	if err != nil {
		return nil, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, commitFailed(err)
		}
		live, ok := e.store.Get(rq.key())
		if !ok {
			return nil, rq.notFound()
		}
		result, err := e.replace(ctx, rq, live, func(old object.Value) (written, error) {
			obj, err := rq.patched(live, old, apply, duplicates)
			return written{body: obj}, err
		})
		if raced(err) {
			continue
		}
		return result, err
	}
}

// parse checks a patch on its own and returns what applies it.
func (p Patch) parse() (apply func(object.Value) (object.Value, error), duplicates []string, err error) {
	if p.Type == JSONPatch {
		if err := patch.IsList(p.Body); err != nil {
			return nil, nil, apierr.NewBadRequest("error decoding patch: " + err.Error())
		}
		return func(obj object.Value) (object.Value, error) { return patch.JSON(obj, p.Body) }, nil, nil
	}
	parsed, err := object.ParseJSON(p.Body)
	if err != nil {
		return nil, nil, apierr.NewBadRequest("error decoding patch: " + err.Error())
	}
	if parsed.Value.Kind() != object.Map {
		return nil, nil, apierr.NewBadRequest("error decoding patch: a JSON merge patch is an object, this is a JSON " + parsed.Value.Kind().String())
	}
	return func(obj object.Value) (object.Value, error) { return patch.Merge(obj, parsed.Value), nil }, parsed.Duplicates, nil
}

// patched is the body that the patch makes of the live object, decoded like any body.
func (rq *Request) patched(live *store.Version, old object.Value, apply func(object.Value) (object.Value, error), duplicates []string) (object.Value, error) {
	shown := old
	if view := rq.view(); view != nil {
		var err error
		if shown, err = view(old); err != nil {
			return object.Nil, err
		}
	}
	shown = shown.WithAt(object.StringOf(strconv.FormatInt(live.Revision, 10)), "metadata", "resourceVersion")
	raw, err := apply(shown)
	if err != nil {
		return object.Nil, patchFailed(err)
	}
	obj, err := rq.decode(object.Parsed{Value: raw, Duplicates: duplicates})
	if err != nil {
		return object.Nil, notDecodable(raw, err)
	}
	obj = rq.once(obj, true)
	return obj, rq.fits(live, obj, rq.unconditional())
}

// fits checks a patched object against the URL and the live object. A version that it does not tell counts as the live one
// where that is allowed.
func (rq *Request) fits(live *store.Version, obj object.Value, unconditional bool) error {
	if err := rq.namesMatch(obj); err != nil {
		return err
	}
	seen, err := parseVersion(obj.At("metadata", "resourceVersion").Str())
	if err != nil {
		return err
	}
	if seen == 0 && unconditional {
		seen = live.Revision
	}
	if uid := obj.At("metadata", "uid").Str(); rq.ownKind() && uid != "" && uid != live.Sidecar.UID {
		sub := apierr.Type{Group: rq.Resource.Group, Name: rq.Resource.Name + "/" + rq.Subresource.Name}
		return apierr.NewConflict(sub, rq.Name, fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, live.Sidecar.UID))
	}
	return rq.stale(live, seen, object.Nil) // another UID is for validation to refuse
}

// patchFailed words a patch that is not one, or that does not fit the object.
func patchFailed(err error) error {
	var many *patch.TooManyError
	switch {
	case errors.As(err, &many):
		return apierr.NewTooLarge(many.Error())
	case errors.Is(err, patch.ErrMalformed):
		return apierr.NewBadRequest("error decoding patch: " + err.Error())
	}
	return &apierr.Error{
		Code: 422, Reason: apierr.Invalid, Details: &apierr.Details{},
		Message: "the server rejected our request due to an error in our request: " + err.Error(),
	}
}

// maxShown bounds how much of a refused object stands in an error.
const maxShown = 4096

// notDecodable words a patch whose result is not an object of the kind.
func notDecodable(raw object.Value, err error) error {
	text := string(object.AppendObject(nil, raw))
	if len(text) > maxShown {
		text = text[:maxShown] + "…"
	}
	fault := field.Invalid(field.NewPath("patch"), text, err.Error())
	invalid := apierr.NewInvalid(apierr.Type{}, "", field.ErrorList{fault})
	invalid.Message = fmt.Sprintf(" \"\" is invalid: %s", fault.Error())
	return invalid
}

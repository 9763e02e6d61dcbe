package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"plinth/internal/apierr"
	"plinth/merge"
	"plinth/object"
	"plinth/schema"
)

// Apply merges an intent into an object, or makes the object (SSA-2). Somebody else being faster is no conflict: the intent
// is merged again.
func (e *Engine) Apply(ctx context.Context, rq *Request, body object.Parsed) (*Result, error) {
	intent, err := rq.intent(body)
	if err != nil {
		return nil, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, commitFailed(err)
		}
		live, ok := e.store.Get(rq.key())
		if !ok {
			result, err := e.createByApply(ctx, rq, intent)
			if apierr.Is(err, apierr.AlreadyExists) {
				continue // somebody else has made it meanwhile
			}
			return result, err
		}
		result, err := e.replace(ctx, rq, live, func(old object.Value) (written, error) {
			obj, err := e.applied(rq, old, intent)
			if err != nil {
				return written{}, err
			}
			return written{obj, true}, rq.fits(live, obj, true)
		})
		if raced(err) {
			continue
		}
		return result, err
	}
}

// createByApply makes the object that an intent describes where there is none.
func (e *Engine) createByApply(ctx context.Context, rq *Request, intent object.Value) (*Result, error) {
	if rq.Subresource != nil || rq.Resource.Virtual() {
		return nil, rq.notFound()
	}
	if rq.Authorize != nil {
		if err := rq.Authorize("create"); err != nil {
			return nil, err
		}
	}
	obj, err := e.applied(rq, object.Nil, intent)
	if err != nil {
		return nil, err
	}
	if uid := obj.At("metadata", "uid").Str(); uid != "" {
		return nil, apierr.NewConflict(rq.Resource.Type(), rq.Name,
			fmt.Sprintf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := rq.namesMatch(obj); err != nil {
		return nil, err
	}
	// Which version of nothing it is meant for does not matter.
	return e.create(ctx, rq, written{obj.WithoutAt("metadata", "resourceVersion"), true})
}

// intent checks the body of an apply on its own: it names its kind and version, and every field and value has its type.
func (rq *Request) intent(body object.Parsed) (object.Value, error) {
	v := body.Value
	if v.IsNull() {
		v = object.MapOf()
	}
	if v.Kind() != object.Map {
		return object.Nil, apierr.NewBadRequest(fmt.Sprintf(
			"error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal %s into Go value of type map[string]interface {}", v.Kind()))
	}
	group, version, kind, typ := rq.bodyType()
	if v.At("apiVersion").Str() != apiVersion(group, version) || v.At("kind").Str() != kind {
		return object.Nil, apierr.NewBadRequest("invalid object type: " + kindText(v.At("apiVersion").Str(), v.At("kind").Str()))
	}
	if managed, ok := v.At("metadata").Get("managedFields"); ok && !managed.IsNull() {
		return object.Nil, apierr.NewBadRequest(merge.ErrManaged.Error())
	}
	decoded, err := typ.DecodePart(v)
	if err != nil || len(decoded.Unknown) > 0 {
		return object.Nil, rq.misfit(v, typ, decoded.Unknown, err)
	}
	return decoded.Value, rq.judgeIntent(body.Duplicates)
}

// judgeIntent tells of keys that stand twice in the intent.
func (rq *Request) judgeIntent(duplicates []string) error {
	if rq.Validation == Ignore || len(duplicates) == 0 {
		return nil
	}
	lines := make([]string, len(duplicates))
	for i, d := range duplicates {
		lines[i] = d
		if !object.IsYAMLDuplicate(d) {
			lines[i] = fmt.Sprintf("duplicate field %q", d)
		}
	}
	if rq.Validation == Warn {
		rq.warn(lines...)
		return nil
	}
	return apierr.NewBadRequest("error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  " + strings.Join(lines, "\n  "))
}

// misfit tells of all that keeps an intent from having its type, or, where each value is of the right sort, of the first that
// is none of its sort: a quantity, a time, a number that is too large.
func (rq *Request) misfit(intent object.Value, typ *schema.Type, unknown []string, err error) error {
	_, failed := (&merge.Kind{Type: typ}).Apply(object.Nil, intent, merge.Writer{})
	var typed *merge.TypeError
	if errors.As(failed, &typed) {
		return rq.notTyped(intent, typed)
	}
	if err == nil {
		return rq.notTyped(intent, fmt.Errorf(".%s: field not declared in schema", unknown[0]))
	}
	var value *schema.TypeError
	if errors.As(err, &value) {
		err = fmt.Errorf(".%s: %s", value.Path, value.Message)
	}
	return &apierr.Error{Code: 500, Message: fmt.Sprintf("failed to convert new object (%s) to proper version: unable to convert unstructured object to %s: %v",
		nameText(intent), kindText(intent.At("apiVersion").Str(), intent.At("kind").Str()), err)}
}

// kindText is a kind as Go prints a GroupVersionKind: "apps/v1, Kind=Deployment", "/v1, Kind=Pod".
func kindText(apiVersion, kind string) string {
	if !strings.Contains(apiVersion, "/") {
		apiVersion = "/" + apiVersion
	}
	return apiVersion + ", Kind=" + kind
}

// nameText is what an intent is for: "default/web; apps/v1, Kind=Deployment".
func nameText(intent object.Value) string {
	return fmt.Sprintf("%s/%s; %s", intent.At("metadata", "namespace").Str(), intent.At("metadata", "name").Str(),
		kindText(intent.At("apiVersion").Str(), intent.At("kind").Str()))
}

// notTyped is an intent that does not have the type of its kind. The reference calls this an internal error, and so it is
// here.
func (rq *Request) notTyped(intent object.Value, err error) error {
	return &apierr.Error{Code: 500, Message: fmt.Sprintf("failed to create typed patch object (%s): %v", nameText(intent), err)}
}

// applied is the object that an intent makes of what is there, with its managers, decoded like any body.
func (e *Engine) applied(rq *Request, old, intent object.Value) (object.Value, error) {
	k, w := e.merging(rq), rq.writer(e.now())
	live := old
	scale := rq.Subresource != nil && rq.Subresource.Replicas != nil
	if scale {
		var err error
		if live, err = rq.scaleWithManagers(old); err != nil {
			return object.Nil, err
		}
		k, w.APIVersion = rq.mergingScale(), apiVersion(rq.Subresource.Group, rq.Subresource.Version)
	}
	merged, err := k.Apply(live, intent, w)
	if err != nil {
		return object.Nil, rq.applyFailed(live, intent, err)
	}
	var settled object.Value
	if !scale {
		settled = rq.settledLive(live)
	}
	decoded, err := k.Type.DecodeFrom(merged, settled)
	if err != nil {
		return object.Nil, rq.notTyped(intent, err)
	}
	if !scale {
		return decoded.Value, nil
	}
	managed, err := rq.Subresource.Replicas.FromScale(old.At("metadata", "managedFields"), merged.At("metadata", "managedFields"), rq.Resource.APIVersion())
	if err != nil {
		return object.Nil, err
	}
	return withManagers(decoded.Value, managed), nil
}

// settledLive is the live object if there is one and it is settled, else null.
func (rq *Request) settledLive(live object.Value) object.Value {
	if live.IsNull() {
		return object.Nil
	}
	if rq.settled.IsNull() && rq.Resource.Schema().IsSettled(live) {
		rq.settled = live
	}
	return rq.settled
}

// applyFailed words what keeps an intent from being merged.
func (rq *Request) applyFailed(live, intent object.Value, err error) error {
	var conflicts *merge.ConflictError
	var typed *merge.TypeError
	switch {
	case errors.As(err, &conflicts):
		return rq.conflict(live, conflicts)
	case errors.As(err, &typed):
		return rq.notTyped(intent, err)
	}
	return &apierr.Error{Code: 500, Message: err.Error()}
}

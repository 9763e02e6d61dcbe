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

// Apply merges an intent into an object, or creates the object from it (SSA-2). A lost race is no conflict: the
// intent is merged again.
func (e *Engine) Apply(ctx context.Context, rq *Request, body object.Parsed) (result *Result, err error) {
	d := e.draft(rq, updates)
	defer d.tell(&result)
	intent, err := d.intent(body)
	if err != nil {
		return nil, err
	}
	for sure := false; ; {
		n, err := d.onto(ctx, sure)
		if err != nil {
			return nil, err
		}
		result, err := n.apply(ctx, intent)
		if !n.again(err, &sure) && !n.madeMeanwhile(err) {
			return result, err
		}
	}
}

// apply is one attempt of an apply.
func (d *draft) apply(ctx context.Context, intent object.Value) (*Result, error) {
	if d.live == nil {
		return d.createByApply(ctx, intent)
	}
	if err := d.rq.met(d.revision()); err != nil {
		return nil, err
	}
	if err := d.merge(ctx, intent); err != nil {
		return nil, err
	}
	if err := d.rq.fits(d.live, d.sent, true); err != nil {
		return nil, err
	}
	return d.change(ctx)
}

// createByApply creates the object that an intent describes.
func (d *draft) createByApply(ctx context.Context, intent object.Value) (*Result, error) {
	rq := d.rq
	if rq.Subresource != nil || rq.Resource.Virtual() {
		return nil, rq.notFound()
	}
	if err := rq.met(0); err != nil {
		return nil, err
	}
	if err := d.merge(ctx, intent); err != nil {
		return nil, err
	}
	if uid := d.sent.At("metadata", "uid").Str(); uid != "" {
		return nil, apierr.NewConflict(rq.Resource.Type(), rq.Name,
			fmt.Sprintf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := rq.namesMatch(d.sent); err != nil {
		return nil, err
	}
	d.sent = d.sent.WithoutAt("metadata", "resourceVersion") // it is no version of anything
	d.upserts = true
	return d.create(ctx)
}

// intent checks the body of an apply by itself: it names its kind and version, and every field is known and has its
// type.
func (d *draft) intent(body object.Parsed) (object.Value, error) {
	v := body.Value
	if v.IsNull() {
		v = object.MapOf()
	}
	if v.Kind() != object.Map {
		return object.Nil, apierr.NewBadRequest(fmt.Sprintf(
			"error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal %s into Go value of type map[string]interface {}", v.Kind()))
	}
	group, version, kind, typ := d.rq.bodyType()
	if named, ok := strings.CutPrefix(v.At("apiVersion").Str(), "/"); ok { // "/v1", as in checkKind
		v = v.With("apiVersion", object.StringOf(named))
	}
	if v.At("apiVersion").Str() != apiVersion(group, version) || v.At("kind").Str() != kind {
		return object.Nil, apierr.NewBadRequest("invalid object type: " + kindText(v.At("apiVersion").Str(),
			v.At("kind").Str()))
	}
	if managed, ok := v.At("metadata").Get("managedFields"); ok && !managed.IsNull() {
		return object.Nil, apierr.NewBadRequest(merge.ErrManaged.Error())
	}
	decoded, err := typ.DecodePart(v)
	if err != nil || len(decoded.Unknown) > 0 {
		return object.Nil, d.rq.misfit(v, typ, decoded.Unknown, err)
	}
	return decoded.Value, d.judgeIntent(body.Duplicates)
}

// judgeIntent reports duplicate keys of the intent, as a warning or an error.
func (d *draft) judgeIntent(duplicates []string) error {
	if d.rq.Validation == Ignore || len(duplicates) == 0 {
		return nil
	}
	lines := make([]string, len(duplicates))
	for i, d := range duplicates {
		lines[i] = d
		if !object.IsYAMLDuplicate(d) {
			lines[i] = fmt.Sprintf("duplicate field %q", d)
		}
	}
	if d.rq.Validation == Warn {
		d.warn(lines...)
		return nil
	}
	return apierr.NewBadRequest("error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  " +
		strings.Join(lines, "\n  "))
}

// misfit is the error for an intent that does not have its type. It names all values of the wrong JSON type, or, if
// there are none, the first one that does not parse: a quantity, a time, a number that is too large.
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
	return &apierr.Error{Code: 500,
		Message: fmt.Sprintf(
			"failed to convert new object (%s) to proper version: unable to convert unstructured object to %s: %v",
			nameText(intent), kindText(intent.At("apiVersion").Str(), intent.At("kind").Str()), err)}
}

// kindText is a kind as Go prints a GroupVersionKind: "apps/v1, Kind=Deployment", "/v1, Kind=Pod".
func kindText(apiVersion, kind string) string {
	if !strings.Contains(apiVersion, "/") {
		apiVersion = "/" + apiVersion
	}
	return apiVersion + ", Kind=" + kind
}

// nameText names the object of an intent: "default/web; apps/v1, Kind=Deployment".
func nameText(intent object.Value) string {
	return fmt.Sprintf("%s/%s; %s", intent.At("metadata", "namespace").Str(), intent.At("metadata", "name").Str(),
		kindText(intent.At("apiVersion").Str(), intent.At("kind").Str()))
}

// notTyped is the error for an intent without the type of its kind. The reference calls that an internal error.
func (rq *Request) notTyped(intent object.Value, err error) error {
	return &apierr.Error{Code: 500, Message: fmt.Sprintf("failed to create typed patch object (%s): %v",
		nameText(intent), err)}
}

// merge makes the body, with its managers, from the intent and the live object, and decodes it like any body.
func (d *draft) merge(ctx context.Context, intent object.Value) error {
	rq, sub := d.rq, d.rq.Subresource
	k, live := rq.merging(ctx), d.old
	scale := sub != nil && sub.Replicas != nil
	if scale {
		var err error
		if live, err = rq.scaleWithManagers(d.old); err != nil {
			return err
		}
		k = rq.mergingScale()
	}
	merged, err := k.Apply(live, intent, d.writer())
	if err != nil {
		return rq.applyFailed(live, intent, err)
	}
	var form object.Value
	if !scale {
		form = d.formOfOld()
	}
	decoded, err := k.Type.DecodeFrom(merged, form)
	if err != nil {
		return rq.notTyped(intent, err)
	}
	d.owned, d.sent = true, decoded.Value
	if !scale {
		return nil
	}
	if sub.Base != nil && d.sent.At("spec", "replicas").IsNull() { // neither the object nor the intent says how many
		base, err := sub.Base(d.old)
		if err != nil {
			return err
		}
		d.sent = d.sent.With("spec", base.At("spec"))
	}
	managed, err := sub.Replicas.FromScale(
		d.old.At("metadata", "managedFields"), merged.At("metadata", "managedFields"), rq.Resource.APIVersion())
	if err != nil {
		return err
	}
	d.sent = withManagers(d.sent, managed)
	return nil
}

// formOfOld is the old object if it has the form that Decode and Settle give, else null. What a merge has left of
// such an object need not be decoded again.
func (d *draft) formOfOld() object.Value {
	if d.form.IsNull() && !d.old.IsNull() && d.rq.Resource.Schema().IsSettled(d.old) {
		d.form = d.old
	}
	return d.form
}

// applyFailed is the API error for an intent that cannot be merged.
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

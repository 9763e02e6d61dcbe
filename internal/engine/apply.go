package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/apierr"
	"plinth/merge"
	"plinth/object"
	"plinth/schema"
)

// Apply merges an intent, the fields that the client wants to own, into the live object, or creates the object from
// it (SSA-2).
//
// The body is checked once, without the live object (intent). The merge needs the live object, so it is part of the
// attempt: after a lost race the same intent is merged with the newer object. A conflict in the sense of server-side
// apply is found by the merge and ends the request; a lost race is never reported to the client.
//
// If the object does not exist the attempt is a create. When another request creates it between the read and the
// commit, the create fails with AlreadyExists, and the loop begins again as an apply to that object (madeMeanwhile).
// Returning the error would be wrong: the client did not request a create.
func (e *Engine) Apply(ctx context.Context, rq *Request, body object.Parsed) (result *Result, err error) {
	d := e.draft(rq, OperationUpdate)
	defer d.addWarnings(&result)
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
		// The result is that of the last attempt, with the warnings of all.
		if !n.again(ctx, err, &sure) && !n.madeMeanwhile(err) {
			return result, err
		}
	}
}

// apply is one attempt. The intent names no resourceVersion in most cases; fits is called with unconditional set,
// since an apply may leave it out for every type.
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
	if err := d.rq.fits(d.live, d.asked, true); err != nil {
		return nil, err
	}
	return d.change(ctx)
}

// createByApply creates the object that the intent describes. The merge with null gives the object itself and the
// entry of its manager. A uid in the intent means an object that existed before, so the create is refused. A
// resourceVersion is dropped, as in the reference: it cannot be the version of an object that does not exist.
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
	if uid := d.asked.At("metadata", "uid").Str(); uid != "" {
		return nil, apierr.NewConflict(rq.Resource.Type(), rq.Name,
			fmt.Sprintf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := rq.namesMatch(d.asked); err != nil {
		return nil, err
	}
	// The user was authorized for patch. The step check authorizes create, too.
	d.upserts = true
	return d.create(ctx)
}

// intent checks the body of an apply without the live object: its apiVersion and kind are those of the URL, it sets
// no managedFields, and each field is known and has its type. It returns the decoded intent.
//
// The intent is decoded as a part of an object (DecodePart): a field that is left out stays absent and gets no default
// or zero value. A field that is absent in an intent is not owned, and a default would make the client own a field that
// it did not write.
//
// The texts of the errors are those of the reference; the code is 400 also where it answers with 500 (notTyped).
// Duplicate keys are a warning or an error, depending on the validation level; an unknown field is always an error.
func (d *draft) intent(body object.Parsed) (object.Value, error) {
	v := body.Value
	// An empty body, and the body null, are an empty intent; the check of the kind refuses them.
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
	return decoded.Value, d.reportDuplicates(body.Duplicates)
}

// reportDuplicates reports duplicate keys of the intent by the validation level of the request: not at all, as
// warnings, or as an error. The parser has kept the last value of each duplicate key.
func (d *draft) reportDuplicates(duplicates []string) error {
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
	if d.rq.Validation.warns() {
		d.warn(lines...)
		return nil
	}
	return apierr.NewBadRequest("error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  " +
		strings.Join(lines, "\n  "))
}

// misfit is the error for an intent that does not match its type. The reference finds values of a wrong JSON type with
// the merge's own type check, which lists all of them, and values that do not parse (a quantity, a time, a number out
// of range) later, by a conversion that stops at the first. So misfit tries the same two in that order: first a merge
// of the intent with null, for the list, and then err, the error of decoding.
func (rq *Request) misfit(intent object.Value, typ *schema.Type, unknown []string, err error) error {
	_, failed := (&merge.Kind{Type: typ}).Apply(object.Nil, intent, merge.Writer{})
	var typed *merge.TypeError
	if errors.As(failed, &typed) {
		return rq.notTyped(intent, typed)
	}
	if err == nil {
		return rq.notTyped(intent, &merge.TypeError{Path: "." + unknown[0], Message: "field not declared in schema"})
	}
	refused := apierr.NewBadRequest("")
	var value *schema.TypeError
	if errors.As(err, &value) {
		err = fmt.Errorf(".%s: %s", value.Path, value.Message)
		refused.Details = &apierr.Details{Causes: []apierr.Cause{misfitAt("."+value.Path, value.Message)}}
	}
	refused.Message = fmt.Sprintf(
		"failed to convert new object (%s) to proper version: unable to convert unstructured object to %s: %v",
		nameText(intent), kindText(intent.At("apiVersion").Str(), intent.At("kind").Str()), err)
	return refused
}

// kindText formats a kind as Go prints a GroupVersionKind: "apps/v1, Kind=Deployment", "/v1, Kind=Pod".
func kindText(apiVersion, kind string) string {
	if !strings.Contains(apiVersion, "/") {
		apiVersion = "/" + apiVersion
	}
	return apiVersion + ", Kind=" + kind
}

// nameText names the object of an intent in the words of the reference's errors: "default/web; apps/v1,
// Kind=Deployment".
func nameText(intent object.Value) string {
	return fmt.Sprintf("%s/%s; %s", intent.At("metadata", "namespace").Str(), intent.At("metadata", "name").Str(),
		kindText(intent.At("apiVersion").Str(), intent.At("kind").Str()))
}

// notTyped is the error for an intent that does not match the type of its kind: 400, and a cause for each place. The
// reference answers with 500, as if the server had failed (docs/decisions/0012-bad-requests.md says why it is not 422).
func (rq *Request) notTyped(intent object.Value, typed *merge.TypeError) error {
	refused := apierr.NewBadRequest(fmt.Sprintf("failed to create typed patch object (%s): %v", nameText(intent), typed))
	refused.Details = &apierr.Details{}
	for _, each := range typed.All() {
		refused.Details.Causes = append(refused.Details.Causes, misfitAt(each.Path, each.Message))
	}
	return refused
}

// misfitAt is the cause for a value that does not fit the type of its place.
func misfitAt(path, message string) apierr.Cause {
	return apierr.Cause{
		Reason: string(metav1.CauseTypeFieldValueInvalid), Message: message, Field: strings.TrimPrefix(path, "."),
	}
}

// merge computes the body of the write: the intent merged into the live object, with the new managedFields. From
// there on the request takes the steps of an update, except that own has nothing left to do (owned).
//
// A merge that removes fields can leave a value that the schema does not allow, and the fields that it adds have to be
// decoded, so the result is decoded like any body. If the live object is in the form that Decode returns (formOfOld),
// the subtrees that the merge took over from it unchanged are not decoded again: for an intent of a few fields in a
// large object that is nearly all of it.
//
// The body of /scale is a Scale. Managers own fields of the object, so their paths are translated to those of the
// Scale before the merge (scaleWithManagers), the two Scales are merged, and the paths are translated back.
func (d *draft) merge(ctx context.Context, intent object.Value) error {
	rq, sub := d.rq, d.rq.Subresource
	k, live := d.rq.merging(ctx), d.old
	scale := sub != nil && sub.Replicas != nil
	if scale {
		var err error
		if live, err = rq.scaleWithManagers(d.old); err != nil {
			return err
		}
		k = rq.mergingScale()
	}
	// The result of the merge depends on its arguments alone: it reads no clock and no store.
	merged, err := k.Apply(live, intent, d.writer())
	if err != nil {
		return rq.applyFailed(live, intent, err)
	}
	var form object.Value
	if !scale {
		form = d.formOfOld()
	}
	decoded, err := k.Type.DecodeMerged(merged, form)
	if err != nil { // the intent has been decoded before, so it is the live object that does not fit
		return &apierr.Error{Code: 500, Message: fmt.Sprintf("failed to create typed patch object (%s): %v",
			nameText(intent), err)}
	}
	d.owned, d.asked, d.empty = true, decoded.Value, decoded.Empty
	if !scale {
		return nil
	}
	// Neither the object nor the intent has replicas. Base has the number that the object has by default.
	if sub.Base != nil && d.asked.At("spec", "replicas").IsNull() {
		base, err := sub.Base(d.old)
		if err != nil {
			return err
		}
		d.asked = d.asked.With("spec", base.At("spec"))
	}
	managed, err := sub.Replicas.FromScale(
		d.old.At("metadata", "managedFields"), merged.At("metadata", "managedFields"), rq.Resource.APIVersion())
	if err != nil {
		return err
	}
	d.asked = withManagers(d.asked, managed)
	return nil
}

// formOfOld returns the live object if it is known to have the form that Decode and Settle return, else null. A value
// that was parsed from stored bytes is checked once; one that was just written is known to have it (onto).
//
//	result ≠ null  ⇒  Decode(result) = result ∧ Settle(result) = result
func (d *draft) formOfOld() object.Value {
	if d.form.IsNull() && !d.old.IsNull() && d.rq.Resource.Schema().IsSettled(d.old) {
		d.form = d.old
	}
	return d.form
}

// applyFailed is the API error for an intent that cannot be merged: a conflict with other managers, an object that does
// not match its type, or any other error as an internal one.
func (rq *Request) applyFailed(live, intent object.Value, err error) error {
	var conflicts *merge.ConflictError
	var typed *merge.TypeError
	switch {
	case errors.As(err, &conflicts):
		return rq.conflict(live, conflicts)
	case errors.As(err, &typed):
		return rq.notTyped(intent, typed)
	}
	return &apierr.Error{Code: 500, Message: err.Error()}
}

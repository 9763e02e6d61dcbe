package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/object"
	"plinth/patch"
	"plinth/schema"
)

// Patch changes an object by a JSON Patch, a JSON Merge Patch or a strategic merge patch (WRITE-2); an apply is a verb
// of its own, see Apply.
//
// The problem: the result of a patch is a function of the live object, and the live object may be replaced between the
// read and the commit. Computing the result once and retrying its commit would undo the other write. So the loop
// repeats the function:
//
//	result committed at r  ⇒  result = steps of an update(apply(patch, object at r − 1))
//
// A patch therefore conflicts only if it names the version that it is for: it sets metadata.resourceVersion, or a JSON
// Patch tests it. A lost attempt means that another write has succeeded, and only the time-out of the request limits
// the number of attempts. The reference works in the same way (patcher.patchResource, within GuaranteedUpdate).
//
// Work that does not depend on the live object is done once, before the loop: the patch is parsed, and the texts about
// its unknown and duplicate members are made (Patch.parse). The steps of an attempt are
//
//	live object, with its resourceVersion → apply → check the kind → decode → the steps of an update (draft.change)
//
// A patch of /status is applied to the whole object; prepare then copies only the status of the result.
func (e *Engine) Patch(ctx context.Context, rq *Request, p Patch) (result *Result, err error) {
	d := e.draft(rq, OperationUpdate)
	defer d.addWarnings(&result)
	_, _, _, typ := rq.bodyType()
	parsed, err := p.parse(typ)
	if err != nil {
		return nil, err
	}
	for sure := false; ; {
		n, err := d.onto(ctx, sure)
		if err != nil {
			return nil, err
		}
		result, err := n.patch(ctx, parsed)
		if !n.again(ctx, err, &sure) {
			return result, err
		}
	}
}

// patch is one attempt of a patch: it makes a body from the live object, which then takes the steps of an update.
func (d *draft) patch(ctx context.Context, p parsedPatch) (*Result, error) {
	if err := d.exists(); err != nil {
		return nil, err
	}
	if err := d.rq.met(d.revision()); err != nil {
		return nil, err
	}
	if err := d.applyPatch(ctx, p); err != nil {
		return nil, err
	}
	return d.change(ctx)
}

// parsedPatch is the part that all attempts of one request share. It does not depend on the live object, and no attempt
// changes it.
type parsedPatch struct {
	// apply is a pure function. It returns the patched object as JSON, not decoded: it may have members that the type
	// does not have, and values of a wrong type. It may end early with the error of stop. Warnings are for the client.
	apply func(obj object.Value, stop func() error) (made object.Value, warnings []string, err error)
	// strict are texts about duplicate and unknown members of the patch itself, for strictFields. They are made here,
	// because the patched object no longer shows them: a patch {"a": 1, "a": 2} sets a once.
	strict []string
	// shown is the value that the error shows if the result is not an object of the kind; null: the result. As in the
	// reference, it is the patch for a strategic merge patch, and the patched object otherwise.
	shown object.Value
	// anyKind: the apiVersion and kind in the result are not checked. The reference converts the result of a strategic
	// merge patch to the Go struct of the kind, regardless of these two, and decodes that of other patches.
	anyKind bool
}

// parse parses a patch; typ is the type of the object that it changes. A body that is not JSON is an error (400) even
// if the object does not exist. Any other fault of a patch is the error of its apply, and so found only once the object
// exists: as in the reference, a patch of an object that does not exist is answered with 404.
//
// A JSON Patch is kept as text, and each attempt parses it again. A patch of a few bytes could make an object of any
// size, since each copy operation can double it; package patch limits the size. It may also take seconds, so it is
// asked to stop when the request ends; the other patches take time that is linear in their size, or bounded
// (patch.Strategic).
func (p Patch) parse(typ *schema.Type) (parsedPatch, error) {
	if p.Type == JSONPatch {
		if err := patch.CheckSyntax(p.Body); err != nil {
			return parsedPatch{}, apierr.NewBadRequest("error decoding patch: " + err.Error())
		}
		return parsedPatch{
			apply: func(obj object.Value, stop func() error) (object.Value, []string, error) {
				made, err := patch.JSON(obj, p.Body, stop)
				return made, nil, err
			},
			strict: strictOperations(p.Body),
		}, nil
	}
	parsed, err := object.ParseJSON(p.Body)
	if err != nil {
		return parsedPatch{}, apierr.NewBadRequest("error decoding patch: " + err.Error())
	}
	v := parsed.Value
	switch {
	// The reference accepts null as a strategic merge patch, and refuses it as a JSON Merge Patch.
	case p.Type == StrategicPatch && (v.IsNull() || v.Kind() == object.Map):
		return parsedPatch{
			apply: func(obj object.Value, _ func() error) (object.Value, []string, error) {
				made, collisions, err := patch.StrategicCollisions(obj, v, typ)
				if err != nil {
					return object.Nil, nil, err
				}
				warnings := make([]string, len(collisions))
				for i, c := range collisions {
					warnings[i] = c.String()
				}
				made, err = made.Scalars(whole)
				return made, warnings, err
			},
			strict: duplicateFields(parsed.Duplicates), shown: v, anyKind: true,
		}, nil
	case v.Kind() != object.Map:
		malformed := fmt.Errorf("%w: such a patch is an object, this is a JSON %s", patch.ErrMalformed, v.Kind())
		return parsedPatch{
			apply: func(object.Value, func() error) (object.Value, []string, error) {
				return object.Nil, nil, malformed
			},
		}, nil
	}
	return parsedPatch{
		apply: func(obj object.Value, _ func() error) (object.Value, []string, error) {
			return patch.Merge(obj, v), nil, nil
		},
		strict: duplicateFields(parsed.Duplicates),
	}, nil
}

// duplicateFields returns texts about duplicate fields of a patch, also below unknown ones: as in the reference, a
// patch is parsed before its type is known.
func duplicateFields(paths []string) []string {
	lines := make([]string, len(paths))
	for i, path := range paths {
		lines[i] = fmt.Sprintf("duplicate field %q", path)
	}
	return lines
}

// whole converts a float without a fraction to an integer. The reference does that for strategic merge patches only,
// which it converts to Go structs. Beyond 2⁵³ a float does not identify one integer.
func whole(v object.Value) (object.Value, error) {
	if v.Kind() == object.Float && math.Abs(v.Float()) < 1<<53 && v.Float() == math.Trunc(v.Float()) {
		return object.IntOf(int64(v.Float())), nil
	}
	return v, nil
}

// maxStrict is how many unknown members of a JSON Patch are reported.
const maxStrict = 100

// strictOperations returns texts about duplicate and unknown members of the operations of a JSON Patch. For
//
//	[{"op": "add", "path": "/a", "path": "/b", "value": 1, "x": 2}]
//
// they are `json patch duplicate field "[0].path"` and `json patch unknown field "[0].x"`. The value of an operation is
// content of the object: its unknown fields are found when the result is decoded.
//
// At most maxStrict unknown members are reported, the limit of the reference. Without a limit one operation could have
// 250,000 of them, and inOrder, which searches the text for all paths at once, would take minutes.
func strictOperations(body []byte) []string {
	parsed, err := object.ParseJSON(body)
	if err != nil {
		return nil // patch.JSON returns the error when the patch is applied
	}
	var unknown []string
	for i, operation := range parsed.Value.Items() {
		for _, m := range operation.Members() {
			switch m.Key {
			case "op", "path", "from", "value":
				continue
			}
			if len(unknown) < maxStrict {
				unknown = append(unknown, fmt.Sprintf("[%d].%s", i, m.Key))
			}
		}
	}
	texts := inOrder(&parsed, parsed.Duplicates, unknown)
	for i := range texts {
		texts[i] = "json patch " + texts[i]
	}
	return texts
}

// applyPatch makes the body from the live object, and decodes it like any body. The patch is applied to the object as a
// client sees it, with its resourceVersion, so that a JSON Patch can test it. In most cases the result still has that
// resourceVersion, which is, correctly, the version from which it was made; fits refuses a result with another one,
// which the patch has set.
func (d *draft) applyPatch(ctx context.Context, p parsedPatch) error {
	shown := d.old
	// The patch of a subresource with its own kind of body changes that body: for /scale a Scale, and not the object.
	if represent := d.rq.base(); represent != nil {
		var err error
		if shown, err = represent(d.old); err != nil {
			return err
		}
	}
	shown = shown.WithAt(object.StringOf(strconv.FormatInt(d.live.Revision, 10)), "metadata", "resourceVersion")
	raw, warnings, err := p.apply(shown, ctx.Err)
	d.warn(warnings...)
	switch {
	case err != nil && err == ctx.Err():
		return commitFailed(err)
	case err != nil:
		return patchFailed(err)
	}
	if d.rq.custom() {
		if err := d.rq.checkCustomKind(raw); err != nil {
			return err
		}
	}
	if err := d.decodePatched(p, raw); err != nil {
		if !p.shown.IsNull() {
			raw = p.shown
		}
		return notDecodable(raw, err)
	}
	d.asked = d.dedupOwners(d.asked, true)
	return d.rq.fits(d.live, d.asked, d.rq.unconditional())
}

// decodePatched is decode for the result of a patch. It decodes the whole result, and not only the fields that the
// patch names: a JSON Patch is applied to text, so its result shares no subtree with the live object, and a value that
// it moved has another type at its new place.
func (d *draft) decodePatched(p parsedPatch, raw object.Value) error {
	group, version, kind, _ := d.rq.bodyType()
	if !p.anyKind {
		if err := checkKind(raw, group, version, kind); err != nil {
			return err
		}
	}
	return d.decodeFields(object.Parsed{Value: raw}, p.strict...)
}

// fits checks a patched object, or the result of an apply, against the URL and the live object: name and namespace
// (400), resourceVersion and UID (409). If unconditional is set, an object without a resourceVersion is treated as if
// it had the live one; otherwise it is refused (stale), because a patch must have removed it. The UID of a Scale is
// checked here, because validation, which refuses a changed UID, sees the object and not the Scale.
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
	if uid := obj.At("metadata", "uid").Str(); rq.otherKind() && uid != "" && uid != live.Sidecar.UID {
		sub := apierr.Type{Group: rq.Resource.Group, Name: rq.Resource.Name + "/" + rq.Subresource.Name}
		return apierr.NewConflict(sub, rq.Name,
			fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, live.Sidecar.UID))
	}
	return rq.stale(live, seen, object.Nil) // validation refuses another UID
}

// patchFailed is the API error for a patch that is malformed (400), that cannot be applied to this object (422: a test
// that fails, a path that does not exist), or that has too many operations (413). The first two texts begin as those of
// the reference do; the rest is that of its library for JSON Patches, on which clients do not depend.
func patchFailed(err error) error {
	var many *patch.TooManyError
	var strategic *patch.StrategicError
	switch {
	case errors.As(err, &many):
		return apierr.NewTooLarge(many.Error())
	case errors.As(err, &strategic):
		return strategicFailed(strategic)
	case errors.Is(err, patch.ErrMalformed):
		return apierr.NewBadRequest("error decoding patch: " + err.Error())
	}
	return &apierr.Error{
		Code: 422, Reason: apierr.Invalid, Details: &apierr.Details{},
		Message: "the server rejected our request due to an error in our request: " + err.Error(),
	}
}

// strategicFailed is patchFailed for strategic merge patches. The reference maps five errors to 400 and two to 422
// (interpretStrategicMergePatchError), and answers all others, such as an item without its merge key, with 500. Here
// they are 400, with the place as the cause: see notTyped.
func strategicFailed(err *patch.StrategicError) error {
	switch {
	case errors.Is(err, patch.ErrMalformed):
		return apierr.NewBadRequest(err.Error())
	case errors.Is(err, patch.ErrUnprocessable):
		return &apierr.Error{
			Code: 422, Reason: apierr.Invalid, Details: &apierr.Details{},
			Message: "the server rejected our request due to an error in our request: " + err.Error(),
		}
	}
	refused := apierr.NewBadRequest(err.Error())
	refused.Details = &apierr.Details{Causes: []apierr.Cause{misfitAt(err.Path, err.Error())}}
	return refused
}

// maxShown is how many bytes of a refused object an error shows. The reference shows all of it, so that its answer to a
// patch of a few bytes can have a megabyte.
const maxShown = 4096

// notDecodable is the error for a patch whose result is not an object of the kind, or, at the validation level Strict,
// has unknown or duplicate fields: 422 about the field "patch". As in the reference the error names neither a kind nor
// an object (errors.NewInvalid of an empty GroupKind), hence the blank and the empty quotes with which its text begins.
func notDecodable(raw object.Value, err error) error {
	text := string(object.AppendObject(nil, raw))
	if len(text) > maxShown {
		text = text[:maxShown] + "…"
	}
	detail := field.Invalid(field.NewPath("patch"), text, err.Error())
	invalid := apierr.NewInvalid(apierr.Type{}, "", field.ErrorList{detail})
	invalid.Message = fmt.Sprintf(" \"\" is invalid: %s", detail.Error())
	return invalid
}

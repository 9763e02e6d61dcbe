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

// Patch changes an object by a patch (WRITE-2). The patch is parsed once; each attempt applies it to the live object.
// So a patch loses no race: after one, it is applied to the newer object. Only a patch that names a resourceVersion
// can conflict.
func (e *Engine) Patch(ctx context.Context, rq *Request, p Patch) (result *Result, err error) {
	d := e.draft(rq, updates)
	defer d.tell(&result)
	_, _, _, typ := rq.bodyType()
	c, err := p.parse(typ)
	if err != nil {
		return nil, err
	}
	for sure := false; ; {
		n, err := d.onto(ctx, sure)
		if err != nil {
			return nil, err
		}
		result, err := n.patch(ctx, c)
		if !n.again(err, &sure) {
			return result, err
		}
	}
}

// patch is one attempt of a patch: it makes a body from the live object, which then takes the steps of an update.
func (d *draft) patch(ctx context.Context, c change) (*Result, error) {
	if err := d.exists(); err != nil {
		return nil, err
	}
	if err := d.rq.met(d.revision()); err != nil {
		return nil, err
	}
	if err := d.patched(c); err != nil {
		return nil, err
	}
	return d.change(ctx)
}

// change is a parsed patch. It does not depend on the live object and is not changed by apply.
type change struct {
	apply func(object.Value) (object.Value, error)
	// odd are texts about duplicate and unknown members of the patch itself, for draft.judge.
	odd []string
	// text is what an error shows if the result is no object of the kind; null: the result itself.
	text object.Value
	// anyKind: the apiVersion and kind in the result are not checked, as in the reference for strategic merge patches.
	anyKind bool
}

// parse checks a patch without the live object; typ is the type of the object that it changes. Errors are 400.
func (p Patch) parse(typ *schema.Type) (change, error) {
	// A JSON Patch is kept as text; each attempt parses and applies it.
	if p.Type == JSONPatch {
		if err := patch.IsList(p.Body); err != nil {
			return change{}, apierr.NewBadRequest("error decoding patch: " + err.Error())
		}
		return change{
			apply: func(obj object.Value) (object.Value, error) { return patch.JSON(obj, p.Body) },
			odd:   oddOperations(p.Body),
		}, nil
	}
	parsed, err := object.ParseJSON(p.Body)
	if err != nil {
		return change{}, apierr.NewBadRequest("error decoding patch: " + err.Error())
	}
	v := parsed.Value
	switch {
	// The reference takes null for a strategic merge patch, and refuses it for a JSON Merge Patch.
	case p.Type == StrategicPatch && (v.IsNull() || v.Kind() == object.Map):
		return change{
			apply: func(obj object.Value) (object.Value, error) {
				made, err := patch.Strategic(obj, v, typ)
				if err != nil {
					return object.Nil, err
				}
				return made.Scalars(whole)
			},
			odd: duplicateFields(parsed.Duplicates), text: v, anyKind: true,
		}, nil
	case v.Kind() != object.Map:
		return change{}, apierr.NewBadRequest("error decoding patch: such a patch is an object, this is a JSON " +
			v.Kind().String())
	}
	return change{
		apply: func(obj object.Value) (object.Value, error) { return patch.Merge(obj, v), nil },
		odd:   duplicateFields(parsed.Duplicates),
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

// whole converts a float without a fraction to an integer. The reference does that for strategic merge patches, which
// go through Go structs, and for no others. Beyond 2⁵³ a float does not name one integer.
func whole(v object.Value) (object.Value, error) {
	if v.Kind() == object.Float && math.Abs(v.Float()) < 1<<53 && v.Float() == math.Trunc(v.Float()) {
		return object.IntOf(int64(v.Float())), nil
	}
	return v, nil
}

// oddOperations returns texts about duplicate and unknown members of the operations of a JSON Patch.
func oddOperations(body []byte) []string {
	parsed, err := object.ParseJSON(body)
	if err != nil {
		return nil // patch.JSON returns the error when the patch is applied
	}
	var unknown []string
	for i, operation := range parsed.Value.Items() {
		for _, m := range operation.Members() {
			switch m.Key {
			case "op", "path", "from", "value":
			default:
				unknown = append(unknown, fmt.Sprintf("[%d].%s", i, m.Key))
			}
		}
	}
	odd := inOrder(&parsed, parsed.Duplicates, unknown)
	for i := range odd {
		odd[i] = "json patch " + odd[i]
	}
	return odd
}

// patched makes the body from the live object, and decodes it like any body. The patch sees the object with its
// resourceVersion: a JSON Patch can test it, and a body that has kept it is no conflict.
func (d *draft) patched(c change) error {
	shown := d.old
	// For /scale the patch changes the Scale, and not the object.
	if view := d.rq.base(); view != nil {
		var err error
		if shown, err = view(d.old); err != nil {
			return err
		}
	}
	shown = shown.WithAt(object.StringOf(strconv.FormatInt(d.live.Revision, 10)), "metadata", "resourceVersion")
	raw, err := c.apply(shown)
	if err != nil {
		return patchFailed(err)
	}
	if d.rq.custom() {
		if err := d.rq.checkCustomKind(raw); err != nil {
			return err
		}
	}
	if err := d.decodePatched(c, raw); err != nil {
		if !c.text.IsNull() {
			raw = c.text
		}
		return notDecodable(raw, err)
	}
	d.dedupOwners(true)
	return d.rq.fits(d.live, d.sent, d.rq.unconditional())
}

// decodePatched is decode for the result of a patch.
func (d *draft) decodePatched(c change, raw object.Value) error {
	group, version, kind, _ := d.rq.bodyType()
	if !c.anyKind {
		if err := checkKind(raw, group, version, kind); err != nil {
			return err
		}
	}
	return d.decodeFields(object.Parsed{Value: raw}, c.odd...)
}

// fits checks a patched object against the URL and the live object. If unconditional is set, an object without a
// resourceVersion counts as one with the live one.
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

// patchFailed is the API error for a patch that is malformed (400), that does not fit the object (422), or that is
// too large to apply (413).
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

// strategicFailed is patchFailed for strategic merge patches. The reference answers most of their errors with 500.
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
	return &apierr.Error{Code: 500, Message: err.Error()}
}

// maxShown is how many bytes of a refused object an error shows.
const maxShown = 4096

// notDecodable is the error for a patch whose result is no object of the kind: 422 about the field "patch", which has
// no kind and no name, as in the reference.
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

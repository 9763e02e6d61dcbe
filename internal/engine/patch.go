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

// Patch changes an object by a patch (WRITE-2). After a lost race, the patch is applied to the newer object.
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

// change is a parsed patch.
type change struct {
	apply   func(object.Value) (object.Value, error)
	odd     []string     // what is odd about it, in words
	text    object.Value // what is shown of it where its result is no object of the kind; null: the result
	anyKind bool         // what it says of the kind and version does not count
}

// parse checks a patch by itself; typ is the type of the object that it changes.
func (p Patch) parse(typ *schema.Type) (change, error) {
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

// duplicateFields is the warnings for duplicate fields of a patch, unknown ones included: as in the reference, a
// patch is parsed before its type is known.
func duplicateFields(paths []string) []string {
	lines := make([]string, len(paths))
	for i, path := range paths {
		lines[i] = fmt.Sprintf("duplicate field %q", path)
	}
	return lines
}

// whole makes an integer of a float without a fraction, which the reference does in strategic merge patches alone.
func whole(v object.Value) (object.Value, error) {
	if v.Kind() == object.Float && math.Abs(v.Float()) < 1<<53 && v.Float() == math.Trunc(v.Float()) {
		return object.IntOf(int64(v.Float())), nil
	}
	return v, nil
}

// oddOperations is the warnings for duplicate and unknown members of the operations of a JSON Patch.
func oddOperations(body []byte) []string {
	parsed, err := object.ParseJSON(body)
	if err != nil {
		return nil // what is wrong with it is told when it is applied
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

// patched makes the body from the live object, and decodes it like any body.
func (d *draft) patched(c change) error {
	shown := d.old
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

// fits checks a patched object against the URL and the live object. If allowed (unconditional), an object without a
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
	return rq.stale(live, seen, object.Nil) // another UID is for validation to refuse
}

// patchFailed is the API error for a patch that is malformed or does not fit the object.
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
	return &apierr.Error{Code: 500, Message: err.Error()} // as the reference calls it
}

// maxShown is how many bytes of a refused object an error shows.
const maxShown = 4096

// notDecodable is the error for a patch whose result is no object of the kind.
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

package engine

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/object"
	"plinth/schema"
)

// decodeFields is decode for a body of the right kind. Its errors are about fields only. odd is what the caller found
// odd about the body; it is reported together with unknown and duplicate fields.
func (d *draft) decodeFields(body object.Parsed, odd ...string) error {
	group, version, kind, typ := d.rq.bodyType()
	if body.Value.IsNull() { // null says no more than {}
		body.Value = object.MapOf()
	}
	decoded, err := typ.Decode(body.Value)
	if err != nil {
		return err
	}
	if err := d.judge(typ, odd, &body, decoded.Unknown); err != nil {
		return err
	}
	managed := body.Value.At("metadata", "managedFields")
	d.clears = managed.Kind() == object.List && managed.Len() == 0
	d.sent = decoded.Value.Edit([]object.Member{
		{Key: "apiVersion", Value: object.StringOf(apiVersion(group, version))},
		{Key: "kind", Value: object.StringOf(kind)},
	})
	return nil
}

// inOrder is the texts about duplicate and unknown fields of a body, in the order in which they stand in it.
func inOrder(body *object.Parsed, duplicates, unknown []string) []string {
	type told struct {
		text string
		at   int
	}
	all := make([]told, 0, len(duplicates)+len(unknown))
	for _, path := range duplicates {
		all = append(all, told{text: fmt.Sprintf("duplicate field %q", path)})
	}
	for _, path := range unknown {
		all = append(all, told{text: fmt.Sprintf("unknown field %q", path)})
	}
	if len(all) > 1 {
		for i, at := range slices.Concat(body.Positions(duplicates, 2), body.Positions(unknown, 1)) {
			all[i].at = at
		}
		slices.SortStableFunc(all, func(a, b told) int { return a.at - b.at })
	}
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].text
	}
	return texts
}

// bodyType is the type of the body: that of the resource, or of the subresource.
func (rq *Request) bodyType() (group, version, kind string, typ *schema.Type) {
	r, sub := rq.Resource, rq.Subresource
	if sub == nil || sub.Schema == nil {
		return r.Group, r.Version, r.Kind, r.Schema()
	}
	return sub.Group, sub.Version, sub.Kind, sub.Schema()
}

// checkKind refuses a body of another kind or version. Missing ones are those of the URL.
func checkKind(body object.Value, group, version, kind string) error {
	if body.IsNull() {
		return nil
	}
	if body.Kind() != object.Map {
		return apierr.NewBadRequest(fmt.Sprintf(
			"the object provided is unrecognized (must be of type %s): couldn't get version/kind; the body is a JSON %s, not an object", kind, body.Kind()))
	}
	for _, key := range []string{"apiVersion", "kind"} {
		if v, ok := body.Get(key); ok && v.Kind() != object.String && !v.IsNull() {
			return apierr.NewBadRequest(fmt.Sprintf(
				"the object provided is unrecognized (must be of type %s): couldn't get version/kind; json parse error: json: cannot unmarshal %s into Go struct field .%s of type string", kind, v.Kind(), key))
		}
	}
	// "/v1" is v1 of the group without a name, as in the reference.
	gotVersion, gotKind := strings.TrimPrefix(body.At("apiVersion").Str(), "/"), body.At("kind").Str()
	if gotVersion == "" {
		gotVersion = apiVersion(group, version)
	}
	if gotKind == "" {
		gotKind = kind
	}
	if gotVersion == apiVersion(group, version) && gotKind == kind {
		return nil
	}
	base := gotVersion[strings.LastIndexByte(gotVersion, '/')+1:]
	return cannotBeHandled(gotKind, base, kind, fmt.Sprintf("the body is a %s of %s, the URL takes a %s of %s", gotKind,
		gotVersion, kind, apiVersion(group, version)))
}

// custom says whether the body is a custom object.
func (rq *Request) custom() bool {
	return rq.Resource.Stored != nil && rq.Resource.Stored.Custom && !rq.otherKind()
}

// checkCustomBody is checkKind for custom objects, which must name their kind and version.
func (rq *Request) checkCustomBody(body object.Value) error {
	r := rq.Resource
	kind, version := body.At("kind").Str(), body.At("apiVersion").Str()
	switch {
	case kind == "":
		return apierr.NewBadRequest(fmt.Sprintf(
			"the object provided is unrecognized (must be of type %s): Object 'Kind' is missing in it", r.Kind))
	case version != r.APIVersion():
		return apierr.NewBadRequest(fmt.Sprintf(
			"the API version in the data (%s) does not match the expected API version (%s)", version, r.APIVersion()))
	}
	return rq.checkCustomKind(body)
}

// checkCustomKind refuses a custom object of another kind or version with the error of its validation, which calls
// the type by the kind that the object names.
func (rq *Request) checkCustomKind(obj object.Value) error {
	r := rq.Resource
	kind, version := obj.At("kind").Str(), obj.At("apiVersion").Str()
	var errs field.ErrorList
	if kind != r.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), kind, "must be "+r.Kind))
	}
	if version != r.APIVersion() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), version, "must be "+r.APIVersion()))
	}
	if len(errs) == 0 {
		return nil
	}
	return apierr.NewInvalid(apierr.Type{Group: r.Group, Name: kind}, obj.At("metadata", "name").Str(), errs)
}

func cannotBeHandled(gotKind, gotVersion, kind, why string) error {
	return apierr.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %s", gotKind, gotVersion,
		kind, why))
}

// judge reports odd, duplicate and unknown fields: as warnings, or as one error with all of them.
func (d *draft) judge(typ *schema.Type, odd []string, body *object.Parsed, unknown []string) error {
	if d.rq.Validation == Ignore || len(odd)+len(body.Duplicates)+len(unknown) == 0 {
		return nil
	}
	found, lines := slices.Clone(odd), []string(nil)
	var duplicates []string
	for _, path := range body.Duplicates {
		switch {
		case object.IsYAMLDuplicate(path):
			lines = append(lines, path)
		// What is below an unknown field of a built-in type is told of with it. A custom object is read before it is
		// known what it may have.
		case d.rq.custom() || typ.Has(path):
			duplicates = append(duplicates, path)
		}
	}
	if d.rq.custom() { // all of it is read before anybody looks at the fields
		found = append(found, inOrder(body, duplicates, nil)...)
		duplicates = nil
		body = &object.Parsed{}
	}
	found = append(found, inOrder(body, duplicates, unknown)...)
	if d.rq.Validation == Warn {
		d.warn(append(lines, found...)...)
		return nil
	}
	if len(lines) > 0 {
		found = append([]string{"yaml: unmarshal errors:\n  " + strings.Join(lines, "\n  ")}, found...)
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("strict decoding error: %s", strings.Join(found, ", "))
}

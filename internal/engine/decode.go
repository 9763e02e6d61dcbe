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

// The stages by which a body becomes the value that the steps work on:
//
//	decode (draft.go)   the kind and version of the body are those of the URL                       400
//	decodeFields        each field is known and of its type; unknown ones are dropped and listed    400
//	strictFields        the list and duplicate fields, at the validation level of the request       warnings or 400
//
// In the reference that is one call, DecodeInto by a strict decoder, after which the handler checks whether the error
// is runtime.IsStrictDecodingError. There, too, all other errors take precedence: a body with a wrong type and an
// unknown field is refused for the type, and the field is not mentioned.
//
// The reference has two decoders for this, so there are two sorts of texts and orders. Objects of built-in types are
// decoded into Go structs; custom objects are parsed into maps and pruned by their schema (schemaCoercingDecoder of
// apiextensions-apiserver). Where the two differ, the functions here check Request.custom.

// decodeFields is decode for a body of the right kind. Its errors are about fields only. strict are texts about the
// body that the caller has found already (an unknown member of a JSON Patch operation); they are reported before the
// unknown and duplicate fields that are found here.
//
// It sets d.sent to the decoded body with the apiVersion and kind of the URL, which a body of a built-in type may
// leave out.
func (d *draft) decodeFields(body object.Parsed, strict ...string) error {
	group, version, kind, typ := d.rq.bodyType()
	// The body null means the same as {}, as in the reference.
	if body.Value.IsNull() {
		body.Value = object.MapOf()
	}
	// Unknown fields are dropped from the value and listed; the validation level decides whether the list is reported.
	decoded, err := typ.Decode(body.Value)
	if err != nil {
		return err
	}
	if err := d.strictFields(typ, strict, &body, decoded.Unknown); err != nil {
		return err
	}
	// managedFields: [] clears the managers, an absent list does not; the decoded object no longer shows the difference.
	managed := body.Value.At("metadata", "managedFields")
	d.clears = managed.Kind() == object.List && managed.Len() == 0
	d.empty = decoded.Empty
	d.asked = decoded.Value.Edit([]object.Member{
		{Key: "apiVersion", Value: object.StringOf(apiVersion(group, version))},
		{Key: "kind", Value: object.StringOf(kind)},
	})
	return nil
}

// inOrder returns the texts about duplicate and unknown fields of a body, in the order in which the fields stand in
// it, as the reference's decoder meets them. A duplicate field is met at its second occurrence, an unknown one at its
// first. Of
//
//	{"b": 1, "spec": {"x": 1, "replicas": 1, "replicas": 2}, "a": 1}
//
// the texts are about b, spec.x, spec.replicas and a, in this order. It is not the order of a parsed object, whose
// members are sorted, so it is found by a second pass over the text (Parsed.Positions); a body that was not JSON has no
// positions, and its duplicates come first. The parser and the decoder list at most a hundred paths each, so no body
// makes this costly.
func inOrder(body *object.Parsed, duplicates, unknown []string) []string {
	type finding struct {
		text string
		at   int // in the text of the body
	}
	all := make([]finding, 0, len(duplicates)+len(unknown))
	for _, path := range duplicates {
		all = append(all, finding{text: fmt.Sprintf("duplicate field %q", path)})
	}
	for _, path := range unknown {
		all = append(all, finding{text: fmt.Sprintf("unknown field %q", path)})
	}
	// One text needs no order, which would take another pass over the body.
	if len(all) > 1 {
		for i, at := range slices.Concat(body.Positions(duplicates, 2), body.Positions(unknown, 1)) {
			all[i].at = at
		}
		slices.SortStableFunc(all, func(a, b finding) int { return a.at - b.at })
	}
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].text
	}
	return texts
}

// bodyType returns the type of the body: that of the resource, or of the subresource if its body has a type of its own.
// The body of /status has the type of the object; that of /scale is an autoscaling/v1 Scale for every kind.
func (rq *Request) bodyType() (group, version, kind string, typ *schema.Type) {
	r, sub := rq.Resource, rq.Subresource
	if sub == nil || sub.Schema == nil {
		return r.Group, r.Version, r.Kind, r.Schema()
	}
	return sub.Group, sub.Version, sub.Kind, sub.Schema()
}

// checkKind refuses a body of another kind or version than the URL takes. A missing kind or apiVersion means that of
// the URL: a client that POSTs to /api/v1/namespaces/default/pods need not repeat that this is a Pod.
//
// The version has to be that of the URL even if another version of the kind is served and could be converted: a client
// that sends v1 to a URL of v2 has mixed up its URLs. The texts of the errors are in part Go's own, since the reference
// decodes the two members into a Go struct.
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
	// The reference names the version without its group.
	base := gotVersion[strings.LastIndexByte(gotVersion, '/')+1:]
	return cannotBeHandled(gotKind, base, kind, fmt.Sprintf("the body is a %s of %s, the URL takes a %s of %s", gotKind,
		gotVersion, kind, apiVersion(group, version)))
}

// custom says whether the body is a custom object, and not a Scale of one, which is decoded as a built-in type.
func (rq *Request) custom() bool {
	return rq.Resource.Stored != nil && rq.Resource.Stored.Custom && !rq.otherKind()
}

// checkCustomBody is checkKind for custom objects, which must name their kind and version: the reference decodes them
// before it knows their type. A missing kind and a wrong version are errors of that decoding (400); a wrong kind is
// found by the validation of custom objects (422, checkCustomKind).
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

// checkCustomKind refuses a custom object of another kind or version with the error of its validation. As in the
// reference, that error names the type by the kind in the body.
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

// cannotBeHandled is the reference's error for a body that cannot be decoded as the kind of the URL.
func cannotBeHandled(gotKind, gotVersion, kind, why string) error {
	return apierr.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %s", gotKind, gotVersion,
		kind, why))
}

// strictFields applies the validation level of the request (fieldValidation, KEP-2885; VAL-2) to the findings of a
// strict decoder: the texts in strict, duplicate fields and unknown fields. They are not reported (Ignore), are a
// warning each (Warn), or are together one error (Strict). The resulting object does not depend on the level: the last
// of two duplicates counts, and unknown fields have been dropped.
//
// The order is the reference's. Messages of the YAML parser come first, and in an error they are one entry. Fields of
// built-in objects are reported in the order of the body. A custom object is parsed as a whole before its schema is
// known, so all duplicates come before all unknown fields.
func (d *draft) strictFields(typ *schema.Type, strict []string, body *object.Parsed, unknown []string) error {
	if d.rq.Validation == Ignore || len(strict)+len(body.Duplicates)+len(unknown) == 0 {
		return nil
	}
	// lines are messages of the YAML parser, which name a line of the body instead of a path.
	found, lines := slices.Clone(strict), []string(nil)
	var duplicates []string
	for _, path := range body.Duplicates {
		switch {
		case object.IsYAMLDuplicate(path):
			lines = append(lines, path)
		// A duplicate below an unknown field of a built-in type is not reported: the decoder skips all of that field. A
		// custom object is parsed before it is known which fields it may have.
		case d.rq.custom() || typ.Has(path):
			duplicates = append(duplicates, path)
		}
	}
	if d.rq.custom() {
		found = append(found, inOrder(body, duplicates, nil)...)
		duplicates = nil
		body = &object.Parsed{}
	}
	found = append(found, inOrder(body, duplicates, unknown)...)
	if d.rq.Validation.warns() {
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

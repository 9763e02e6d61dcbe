package schema

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// This file validates objects within an object: places with x-kubernetes-embedded-resource, such as a template of
//
//	template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
//
// A controller creates the inner object later, and its failure would not be seen by the author of the outer one. So the
// outer object is refused for errors that the inner one has in any case: no apiVersion or kind, an invalid name as the
// kind, invalid labels. The schema of the inner object's fields is checked like everything else (checker). Decoding has
// brought its metadata into the form of ObjectMeta before: prune.go, step 5.
//
// The oracle is Validate of apiextensions-apiserver's package objectmeta. It considers the keyword alone, at any depth,
// and so does this; the top is left out, since its metadata is validated with that of all other types. Where the oracle
// iterates over a Go map in random order, members are visited in the order of their names here.

// embeddedErrors validates the objects within an object. t is the type of the object around them. It is called only for
// types that have such places (structural.embeds); most have none, and their objects are not walked.
//
// The old object does not matter: metadata that became wrong by a stricter rule must be corrected with the next update.
func embeddedErrors(v object.Value, t *Type) field.ErrorList {
	e := embeddedChecker{inspect: t.Custom.inspect}
	e.below(v, t, nil)
	return e.errs
}

// embeddedChecker walks an object.
type embeddedChecker struct {
	reporter
	inspect func(metadata object.Value, path *field.Path) field.ErrorList
}

// below walks the parts of a value of the type. It follows the kind of the value, not that of the type: a list where
// the schema has a map was reported by the checker, and its items have no type. at is nil for the top object, which is
// not an embedded one; CheckEmbedded starts with a place, so that the value itself is checked, too.
func (e *embeddedChecker) below(v object.Value, t *Type, at *location) {
	switch v.Kind() {
	case object.Map:
		if at != nil && t.embeds() {
			e.object(v, t, at)
		}
		here := location{up: at, index: -1}
		members := v.Members()
		for i := range members {
			switch members[i].Value.Kind() {
			case object.Map, object.List:
				here.key = members[i].Key
				if of := t.member(here.key); of != nil {
					here.free = t.Field(here.key) == nil
					e.below(members[i].Value, of, &here)
				}
			}
		}
	case object.List:
		of := t.Items()
		if of == nil {
			return
		}
		here := location{up: at}
		for i, item := range v.Items() {
			here.index = i
			e.below(item, of, &here)
		}
	}
}

// object checks one embedded object: it must have apiVersion and kind; metadata is optional. Whether a definition of
// this kind exists does not matter. A missing name is not an error, since the object is not created yet; a name may be
// any segment of a URL, since the rules of the kind are not known. Both are up to inspect.
func (e *embeddedChecker) object(v object.Value, t *Type, at *location) {
	if e.full {
		return
	}
	path := at.path()
	apiVersion, hasVersion := v.Get("apiVersion")
	kind, hasKind := v.Get("kind")
	if !hasVersion {
		e.report(field.Required(path.Child("apiVersion"), ""))
	}
	if !hasKind {
		e.report(field.Required(path.Child("kind"), ""))
	}
	if hasVersion {
		if detail := badAPIVersion(apiVersion); detail != "" {
			e.report(field.Invalid(path.Child("apiVersion"), BadValue(apiVersion), detail))
		}
	}
	if hasKind {
		if detail := badKind(kind); detail != "" {
			e.report(field.Invalid(path.Child("kind"), BadValue(kind), detail))
		}
	}
	if metadata, ok := v.Get("metadata"); ok {
		var w walker // what an apply has made is validated before it is decoded
		decoded, err := w.decode(metadata, t.Field("metadata").Type)
		if err != nil {
			e.report(field.Invalid(path.Child("metadata"), BadValue(metadata), err.Error()))
			return
		}
		e.metadata(decoded.Value, at)
	}
}

// metadata checks the metadata of the object at a place. Each of its labels may be invalid, so that paths start at the
// object, and are prefixed with its place only for the errors that are reported.
func (e *embeddedChecker) metadata(v object.Value, at *location) {
	for _, err := range e.inspect(v, field.NewPath("metadata")) {
		if e.full {
			return
		}
		if path := at.path(); path != nil {
			err.Field = path.String() + "." + err.Field
		}
		e.report(err)
	}
}

// badAPIVersion describes the error in an apiVersion; "" if it is valid.
func badAPIVersion(v object.Value) string {
	switch {
	case v.Kind() != object.String:
		return "must be a string"
	case v.Str() == "":
		return "must not be empty"
	}
	if _, err := schema.ParseGroupVersion(v.Str()); err != nil {
		return err.Error()
	}
	return ""
}

// badKind describes the error in a kind; "" if it is valid.
func badKind(v object.Value) string {
	switch {
	case v.Kind() != object.String:
		return "must be a string"
	case v.Str() == "":
		return "must not be empty"
	}
	if errs := validation.IsDNS1035Label(strings.ToLower(v.Str())); len(errs) > 0 {
		return "may have mixed case, but should otherwise match: " + strings.Join(errs, ",")
	}
	return ""
}

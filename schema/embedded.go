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
// A controller creates the inner object later and would fail, where its author does not see it. So the outer object is
// refused for what is wrong with the inner one in any case: no apiVersion or kind, a kind that is no name, labels that
// are none. What the schema says of the inner object's fields is checked like everything else (checker). Decoding has
// brought its metadata into the form of ObjectMeta before: prune.go, step 5.
//
// The oracle is Validate of apiextensions-apiserver's package objectmeta. It goes by the keyword alone, at any depth,
// and so does this; the top has its metadata validated with that of all other types, and is left out. Where it goes by
// the random order of a Go map, members come in the order of their names here.

// embeddedErrors validates the objects within an object. t is the type of the object around them. The caller knows that
// the type has such places (structural.embeds): of most types nothing is walked for this.
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

// below walks what is below a value of the type. It goes by the value, whatever kind the type has: a list where the
// schema has a map was reported by the checker, and its items have no type. at is nil for the top, which is why an
// object there is none within another; CheckEmbedded begins with a place, and has the value itself checked.
func (e *embeddedChecker) below(v object.Value, t *Type, at *place) {
	switch v.Kind() {
	case object.Map:
		if at != nil && t.embeds() {
			e.object(v, t, at)
		}
		here := place{up: at, index: -1}
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
		here := place{up: at}
		for i, item := range v.Items() {
			here.index = i
			e.below(item, of, &here)
		}
	}
}

// object checks one embedded object: apiVersion and kind must be there, metadata need not. Whether a definition of this
// kind exists does not matter. A name that is missing is no error, since the object is not created yet; a name that is
// there may be any segment of a URL, for the rules of its kind are not known. Both are up to inspect.
func (e *embeddedChecker) object(v object.Value, t *Type, at *place) {
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
	if metadata, there := v.Get("metadata"); there {
		var w walker // what an apply has made is validated before it is decoded
		decoded, err := w.decode(metadata, t.Field("metadata").Type)
		if err != nil {
			e.report(field.Invalid(path.Child("metadata"), BadValue(metadata), err.Error()))
			return
		}
		e.metadata(decoded.Value, at)
	}
}

// metadata checks the metadata of the object at a place. Its labels may each be wrong, so that their paths begin at the
// object, and are put below it only for the errors that are reported.
func (e *embeddedChecker) metadata(v object.Value, at *place) {
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

// badAPIVersion says what is wrong with an apiVersion; "" if nothing is.
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

// badKind says what is wrong with a kind; "" if nothing is.
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

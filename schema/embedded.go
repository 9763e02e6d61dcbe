package schema

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// embeddedErrors checks the objects within an object: they have an apiVersion and a kind, and metadata as an object
// of its own has it, but for names that were not given. t is the type of the object around them.
func embeddedErrors(v object.Value, t *Type) field.ErrorList {
	e := embeddedChecker{inspect: t.Custom.inspect}
	e.below(v, t, nil)
	return e.errs
}

// embeddedChecker walks an object. It stops to tell where maxTold is reached.
type embeddedChecker struct {
	inspect func(metadata object.Value, path *field.Path) field.ErrorList
	errs    field.ErrorList
	told    int
}

// tell adds errors, up to maxTold. The first one is told whatever its length.
func (e *embeddedChecker) tell(errs ...*field.Error) {
	for _, err := range errs {
		size := len(err.Field) + len(err.Detail) + badSize(err.BadValue)
		if e.told > 0 && e.told+size > maxTold {
			return
		}
		e.told += size
		e.errs = append(e.errs, err)
	}
}

// below walks what is below a value of the type.
func (e *embeddedChecker) below(v object.Value, t *Type, at *place) {
	switch v.Kind() {
	case object.Map:
		if at != nil && t.embeds() {
			e.object(v, t, at.path())
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

// object checks one embedded object.
func (e *embeddedChecker) object(v object.Value, t *Type, path *field.Path) {
	apiVersion, hasVersion := v.Get("apiVersion")
	kind, hasKind := v.Get("kind")
	if !hasVersion {
		e.tell(field.Required(path.Child("apiVersion"), ""))
	}
	if !hasKind {
		e.tell(field.Required(path.Child("kind"), ""))
	}
	if hasVersion {
		if detail := badAPIVersion(apiVersion); detail != "" {
			e.tell(field.Invalid(path.Child("apiVersion"), BadValue(apiVersion), detail))
		}
	}
	if hasKind {
		if detail := badKind(kind); detail != "" {
			e.tell(field.Invalid(path.Child("kind"), BadValue(kind), detail))
		}
	}
	if metadata, there := v.Get("metadata"); there {
		var w walker // what an apply has made has not been decoded
		decoded, err := w.decode(metadata, t.Field("metadata").Type)
		if err != nil {
			e.tell(field.Invalid(path.Child("metadata"), BadValue(metadata), err.Error()))
			return
		}
		e.tell(e.inspect(decoded.Value, path.Child("metadata"))...)
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

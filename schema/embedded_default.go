package schema

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// This file checks the defaults in the schema of a definition, each against the type of its place. A default that does
// not fit would make the server itself add to each object of the kind a value that it refuses from clients: so the
// definition is refused. Package crd/validation calls both checks, in the order of the reference (validate of
// apiextensions-apiserver's package defaulting): first the fields that pruning would drop, then embedded objects, then
// the schema.

// CheckEmbedded decodes the default of the place at path, as Decode does with objects, except that null and unknown
// fields are kept. It returns the errors in embedded objects in it, and in the value itself if that is one. unknown
// says that the default has fields that the schema does not have. From an object they would be dropped; a definition is
// refused for them, unless it had such a default before. Fields that ObjectMeta does not have are dropped silently from
// both. inspect is as in [StructuralOptions].
//
// For template as above, the default {kind: Pod, x: 1} gets the error that apiVersion is required, at path.apiVersion.
func (t *Type) CheckEmbedded(v object.Value, path *field.Path,
	inspect func(object.Value, *field.Path) field.ErrorList) (
	decoded object.Value, unknown bool, errs field.ErrorList) {
	top := location{index: -1}
	if path != nil {
		top.key = path.String()
	}
	p := pruner{nulls: true, keeps: true}
	decoded = p.value(v, t, false, &top)
	unknown = len(p.unknown) > 0
	if p.refused != nil {
		return decoded, unknown, field.ErrorList{p.refused}
	}
	e := embeddedChecker{inspect: inspect}
	e.below(decoded, t, &top)
	return decoded, unknown, e.errs
}

// CheckDefault validates the default of the place at path against the schema. Defaults are checked against the schema
// as it is written, not as it is applied to objects: see checker.asDefault. stop is as in [Type.Validate].
func (t *Type) CheckDefault(v object.Value, path *field.Path, stop func() error) field.ErrorList {
	c := checker{root: path, asDefault: true, stop: stop}
	f := c.value(v, t, nil, nil)
	return f.errors()
}

package schema

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// This file checks values that are no objects of their own: the defaults in a schema, each against the type of the
// place that it is the default of.

// CheckEmbedded decodes a value of the place that path leads to, as Decode does with objects, but that null and
// unknown fields stay, and says what is wrong with the objects in it, or with the value if that is one. unknown says
// that there are fields that the schema does not have; those that metadata does not have are dropped without a word.
// inspect is as in [StructuralOptions].
func (t *Type) CheckEmbedded(v object.Value, path *field.Path,
	inspect func(object.Value, *field.Path) field.ErrorList) (
	decoded object.Value, unknown bool, errs field.ErrorList) {
	top := place{index: -1}
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

// CheckDefault is what the schema says of a default of the place that path leads to.
func (t *Type) CheckDefault(v object.Value, path *field.Path) field.ErrorList {
	c := checker{root: path, asDefault: true}
	f := c.value(v, t, nil, nil)
	return f.errors()
}

package schema

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// This file checks the defaults in the schema of a definition, each against the type of the place that it is the
// default of. A default that does not fit would make the server itself add what it refuses from others, to each object
// of the kind: so the definition is refused. Package crd/validation calls both checks, as the reference does in
// validate of apiextensions-apiserver's package defaulting: first what pruning would drop, then embedded objects, then
// the schema.

// CheckEmbedded decodes a value of the place that path leads to, as Decode does with objects, but that null and
// unknown fields stay, and says what is wrong with the objects in it, or with the value if that is one. unknown says
// that there are fields that the schema does not have. From an object they would be dropped; a definition is refused
// for them, unless it had such a default before. Those that metadata does not have are dropped from both without a
// word. inspect is as in [StructuralOptions].
//
// For template as above, the default {kind: Pod, x: 1} gets the error that apiVersion is required, at path.apiVersion.
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

// CheckDefault is what the schema says of a default of the place that path leads to. Defaults are held to the schema as
// it is written, not as it is for objects: see checker.asDefault.
func (t *Type) CheckDefault(v object.Value, path *field.Path) field.ErrorList {
	c := checker{root: path, asDefault: true}
	f := c.value(v, t, nil, nil)
	return f.errors()
}

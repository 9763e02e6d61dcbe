package schema

import (
	"reflect"

	"plinth/object"
)

// Either describes a value that has one of two forms, because its Go type has its own UnmarshalJSON: in the schema of a
// CustomResourceDefinition, items is a schema or a list of schemas (JSONSchemaPropsOrArray), additionalProperties a
// schema or a boolean (JSONSchemaPropsOrBool), and a dependency a schema or a list of names. To OpenAPI and to
// server-side apply such a value is untyped: Kind is Any. Only decoding uses the two forms, so that a definition, which
// consists mostly of such schemas, is checked against the types of its fields like every other object.
type Either struct {
	Object *Type // the form that is a JSON object
	Other  *Type // the other form: a Bool or a List
	// ObjectNumber and OtherNumber are the protobuf field numbers of the two in the message of the Go type.
	ObjectNumber, OtherNumber int
	ObjectName, OtherName     string // of the Go fields
}

// isEither says whether a Go type is a struct with its own UnmarshalJSON and a field for each of two forms, of which
// one is for objects: these fields have no JSON names, only protobuf ones.
func isEither(t reflect.Type) bool {
	return isRaw(t) && t.NumField() == 2 && t.PkgPath() != "" && t.Field(0).Tag.Get("json") == "" &&
		t.Field(1).Tag.Get("json") == ""
}

// either compiles both forms. The object is the field behind a pointer, in all types of this shape.
func (b *batch) either(t reflect.Type) *Either {
	e := &Either{}
	for i := range t.NumField() {
		f := t.Field(i)
		number := protobufNumber(f.Tag.Get("protobuf"))
		if f.Type.Kind() == reflect.Pointer {
			e.Object, e.ObjectNumber, e.ObjectName = b.compile(f.Type.Elem()), number, f.Name
		} else {
			e.Other, e.OtherNumber, e.OtherName = b.compile(f.Type), number, f.Name
		}
	}
	return e
}

// either decodes a value of one of two forms. As in Go, the content is read by a nested decoder: any error in it ends
// the walk, and unknown fields are not reported. A value of neither form becomes null, or an error if the other form is
// a boolean.
func (w *walker) either(v object.Value, t *Type, at *step) object.Value {
	e := t.Either
	inner := walker{part: w.part}
	switch {
	case v.Kind() == object.Map:
		v = inner.structure(v, e.Object, at)
	case e.Other.Kind == Bool:
		if v.Kind() != object.Bool {
			inner.fatal = &TypeError{Path: at.String(), Message: "boolean or JSON schema expected"}
		}
	case v.Kind() == object.List && (v.Len() > 0 || w.part):
		v = inner.list(v, e.Other, at)
	default:
		v = object.Nil
	}
	if w.fatal = inner.fatal; w.fatal == nil {
		w.fatal = inner.saved
	}
	return v
}

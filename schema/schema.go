// Package schema holds compiled types: what fields an object may have, what they are, and what a list or a map means for
// merging. Every served type, built-in or custom, is a graph of [Type]s, and one walk serves them all.
//
// Glossary. To decode is to check a value against a type, bring its scalars into the stored form, drop unknown fields and
// report them ([Type.Decode]). To default is to fill in what the type's markers give as default ([Type.Default]). To settle
// is to bring a value into the form in which it is stored ([Type.Settle]): for built-in types what survives a round trip
// through protobuf, where empty lists and maps are null. The zero value is what Go's encoding of these types prints for a
// type that nothing was said of ([Type.Zero]). Markers are what the comments of Go sources say of types and fields.
// Validation of built-in objects beyond their types is not here but with the kinds (package builtin).
//
// A custom type (structural.go) is made from the schema of a definition. To prune is its way to decode: fields that the
// schema does not have are dropped and reported, nothing is added.
//
// A built-in value after Decode is what the typed codec of Kubernetes would print after reading the same text: the members
// that Go always writes are there, the empty ones that it leaves out are not.
//
// Caveat: a built-in type keeps untyped content (RawExtension) as it was written, [object.Number] literals included, for
// the reference keeps its text.
package schema

import (
	"reflect"

	"plinth/object"
)

// Kind says what a Type describes.
type Kind uint8

// The kinds of types.
const (
	Any         Kind = iota // whatever JSON can say, kept as it is; its numbers are untyped ones
	Struct                  // named fields
	Map                     // any keys, one element type
	List                    // one element type
	String                  // text
	Bool                    // true or false
	Int                     // integer of Bits bits
	Float                   // floating point number of Bits bits
	Bytes                   // base64 text
	Quantity                // resource.Quantity, kept in its canonical form
	IntOrString             // intstr.IntOrString
	Time                    // metav1.Time: RFC 3339, seconds
	MicroTime               // metav1.MicroTime: RFC 3339, microseconds
	Duration                // metav1.Duration: Go's notation
)

// ListType says how two lists merge (SSA-8).
type ListType uint8

// The list types.
const (
	Atomic      ListType = iota // replaced as a whole
	Set                         // of scalars, each once
	Associative                 // of maps, told apart by ListKeys
)

// Type is one compiled type. It is immutable once it has been handed out, and shared: equal types of one Go type or one
// schema are one pointer. A list, map or struct whose field gives it markers of its own is a Type of that field alone.
type Type struct {
	Kind Kind
	// Name is the OpenAPI model name, "io.k8s.api.apps.v1.DeploymentSpec"; GoName the Go type's, "DeploymentSpec", which
	// error messages use. Both are empty for what has no name of its own.
	Name, GoName string
	Bits         uint8 // Int, Float: 32 or 64

	Fields []Field // Struct: sorted by name
	Elem   *Type   // List, Map; Struct: of the fields that are not declared, nil if there are none

	ListType  ListType
	ListKeys  []string // Associative
	AtomicMap bool     // Map, Struct, Any: owned and replaced as a whole
	// Marked says that ListType or AtomicMap was said by a marker, so that OpenAPI tells of it; where it is false, they
	// are what the patch tags or nothing at all make of it.
	Marked bool

	// Wrapped says that protobuf puts the list into a message of its own: ExtraValue, Verbs.
	Wrapped bool

	Enum []string // String: the values there are; OpenAPI tells of them, nobody enforces them

	// Custom is what a structural schema says of the values beyond that; nil where it says nothing, and in a built-in type.
	Custom *Constraints

	Typeless bool    // Any: OpenAPI does not even say that it is an object
	Either   *Either // Any: the value has one of two forms; nil: it is whatever it is

	golang   reflect.Type
	doc      string // the description, where golang has no method that tells it
	unmarked *Type  // see Unmarked; nil: the type itself
	zero     object.Value
	names    names    // Struct: of Fields
	always   []uint16 // Struct: the fields that are written even when nobody set them, as indices into Fields, ascending
	fills    bool     // a Default applies at or below this type
	complete bool     // all of this stands, and others may be reading it: a later batch must not touch it
}

// Field is one field of a Struct.
type Field struct {
	Name string
	Type *Type
	// What Go's encoding of built-in types does with the zero value (docs/spec.md, VAL-4): a pointer is absent or there, a
	// non-pointer with omitempty is absent when zero, one without is always written. OmitZero goes by the zero value of
	// structs, too.
	Pointer, OmitEmpty, OmitZero bool
	Required                     bool         // by the markers; the reference does not enforce it, OpenAPI tells of it
	Default                      object.Value // by the +default marker; Nil where there is none
	Number                       int          // protobuf field number, 0 where there is none
	// Within are the protobuf field numbers of the embedded structs that hold the field, outermost first: JSON sees
	// through embedding, protobuf does not.
	Within []int
	// PatchStrategy and PatchMergeKey are the strategic merge patch tags, "merge,retainKeys" and "name".
	PatchStrategy, PatchMergeKey string

	// owner is the Go struct that declares the field, which is another one than the Type's for a field of an embedded
	// struct; embedded is then the way there, "ProbeHandler.".
	owner    reflect.Type
	embedded string
	doc      string // the description, where owner has no method that tells it
}

// Decoded is a value that has its type.
type Decoded struct {
	Value object.Value
	// Unknown holds the path of every field that the type does not have, at most maxUnknown; they are no longer in Value.
	Unknown []string
}

// TypeError is a value that does not have the type of its place: 400 on the wire (VAL-1).
type TypeError struct {
	Path    string // "spec.replicas"
	Message string // as the reference words it: `json: cannot unmarshal string into Go struct field …`
}

func (e *TypeError) Error() string { return e.Message }

// Zero is what Go's encoding prints for the zero value of a built-in type: `{"resources":{}}`.
func (t *Type) Zero() object.Value { return t.zero }

// Field finds a field of a Struct; nil if there is none of that name.
func (t *Type) Field(name string) *Field {
	if i, ok := t.find(name, 0); ok {
		return &t.Fields[i]
	}
	return nil
}

// find looks for a field at or behind index from, and returns where it is or would be.
func (t *Type) find(name string, from int) (int, bool) {
	if i, ok := t.names.find(t.Fields, name); ok {
		return i, true
	}
	lo, hi := from, len(t.Fields)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if t.Fields[mid].Name < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(t.Fields) && t.Fields[lo].Name == name
}

// Implied is what a field that is not there means by the document of its type: the marker's default, or else what a scalar
// that Go always writes holds when nobody sets it. Nil where it means nothing.
func (f *Field) Implied() object.Value {
	if !f.Default.IsNull() || f.Pointer || f.OmitEmpty {
		return f.Default
	}
	switch f.Type.Kind {
	case String, Bool, Int, Float:
		return f.Type.Zero()
	}
	return object.Nil
}

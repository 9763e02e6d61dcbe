// Package schema holds compiled types: which fields an object may have, what their values may be, and how lists and
// maps merge. Every served type, built-in or custom, is a graph of [Type]s. It is compiled from Go types by reflection
// ([Compiler]) or from the schema of a definition ([Structural]), and from then on the same walks serve both.
//
// # Glossary
//
//   - to decode: to check a value against a type, bring its scalars into the stored form, drop unknown fields and
//     report them ([Type.Decode]). The result for a built-in type is what the typed codec of Kubernetes prints after
//     reading the same text: members that Go always writes are present, empty ones that it leaves out are not.
//   - to prune: to decode by the rules of custom types. Unknown fields are dropped and reported, no field is added.
//   - to default: to fill in the defaults of a type ([Type.Default]).
//   - to settle: to bring a value into the form in which it is stored ([Type.Settle]): for built-in types what
//     survives a round trip through protobuf, where empty lists and maps are null.
//   - zero value: what Go's encoding prints for a type of which no field is set ([Type.Zero]).
//   - marker: a line of a comment in the Go sources (+listType=map), or the keyword of a schema that says the same.
//   - place: a field, item or member in an object, with the path from the top.
//   - settled: a value that Settle leaves unchanged; also the older version of an object that a new one was made
//     from, whose subtrees the walks may skip.
//   - junctor: allOf, anyOf, oneOf or not in the schema of a custom type; its schemas are the branches.
//
// # Where to look
//
//	schema.go, constraints.go, names.go          what a Type is
//	golang.go, either.go                         Go types → Type
//	structural.go                                schemas of definitions → Type
//	decode.go, special.go; prune.go              decode objects of built-in types; of custom ones
//	default.go; fill.go                          default, likewise
//	settle.go                                    settle
//	validate.go, scalars.go, patterns.go,        validate custom objects
//	embedded.go, lists.go, report.go
//	correlate.go                                 new and old values of an update
//	invariants.go                                what is asserted in tests
//
// # One write, step by step
//
// A Deployment is created with
//
//	spec: {replicas: 1, template: {spec: {containers: [{name: web, resources: {limits: {cpu: "0.5"}}}]}}, colour: red}
//
// Decode drops spec.colour and reports it, makes cpu "500m", and adds the members that Go always writes: `strategy:
// {}`, `status: {}`, `metadata: {}` in the template. Default adds the defaults that comments of the Go types declare;
// those that are code in Kubernetes are functions in internal/builtin. Ownership is computed on the result. Settle, at
// last, turns every empty list and map into null, and drops it if the field has omitempty. For a custom object Decode
// drops spec.colour as well, but neither knows quantities nor adds a member, Default uses the defaults of its schema,
// and Settle changes nothing.
//
// # Why types are compiled
//
// Two alternatives are to interpret the OpenAPI document of a kind, and to decode into its Go struct. The first one
// resolves references and compares strings at each field of each object. The second one needs a Go struct per kind,
// which a custom kind does not have, and allocates all fields of the object even if only one has changed. A Type holds
// what the walks need, in the form in which they need it: fields sorted by name as the members of values are, the zero
// value as one shared value, the fields that are always written as a list of indices, and whether there is any default
// below.
//
// # Invariants
//
// The walks are idempotent, and a walk that changes nothing returns the memory that it was given:
//
//	Settle(Settle(v)) = Settle(v)        DecodeFrom(v, settled) = Decode(v)        SettleFrom(v, settled) = Settle(v)
//
// The second property makes the rest of a write cheap: an object of which one field is patched shares all other
// subtrees with the stored one, and the later steps (ownership, validation, printing) skip whatever is shared.
//
// # Caveats
//
// Validation of built-in objects beyond their types belongs to the kinds (internal/builtin), not to this package.
//
// A built-in type keeps untyped content (RawExtension) as it was written, [object.Number] literals included, because
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
	Any         Kind = iota // any JSON value, kept as it is; its numbers are untyped ones
	Struct                  // named fields
	Map                     // any keys, one element type
	List                    // one element type
	String                  // text
	Bool                    // true or false
	Int                     // integer of Bits bits
	Float                   // floating point number of 64 bits
	Bytes                   // base64 text
	Quantity                // resource.Quantity, kept in its canonical form
	IntOrString             // intstr.IntOrString
	Time                    // metav1.Time: RFC 3339, seconds
	MicroTime               // metav1.MicroTime: RFC 3339, microseconds
)

// ListType says how two lists merge (SSA-8).
type ListType uint8

// The list types.
const (
	Atomic      ListType = iota // replaced as a whole
	Set                         // of scalars, each once
	Associative                 // of maps, told apart by ListKeys
)

// Type is one compiled type. It is immutable once it has been returned, and shared: a Go type has one Type, and so has
// each place of a schema. A list, map or struct whose field has its own markers is a Type of that field alone.
//
// Invariants (checkCompiled): names of Fields strictly ascend; always strictly ascends; a built-in Associative list has
// ListKeys, which are fields of Elem.
type Type struct {
	Kind Kind
	// Name is the OpenAPI model name, "io.k8s.api.apps.v1.DeploymentSpec"; GoName the Go type's, "DeploymentSpec", which
	// error messages use. Both are empty for a type without a name, such as []string.
	Name, GoName string
	Bits         uint8 // Int: 32 or 64

	Fields []Field // Struct: sorted by name
	Elem   *Type   // List, Map; Struct: of the fields that are not declared, nil if it may have none

	ListType  ListType
	ListKeys  []string // Associative
	AtomicMap bool     // Map, Struct, Any: owned and replaced as a whole
	// Marked says that a marker set ListType or AtomicMap, in which case OpenAPI publishes them. Where it is false, they
	// follow from the patch tags or are the zero value.
	Marked bool

	// Wrapped says that protobuf encodes the list as a message: ExtraValue, Verbs.
	Wrapped bool

	Enum []string // String: the possible values; OpenAPI lists them, the server does not enforce them

	// Custom holds the constraints of a structural schema on the values beyond that; nil where it has none, and in a
	// built-in type.
	Custom *Constraints

	Typeless bool    // Any: OpenAPI does not even declare it to be an object
	Either   *Either // Any: the value has one of two forms; nil: any form

	golang   reflect.Type // the Go type from which a built-in type was compiled; nil in a custom type
	doc      string       // the description, where golang has no method that returns it
	unmarked *Type        // see Unmarked; nil: the type itself
	zero     object.Value // see Zero; null in a custom type
	names    names        // Struct: an index of Fields; empty for a struct of more fields than it can hold
	always   []uint16     // Struct: indices of the Fields that are written even when they are unset, ascending
	fills    bool         // Default may change a value of this type, or below it; in a custom type: only below
	complete bool         // of a built-in type: other goroutines may be reading it, and a later batch must not change it
}

// Field is one field of a Struct.
type Field struct {
	Name string
	Type *Type
	// How Go's encoding of built-in types treats the zero value (VAL-4): a pointer is either absent or set, a non-pointer
	// with omitempty is absent when zero, one without is always written. OmitZero also leaves out a struct that is zero.
	//
	//	strategy DeploymentStrategy `json:"strategy"`               absent is written as strategy: {}
	//	paused bool `json:"paused,omitempty"`                       false is not written
	//	replicas *int32 `json:"replicas,omitempty"`                 0 is written, absent is not
	//	creationTimestamp Time `json:"…,omitempty,omitzero"`        null is not written; with omitempty alone it is
	Pointer, OmitEmpty, OmitZero bool
	// TellsEmpty says that a rule of the reference tells an empty value from an absent one, see EmptyField.
	TellsEmpty bool
	Required   bool         // by the markers; published by OpenAPI, not enforced by the reference
	Default    object.Value // by the +default marker; Nil if there is none
	Number     int          // protobuf field number, 0 if there is none
	// Within are the protobuf field numbers of the embedded structs that hold the field, outermost first: JSON sees
	// through embedding, protobuf does not.
	Within []int
	// PatchStrategy and PatchMergeKey are the strategic merge patch tags, "merge,retainKeys" and "name".
	PatchStrategy, PatchMergeKey string

	// owner is the Go struct that declares the field. For a field of an embedded struct it is not the struct of the Type;
	// embedded is then the path to it, "ProbeHandler.".
	owner    reflect.Type
	embedded string
	doc      string // the description, where owner has no method that returns it
}

// Decoded is a value that conforms to its type.
type Decoded struct {
	Value object.Value
	// Unknown has the paths of the fields that the type does not have, at most maxUnknown; they are not in Value.
	Unknown []string
	// Empty are the empty fields with TellsEmpty that were left out.
	Empty []EmptyField
}

// TypeError is a value that does not have the type of its place: {replicas: "3"}. The client gets a 400 for it (VAL-1),
// and decoding returns no other error. A value of the right type that is still invalid, {replicas: -3}, is found by
// validation: a 422.
type TypeError struct {
	Path    string // "spec.replicas"
	Message string // as the reference words it: `json: cannot unmarshal string into Go struct field …`
}

func (e *TypeError) Error() string { return e.Message }

// Zero is the zero value of a built-in type as Go's encoding prints it; that of a Container is {name: "", resources:
// {}}. It is one value, shared by all objects in which the type is absent.
func (t *Type) Zero() object.Value { return t.zero }

// Field finds a field of a Struct by its name; nil if the type does not have it.
func (t *Type) Field(name string) *Field {
	if i, ok := t.find(name, 0); ok {
		return &t.Fields[i]
	}
	return nil
}

// find is the index of a field, or the one at which it would have to be inserted. from must not be greater than the
// result. The insertion point is needed where a member is unknown: the fields that are always written and sort before
// it must be inserted before it is passed. The binary search runs only then, or in a struct without an index.
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

// Implied is the value that an absent field stands for: its default, or the zero value of a scalar that Go always
// writes. Nil if neither applies. Server-side apply identifies list items by it, where an intent leaves out a key: the
// port {containerPort: 80} of a Pod, whose keys are containerPort and protocol, is the one with protocol TCP.
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

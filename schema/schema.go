// Package schema holds compiled types: which fields an object may have, what their values may be, and how lists and
// maps merge. Every served type, built-in or custom, is a graph of [Type]s. It is compiled from Go types by reflection
// ([Compiler]) or from the schema of a definition ([Structural]), and from then on the same walks serve both.
//
// # Glossary
//
//   - to decode: to check a value against a type, bring its scalars into the stored form, drop unknown fields and
//     report them ([Type.Decode]). The result for a built-in type is what the typed codec of Kubernetes prints after
//     reading the same text: members that Go always writes are there, empty ones that it leaves out are not.
//   - to prune: to decode by the rules of custom types. Unknown fields are dropped and reported, nothing is added.
//   - to default: to fill in the defaults of a type ([Type.Default]).
//   - to settle: to bring a value into the form in which it is stored ([Type.Settle]): for built-in types what
//     survives a round trip through protobuf, where empty lists and maps are null.
//   - zero value: what Go's encoding prints for a type of which no field is set ([Type.Zero]).
//   - marker: a line of a comment in the Go sources (+listType=map), or the keyword of a schema that says the same.
//   - place: a field, item or member in an object, with the path from the top.
//   - junctor: allOf, anyOf, oneOf or not in the schema of a custom type; its schemas are the branches.
//   - settled: a value that Settle has nothing to change in; also the older version of an object that a new one was
//     made from, whose subtrees the walks may skip.
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
// Decode drops spec.colour and reports it, makes cpu "500m", and adds what Go always writes: `strategy: {}`, `status:
// {}`, `metadata: {}` in the template. Default is for the defaults that comments of the Go types state; those that are
// code in Kubernetes are functions in internal/builtin. Ownership is computed on the result. Settle, at last, turns
// every empty list and map into null, and drops it where the field has omitempty. For a custom object Decode drops
// spec.colour as well, but neither knows quantities nor adds anything, Default takes the defaults of its schema, and
// Settle does nothing.
//
// # Why types are compiled
//
// The obvious ways are to interpret the OpenAPI document of a kind, or to decode into its Go struct. The first one
// resolves references and reads strings at each field of each object. The second one needs a Go struct per kind, which
// a custom kind does not have, and allocates all of its fields to say what became of one. A Type holds what the walks
// ask for, in the form in which they ask: fields sorted by name as the members of values are, the zero value as one
// shared value, the fields that are always written as a list of indices, and whether there is any default below.
//
// # Invariants
//
// The walks may be repeated, in which case they change nothing, and they return the same memory where they change
// nothing:
//
//	Settle(Settle(v)) = Settle(v)        DecodeFrom(v, settled) = Decode(v)        SettleFrom(v, settled) = Settle(v)
//
// The second point is what makes the rest of a write cheap: an object of which one field is patched shares all other
// subtrees with the stored one, and what follows (ownership, validation, printing) skips whatever it shares.
//
// # Caveats
//
// Validation of built-in objects beyond their types is not here but with the kinds (internal/builtin).
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

// Type is one compiled type. It is immutable once it has been returned, and shared: a Go type has one Type, and so has
// each place of a schema. A list, map or struct whose field has markers of its own is a Type of that field alone.
//
// Invariants (checkCompiled): names of Fields strictly ascend; always strictly ascends; an Associative list has
// ListKeys, which are fields of Elem.
type Type struct {
	Kind Kind
	// Name is the OpenAPI model name, "io.k8s.api.apps.v1.DeploymentSpec"; GoName the Go type's, "DeploymentSpec",
	// which error messages use. Both are empty for what has no name of its own.
	Name, GoName string
	Bits         uint8 // Int, Float: 32 or 64

	Fields []Field // Struct: sorted by name
	Elem   *Type   // List, Map; Struct: of the fields that are not declared, nil if there are none

	ListType  ListType
	ListKeys  []string // Associative
	AtomicMap bool     // Map, Struct, Any: owned and replaced as a whole
	// Marked says that ListType or AtomicMap was said by a marker, so that OpenAPI tells of it; where it is false,
	// they are what the patch tags or nothing at all make of it.
	Marked bool

	// Wrapped says that protobuf puts the list into a message of its own: ExtraValue, Verbs.
	Wrapped bool

	Enum []string // String: the values there are; OpenAPI tells of them, nobody enforces them

	// Custom is what a structural schema says of the values beyond that; nil where it says nothing, and in a built-in
	// type.
	Custom *Constraints

	Typeless bool    // Any: OpenAPI does not even say that it is an object
	Either   *Either // Any: the value has one of two forms; nil: it is whatever it is

	golang   reflect.Type // what a built-in type was compiled from; nil in a custom type
	doc      string       // the description, where golang has no method that tells it
	unmarked *Type        // see Unmarked; nil: the type itself
	zero     object.Value // see Zero; null in a custom type
	names    names        // Struct: an index of Fields; empty for a struct of more fields than it can hold
	always   []uint16     // Struct: indices of the Fields that are written even when nobody set them, ascending
	fills    bool         // Default has something to do at a place of this type or below; in a custom type: below
	complete bool         // of a built-in type: other goroutines may be reading it, and a later batch must not change it
}

// Field is one field of a Struct.
type Field struct {
	Name string
	Type *Type
	// What Go's encoding of built-in types does with the zero value (VAL-4): a pointer is absent or there, a non-pointer
	// with omitempty is absent when zero, one without is always written. OmitZero goes by the zero value of structs, too.
	//
	//	strategy DeploymentStrategy `json:"strategy"`               absent is written as strategy: {}
	//	paused bool `json:"paused,omitempty"`                       false is not written
	//	replicas *int32 `json:"replicas,omitempty"`                 0 is written, absent is not
	//	creationTimestamp Time `json:"…,omitempty,omitzero"`        null is not written; with omitempty alone it is
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
	// Unknown holds the path of every field that the type does not have, at most maxUnknown; they are no longer in
	// Value.
	Unknown []string
}

// TypeError is a value that does not have the type of its place: {replicas: "3"}. It is a 400 to the client (VAL-1),
// and the only error of decoding. What is of the right type and still wrong, {replicas: -3}, is found by validation: a
// 422.
type TypeError struct {
	Path    string // "spec.replicas"
	Message string // as the reference words it: `json: cannot unmarshal string into Go struct field …`
}

func (e *TypeError) Error() string { return e.Message }

// Zero is the zero value of a built-in type as Go's encoding prints it: of a Container {name: "", resources: {}}. It is
// one value for all objects in which the type is absent.
func (t *Type) Zero() object.Value { return t.zero }

// Field finds a field of a Struct; nil if there is none of that name.
func (t *Type) Field(name string) *Field {
	if i, ok := t.find(name, 0); ok {
		return &t.Fields[i]
	}
	return nil
}

// find is the index of a field, or the one at which it would have to be inserted. from is an index that is not greater
// than that. The insertion point is needed where a member is unknown: the fields that are always written and sort
// before it must be inserted before it is passed. Only then, or in a struct without an index, does the binary search
// run.
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

package schema

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// Constraints is what a structural schema says of the values at a place beyond the type they have: what the fields of
// Type cannot say. [Structural] makes it; a place of which nothing is said has none. It is immutable, like its Type.
//
// Bounds are pointers, as 0 is a bound: maxItems: 0 is not the same as no maxItems.
//
// The junctors (AllOf, AnyOf, OneOf, Not) hold types that describe nothing but constraints: their Kind is Any, but
// for the integer and the string of `x-kubernetes-int-or-string`, and where they constrain the members or the items
// of the value, they have Fields, and what [Type.Items] returns.
type Constraints struct {
	Nullable         bool // null is a value of this place
	PreserveUnknown  bool // fields that are not declared stay
	Embedded         bool // a whole object: apiVersion, kind, metadata; see Metadata
	UniqueItems      bool
	ExclusiveMinimum bool
	ExclusiveMaximum bool

	// Metadata is what the schema of an object (the top, or an embedded one) says of its metadata, beyond that it is
	// ObjectMeta, which is what the type of that field says; nil where it says nothing.
	Metadata *Type

	Format  string // as written, known or not: see [KnowsFormat]
	Pattern string // as written, a regular expression of Go
	Enum    []object.Value

	Minimum, Maximum, MultipleOf *float64
	MinLength, MaxLength         *int64 // of a string, in code points
	MinItems, MaxItems           *int64
	MinProperties, MaxProperties *int64
	Required                     []string

	// Each is compiled like a schema of its own, so that a branch is checked by the same code as any value.
	AllOf, AnyOf, OneOf []*Type
	Not                 *Type

	// Default is what stands for a value that is not there: pruned as every value is, so that it may be less than what
	// the schema says. Null where there is none.
	Default     object.Value
	defaultSize int // of its JSON

	Rules []Rule // x-kubernetes-validations; package cel compiles and runs them

	format string // Format, where it is one that is checked
	// written is, of an IntOrString, what the schema has for a type: Any if nothing. The type beside
	// x-kubernetes-int-or-string counts for defaults only (checker.asDefault).
	written Kind
	inspect func(metadata object.Value, path *field.Path) field.ErrorList // of the top: see StructuralOptions

	// A schema may speak of the items of what it does not call an array, and of the members of what it does not call
	// an object. Pruning and validation go by the value, not by the name of its type, so that both count.
	items *Type // of a Kind other than List
	// of a Kind other than Map: what additionalProperties says; Elem of a Struct says what merges make of it
	additional *Type
}

// Rule is one rule of x-kubernetes-validations, as written. OptionalOldSelf is nil where it is not said, which is the
// same as false to its evaluation, but not to the rules that definitions are held to.
type Rule struct {
	Rule, Message, MessageExpression, Reason, FieldPath string
	OptionalOldSelf                                     *bool
}

// Items is the type of the items of a list at a place of this type: Elem of a List; for the constraints within a
// junctor, what they say of items. Nil where nothing is said. It may be asked of any type, as a value need not be of
// the kind that its type names.
func (t *Type) Items() *Type {
	switch {
	case t.Kind == List:
		return t.Elem
	case t.Custom != nil:
		return t.Custom.items
	}
	return nil
}

// additional is the type of the members that are not declared, as additionalProperties has it; nil where it says
// nothing.
func (t *Type) additional() *Type {
	switch {
	case t.Kind == Map:
		return t.Elem
	case t.Custom != nil:
		return t.Custom.additional
	}
	return nil
}

// preserves, embeds and nullable are keywords of the schema of a place, false in a built-in type.
func (t *Type) preserves() bool { return t.Custom != nil && t.Custom.PreserveUnknown }
func (t *Type) embeds() bool    { return t.Custom != nil && t.Custom.Embedded }
func (t *Type) nullable() bool  { return t.Custom != nil && t.Custom.Nullable }

// fallback is the default of the place in a custom type, null where it has none. A default of null counts as none.
func (t *Type) fallback() object.Value {
	if t.Custom == nil {
		return object.Nil
	}
	return t.Custom.Default
}

package schema

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// Constraints are the constraints of a structural schema on the values at a place, beyond their type: the keywords that
// the fields of Type cannot express. [Structural] makes them; a place without any has none. They are immutable, like
// their Type.
//
// Bounds are pointers, as 0 is a bound: maxItems: 0 is not the same as no maxItems.
//
// The junctors (AllOf, AnyOf, OneOf, Not) hold types that consist of constraints alone. Their Kind is Any, except for
// the integer and the string of `x-kubernetes-int-or-string`. Where they constrain the members or the items of the
// value, they have Fields, and [Type.Items] returns a type.
type Constraints struct {
	Nullable         bool // null is valid here
	PreserveUnknown  bool // fields that are not declared stay
	Embedded         bool // a whole object: apiVersion, kind, metadata; see Metadata
	UniqueItems      bool
	ExclusiveMinimum bool
	ExclusiveMaximum bool

	// Metadata has the constraints of the schema on the metadata of an object (the top or an embedded one). The type of
	// the field itself is ObjectMeta, regardless of the schema. Nil if the schema has none.
	Metadata *Type

	Format  string // as written, known or not: see [KnowsFormat]
	Pattern string // as written, a regular expression of Go
	Enum    []object.Value

	Minimum, Maximum, MultipleOf *float64
	MinLength, MaxLength         *int64 // of a string, in code points
	MinItems, MaxItems           *int64
	MinProperties, MaxProperties *int64
	Required                     []string

	// Each is compiled like a separate schema, so that a branch is checked by the same code as any value.
	AllOf, AnyOf, OneOf []*Type
	Not                 *Type

	// Default is used if the value is absent. It has been pruned like every value, so that it may have fewer fields than
	// the default in the schema. Null if there is none.
	Default     object.Value
	defaultSize int // of its JSON

	Rules []Rule // x-kubernetes-validations; package cel compiles and runs them

	format string // Format, where it is one that is checked
	// written is the type that the schema of an IntOrString names; Any if it names none. The type beside
	// x-kubernetes-int-or-string counts for defaults only (checker.asDefault).
	written Kind
	inspect func(metadata object.Value, path *field.Path) field.ErrorList // of the top: see StructuralOptions

	// A schema may constrain the items of a value that it does not call an array, and the members of one that it does not
	// call an object. Pruning and validation follow the kind of the value, not the name of its type, so that both apply.
	items *Type // of a Kind other than List
	// of a Kind other than Map: additionalProperties. Elem of a Struct is its form for merges
	additional *Type
}

// Rule is one rule of x-kubernetes-validations, as written. OptionalOldSelf is nil where the rule does not have it.
// Evaluation treats nil as false, but the validation of definitions distinguishes the two.
type Rule struct {
	Rule, Message, MessageExpression, Reason, FieldPath string
	OptionalOldSelf                                     *bool
}

// Items is the type of the items of a list at a place of this type: Elem of a List; for the constraints within a
// junctor, the constraints on items. Nil if there are none. It may be called for any type, since the kind of a value
// may differ from that of its type.
func (t *Type) Items() *Type {
	switch {
	case t.Kind == List:
		return t.Elem
	case t.Custom != nil:
		return t.Custom.items
	}
	return nil
}

// additional is the type of the members that are not declared (additionalProperties); nil where the schema has none.
func (t *Type) additional() *Type {
	switch {
	case t.Kind == Map:
		return t.Elem
	case t.Custom != nil:
		return t.Custom.additional
	}
	return nil
}

// preserves, embeds and nullable report keywords of the schema of a place. They are false in a built-in type.
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

package schema

import (
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/invariants"
	"plinth/object"
)

// This file compiles the schemas of definitions. An example, without the fields that every object has:
//
//	type: object                               Struct
//	properties:                                  Fields, sorted:
//	  replicas: {type: integer, default: 1}        replicas  Int    Custom{Default: 1}
//	  labels:   {type: object,                     labels    Map    Elem: String (plainString)
//	    additionalProperties: {type: string}}
//	  ports:                                       ports     List   Associative, ListKeys: [name]
//	    type: array                                          Elem:  Struct
//	    x-kubernetes-list-type: map                                   name  String (plainString)
//	    x-kubernetes-list-map-keys: [name]                            port  Int    Custom{Maximum: 65535}
//	    items: {type: object, properties:
//	      {name: {type: string},
//	       port: {type: integer, maximum: 65535}}}
//
// A type is compiled when a request first needs the version of the definition, and once more, for its checks, when the
// definition is written. A large definition has ten thousand places, so memory counts: a place whose schema is just
// "string" costs its Field and no more (node.shared).

// StructuralOptions are the inputs that a structural schema does not contain.
type StructuralOptions struct {
	// Metadata is the type of metadata in every object, the top and the embedded ones: ObjectMeta, compiled from Go.
	Metadata *Type
	// Inspect returns the errors in the metadata of an embedded object; nil disables it. An embedded object may lack a
	// name, and its name may be any segment of a URL. It is namespaced if it has a namespace.
	Inspect func(metadata object.Value, path *field.Path) field.ErrorList
}

// Types without further constraints are shared by all custom types: most fields of most schemas have one of these.
//
// They are compared by identity. If a place has one of the last four, no schema was written for it (declared); plainInt
// and plainString in anyOf are recognised as the anyOf that every x-kubernetes-int-or-string has (takesEither). Like
// every Type they are immutable.
var (
	plainString = &Type{Kind: String}
	plainBool   = &Type{Kind: Bool}
	plainInt    = &Type{Kind: Int, Bits: 64}
	plainFloat  = &Type{Kind: Float}
	int32s      = &Type{Kind: Int, Bits: 64, Custom: &Constraints{Format: "int32", format: "int32"}}
	int64s      = &Type{Kind: Int, Bits: 64, Custom: &Constraints{Format: "int64", format: "int64"}}
	dateTimes   = &Type{Kind: String, Custom: &Constraints{Format: "date-time", format: "date-time"}}
	// anything is content without a schema: a merge treats its maps as granular and its lists as atomic (SSA-9).
	anything = &Type{Kind: Any}
	// emptied is the type of a member under `additionalProperties: true`. A merge treats it like anything. But pruning
	// finds no field in it: scalars and lists stay, maps lose all their members.
	emptied = &Type{Kind: Any}
	// closed is the type of a member under `additionalProperties: false`: pruning treats it like true, as the reference
	// does, validation refuses it.
	closed = &Type{Kind: Any}
	// bareTypeMeta is the type of apiVersion and kind where the schema does not declare them.
	bareTypeMeta = &Type{Kind: String}
)

// Structural compiles the openAPIV3Schema of a version of a CustomResourceDefinition, which has been validated as
// structural. It returns an error for a schema that is not structural: such a version is not served, even if its
// definition is in the store. Descriptions are left out; strings of the type point into the schema.
//
// The problem: one schema has three readers that disagree. Validation reads it as JSON schema, in which a keyword
// applies to the values that it fits, whatever type is written beside it. Pruning checks which members are declared,
// follows the kind of the value, and lets x-kubernetes-preserve-unknown-fields apply down to the next schema that is
// written out. A merge uses the OpenAPI document that the reference makes of the schema, in which preserving applies to
// everything below. For
//
//	{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: object, properties: {b: …}}}}
//
// and the value {a: {c: {}}, d: {}}, pruning drops a.c and keeps d, while the set of an intent has .a.c as well as .d.
// A Type must serve all three. Its fields (Kind, Fields, Elem, ListType) are those for a merge; what only pruning and
// validation need is in Constraints: the items of other kinds than List, and additionalProperties.
//
// For a merge the type is derived from the OpenAPI document that the reference publishes (SSA-8, SSA-9): lists are
// atomic and maps granular unless marked otherwise. Undescribed content, below x-kubernetes-preserve-unknown-fields at
// any depth or in an object without properties, has the type anything, as Elem of the Struct. Pruning has its own
// rules, which do not reach as deep: see prune.go.
//
// An incoming object (create, update, the result of a patch) passes through [Type.Decode], [Type.Default] and, after
// admission, [Type.Validate]. The result of an apply gets its defaults and is validated before it is decoded: fields
// that the schema does not have are owned, and pruned only when the object is stored. An object that was stored in
// another form than today's passes through [Type.DecodeStored] and [Type.Default] of the version that it is stored in,
// and after a conversion through Decode of the requested version, whose defaults it does not get.
func Structural(openAPI object.Value, o StructuralOptions) (*Type, error) {
	c := structural{metadata: o.Metadata}
	t, err := c.compile(openAPI, false, true)
	if err != nil {
		return nil, err
	}
	if t.Kind != Struct {
		return nil, fmt.Errorf("an object cannot be of type %q", openAPI.At("type").Str())
	}
	if c.embeds {
		t.Custom.inspect = o.Inspect
	}
	return t, nil
}

// structural is the state of one compilation.
type structural struct {
	metadata *Type // ObjectMeta: see StructuralOptions
	embeds   bool  // there are embedded objects, for which Validate walks the value once more
}

// node is one schema, parsed but not compiled: the keywords that decide the shape of the Type beside those that
// constrain values. The result of each keyword depends on the others (shape), so that all are read first.
//
// Invariant: constraints = 0 ⇔ c has no constraint. A Type gets Constraints only where there are any: they take 350
// bytes, and most places have none.
type node struct {
	kind                        string // "type"
	intOrString                 bool   // x-kubernetes-int-or-string
	constraints                 int    // how many keywords c holds
	c                           Constraints
	properties, items           object.Value // schemas, not compiled; null if there are none
	additional                  object.Value // additionalProperties: a schema or a boolean
	listType, mapType           string
	listKeys                    []string
	allOf, anyOf, oneOf, negate object.Value // lists of schemas; negate, a single one, is "not"
}

// compile returns the type of a schema. open says that it, or a schema around it, preserves unknown fields, in which
// case a merge treats undescribed content as anything; root says that it is the top.
//
// It works bottom-up: a default is pruned by the finished type of its place, and fills depends on the types below. The
// recursion is as deep as the schema, which was parsed with a bound on depth (object.MaxDepth), and takes time linear
// in it: a schema cannot refer to another one, since $ref is not structural.
func (s *structural) compile(from object.Value, open, root bool) (*Type, error) {
	n, err := read(from)
	if err != nil {
		return nil, err
	}
	if root {
		if n.kind == "" { // as x-kubernetes-preserve-unknown-fields allows
			n.kind = "object"
		}
		n.c.Embedded = true
		n.constraints++
	}
	if t := n.shared(); t != nil {
		return t, nil
	}
	open = open || n.c.PreserveUnknown
	t := &Type{}
	if err := s.shape(t, &n, open, root); err != nil {
		return nil, err
	}
	if err := s.junctors(&n); err != nil {
		return nil, err
	}
	// shape and junctors may have added constraints: n.c is copied only now.
	if invariants.Enabled {
		t.checkCompiled()
	}
	if n.constraints > 0 {
		c := n.c
		t.Custom = &c
		t.Custom.format = t.effectiveFormat(c.Format)
		t.Custom.setDefault(s.pruned(t))
	}
	if n.c.Embedded {
		t.pruneMetadata()
	}
	t.fills = t.fillsBelow()
	return t, nil
}

// shared is the type of a schema that has no keyword but the type of a scalar and, possibly, a format that most schemas
// written by controller-gen have; nil for any other schema.
func (n *node) shared() *Type {
	if n.constraints > 1 || n.constraints == 1 && n.c.Format == "" || n.intOrString || !n.properties.IsNull() ||
		!n.items.IsNull() || !n.additional.IsNull() || n.junctor() {
		return nil
	}
	switch [2]string{n.kind, n.c.Format} {
	case [2]string{"string", ""}:
		return plainString
	case [2]string{"string", "date-time"}:
		return dateTimes
	case [2]string{"boolean", ""}:
		return plainBool
	case [2]string{"integer", ""}:
		return plainInt
	case [2]string{"integer", "int32"}:
		return int32s
	case [2]string{"integer", "int64"}:
		return int64s
	case [2]string{"number", ""}:
		return plainFloat
	}
	return nil
}

// junctor says whether the schema has allOf, anyOf, oneOf or not: the "logical junctors" of structural schemas.
func (n *node) junctor() bool {
	return n.allOf.Len() > 0 || n.anyOf.Len() > 0 || n.oneOf.Len() > 0 || !n.negate.IsNull()
}

// writtenKinds are the names of types.
var writtenKinds = map[string]Kind{"object": Struct, "array": List, "string": String, "boolean": Bool, "integer": Int,
	"number": Float}

// shape fills in the structure of the type: the kind, members, items, and how they merge. The first row that matches
// applies.
//
//	type     other keywords                        Kind            Elem
//	any      x-kubernetes-int-or-string            IntOrString
//	none                                           Any
//	object   a schema as additionalProperties      Map             that schema
//	object   properties                            Struct          additionalProperties; any value if open
//	object   none                                  Struct          any value
//	array    items                                 List            the items
//	scalar                                         that scalar
//
// An object with neither properties nor additionalProperties is a Struct without fields and not a Map of anything: none
// of its keys is declared, so that pruning empties it, while the keys of a Map are kept.
//
// Keywords without a column in their row, such as the items of an object, are kept in Constraints: under {type: object,
// items: {type: string}} validation checks the items of a list, though a list also fails as an object.
func (s *structural) shape(t *Type, n *node, open, root bool) error {
	var items, additional *Type
	var err error
	if n.items.Kind() == object.Map {
		if items, err = s.compile(n.items, open, false); err != nil {
			return err
		}
	}
	switch n.additional.Kind() {
	case object.Map:
		if additional, err = s.compile(n.additional, open, false); err != nil {
			return err
		}
	case object.Bool:
		if additional = closed; n.additional.Bool() {
			additional = emptied
		}
	}
	if err := s.fields(t, n, open, root); err != nil {
		return err
	}
	switch {
	case n.intOrString:
		t.Kind = IntOrString
		n.c.written = writtenKinds[n.kind]
		n.constraints++
	case n.kind == "":
		t.Kind = Any
	case n.kind == "object" && len(t.Fields) == 0 && additional != nil && additional.declared():
		t.Kind, t.Elem, additional = Map, additional, nil
	case n.kind == "object":
		t.Kind = Struct
		switch t.Elem = additional; {
		case additional == closed:
			t.Elem = nil
		case additional == nil && (open || len(t.Fields) == 0):
			t.Elem = anything
		}
	case n.kind == "array":
		if items == nil {
			return fmt.Errorf("the items of an array have no schema")
		}
		t.Kind, t.Elem, items = List, items, nil
	default:
		scalar := (&node{kind: n.kind}).shared()
		if scalar == nil {
			return fmt.Errorf("there is no type %q", n.kind)
		}
		t.Kind, t.Bits = scalar.Kind, scalar.Bits
	}
	// What Elem does not hold is kept for pruning and validation.
	if items != nil || additional != nil {
		n.c.items, n.c.additional = items, additional
		n.constraints++
	}
	return n.mark(t)
}

// fields compiles the properties of a schema. They are sorted by name, as the members of every map are. All have
// OmitEmpty: unset fields of a custom object are never written (Type.always is empty). Default is the one of the
// property's type, where a merge looks up the value that an absent key implies (Field.Implied).
func (s *structural) fields(t *Type, n *node, open, root bool) error {
	members := n.properties.Members()
	if len(members) == 0 && !n.c.Embedded {
		return nil
	}
	t.Fields = make([]Field, 0, len(members)+3)
	for i := range members {
		of, err := s.compile(members[i].Value, open, false)
		if err != nil {
			return fmt.Errorf("%s: %w", members[i].Key, err)
		}
		t.Fields = append(t.Fields, Field{Name: members[i].Key, Type: of, OmitEmpty: true, Default: of.fallback()})
	}
	if n.c.Embedded {
		s.embeds = s.embeds || !root
		s.object(t, n)
	}
	if len(t.Fields) < math.MaxUint16 { // else find searches; a definition of 3 MB may have as many properties
		t.names = namesOf(t.Fields)
	}
	return nil
}

// object gives a Struct the fields that every object has. metadata has the type ObjectMeta whatever its schema, as it
// is decoded as such; the schema is kept as Constraints.Metadata, for defaults and validation: a schema may demand that
// metadata.name has at most 20 characters. apiVersion and kind are strings; a schema that gives them another type is
// ignored.
func (s *structural) object(t *Type, n *node) {
	for _, name := range [...]string{"apiVersion", "kind", "metadata"} {
		i, ok := slices.BinarySearchFunc(t.Fields, name, func(f Field, name string) int {
			switch {
			case f.Name < name:
				return -1
			case f.Name > name:
				return 1
			}
			return 0
		})
		if !ok {
			t.Fields = slices.Insert(t.Fields, i, Field{Name: name, OmitEmpty: true})
		}
		f := &t.Fields[i]
		switch {
		case name == "metadata":
			n.c.Metadata, f.Type = f.Type, s.metadata
		case f.Type == nil || f.Type.Kind != String:
			f.Type = bareTypeMeta
		}
	}
}

// junctors compiles the branches of allOf, anyOf, oneOf and not.
func (s *structural) junctors(n *node) (err error) {
	if !n.junctor() {
		return nil
	}
	n.constraints++
	if n.c.AllOf, err = s.nested(n.allOf); err != nil {
		return err
	}
	if n.c.AnyOf, err = s.nested(n.anyOf); err != nil {
		return err
	}
	if n.c.OneOf, err = s.nested(n.oneOf); err != nil {
		return err
	}
	if !n.negate.IsNull() {
		n.c.Not, err = s.compile(n.negate, false, false)
	}
	return err
}

// nested compiles the schemas of a list. They are not open: a junctor describes no fields, it constrains values. A
// branch may repeat properties of the schema around it in order to constrain them, and pruning ignores it.
func (s *structural) nested(list object.Value) ([]*Type, error) {
	if list.Len() == 0 {
		return nil, nil
	}
	out := make([]*Type, 0, list.Len())
	for _, from := range list.Items() {
		t, err := s.compile(from, false, false)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// mark applies x-kubernetes-list-type, -list-map-keys and -map-type, which control how a value merges (SSA-8). Marked
// distinguishes an explicit keyword from the same value as the default: the OpenAPI document repeats only explicit
// ones.
func (n *node) mark(t *Type) error {
	switch n.listType {
	case "":
	case "atomic":
		t.Marked = true
	case "set":
		t.ListType, t.Marked = Set, true
	case "map":
		if len(n.listKeys) == 0 {
			return fmt.Errorf("a list of type map has no keys")
		}
		t.ListType, t.ListKeys, t.Marked = Associative, n.listKeys, true
	default:
		return fmt.Errorf("there is no list type %q", n.listType)
	}
	switch n.mapType {
	case "":
	case "granular", "atomic":
		t.AtomicMap, t.Marked = n.mapType == "atomic", true
	default:
		return fmt.Errorf("there is no map type %q", n.mapType)
	}
	return nil
}

// pruned is the default of a place after pruning, in which nulls are kept. A default is filled in after the object has
// been pruned, so its unknown fields must be dropped before. New definitions are refused for such a default, and those
// from before that rule are served (PruneDefaults of the reference's package defaulting).
func (s *structural) pruned(t *Type) object.Value {
	if t.Custom.Default.IsNull() {
		return object.Nil
	}
	p := pruner{stored: true, nulls: true}
	return p.value(t.Custom.Default, t, false, &location{index: -1})
}

// setDefault sets the default, null for none, and its size, which filler adds up: measuring it at each use would cost
// as much as filling it in.
func (c *Constraints) setDefault(v object.Value) {
	if c.Default = v; !v.IsNull() {
		c.defaultSize = len(object.AppendJSON(nil, v))
	}
}

// pruneMetadata brings the defaults of metadata and its fields into the form of ObjectMeta, as decoding does with the
// metadata of objects: members that ObjectMeta does not have are dropped. t is the type of the object.
//
// It changes types below t. They are not shared with another place, since a type with a default is never a shared one.
func (t *Type) pruneMetadata() {
	described := t.Custom.Metadata
	if described == nil || !described.fills && described.fallback().IsNull() {
		return
	}
	p := pruner{stored: true, nulls: true}
	as := func(v object.Value) object.Value {
		v, _ = p.metadata(v, t, &location{up: &location{index: -1}, key: "metadata", index: -1})
		return v
	}
	if v := described.fallback(); !v.IsNull() {
		described.Custom.setDefault(as(v))
	}
	for i := range described.Fields {
		f := &described.Fields[i]
		if v := f.Type.fallback(); !v.IsNull() {
			f.Default = as(object.Fields(f.Name, v)).At(f.Name)
			f.Type.Custom.setDefault(f.Default)
		}
	}
}

// read parses the keywords of a schema. A keyword that a structural schema may not have ($ref, definitions,
// patternProperties) is an error: its author relies on a check that would not take place. One that does not constrain
// values (description, title, example, externalDocs) is skipped, and so are keywords without effect, such as nullable:
// false, and null.
func read(from object.Value) (node, error) {
	if from.Kind() != object.Map {
		return node{}, fmt.Errorf("a schema is a map, not a %s", from.Kind())
	}
	var n node
	for _, m := range from.Members() {
		if m.Value.IsNull() {
			continue
		}
		if known, err := n.structure(m.Key, m.Value); known {
			if err != nil {
				return node{}, err
			}
			continue
		}
		if n.c.set(m.Key, m.Value) {
			n.constraints++
			continue
		}
		switch m.Key {
		case "description", "title", "example", "externalDocs", "nullable", "uniqueItems", "exclusiveMinimum",
			"exclusiveMaximum",
			"x-kubernetes-embedded-resource", "format", "pattern", "required", "enum", "x-kubernetes-validations":
		default:
			return node{}, fmt.Errorf("a structural schema has no %q", m.Key)
		}
	}
	return n, nil
}

// structure reads the keywords that decide the shape of the type. It says whether key is one of them.
func (n *node) structure(key string, v object.Value) (known bool, err error) {
	switch key {
	case "type":
		n.kind = v.Str()
	case "properties":
		n.properties = v
	case "items":
		if n.items = v; v.Kind() != object.Map {
			err = fmt.Errorf("items has to be a schema")
		}
	case "additionalProperties":
		n.additional = v
	case "allOf":
		n.allOf = v
	case "anyOf":
		n.anyOf = v
	case "oneOf":
		n.oneOf = v
	case "not":
		n.negate = v
	case "x-kubernetes-int-or-string":
		n.intOrString = v.Bool()
	case "x-kubernetes-list-type":
		n.listType = v.Str()
	case "x-kubernetes-list-map-keys":
		n.listKeys = texts(v)
	case "x-kubernetes-map-type":
		n.mapType = v.Str()
	default:
		return false, nil
	}
	return true, err
}

// set reads a keyword that constrains values, and says whether it does: nullable: false and an empty list of required
// members do not.
func (c *Constraints) set(key string, v object.Value) bool {
	switch key {
	case "nullable":
		c.Nullable = v.Bool()
		return c.Nullable
	case "uniqueItems":
		c.UniqueItems = v.Bool()
		return c.UniqueItems
	case "exclusiveMinimum":
		c.ExclusiveMinimum = v.Bool()
		return c.ExclusiveMinimum
	case "exclusiveMaximum":
		c.ExclusiveMaximum = v.Bool()
		return c.ExclusiveMaximum
	case "x-kubernetes-preserve-unknown-fields":
		c.PreserveUnknown = v.Bool()
	case "x-kubernetes-embedded-resource":
		c.Embedded = v.Bool()
		return c.Embedded
	case "format":
		c.Format = v.Str()
		return c.Format != ""
	case "pattern":
		c.Pattern = v.Str()
		return c.Pattern != ""
	case "required":
		c.Required = texts(v)
		return len(c.Required) > 0
	case "enum":
		c.Enum = untypedItems(v)
		return len(c.Enum) > 0
	case "x-kubernetes-validations":
		c.Rules = rules(v)
		return len(c.Rules) > 0
	case "default":
		c.Default = untyped(v)
	case "minimum":
		c.Minimum = float(v)
	case "maximum":
		c.Maximum = float(v)
	case "multipleOf":
		c.MultipleOf = float(v)
	default:
		return c.setLength(key, v)
	}
	return true
}

// setLength is set for the keywords that bound a length or a number of items.
func (c *Constraints) setLength(key string, v object.Value) bool {
	switch key {
	case "minLength":
		c.MinLength = integer(v)
	case "maxLength":
		c.MaxLength = integer(v)
	case "minItems":
		c.MinItems = integer(v)
	case "maxItems":
		c.MaxItems = integer(v)
	case "minProperties":
		c.MinProperties = integer(v)
	case "maxProperties":
		c.MaxProperties = integer(v)
	default:
		return false
	}
	return true
}

// rules reads x-kubernetes-validations. Compiling a rule takes milliseconds, and most rules belong to types that are
// not used: package cel compiles them when an object of the type is first validated.
func rules(v object.Value) []Rule {
	out := make([]Rule, 0, v.Len())
	for _, item := range v.Items() {
		r := Rule{
			Rule: item.At("rule").Str(), Message: item.At("message").Str(),
			MessageExpression: item.At("messageExpression").Str(),
			Reason:            item.At("reason").Str(), FieldPath: item.At("fieldPath").Str(),
		}
		if optional := item.At("optionalOldSelf"); optional.Kind() == object.Bool {
			b := optional.Bool()
			r.OptionalOldSelf = &b
		}
		out = append(out, r)
	}
	return out
}

// texts are the strings of a list; "" for an item of another kind, which a validated definition does not have.
func texts(v object.Value) []string {
	out := make([]string, 0, v.Len())
	for _, item := range v.Items() {
		out = append(out, item.Str())
	}
	return out
}

func float(v object.Value) *float64 {
	f := v.Float()
	return &f
}

func integer(v object.Value) *int64 {
	i := v.Int()
	return &i
}

// untyped is a literal of the schema (a default, a value of enum) with its numbers typed like those of a decoded
// object, with which it is compared. A definition with a number that no float can hold has been refused.
func untyped(v object.Value) object.Value {
	if typed, err := v.Untyped(); err == nil {
		return typed
	}
	return v
}

func untypedItems(v object.Value) []object.Value {
	out := make([]object.Value, 0, v.Len())
	for _, item := range v.Items() {
		out = append(out, untyped(item))
	}
	return out
}

// fillsBelow says whether Default may change a value below a place of this type. The place's own default is filled in
// by the type around it, and so does not count here. Built-in types need a different computation, as they may refer to
// themselves (batch.finish).
func (t *Type) fillsBelow() bool {
	under := func(of *Type) bool { return of != nil && (of.fills || !of.fallback().IsNull()) }
	if under(t.Items()) || under(t.additional()) || t.Custom != nil && under(t.Custom.Metadata) {
		return true
	}
	return slices.ContainsFunc(t.Fields, func(f Field) bool { return under(f.Type) })
}

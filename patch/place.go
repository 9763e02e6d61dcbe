package patch

import (
	"fmt"
	"strings"

	"plinth/object"
	"plinth/schema"
)

// This file finds how a place of a patch is merged, by the type of the field there and its tags. The reference reflects
// on Go types (PatchMetaFromStruct of apimachinery's package strategicpatch), and its errors contain the names of Go
// kinds. The same names are used here, so that a patch for a wrong place gets the same error.

// valueType is the type of a map or of the items of a list. Inside of a scalar there are no types, but the names of Go
// kinds for error messages: the reference walks Go types, in which a Quantity is a struct, and its errors name the
// fields of it.
type valueType struct {
	kind    schema.Kind
	t       *schema.Type // nil inside of a scalar that is a struct in Go
	pointer bool
	golang  string // the name of the Go kind if t is nil
}

// member is the type of one member of a map, with its patch tags.
type member struct {
	valueType
	patchStrategy, mergeKey string
	applyKeys               []string // of a list: see Collision
}

func valueTypeOf(t *schema.Type, pointer bool) valueType {
	return valueType{kind: t.Kind, t: t, pointer: pointer}
}

// field finds a member of the map by its name or, like the reference, by a name that differs only in case. It is called
// if both the object and the patch have a map or a list there. A map with arbitrary keys, such as labels, has no
// fields: that is an error, which contains the Go kind.
func (p valueType) field(key string) (member, error) {
	if !p.isStruct() {
		return member{}, misfit("merging an object in json but data type is not struct, instead is: %s", p.kindName())
	}
	if p.kind == schema.Struct {
		field := p.t.Field(key)
		if field == nil {
			field = folded(p.t, key)
		}
		if field != nil {
			return member{valueType: valueTypeOf(field.Type, field.Pointer), patchStrategy: field.PatchStrategy,
				mergeKey: field.PatchMergeKey}, nil
		}
	} else if kind := scalarField(p.kind, key); kind != "" {
		return member{valueType: valueType{golang: kind}}, nil
	}
	return member{}, misfit("unable to find api field in struct %s for the json field %q", p.t.GoName, key)
}

// folded returns the first field whose name differs only in case, or nil.
func folded(t *schema.Type, key string) *schema.Field {
	for i := range t.Fields {
		if strings.EqualFold(t.Fields[i].Name, key) {
			return &t.Fields[i]
		}
	}
	return nil
}

// list finds a member that must be a list. The place of the result is that of the items.
func (p valueType) list(key string) (member, error) {
	field, err := p.field(key)
	if err != nil {
		return member{}, err
	}
	elem := field.valueType
	switch kind := elem.kindName(); {
	case elem.kind == schema.Bytes && elem.t != nil:
		elem = valueType{golang: "uint8"}
	case kind == "slice":
		field.applyKeys = applyKeys(elem.t, field.mergeKey)
		elem = valueTypeOf(elem.t.Elem, false)
		if !field.pointer && elem.kindName() == "slice" {
			return member{}, misfit("unexpected slice of slice")
		}
	case field.pointer:
		elem.pointer = false
	default:
		return member{}, misfit("expected slice or array type, but got: %s", p.reflected())
	}
	field.valueType = elem
	return field, nil
}

// strategy returns how a member is merged: "merge", "replace", or "" if its tag has neither. retainKeys in the tag is
// ignored: only clients use it, when they make patches with a $retainKeys directive.
func (f member) strategy() (string, error) {
	switch f.patchStrategy {
	case "", merging, replacing:
		return f.patchStrategy, nil
	case retainKeys:
		return "", nil
	}
	parts := strings.Split(f.patchStrategy, ",")
	switch {
	case len(parts) == 1:
		return parts[0], nil
	case len(parts) == 2 && parts[0] == retainKeys:
		return parts[1], nil
	case len(parts) == 2 && parts[1] == retainKeys:
		return parts[0], nil
	}
	return "", misfit("unexpected patch strategy: %v", parts)
}

func (p valueType) isStruct() bool { return p.kindName() == "struct" }

// reflected is kindName, but "ptr" for a pointer.
func (p valueType) reflected() string {
	if p.pointer {
		return "ptr"
	}
	return p.kindName()
}

// kindName returns the Go kind of the place in the reference: reflect.Kind as text.
func (p valueType) kindName() string {
	if p.t == nil {
		return p.golang
	}
	switch p.kind {
	case schema.Map:
		return "map"
	case schema.List, schema.Bytes:
		return "slice"
	case schema.String:
		return "string"
	case schema.Bool:
		return "bool"
	case schema.Int:
		return fmt.Sprintf("int%d", p.t.Bits)
	case schema.Float:
		return "float64"
	}
	return "struct" // a scalar that is a struct in Go, or untyped content
}

// scalarField returns the Go kind of an exported field of a struct that is a scalar in JSON. The reference, which walks
// the Go types, finds such fields if a patch has a map at the place of the scalar.
func scalarField(k schema.Kind, key string) string {
	for _, f := range goFields[k] {
		if strings.EqualFold(f[0], key) {
			return f[1]
		}
	}
	return ""
}

// goFields has the names of these fields and their kinds, by the type of the struct.
var goFields = map[schema.Kind][][2]string{
	schema.Quantity:    {{"Format", "string"}},
	schema.IntOrString: {{"Type", "int64"}, {"IntVal", "int32"}, {"StrVal", "string"}},
}

// natives converts values to Go's types, which the reference's errors print.
func natives(items []object.Value) []any {
	list := make([]any, len(items))
	for i, item := range items {
		list[i] = item.Native()
	}
	return list
}

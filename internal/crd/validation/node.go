package validation

import (
	"slices"

	"plinth/object"
)

// node is one schema, parsed from its value. Each member is read once, since a walk needs most members of each node.
type node struct {
	id, dialect, description, typ, title, pattern, mapType, listType string

	// Members that are set at all, whatever their value: pointers in the reference's Go type.
	hasRef, hasDefault, hasMapType, hasListType bool

	nullable, uniqueItems, embedded, intOrString bool

	preserve object.Value // a boolean, or null

	ref                                       object.Value
	defaultValue, required, listKeys          object.Value
	items, additionalItems                    object.Value
	allOf, oneOf, anyOf, not                  object.Value
	properties, additionalProperties          object.Value
	patternProperties, dependencies           object.Value
	definitions, rules                        object.Value
	forbiddenAtStatus, identified, elementary bool
}

// read parses a node. Members that are null, empty or false and that Go would omit are absent, because definitions have
// been decoded.
// An empty $ref is present, but it is an error in every structural schema, so that does not matter.
//
// forbiddenAtStatus: the node has a member that is not allowed at the root of a schema with a status subresource.
// identified: it has id, $schema or $ref. elementary: it has no members except type, $ref and additionalProperties:
// false.
func read(v object.Value) (n node) {
	n.elementary = true
	for _, m := range v.Members() {
		n.member(m)
	}
	return n
}

// member reads one member. Members that no rule uses are ignored.
func (n *node) member(m object.Member) {
	v := m.Value
	atStatus, elementary := false, false
	switch m.Key {
	case "id":
		n.id, n.identified, atStatus = v.Str(), true, true
	case "$schema":
		n.dialect, n.identified, atStatus = v.Str(), true, true
	case "$ref":
		n.ref, n.hasRef, n.identified = v, true, true
		atStatus, elementary = true, true
	case "description":
		n.description = v.Str()
	case "type":
		n.typ, elementary = v.Str(), true
	case "nullable":
		n.nullable, atStatus = true, true
	case "title":
		n.title = v.Str()
	case "default":
		n.defaultValue, n.hasDefault, atStatus = v, true, true
	case "pattern":
		n.pattern = v.Str()
	case "uniqueItems":
		n.uniqueItems = true
	case "enum", "maxProperties", "minProperties":
		atStatus = true
	case "required":
		n.required = v
	case "items":
		n.items = v
	case "allOf":
		n.allOf, atStatus = v, true
	case "oneOf":
		n.oneOf, atStatus = v, true
	case "anyOf":
		n.anyOf, atStatus = v, true
	case "not":
		n.not, atStatus = v, true
	case "properties":
		n.properties = v
	case "additionalProperties":
		n.additionalProperties, atStatus, elementary = v, true, v.Kind() == object.Bool && !v.Bool()
	case "patternProperties":
		n.patternProperties, atStatus = v, true
	case "dependencies":
		n.dependencies, atStatus = v, true
	case "additionalItems":
		n.additionalItems, atStatus = v, true
	case "definitions":
		n.definitions, atStatus = v, true
	case "x-kubernetes-preserve-unknown-fields":
		n.preserve = v
	case "x-kubernetes-embedded-resource":
		n.embedded, atStatus = true, true
	case "x-kubernetes-int-or-string":
		n.intOrString, atStatus = true, true
	case "x-kubernetes-list-map-keys":
		n.listKeys, atStatus = v, true
	case "x-kubernetes-list-type":
		n.listType, n.hasListType, atStatus = v.Str(), true, true
	case "x-kubernetes-map-type":
		n.mapType, n.hasMapType, atStatus = v.Str(), true, true
	case "x-kubernetes-validations":
		n.rules = v
	}
	n.forbiddenAtStatus = n.forbiddenAtStatus || atStatus
	n.elementary = n.elementary && elementary
}

// preserves says whether unknown fields are preserved.
func (n *node) preserves() bool { return n.preserve.Bool() }

// item is the schema of a list's items; null if it is absent, or a list of schemas.
func (n *node) item() object.Value { return ifMap(n.items) }

// additional is the schema of values under unknown names; null if it is absent.
func (n *node) additional() object.Value { return ifMap(n.additionalProperties) }

func ifMap(v object.Value) object.Value {
	if v.Kind() == object.Map {
		return v
	}
	return object.Nil
}

// anyNode says whether a predicate holds for any node of a schema.
func anyNode(schema object.Value, holds func(n *node) bool) bool {
	if schema.Kind() != object.Map {
		return false
	}
	n := read(schema)
	if holds(&n) {
		return true
	}
	for _, one := range [...]object.Value{n.item(), n.not, n.additional(), ifMap(n.additionalItems)} {
		if anyNode(one, holds) {
			return true
		}
	}
	for _, list := range [...]object.Value{n.items, n.allOf, n.anyOf, n.oneOf} {
		for _, one := range list.Items() {
			if anyNode(one, holds) {
				return true
			}
		}
	}
	for _, byName := range [...]object.Value{n.properties, n.patternProperties, n.definitions, n.dependencies} {
		for _, m := range byName.Members() {
			if anyNode(m.Value, holds) {
				return true
			}
		}
	}
	return false
}

func hasDefaults(schema object.Value) bool {
	return anyNode(schema, func(n *node) bool { return n.hasDefault })
}

func hasExtensions(schema object.Value) bool {
	return anyNode(schema, func(n *node) bool {
		return n.embedded || !n.preserve.IsNull() || n.intOrString || n.listKeys.Len() > 0 || n.hasListType ||
			n.rules.Len() > 0
	})
}

// forbidsAdditional says whether a node has additionalProperties: false.
func (n *node) forbidsAdditional() bool {
	return n.additionalProperties.Kind() == object.Bool && !n.additionalProperties.Bool()
}

// unconvertible is the reason why a schema has no structural form; "" if it has one. The reason is a member that
// structural schemas do not have. Except for $schema, other rules refuse these members, too. The order is that of the
// reference (NewStructural).
func unconvertible(schema object.Value) string {
	if schema.Kind() != object.Map {
		return ""
	}
	n := read(schema)
	if text := n.unsupported(); text != "" {
		return text
	}
	for _, below := range slices.Concat([]object.Value{n.not}, n.allOf.Items(), n.anyOf.Items(), n.oneOf.Items()) {
		if text := unconvertible(below); text != "" {
			return text
		}
	}
	if text := n.malformed(); text != "" {
		return text
	}
	if text := unconvertible(n.item()); text != "" {
		return text
	}
	for _, m := range n.properties.Members() {
		if text := unconvertible(m.Value); text != "" {
			return text
		}
	}
	return unconvertible(n.additional())
}

// unsupported reports members that structural schemas do not have, malformed reports values that members do not have in
// a structural schema; both are "" if there is no such error.
func (n *node) unsupported() string {
	for _, part := range [...]struct {
		there bool
		name  string
	}{
		{n.id != "", "id"}, {n.dialect != "", "schema"}, {n.ref.Len() > 0, "$ref"},
		{n.patternProperties.Len() > 0, "patternProperties"},
		{n.dependencies.Len() > 0, "dependencies"}, {!n.additionalItems.IsNull(), "additionalItems"},
		{n.definitions.Len() > 0, "definitions"},
	} {
		if part.there {
			return "OpenAPIV3Schema '" + part.name + "' is not supported"
		}
	}
	return ""
}

func (n *node) malformed() string {
	switch {
	case !n.preserve.IsNull() && !n.preserve.Bool():
		return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
	case n.items.Kind() == object.List:
		return "OpenAPIV3Schema 'items' must be a schema, but is an array"
	}
	return ""
}

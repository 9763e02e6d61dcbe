package validation

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/fielderrors"
	"plinth/object"
	"plinth/schema"
)

// Options is what validation is given by whoever knows more than definitions.
type Options struct {
	// Metadata is the type of the metadata of every object.
	Metadata *schema.Type
	// CheckRules says what is wrong with what the CEL rules of a structural schema say: whether they compile, and what they may
	// cost. How they are written down has been checked before. Nil disables it.
	CheckRules func(t *schema.Type, path *field.Path, o RuleOptions) field.ErrorList
}

// RuleOptions is how the CEL rules of one schema are checked.
type RuleOptions struct {
	// Skip says whether the rules of the node with this path are not to be looked at, because something else is wrong with the
	// schema there or below. Nil: all are.
	Skip func(path string) bool
	// Unchanged says that an old object has this schema already: its rules may each cost more than new ones may.
	Unchanged bool
	// Stored says whether an old object has this expression already, somewhere: as a message if message is set, else as a rule.
	// Nil: none has.
	Stored func(expression string, message bool) bool
}

// celRules checks the CEL rules of a schema that follows the structural rules.
func (c *checker) celRules(openAPI object.Value, version string, p *fielderrors.Place, w *openAPIWalk) {
	if c.CheckRules == nil || !anyNode(openAPI, func(n *node) bool { return n.rules.Len() > 0 }) {
		return
	}
	path := c.Path(p)
	options := schema.StructuralOptions{Metadata: c.Metadata}
	t, err := schema.Structural(openAPI, options)
	if err != nil {
		t, err = schema.Structural(repaired(openAPI), options)
	}
	if err != nil {
		c.List = append(c.List, field.InternalError(path, err))
		return
	}
	o := RuleOptions{Unchanged: c.unchangedSchemas[version], Stored: c.storedExpressions}
	if w.broken != nil {
		o.Skip = func(path string) bool { return w.broken[path] }
	}
	c.List = append(c.List, c.CheckRules(t, path, o)...)
}

// repaired is a schema without what has been found wrong with it and what keeps it from being compiled, so that rules elsewhere in
// it can be checked: those of the nodes at hand and above will not be.
func repaired(openAPI object.Value) object.Value {
	if openAPI.Kind() != object.Map {
		return openAPI
	}
	n := read(openAPI)
	var set []object.Member
	put := func(key string, v object.Value) { set = append(set, object.Member{Key: key, Value: v}) }
	var drop []string
	if n.typ != "" && !slices.Contains(types, n.typ) {
		drop = append(drop, "type")
		put("x-kubernetes-preserve-unknown-fields", object.BoolOf(true))
	}
	if n.hasMapType && !slices.Contains(mapTypes, n.mapType) {
		drop = append(drop, "x-kubernetes-map-type")
	}
	if n.hasListType && !slices.Contains(listTypes, n.listType) {
		drop = append(drop, "x-kubernetes-list-type")
	}
	if n.hasRef {
		drop = append(drop, "$ref")
	}
	for _, key := range [...]string{"items", "additionalProperties", "not"} {
		if of, ok := openAPI.Get(key); ok {
			put(key, repaired(of))
		}
	}
	for _, key := range [...]string{"allOf", "anyOf", "oneOf"} {
		if list, ok := openAPI.Get(key); ok {
			items := make([]object.Value, list.Len())
			for i, of := range list.Items() {
				items[i] = repaired(of)
			}
			put(key, object.ListOf(items...))
		}
	}
	if n.properties.Len() > 0 {
		properties := make([]object.Member, 0, n.properties.Len())
		for _, m := range n.properties.Members() {
			properties = append(properties, object.Member{Key: m.Key, Value: repaired(m.Value)})
		}
		put("properties", object.MapOf(properties...))
	}
	return openAPI.Edit(set, drop...)
}

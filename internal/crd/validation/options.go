package validation

import (
	"errors"
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
	// CheckRules says what is wrong with what the CEL rules of a structural schema say: whether they compile, and what
	// they may cost. How they are written down has been checked before. Nil disables it.
	CheckRules func(t *schema.Type, path *field.Path, o RuleOptions) field.ErrorList
	// CheckDefaultRules runs the CEL rules of a place on its default, and returns what is left of the budget, which is
	// negative when it is used up. Nil disables it.
	CheckDefaultRules func(t *schema.Type, path *field.Path, v object.Value, budget int64) (field.ErrorList, int64)
	// RuleBudget is the budget for all defaults of a schema.
	RuleBudget int64
}

// RuleOptions is how the CEL rules of one schema are checked.
type RuleOptions struct {
	// Skip says whether the rules of the node with this path are not to be looked at, because something else is wrong
	// with the schema there or below. Nil: all are.
	Skip func(path string) bool
	// Unchanged says that an old object has this schema already: its rules may each cost more than new ones may.
	Unchanged bool
	// Stored says whether an old object has this expression already, somewhere: as a message if message is set, else as
	// a rule. Nil: none has.
	Stored func(expression string, message bool) bool
}

// errNoType is what the reference says of all rules in a schema if there are rules at the top and it says only that
// unknown fields are preserved, and not that it is of an object.
var errNoType = errors.New("internal error: failed to construct type information for x-kubernetes-validations rules: " +
	"unable to convert structural schema to CEL declarations")

// celRules checks the CEL rules of a schema that follows the structural rules.
func (c *checker) celRules(openAPI object.Value, version string, p *fielderrors.Place, w *openAPIWalk) {
	if c.CheckRules == nil || c.full() || !anyNode(openAPI, func(n *node) bool { return n.rules.Len() > 0 }) {
		return
	}
	path := c.Path(p)
	if root := read(openAPI); root.typ == "" && root.rules.Len() > 0 {
		// Rules have types of their own only where the top has none that they could be taken from.
		for _, of := range w.ruled {
			c.List = append(c.List, field.InternalError(of.Child("x-kubernetes-validations"), errNoType))
		}
		return
	}
	t, err := c.compile(openAPI)
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

// compile compiles a schema that follows the structural rules, and may break others.
func (c *checker) compile(openAPI object.Value) (*schema.Type, error) {
	o := schema.StructuralOptions{Metadata: c.Metadata}
	t, err := schema.Structural(openAPI, o)
	if err != nil {
		return schema.Structural(repaired(openAPI), o)
	}
	return t, nil
}

// repaired is a schema without what has been found wrong with it and what keeps it from being compiled, so that rules
// elsewhere in it can be checked: those of the nodes at hand and above will not be.
func repaired(openAPI object.Value) object.Value {
	if openAPI.Kind() != object.Map {
		return openAPI
	}
	n := read(openAPI)
	var set []object.Member
	put := func(key string, v object.Value) { set = append(set, object.Member{Key: key, Value: v}) }
	var drop []string
	if n.typ != "" && !slices.Contains(types, n.typ) {
		drop = append(drop, "type", "format")
		put("x-kubernetes-int-or-string", object.BoolOf(true)) // which needs no type, and lets nothing else pass
	}
	if n.hasMapType && !slices.Contains(mapTypes, n.mapType) {
		drop = append(drop, "x-kubernetes-map-type")
	}
	if n.hasListType && (!slices.Contains(listTypes, n.listType) || n.listType == "map" && n.listKeys.Len() == 0) {
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

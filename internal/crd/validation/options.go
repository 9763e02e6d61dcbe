package validation

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/fielderrors"
	"plinth/object"
	"plinth/schema"
)

// Options are the parts of validation that need other packages.
type Options struct {
	// Metadata is the type of metadata of every object.
	Metadata *schema.Type
	// CheckRules returns the errors in the expressions of CEL rules: whether they compile, and what they may cost.
	// Their form has been validated before. Nil disables it.
	CheckRules func(t *schema.Type, path *field.Path, o RuleOptions) field.ErrorList
	// CheckDefaultRules runs the CEL rules of a node on its default, and returns the remaining budget, which is
	// negative if it is exceeded. Nil disables it.
	CheckDefaultRules func(t *schema.Type, path *field.Path, v object.Value, budget int64) (field.ErrorList, int64)
	// RuleBudget is the budget for all defaults of a schema.
	RuleBudget int64
	// Stop is asked now and then; if it returns an error, validation ends, and its errors mean nothing, as in
	// schema.Type.Validate. Nil: validation runs to its end.
	Stop func() error
}

// RuleOptions are the options for the CEL rules of one schema.
type RuleOptions struct {
	// Skip says whether the rules of the node with this path are not checked, because the schema there or below has
	// other errors. Nil: all are checked.
	Skip func(path string) bool
	// Unchanged says that the old object has the same schema: its rules may exceed the cost limit of a single rule.
	Unchanged bool
	// Stored says whether the old object has this expression anywhere: as a messageExpression if message is set, else
	// as a rule. Nil: it has no expressions.
	Stored func(expression string, message bool) bool
	// Stop is asked before each rule: to compile one takes as long as to validate an object. If it returns an error,
	// the check ends, and its errors mean nothing. Nil: it runs to its end.
	Stop func() error
}

// errNoType is the reference's error for all rules of a schema whose root has rules but no type, only
// x-kubernetes-preserve-unknown-fields.
var errNoType = errors.New("internal error: failed to construct type information for x-kubernetes-validations rules: " +
	"unable to convert structural schema to CEL declarations")

// celRules checks the CEL rules of a structural schema.
func (c *checker) celRules(openAPI object.Value, version string, p *fielderrors.Location, w *openAPIWalk) {
	if c.CheckRules == nil || c.full() || !anyNode(openAPI, func(n *node) bool { return n.rules.Len() > 0 }) {
		return
	}
	path := c.Path(p)
	if root := read(openAPI); root.typ == "" && !root.intOrString && root.rules.Len() > 0 {
		// The reference reports the error for each node with rules.
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
	o := RuleOptions{Unchanged: c.unchangedSchemas[version], Stored: c.storedExpressions, Stop: c.Stop,
		Skip: func(path string) bool { return w.broken[path] }}
	c.List = append(c.List, c.CheckRules(t, path, o)...)
}

// compile compiles a structural schema, which may break other rules.
func (c *checker) compile(openAPI object.Value) (*schema.Type, error) {
	o := schema.StructuralOptions{Metadata: c.Metadata}
	t, err := schema.Structural(openAPI, o)
	if err != nil {
		return schema.Structural(repaired(openAPI).Edit(nil, "x-kubernetes-int-or-string"), o)
	}
	return t, nil
}

// repaired removes from a schema what does not compile, so that rules in other parts of it can still be checked. The
// rules of the repaired nodes and those above them are skipped, unless the old object has the same mistakes.
// x-kubernetes-map-type is always removed, because only merging depends on it.
func repaired(openAPI object.Value) object.Value {
	if openAPI.Kind() != object.Map {
		return openAPI
	}
	n := read(openAPI)
	set := rebuilt(openAPI, func(below object.Value, _ bool) object.Value { return repaired(below) })
	drop := []string{"$ref", "x-kubernetes-map-type"}
	if !slices.Contains(types, n.typ) {
		drop = append(drop, "type")
	}
	if !slices.Contains(listTypes, n.listType) || n.listType == "map" && n.listKeys.Len() == 0 {
		drop = append(drop, "x-kubernetes-list-type")
	}
	return openAPI.Edit(set, drop...)
}

// structuralForm leaves out what the structural form of a schema does not have: additionalProperties: false below
// allOf, anyOf, oneOf and not. This member restricts objects, but not defaults.
func structuralForm(openAPI object.Value, nested bool) object.Value {
	if openAPI.Kind() != object.Map {
		return openAPI
	}
	if nested {
		openAPI = openAPI.Edit(nil, "additionalProperties")
	}
	return openAPI.Edit(rebuilt(openAPI, func(below object.Value, inJunctor bool) object.Value {
		return structuralForm(below, nested || inJunctor)
	}))
}

// rebuilt returns the members of a schema that hold the schemas directly below it, each changed by f. inJunctor is set
// for those below allOf, anyOf, oneOf and not. f is also called with values that are not schemas, such as
// additionalProperties: true.
func rebuilt(openAPI object.Value, f func(below object.Value, inJunctor bool) object.Value) (set []object.Member) {
	for _, m := range openAPI.Members() {
		switch m.Key {
		case "items", "additionalProperties":
			m.Value = f(m.Value, false)
		case "not":
			m.Value = f(m.Value, true)
		case "allOf", "anyOf", "oneOf":
			items := slices.Clone(m.Value.Items())
			for i := range items {
				items[i] = f(items[i], true)
			}
			m.Value = object.ListOf(items...)
		case "properties":
			properties := slices.Clone(m.Value.Members())
			for i := range properties {
				properties[i].Value = f(properties[i].Value, false)
			}
			m.Value = object.MapOf(properties...)
		default:
			continue
		}
		set = append(set, m)
	}
	return set
}

package validation

import (
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
}

// celRules checks the CEL rules of a schema that follows the structural rules.
func (c *checker) celRules(openAPI object.Value, version string, p *fielderrors.Place, w *openAPIWalk) {
	if c.CheckRules == nil || !anyNode(openAPI, func(n *node) bool { return n.rules.Len() > 0 }) {
		return
	}
	path := c.Path(p)
	t, err := schema.Structural(openAPI, schema.StructuralOptions{Metadata: c.Metadata})
	if err != nil {
		c.List = append(c.List, field.InternalError(path, err))
		return
	}
	o := RuleOptions{Unchanged: c.unchangedSchemas[version]}
	if w.broken != nil {
		o.Skip = func(path string) bool { return w.broken[path] }
	}
	c.List = append(c.List, c.CheckRules(t, path, o)...)
}

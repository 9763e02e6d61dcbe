package validation

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
	"plinth/schema"
)

// defaultsWalk checks the defaults in a schema that follows the structural rules. A default must be a valid value of
// its place. One in the metadata of an object is not valid or invalid by itself: it is looked at as a part of the
// smallest object that it makes.
//
// Defaults below additionalProperties are not looked at, as in the reference: pruning does not reach all of them.
type defaultsWalk struct {
	*checker
	budget int64 // of the CEL rules of all defaults; negative: used up, and the walk ends
}

// surroundings is the object that a place is in: the top, or an embedded object.
type surroundings struct {
	object *schema.Type
	// around makes the object of a value at the place.
	around func(v object.Value) object.Value
	meta   bool // the place is in metadata, or is apiVersion or kind
}

func itself(v object.Value) object.Value { return v }

// defaults checks all defaults of a schema, and says whether they are good. It compiles the schema; where that fails,
// something else is wrong with it, and nothing is said of defaults.
func (c *checker) defaults(openAPI object.Value, p *fielderrors.Place) bool {
	if !hasDefaults(openAPI) {
		return true
	}
	before := len(c.List)
	t, err := c.compile(openAPI)
	if err != nil {
		c.List = append(c.List, field.InternalError(c.Path(p), err))
		return false
	}
	w := defaultsWalk{checker: c, budget: c.RuleBudget}
	w.node(openAPI, t, p, surroundings{})
	return len(c.List) == before
}

// node checks a node and those below it.
func (w *defaultsWalk) node(openAPI object.Value, t *schema.Type, p *fielderrors.Place, s surroundings) {
	if openAPI.Kind() != object.Map || t == nil || w.budget < 0 {
		return
	}
	n := read(openAPI)
	embeds := s.object == nil || n.embedded
	if embeds {
		s = surroundings{object: t, around: itself}
	}
	if n.hasDefault {
		w.one(&n, t, p.To("default"), s)
	}
	if items := n.item(); !items.IsNull() {
		around := s.around
		s.around = func(v object.Value) object.Value { return around(object.ListOf(v)) }
		w.node(items, t.Items(), p.To("items"), s)
		s.around = around
	}
	for _, m := range n.properties.Members() {
		below := s
		below.meta = s.meta || embeds && isObjectMember(m.Key)
		below.around = func(v object.Value) object.Value {
			return s.around(object.MapOf(object.Member{Key: m.Key,
				Value: v}))
		}
		w.node(m.Value, t.Property(m.Key), p.To("properties").Key(m.Key), below)
	}
}

// one checks one default.
func (w *defaultsWalk) one(n *node, t *schema.Type, p *fielderrors.Place, s surroundings) {
	path := w.Path(p)
	v, err := n.defaultValue.Untyped()
	if err != nil { // no value that the reference could have
		w.Invalid(p, "", err.Error())
		return
	}
	var errs field.ErrorList
	if s.meta {
		errs = inMetadata(v, path, s)
	} else {
		decoded, unknown, wrong := t.CheckEmbedded(v, path, objectmeta.Embedded)
		if unknown && !w.unprunedDefaults {
			w.Invalid(p, schema.BadValue(v), "must not have unknown fields")
		}
		v, errs = decoded, wrong
	}
	if n.typ != "" && !slices.Contains(types, n.typ) {
		return // no value is of a type that there is not, which is an error of its own
	}
	if len(errs) == 0 {
		errs = t.CheckDefault(v, path)
	}
	if len(errs) == 0 && w.CheckDefaultRules != nil {
		errs, w.budget = w.CheckDefaultRules(t, path, v, w.budget)
	}
	w.List = append(w.List, errs...)
}

// inMetadata checks the smallest object with this default in its metadata.
func inMetadata(v object.Value, path *field.Path, s surroundings) field.ErrorList {
	whole := s.around(v)
	for key, value := range map[string]string{"apiVersion": "validation/v1", "kind": "Validation"} {
		if _, there := whole.Get(key); !there {
			whole = whole.With(key, object.StringOf(value))
		}
	}
	if _, _, errs := s.object.CheckEmbedded(whole, nil, objectmeta.Embedded); len(errs) > 0 {
		return field.ErrorList{field.Invalid(path, schema.BadValue(v),
			"must result in valid metadata: "+errs.ToAggregate().Error())}
	}
	return nil
}

// hasUnprunedDefaults says whether any default has fields that the schema does not have. Of a schema that is not
// structural nothing is said.
func (c *checker) hasUnprunedDefaults(openAPI object.Value) bool {
	if !hasDefaults(openAPI) || isNotStructural(openAPI) {
		return false
	}
	t, err := c.compile(openAPI)
	return err == nil && pruned(openAPI, t)
}

// pruned says whether pruning has changed a default of the node or of one below.
func pruned(openAPI object.Value, t *schema.Type) bool {
	if openAPI.Kind() != object.Map || t == nil {
		return false
	}
	n := read(openAPI)
	if n.hasDefault && t.Custom != nil {
		if v, err := n.defaultValue.Untyped(); err == nil && !object.Equal(v, t.Custom.Default) {
			return true
		}
	}
	if pruned(n.item(), t.Items()) || pruned(n.additional(), t.Additional()) {
		return true
	}
	for _, m := range n.properties.Members() {
		if pruned(m.Value, t.Property(m.Key)) {
			return true
		}
	}
	return false
}

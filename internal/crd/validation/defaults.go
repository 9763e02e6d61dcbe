package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
	"plinth/schema"
)

// defaultsWalk validates the defaults in a structural schema. A default must be a valid value of its node. A default
// inside metadata is validated as a part of the smallest object that contains it, because metadata is validated
// as a whole.
//
// As in the reference, defaults below additionalProperties are not validated.
type defaultsWalk struct {
	*checker
	budget int64 // of the CEL rules of all defaults; negative: used up, and the walk ends
}

// enclosing is the API object that contains a node: the root, or an embedded object.
type enclosing struct {
	object *schema.Type
	// around wraps a value at the node into that object.
	around func(v object.Value) object.Value
	meta   bool // the place is in metadata, or is apiVersion or kind
}

func identity(v object.Value) object.Value { return v }

// defaults validates all defaults of a schema and says whether they are valid. If the schema does not compile, the
// error is about the schema and no default is validated.
func (c *checker) defaults(openAPI object.Value, p *fielderrors.Location) bool {
	if !hasDefaults(openAPI) {
		return true
	}
	before := len(c.List)
	form := openAPI
	if anyNode(openAPI, func(n *node) bool { return n.forbidsAdditional() }) {
		form = structuralForm(openAPI, false)
	}
	t, err := c.compile(form)
	if err != nil {
		c.List = append(c.List, field.InternalError(c.Path(p), err))
		return false
	}
	w := defaultsWalk{checker: c, budget: c.RuleBudget}
	w.node(openAPI, t, p, enclosing{})
	return len(c.List) == before
}

// node validates the defaults of a node and below it.
func (w *defaultsWalk) node(openAPI object.Value, t *schema.Type, p *fielderrors.Location, s enclosing) {
	if t == nil || w.budget < 0 || w.full() {
		return
	}
	n := read(openAPI)
	embeds := s.object == nil || n.embedded
	if embeds {
		s = enclosing{object: t, around: identity}
	}
	if n.hasDefault {
		w.one(&n, t, p.To("default"), s)
	}
	inList := s
	inList.around = func(v object.Value) object.Value { return s.around(object.ListOf(v)) }
	w.node(n.item(), t.Items(), p.To("items"), inList)
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

// one validates one default.
func (w *defaultsWalk) one(n *node, t *schema.Type, p *fielderrors.Location, s enclosing) {
	path := w.Path(p)
	v, err := n.defaultValue.Untyped()
	if err != nil { // the reference cannot represent the value
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
	if len(errs) == 0 {
		errs = t.CheckDefault(v, path, w.Stop)
	}
	if len(errs) == 0 && w.CheckDefaultRules != nil {
		errs, w.budget = w.CheckDefaultRules(t, path, v, w.budget)
	}
	w.List = append(w.List, errs...)
}

// inMetadata validates the smallest object with this default in its metadata.
func inMetadata(v object.Value, path *field.Path, s enclosing) field.ErrorList {
	whole := s.around(v)
	for key, value := range map[string]string{"apiVersion": "validation/v1", "kind": "Validation"} {
		if _, ok := whole.Get(key); !ok {
			whole = whole.With(key, object.StringOf(value))
		}
	}
	if _, _, errs := s.object.CheckEmbedded(whole, nil, objectmeta.Embedded); len(errs) > 0 {
		return field.ErrorList{field.Invalid(path, schema.BadValue(v),
			"must result in valid metadata: "+errs.ToAggregate().Error())}
	}
	return nil
}

// hasUnprunedDefaults says whether any default has unknown fields. It is false for a schema that is not structural.
func (c *checker) hasUnprunedDefaults(openAPI object.Value) bool {
	if !hasDefaults(openAPI) || isNotStructural(openAPI) {
		return false
	}
	t, err := c.compile(openAPI)
	return err == nil && pruned(openAPI, t)
}

// pruned says whether pruning changed a default at or below the node.
func pruned(openAPI object.Value, t *schema.Type) bool {
	if t == nil {
		return false
	}
	n := read(openAPI)
	if t.Custom != nil {
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

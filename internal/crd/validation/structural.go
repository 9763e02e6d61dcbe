package validation

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// The structural rules, in two walks. The first checks each node by itself. The second, completeness, walks the
// schemas below allOf, anyOf, oneOf and not of the root together with the structure: every field that they restrict
// must be declared in the structure.

// level is the position of a node in the schema.
type level uint8

const (
	atRoot level = iota
	atItem
	atField
)

var missingType = [...]string{
	atRoot: "must not be empty at the root", atItem: "must not be empty for specified array items",
	atField: "must not be empty for specified object fields",
}

const (
	mustBeUndefined = "must be undefined to be structural"
	mustBeEmpty     = "must be empty to be structural"
	mustBeFalse     = "must be false to be structural"
)

// structural applies the rules to a schema and says whether it is structural. As in the reference the errors are
// sorted.
func (c *checker) structural(schema object.Value, p *fielderrors.Location) bool {
	before := len(c.List)
	c.structure(schema, atRoot, p)
	n := read(schema)
	c.completeValue(&n, schema, p, p)
	found := c.List[before:]
	slices.SortFunc(found, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	return len(found) == 0
}

// structure checks a node of the structure and all below it.
func (c *checker) structure(schema object.Value, at level, p *fielderrors.Location) {
	if schema.IsNull() || c.full() {
		return
	}
	n := read(schema)
	if n.typ == "array" && n.item().IsNull() {
		c.Required(p.To("items"), "must be specified")
	}
	c.structure(n.item(), atItem, p.To("items"))
	for _, m := range n.properties.Members() {
		c.structure(m.Value, atField, p.To("properties").Key(m.Key))
	}
	if !n.additionalProperties.IsNull() {
		if at == atRoot {
			c.Forbidden(p.To("additionalProperties"), "must not be used at the root")
		}
		c.structure(n.additional(), atField, p.To("additionalProperties"))
	}
	if c.full() { // of the nodes below
		return
	}
	if n.intOrString && n.preserves() {
		c.Invalid(p.To("x-kubernetes-preserve-unknown-fields"), true,
			"must be false if x-kubernetes-int-or-string is true")
	}
	if n.intOrString && n.embedded {
		c.Invalid(p.To("x-kubernetes-embedded-resource"), true, "must be false if x-kubernetes-int-or-string is true")
	}
	c.valueValidation(&n, intOrStringOf(n.anyOf), true, p)
	c.typeOf(&n, at, p)
	c.metadata(&n, at, p.To("properties"))
	if n.embedded && !n.preserves() && n.properties.Len() == 0 {
		c.Required(p.To("properties"),
			"must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields")
	}
}

// typeOf requires a type, and the type object where it is required.
func (c *checker) typeOf(n *node, at level, p *fielderrors.Location) {
	const embedded = "must be object if x-kubernetes-embedded-resource is true"
	switch {
	case n.embedded && n.typ == "":
		c.Required(p.To("type"), embedded)
	case n.embedded && n.typ != "object":
		c.Invalid(p.To("type"), n.typ, embedded)
	case n.typ == "" && !n.intOrString && !n.preserves():
		c.Required(p.To("type"), missingType[at])
	}
	if n.embedded && !n.additionalProperties.IsNull() {
		c.Forbidden(p.To("additionalProperties"), "must not be used if x-kubernetes-embedded-resource is set")
	}
	if at == atRoot && n.typ != "" && n.typ != "object" {
		c.Invalid(p.To("type"), n.typ, "must be object at the root")
	}
}

// metadata restricts the schemas of apiVersion, kind and metadata at the root and in embedded objects: their types are
// fixed, and at the root the schema of metadata may only restrict name and generateName.
func (c *checker) metadata(n *node, at level, p *fielderrors.Location) {
	demand := func(key, typ string) {
		if member, ok := n.properties.Get(key); ok && member.At("type").Str() != typ {
			c.Invalid(p.Key(key).To("type"), member.At("type").Str(), "must be "+typ)
		}
	}
	if at == atRoot || n.embedded {
		demand("kind", "string")
		demand("apiVersion", "string")
		demand("metadata", "object")
	}
	if at == atRoot && !onlyNames(n.properties.At("metadata")) {
		c.Forbidden(p.Key("metadata"),
			"must not specify anything other than name and generateName, but metadata is implicitly specified")
	}
}

// onlyNames says whether a schema of metadata restricts only name and generateName.
func onlyNames(schema object.Value) bool {
	for _, m := range schema.Members() {
		switch m.Key {
		case "type", "default", "$ref":
		case "properties":
			for _, property := range m.Value.Members() {
				if property.Key != "name" && property.Key != "generateName" {
					return false
				}
			}
		default:
			return false
		}
	}
	return true
}

// intOrStringOf says whether an anyOf has the two alternatives that describe an integer or a string. Types are allowed
// below anyOf only in this case.
func intOrStringOf(anyOf object.Value) bool {
	if anyOf.Len() != 2 {
		return false
	}
	integer, text := read(anyOf.Items()[0]), read(anyOf.Items()[1])
	return integer.elementary && integer.typ == "integer" && text.elementary && text.typ == "string"
}

// valueValidation checks the members of a node that restrict values. Types are allowed in its anyOf if typesAllowed is
// set, and in the anyOf of its first allOf if firstTypes is set and these are the alternatives of intOrStringOf.
func (c *checker) valueValidation(n *node, typesAllowed, firstTypes bool, p *fielderrors.Location) {
	if !typesAllowed {
		c.nestedList(n.anyOf, false, p.To("anyOf"))
	}
	c.nestedList(n.allOf, firstTypes, p.To("allOf"))
	c.nestedList(n.oneOf, false, p.To("oneOf"))
	c.nested(n.not, false, p.To("not"))
	if _, err := regexp.Compile(n.pattern); err != nil {
		c.Invalid(p.To("pattern"), n.pattern, "must be a valid regular expression, but isn't: "+err.Error())
	}
}

func (c *checker) nestedList(list object.Value, firstTypes bool, p *fielderrors.Location) {
	for i, item := range list.Items() {
		c.nested(item, firstTypes && i == 0 && intOrStringOf(item.At("anyOf")), p.Item(i))
	}
}

// nested checks a node below allOf, anyOf, oneOf or not, which may only restrict values.
func (c *checker) nested(schema object.Value, typesAllowed bool, p *fielderrors.Location) {
	if schema.IsNull() || c.full() {
		return
	}
	n := read(schema)
	c.valueValidation(&n, typesAllowed, false, p)
	c.nested(n.item(), false, p.To("items"))
	for _, m := range n.properties.Members() {
		c.nested(m.Value, false, p.To("properties").Key(m.Key))
	}
	if c.full() {
		return
	}
	additional := n.additionalProperties.Kind() == object.Map || n.additionalProperties.Bool()
	for _, part := range [...]struct {
		there        bool
		name, detail string
	}{
		{n.typ != "", "type", mustBeEmpty}, {additional, "additionalProperties", mustBeUndefined},
		{n.hasDefault, "default", mustBeUndefined}, {n.title != "", "title", mustBeEmpty},
		{n.description != "", "description", mustBeEmpty},
		{n.nullable, "nullable", mustBeFalse}, {n.preserves(), "x-kubernetes-preserve-unknown-fields", mustBeFalse},
		{n.embedded, "x-kubernetes-embedded-resource", mustBeFalse}, {n.intOrString, "x-kubernetes-int-or-string",
			mustBeFalse},
		{n.listKeys.Len() > 0, "x-kubernetes-list-map-keys", mustBeEmpty}, {n.hasListType, "x-kubernetes-list-type",
			mustBeUndefined},
		{n.hasMapType, "x-kubernetes-map-type", mustBeUndefined}, {n.rules.Len() > 0, "x-kubernetes-validations",
			mustBeEmpty},
	} {
		if part.there {
			c.Forbidden(p.To(part.name), part.detail)
		}
	}
	if _, ok := n.properties.Get("metadata"); ok {
		c.Forbidden(p.To("properties").Key("metadata"), "must not be specified in a nested context")
	}
}

// completeValue requires that the structure at s declares everything that the schemas nested in v restrict. Nodes of
// the structure below the root are not checked individually.
func (c *checker) completeValue(v *node, s object.Value, sp, vp *fielderrors.Location) {
	c.complete(v.not, s, sp, vp.To("not"))
	for _, part := range [...]struct {
		name string
		list object.Value
	}{{"allOf", v.allOf}, {"anyOf", v.anyOf}, {"oneOf", v.oneOf}} {
		for i, item := range part.list.Items() {
			c.complete(item, s, sp, vp.To(part.name).Item(i))
		}
	}
}

// complete is completeValue for a nested node, which can name properties and items.
func (c *checker) complete(v, s object.Value, sp, vp *fielderrors.Location) {
	if v.IsNull() || c.full() {
		return
	}
	if s.IsNull() {
		c.Required(sp, "because it is defined in "+c.Path(vp).String())
		return
	}
	n, structure := read(v), read(s)
	c.completeValue(&n, s, sp, vp)
	c.complete(n.item(), structure.item(), sp.To("items"), vp.To("items"))
	for _, m := range n.properties.Members() {
		at, by := sp.To("properties").Key(m.Key), vp.To("properties").Key(m.Key)
		c.complete(m.Value, structure.properties.At(m.Key), at, by)
	}
}

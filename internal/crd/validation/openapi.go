package validation

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/fielderrors"
	"plinth/object"
)

var (
	types         = []string{"array", "boolean", "integer", "number", "object", "string"}
	mapTypes      = []string{"atomic", "granular"}
	listTypes     = []string{"atomic", "set", "map"}
	reasons       = []string{"FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"}
	atRootAllowed = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems " +
		"UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations]"
)

// schema validates one schema, of one version or moved to spec. status says whether there is a status subresource,
// name is the version. parent contains the schema as openAPIV3Schema, at the path p.
func (c *checker) schema(parent object.Value, status bool, name string, p *fielderrors.Location) {
	schema := parent.At("openAPIV3Schema")
	before := len(c.List)
	n := read(schema)
	at := p.To("openAPIV3Schema")
	if status {
		c.rootForStatus(&n, schema, p)
	}
	if n.nullable {
		c.Forbidden(p.To("openAPIV3Schema.nullable"), "nullable cannot be true at the root")
	}
	var cannot string
	var sound bool
	if !c.notStructural {
		cannot = unconvertible(schema)
		sound = cannot == "" && c.structural(schema, at) && c.defaults(schema, at)
	}
	w := openAPIWalk{checker: c}
	w.node(schema, at, scope{root: true, defaults: true})
	if len(c.List) == before && cannot != "" {
		c.Invalid(at, "", cannot)
	}
	if sound {
		c.celRules(schema, name, at, &w)
	}
}

// rootForStatus refuses members that are not allowed at the root if there is a status subresource, because a write of
// the status is validated by the schema of that property alone.
func (c *checker) rootForStatus(n *node, schema object.Value, p *fielderrors.Location) {
	if !n.identified && n.typ != "" && n.typ != "object" {
		c.Invalid(p.To("openAPIV3Schema.type"), n.typ,
			`only "object" is allowed as the type at the root of the schema if the status subresource is enabled`)
	} else if n.forbiddenAtStatus {
		c.Invalid(p.To("openAPIV3Schema"), shownSchema{schema},
			"only "+atRootAllowed+" fields are allowed at the root of the schema if the status subresource is enabled")
	}
}

// openAPIWalk applies the rules that hold for every node of a schema.
type openAPIWalk struct {
	*checker
	// broken has the paths of nodes with rules that have errors at or below them. Such rules are not compiled.
	broken map[string]bool
	ruled  []*field.Path // the other nodes with rules
}

// scope is the context that a node inherits from the nodes above.
type scope struct {
	root       bool
	defaults   bool   // whether there may be defaults
	noDefaults string // why not
	meta       bool   // whether the node is apiVersion, kind or metadata, or below one of them
}

// node checks a node and all below it, and says whether it has a structural form.
func (w *openAPIWalk) node(schema object.Value, p *fielderrors.Location, s scope) (convertible bool) {
	if schema.Kind() != object.Map || w.full() {
		return true
	}
	before := len(w.List)
	n := read(schema)
	w.supported(&n, p, s)
	below := s
	below.root = false
	convertible = n.unsupported() == "" && n.malformed() == ""
	visit := func(schema object.Value, p *fielderrors.Location, s scope) {
		convertible = w.node(schema, p, s) && convertible
	}
	if !n.additionalProperties.IsNull() {
		if n.properties.Len() > 0 && !n.additionalProperties.Bool() {
			w.Forbidden(p.To("additionalProperties"), "additionalProperties and properties are mutual exclusive")
		}
		inside := below
		if s.meta {
			inside.defaults, inside.noDefaults = false, "inside additionalProperties applying to object metadata"
		}
		visit(n.additional(), p.To("additionalProperties"), inside)
	}
	for _, m := range n.properties.Members() {
		inside := below
		if (s.root || n.embedded) && isObjectMember(m.Key) {
			inside.meta = true
			if s.root {
				inside.defaults, inside.noDefaults = false, "in top-level "+m.Key
			}
		}
		visit(m.Value, p.To("properties").Key(m.Key), inside)
	}
	visit(n.not, p.To("not"), below)
	for _, part := range [...]struct {
		name string
		list object.Value
	}{{"allOf", n.allOf}, {"oneOf", n.oneOf}, {"anyOf", n.anyOf}, {"items", n.items}} {
		for i, item := range part.list.Items() {
			visit(item, p.To(part.name).Item(i), below)
		}
	}
	for _, part := range [...]struct {
		name   string
		byName object.Value
	}{{"definitions", n.definitions}, {"dependencies", n.dependencies}} {
		for _, m := range part.byName.Members() {
			w.node(m.Value, p.To(part.name).Key(m.Key), below)
		}
	}
	visit(n.item(), p.To("items"), below)
	if w.full() { // of the nodes below
		return convertible
	}
	if !n.preserve.IsNull() && !n.preserve.Bool() {
		w.Invalid(p.To("x-kubernetes-preserve-unknown-fields"), false, "must be true or undefined")
	}
	w.mapType(&n, p)
	w.listType(&n, p)
	if !w.looseKeys {
		w.tightKeys(&n, p)
	}
	for i, rule := range n.rules.Items() {
		w.ruleForm(rule, schema, convertible, p.To("x-kubernetes-validations").Item(i))
	}
	if n.rules.Len() > 0 {
		w.note(w.Path(p), len(w.List) > before)
	}
	return convertible
}

// note records a node with rules.
func (w *openAPIWalk) note(path *field.Path, broken bool) {
	if !broken {
		w.ruled = append(w.ruled, path)
		return
	}
	if w.broken == nil {
		w.broken = map[string]bool{}
	}
	text := path.String()
	w.broken[text] = true
	w.errorText += len(text)
}

// isObjectMember says whether every API object has a member of this name.
func isObjectMember(key string) bool {
	return key == "apiVersion" || key == "kind" || key == "metadata"
}

// supported refuses keywords of OpenAPI that Kubernetes does not support.
func (w *openAPIWalk) supported(n *node, p *fielderrors.Location, s scope) {
	if n.typ != "" && !w.badTypes && !slices.Contains(types, n.typ) {
		w.UnsupportedText(p.To("type"), n.typ, types)
	}
	if n.hasDefault && !s.defaults {
		w.Forbidden(p.To("default"), "must not be set "+s.noDefaults)
	}
	for _, part := range [...]struct {
		there bool
		name  string
	}{
		{n.id != "", "id"}, {!n.additionalItems.IsNull(), "additionalItems"},
		{n.patternProperties.Len() > 0, "patternProperties"},
		{n.definitions.Len() > 0, "definitions"}, {!n.dependencies.IsNull(), "dependencies"}, {n.hasRef, "$ref"},
	} {
		if part.there {
			w.Forbidden(p.To(part.name), part.name+" is not supported")
		}
	}
	if n.typ == "null" {
		w.Forbidden(p.To("type"), "type cannot be set to null, use nullable as an alternative")
	}
	if n.items.Kind() == object.List {
		w.Forbidden(p.To("items"), "items must be a schema object and not an array")
	}
	if s.meta && n.embedded {
		w.Forbidden(p.To("x-kubernetes-embedded-resource"), "must not be used inside of resource meta")
	}
	if n.uniqueItems {
		w.Forbidden(p.To("uniqueItems"),
			"uniqueItems cannot be set to true since the runtime complexity becomes quadratic")
	}
}

// demandType requires the type to which an extension applies.
func (w *openAPIWalk) demandType(n *node, typ, extension string, p *fielderrors.Location) {
	detail := "must be " + typ + " if " + extension + " is specified"
	if n.typ == "" {
		w.Required(p.To("type"), detail)
	} else {
		w.Invalid(p.To("type"), n.typ, detail)
	}
}

func (w *openAPIWalk) mapType(n *node, p *fielderrors.Location) {
	if !n.hasMapType {
		return
	}
	if n.typ != "object" {
		w.demandType(n, "object", "x-kubernetes-map-type", p)
	}
	if !slices.Contains(mapTypes, n.mapType) {
		w.UnsupportedText(p.To("x-kubernetes-map-type"), n.mapType, mapTypes)
	}
}

func (w *openAPIWalk) listType(n *node, p *fielderrors.Location) {
	if n.hasListType && n.typ != "array" {
		w.demandType(n, "array", "x-kubernetes-list-type", p)
	} else if n.listType == "set" && !w.compositeSets {
		w.atomicItems(n, p.To("items"))
	}
	at := p.To("x-kubernetes-list-type")
	if n.hasListType && !slices.Contains(listTypes, n.listType) {
		w.UnsupportedText(at, n.listType, listTypes)
	}
	if n.listKeys.Len() > 0 && n.listType != "map" {
		const detail = "must be map if x-kubernetes-list-map-keys is non-empty"
		if n.hasListType {
			w.Invalid(at, n.listType, detail)
		} else {
			w.Required(at, detail)
		}
	}
	if n.listType == "map" {
		w.listMap(n, p)
	}
}

// atomicItems requires atomic items of a set. As in the reference the error shows the items' list type even if they
// are maps.
func (w *openAPIWalk) atomicItems(n *node, p *fielderrors.Location) {
	item := read(n.item())
	if extension := compositeItem(&item); extension != "" {
		w.Invalid(p.To(extension), shownPointer(item.hasListType, item.listType),
			"must be atomic as item of a list with x-kubernetes-list-type=set")
	}
}

// compositeItem is the extension that makes items of a set not atomic; "" if they are atomic. Maps are atomic only if
// they are declared so.
func compositeItem(item *node) string {
	switch {
	case item.typ == "array" && item.hasListType && item.listType != "atomic":
		return "x-kubernetes-list-type"
	case item.typ == "object" && item.mapType != "atomic":
		return "x-kubernetes-map-type"
	}
	return ""
}

// listMap validates a list of type map.
func (w *openAPIWalk) listMap(n *node, p *fielderrors.Location) {
	at := p.To("x-kubernetes-list-map-keys")
	if n.listKeys.Len() == 0 {
		w.Required(at, "must not be empty if x-kubernetes-list-type is map")
	}
	items := p.To("items")
	if n.items.IsNull() {
		w.Required(items, "must have a schema if x-kubernetes-list-type is map")
		return
	}
	if n.item().IsNull() {
		w.Invalid(items, shownItems{n.items}, "must only have a single schema if x-kubernetes-list-type is map")
		return
	}
	item := read(n.item())
	if item.typ != "object" {
		w.Invalid(items.To("type"), item.typ, "must be object if parent array's x-kubernetes-list-type is map")
		return
	}
	seen := map[string]bool{}
	for _, entry := range n.listKeys.Items() {
		key := entry.Str()
		if property, ok := item.properties.Get(key); !ok {
			w.Invalid(at, fielderrors.Show(n.listKeys), "entries must all be names of item properties")
		} else if typ := property.At("type").Str(); typ == "array" || typ == "object" {
			w.Invalid(items.To("properties").Key(key).To("type"), item.typ,
				"must be a scalar type if parent array's x-kubernetes-list-type is map")
		}
		if seen[key] {
			w.Invalid(at, fielderrors.Show(n.listKeys), "must not contain duplicate entries")
		}
		seen[key] = true
	}
}

// tightKeys requires that items of sets and maps, and the keys of the latter, cannot be missing or null.
func (c *checker) tightKeys(n *node, p *fielderrors.Location) {
	if n.listType != "set" && n.listType != "map" {
		return
	}
	item := read(n.item())
	if item.nullable {
		c.Forbidden(p.To("items").To("nullable"), "cannot be nullable when x-kubernetes-list-type is "+n.listType)
	}
	if n.listType == "set" {
		return
	}
	for _, entry := range n.listKeys.Items() {
		key := entry.Str()
		property, ok := item.properties.Get(key)
		if !ok {
			continue // listMap reports it
		}
		at := p.To("items").To("properties").Key(key)
		required := slices.ContainsFunc(item.required.Items(), func(v object.Value) bool { return v.Str() == key })
		if !required && property.At("default").IsNull() {
			c.Required(at.To("default"),
				"this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property")
		}
		if property.At("nullable").Bool() {
			c.Forbidden(at.To("nullable"), "this property is in x-kubernetes-list-map-keys, so it cannot be nullable")
		}
	}
}

// ruleForm validates the form of a CEL rule, not its expressions.
func (w *openAPIWalk) ruleForm(rule, schema object.Value, convertible bool, p *fielderrors.Location) {
	const blank, lines = "must be non-empty if specified", "must not contain line breaks"
	text, message := strings.TrimSpace(rule.At("rule").Str()), rule.At("message").Str()
	trimmed := strings.TrimSpace(message)
	switch {
	case text == "":
		w.Required(p.To("rule"), "rule is not specified")
	case message != "" && trimmed == "":
		w.Invalid(p.To("message"), message, blank)
	case hasLines(trimmed):
		w.Invalid(p.To("message"), message, lines)
	case hasLines(text) && trimmed == "":
		w.Required(p.To("message"), "message must be specified if rule contains line breaks")
	}
	if expression := rule.At("messageExpression").Str(); expression != "" && strings.TrimSpace(expression) == "" {
		w.Required(p.To("messageExpression"), "messageExpression must be non-empty if specified")
	}
	if reason := rule.At("reason"); !reason.IsNull() && !slices.Contains(reasons, reason.Str()) {
		w.Unsupported(p.To("reason"), reason.Str(), reasons)
	}
	path, at := rule.At("fieldPath").Str(), p.To("fieldPath")
	if path == "" {
		return
	}
	if strings.TrimSpace(path) == "" {
		w.Invalid(at, path, blank)
	}
	if hasLines(path) {
		w.Invalid(at, path, lines)
	}
	if _, err := follow(path, schema, true); err != nil && convertible {
		w.Invalid(at, path, "must be a valid path")
	}
}

func hasLines(s string) bool { return strings.ContainsAny(s, "\n\r") }

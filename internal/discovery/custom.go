package discovery

import (
	"slices"
	"strings"
	"sync"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/engine"
	"plinth/object"
)

// The OpenAPI description of custom types. A model is the schema of the definition, converted node by node; the
// compiled type is not used. The paths of custom types also differ from those of built-in types in the reference,
// which builds them from a separate template.

const (
	modelGet        = metaModels + "GetOptions"
	modelObjectMeta = metaModels + "ObjectMeta"
	modelListMeta   = metaModels + "ListMeta"
)

// isCustom says whether the type is defined by a CustomResourceDefinition.
func isCustom(r *engine.Resource) bool { return r.Written != nil }

// isCustom says whether all types of the group version are custom.
func (gv *groupVersion) isCustom() bool {
	return !slices.ContainsFunc(gv.resources, func(r *engine.Resource) bool { return !isCustom(r) })
}

// customInfo is the member info of an OpenAPI v3 document of custom types.
var customInfo = object.Fields("title", object.StringOf("Kubernetes CRD Swagger"), "version", object.StringOf("v0.1.0"))

// The media types of custom objects in documents. Clients can also use CBOR, but as in the reference the documents do
// not list it.
var (
	customTypes      = []string{mediaJSON, mediaYAML}
	customPatchTypes = []string{"application/json-patch+json", "application/merge-patch+json",
		"application/apply-patch+yaml"}
)

// custom adds the paths of a custom type.
func (p *resourcePaths) custom() {
	r, d := p.r, p.documents
	collection, scope := r.Name, ""
	if r.Namespaced {
		collection, scope = "namespaces/{namespace}/"+r.Name, "Namespaced"
	}
	add := func(path, name string, op *operation, options string) {
		op.produces = customTypes
		if op.consumes == nil {
			op.consumes = customTypes
		}
		p.add(path, name, r.Kind, op, d.options(options))
	}
	list := func(path, name string) {
		add(path, name, &operation{
			method: "get", action: "list", description: "list objects of kind " + r.Kind, answers: []int{200},
			model: besideModel(r.Model, r.ListKind),
		}, modelList)
	}
	object := func(path, name, of, model string) {
		what := of + "the specified " + r.Kind
		add(path, "read"+name, &operation{
			method: "get", action: "get", description: "read " + what, answers: []int{200}, model: model,
		}, modelGet)
		add(path, "replace"+name, &operation{
			method: "put", action: "put", description: "replace " + what, answers: []int{200, 201}, model: model,
			body: model, bodyRequired: true,
		}, modelUpdate)
		add(path, "patch"+name, &operation{
			method: "patch", action: "patch", description: "partially update " + what, answers: []int{200}, model: model,
			body: modelPatch, bodyRequired: true, consumes: customPatchTypes,
		}, modelPatching)
	}
	list(collection, "list"+scope+r.Kind)
	if r.Namespaced {
		list(r.Name, "list"+r.Kind+"ForAllNamespaces")
	}
	add(collection, "create"+scope+r.Kind, &operation{
		method: "post", action: "post", description: "create" + article(r.Kind) + r.Kind, answers: []int{200, 201, 202},
		model: r.Model, body: r.Model, bodyRequired: true,
	}, modelCreate)
	add(collection, "deletecollection"+scope+r.Kind, &operation{
		method: "delete", action: "deletecollection", description: "delete collection of " + r.Kind, answers: []int{200},
		model: modelStatus,
	}, modelList)
	item := collection + "/{name}"
	object(item, scope+r.Kind, "", r.Model)
	add(item, "delete"+scope+r.Kind, &operation{
		method: "delete", action: "delete", description: "delete" + article(r.Kind) + r.Kind, answers: []int{200, 202},
		model: modelStatus, body: modelDelete,
	}, modelDelete)
	for _, s := range r.Subresources {
		object(item+"/"+s.Name, scope+r.Kind+title(s.Name), s.Name+" of ", s.Model)
	}
}

// customModels are the models of the custom types in the builder's group versions, by name.
func (b *builder) customModels() map[string]func() object.Value {
	models := map[string]func() object.Value{}
	for _, gv := range b.versions {
		for _, r := range gv.resources {
			if isCustom(r) {
				version := sync.OnceValue(r.Written)
				models[r.Model] = func() object.Value { return b.customModel(r, version()) }
				models[besideModel(r.Model, r.ListKind)] = func() object.Value { return b.customList(r, version()) }
			}
		}
	}
	return models
}

// customModel is the model of a custom type.
func (b *builder) customModel(r *engine.Resource, version object.Value) object.Value {
	schema := version.At("schema", "openAPIV3Schema")
	if b.dialect.keepsUnknown(schema) {
		return withKind(object.Fields("type", object.StringOf("object")), r, r.Kind, version)
	}
	v := b.published(schema)
	properties := v.At("properties").Edit(b.typeMeta())
	properties = properties.With("metadata", b.metadata())
	return withKind(v.With("properties", properties), r, r.Kind, version)
}

// customList is the model of a list of a custom type.
func (b *builder) customList(r *engine.Resource, version object.Value) object.Value {
	text := func(s string) object.Value { return object.StringOf(s) }
	described := func(doc, model string) object.Value {
		return object.MapOf(b.dialect.refer(appendDoc(nil, doc), model, object.Nil)...)
	}
	properties := append(b.typeMeta(),
		object.Member{Key: "items", Value: object.Fields(
			"description", text("List of "+r.Name+". More info: "+
				"https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"),
			"type", text("array"),
			"items", b.dialect.ref(r.Model),
		)},
		object.Member{Key: "metadata", Value: described(meta.PartialObjectMetadataList{}.SwaggerDoc()["metadata"],
			modelListMeta)},
	)
	v := object.Fields(
		"description", text(r.ListKind+" is a list of "+r.Kind),
		"type", text("object"),
		"required", object.Strings("items"),
		"properties", object.MapOf(properties...),
	)
	return withKind(v, r, r.ListKind, version)
}

// withKind adds to a model its group, version and kind, and the selectable fields of its objects.
func withKind(v object.Value, r *engine.Resource, kind string, version object.Value) object.Value {
	v = v.With("x-kubernetes-group-version-kind", object.ListOf(responseKind(r.Group, r.Version, kind)))
	selectable := version.At("selectableFields").Items()
	if len(selectable) == 0 {
		return v
	}
	fields := make([]object.Value, len(selectable))
	for i, f := range selectable {
		fields[i] = object.Fields("fieldPath", object.StringOf(strings.TrimPrefix(f.At("jsonPath").Str(), ".")))
	}
	return v.With("x-kubernetes-selectable-fields", object.ListOf(fields...))
}

// typeMeta are the properties apiVersion and kind.
func (b *builder) typeMeta() []object.Member {
	of := b.find(modelDelete)
	if of == nil {
		return nil
	}
	return []object.Member{
		{Key: "apiVersion", Value: b.property(of, of.Field("apiVersion"))},
		{Key: "kind", Value: b.property(of, of.Field("kind"))},
	}
}

// metadata is the property metadata.
func (b *builder) metadata() object.Value {
	doc := meta.PartialObjectMetadata{}.SwaggerDoc()["metadata"]
	return object.MapOf(b.dialect.refer(appendDoc(nil, doc), modelObjectMeta, object.Nil)...)
}

// published converts a schema of a definition to the one in the document.
func (b *builder) published(s object.Value) object.Value {
	if s.Kind() != object.Map {
		return s // additionalProperties: true
	}
	s = b.dialect.publish(s)
	members := make([]object.Member, 0, s.Len()+2)
	for _, m := range s.Members() {
		switch m.Key {
		case "items", "additionalProperties":
			m.Value = b.published(m.Value)
		case "properties":
			m.Value = mapValues(m.Value, b.published)
		default:
			m.Value = constraint(m)
		}
		if !m.Value.IsNull() {
			members = append(members, m)
		}
	}
	v := object.MapOf(members...)
	if s.At("x-kubernetes-embedded-resource").Bool() && !b.dialect.keepsUnknown(s) {
		return b.embedded(v)
	}
	return v
}

// embedded adds apiVersion, kind and metadata to the schema of an embedded object.
func (b *builder) embedded(v object.Value) object.Value {
	const conventions = "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#"
	text := func(doc string) object.Value {
		return object.Fields("description", object.StringOf(doc), "type", object.StringOf("string"))
	}
	properties := v.At("properties").Edit([]object.Member{
		{Key: "apiVersion", Value: text(
			"apiVersion defines the versioned schema of this representation of an object. " + conventions + "resources")},
		{Key: "kind", Value: text(
			"kind is a string value representing the type of this object. In CamelCase. " + conventions + "types-kinds")},
		{Key: "metadata", Value: b.metadata()},
	})
	required := slices.Clone(v.At("required").Items())
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.ContainsFunc(required, func(r object.Value) bool { return r.Str() == name }) {
			required = append(required, object.StringOf(name))
		}
	}
	return v.With("properties", properties).With("required", object.ListOf(required...))
}

// constraint converts a member of a schema that restricts values and has no structure of its own; null if it is left
// out. Schemas below allOf, anyOf, oneOf and not have only such members, and are the same in all documents.
func constraint(m object.Member) object.Value {
	switch m.Key {
	case "default", "enum", "example":
		v, err := m.Value.Untyped()
		switch {
		case err != nil: // a number out of range
			return m.Value
		case m.Key == "example" && isEmpty(v):
			return object.Nil
		}
		return v
	case "allOf", "anyOf", "oneOf":
		items := make([]object.Value, m.Value.Len())
		for i, item := range m.Value.Items() {
			items[i] = nested(item)
		}
		return object.ListOf(items...)
	case "items", "not":
		return nested(m.Value)
	case "properties":
		return mapValues(m.Value, nested)
	}
	return m.Value
}

// isEmpty says whether a value is null or an empty string, list or map.
func isEmpty(v object.Value) bool {
	switch v.Kind() {
	case object.String, object.List, object.Map:
		return v.Len() == 0
	}
	return v.IsNull()
}

// nested converts a schema below allOf, anyOf, oneOf or not.
func nested(s object.Value) object.Value {
	members := slices.Clone(s.Members())
	for i, m := range members {
		members[i].Value = constraint(m)
	}
	return object.MapOf(members...)
}

// mapValues returns a map with a function applied to each value.
func mapValues(v object.Value, change func(object.Value) object.Value) object.Value {
	members := slices.Clone(v.Members())
	for i, m := range members {
		members[i].Value = change(m.Value)
	}
	return object.MapOf(members...)
}

func (dialect3) keepsUnknown(object.Value) bool { return false }

// intOrString is the anyOf that marks a schema of integers or strings.
var intOrString = object.ListOf(object.Fields("type", object.StringOf("integer")),
	object.Fields("type", object.StringOf("string")))

// publish adds the anyOf of an integer or string if the definition omits it.
func (dialect3) publish(s object.Value) object.Value {
	allOf := s.At("allOf").Items()
	if !s.At("x-kubernetes-int-or-string").Bool() || object.Equal(s.At("anyOf"), intOrString) ||
		len(allOf) > 0 && object.Equal(allOf[0].At("anyOf"), intOrString) {
		return s
	}
	if s.At("anyOf").Len() == 0 {
		return s.With("anyOf", intOrString)
	}
	return s.With("allOf", object.ListOf(append([]object.Value{object.Fields("anyOf", intOrString)}, allOf...)...))
}

// keepsUnknown says whether a schema allows unknown fields. Old clients, for which OpenAPI v2 is published, reject
// unknown fields if a schema has any properties. So such a schema is published without properties.
func (*dialect2) keepsUnknown(s object.Value) bool {
	return s.At("x-kubernetes-preserve-unknown-fields").Bool()
}

// publish removes members that OpenAPI v2 does not have, and members that old clients misunderstand: they reject null
// for a value that has a type, and unknown fields for a schema that has properties.
func (d *dialect2) publish(s object.Value) object.Value {
	drop := []string{"allOf", "anyOf", "oneOf", "not", "default", "nullable"}
	if s.At("nullable").Bool() {
		drop = append(drop, "type", "items", "properties")
	}
	if d.keepsUnknown(s) {
		drop = append(drop, "items", "properties")
		if s.At("type").Str() == "object" {
			drop = append(drop, "type")
		}
	}
	if s = s.Edit(nil, drop...); s.At("type").Str() == "array" && s.At("items").IsNull() {
		s = s.Without("type")
	}
	if s.At("additionalProperties").At("nullable").Bool() {
		return s.Without("required")
	}
	var required []object.Value
	for _, name := range s.At("required").Items() {
		if !s.At("properties", name.Str(), "nullable").Bool() {
			required = append(required, name)
		}
	}
	if len(required) == 0 {
		return s.Without("required")
	}
	return s.With("required", object.ListOf(required...))
}

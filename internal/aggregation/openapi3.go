package aggregation

import (
	"strings"

	"plinth/object"
)

// OpenAPI3 makes a document of OpenAPI v3 of one of version 2, for a backend that has no other. It loses what the
// reference loses (kube-openapi's package openapiconv): shared parameters are not among the components, the formats of
// lists in queries are gone, and references in allOf, anyOf, oneOf and not stay as they are.
func OpenAPI3(v2 object.Value) object.Value {
	var schemas, paths []object.Member
	for _, m := range v2.At("definitions").Members() {
		schemas = append(schemas, object.Member{Key: m.Key, Value: schema3(m.Value)})
	}
	for _, m := range v2.At("paths").Members() {
		if strings.HasPrefix(m.Key, "/") {
			paths = append(paths, object.Member{Key: m.Key, Value: path3(m.Value)})
		}
	}
	components := object.MapOf()
	if len(schemas) > 0 {
		components = components.With("schemas", object.MapOf(schemas...))
	}
	if schemes := securitySchemes(v2.At("securityDefinitions")); len(schemes) > 0 {
		components = components.With("securitySchemes", object.MapOf(schemes...))
	}
	return object.Fields("openapi", object.StringOf("3.0.0"), "info", v2.At("info"), "paths", object.MapOf(paths...),
		"components", components)
}

// kept returns those members of a value that it has and that are not empty texts, and its extensions.
func kept(v object.Value, keys ...string) (members []object.Member) {
	for _, m := range v.Members() {
		known := strings.HasPrefix(m.Key, "x-")
		for _, key := range keys {
			known = known || m.Key == key && (m.Value.Kind() != object.String || m.Value.Str() != "")
		}
		if known {
			members = append(members, m)
		}
	}
	return members
}

// securitySchemes converts those of version 2; the flow of one becomes its only one.
func securitySchemes(definitions object.Value) (all []object.Member) {
	for _, m := range definitions.Members() {
		members := kept(m.Value, "description", "type", "name", "in")
		if flow := m.Value.At("flow").Str(); flow != "" {
			of := object.MapOf()
			for _, key := range []string{"authorizationUrl", "tokenUrl", "scopes"} {
				if part, ok := m.Value.Get(key); ok {
					of = of.With(key, part)
				}
			}
			members = append(members, object.Member{Key: "flows", Value: object.Fields(flow, of)})
		}
		all = append(all, object.Member{Key: m.Key, Value: object.MapOf(members...)})
	}
	return all
}

func path3(path object.Value) object.Value {
	members := kept(path, "$ref")
	for _, method := range []string{"get", "put", "post", "delete", "options", "head", "patch"} {
		if operation := path.At(method); operation.Kind() == object.Map {
			members = append(members, object.Member{Key: method, Value: operation3(operation)})
		}
	}
	var parameters []object.Value
	for _, p := range path.At("parameters").Items() {
		parameters = append(parameters, parameter3(p))
	}
	if len(parameters) > 0 {
		members = append(members, object.Member{Key: "parameters", Value: object.ListOf(parameters...)})
	}
	return object.MapOf(members...)
}

func operation3(o object.Value) object.Value {
	members := kept(o, "description", "externalDocs", "tags", "summary", "deprecated", "operationId")
	var parameters []object.Value
	for _, p := range o.At("parameters").Items() {
		body, ok := p.Get("schema")
		if !ok || p.At("name").Str() != "body" {
			parameters = append(parameters, parameter3(p))
			continue
		}
		members = append(members, object.Member{Key: "requestBody", Value: content3(object.MapOf(), body, o.At("consumes"))})
	}
	if len(parameters) > 0 {
		members = append(members, object.Member{Key: "parameters", Value: object.ListOf(parameters...)})
	}
	responses := kept(o.At("responses"))
	for _, m := range o.At("responses").Members() {
		if strings.HasPrefix(m.Key, "x-") {
			continue
		}
		response := object.MapOf(kept(m.Value, "description")...)
		if ref := m.Value.At("$ref").Str(); ref != "" {
			ref = strings.Replace(ref, "#/responses/", "#/components/responses/", 1)
			response = response.With("$ref", object.StringOf(ref))
		}
		if schema, ok := m.Value.Get("schema"); ok {
			response = content3(response, schema, o.At("produces"))
		}
		responses = append(responses, object.Member{Key: m.Key, Value: response})
	}
	return object.MapOf(append(members, object.Member{Key: "responses", Value: object.MapOf(responses...)})...)
}

// content3 adds a schema for each media type.
func content3(v, schema, mediaTypes object.Value) object.Value {
	var content []object.Member
	for _, mediaType := range mediaTypes.Items() {
		content = append(content, object.Member{Key: mediaType.Str(), Value: object.Fields("schema", schema3(schema))})
	}
	if len(content) == 0 {
		return v
	}
	return v.With("content", object.MapOf(content...))
}

func parameter3(p object.Value) object.Value {
	v := object.MapOf(kept(p, "name", "in", "description", "required", "allowEmptyValue")...)
	if ref := p.At("$ref").Str(); ref != "" {
		ref = strings.Replace(ref, "#/parameters/", "#/components/parameters/", 1)
		v = v.With("$ref", object.StringOf(ref))
	}
	if schema, ok := p.Get("schema"); ok {
		return v.With("schema", schema3(schema))
	}
	schema := object.Fields("type", object.StringOf(p.At("type").Str()))
	for _, key := range []string{"format", "uniqueItems"} {
		if m, ok := p.Get(key); ok {
			schema = schema.With(key, m)
		}
	}
	return v.With("schema", schema)
}

// schema3 converts the references of a schema. In version 3 nothing is beside a reference, so one that has something
// beside it becomes a member of allOf.
func schema3(v object.Value) object.Value {
	if v.Kind() != object.Map {
		return v
	}
	var set []object.Member
	for _, m := range v.Members() {
		changed := m.Value
		switch m.Key {
		case "properties":
			var properties []object.Member
			for _, p := range m.Value.Members() {
				properties = append(properties, object.Member{Key: p.Key, Value: schema3(p.Value)})
			}
			changed = object.MapOf(properties...)
		case "items", "additionalProperties", "additionalItems":
			if changed = schema3(m.Value); m.Value.Kind() == object.List {
				var items []object.Value
				for _, item := range m.Value.Items() {
					items = append(items, schema3(item))
				}
				changed = object.ListOf(items...)
			}
		case "$ref":
			if _, name, ok := strings.Cut(m.Value.Str(), definitionsPrefix); ok {
				changed = object.StringOf("#/components/schemas/" + name)
			}
		default:
			continue
		}
		set = append(set, object.Member{Key: m.Key, Value: changed})
	}
	v = v.Edit(set)
	if ref, ok := v.Get("$ref"); ok && v.Len() > 1 {
		return v.Edit([]object.Member{{Key: "allOf", Value: object.ListOf(object.Fields("$ref", ref))}}, "$ref")
	}
	return v
}

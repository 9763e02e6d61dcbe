package crd

import (
	"strings"
)

// example is a definition, and the one that it replaces; nil if that is the same one.
type example struct {
	doc, old map[string]any
	verb     string // if it is only for this one
}

// tins returns a definition with these versions.
func tins(versions ...any) map[string]any {
	return fields("apiVersion", "apiextensions.k8s.io/v1", "kind", "CustomResourceDefinition",
		"metadata", fields("name", "tins.example.com"),
		"spec", fields("group", "example.com", "scope", "Namespaced",
			"names", fields("plural", "tins", "singular", "tin", "kind", "Tin", "listKind", "TinList"),
			"versions", versions))
}

// tin returns a version, with more as its other members. v1 is the storage version.
func tin(name string, schema any, more ...any) map[string]any {
	version := fields("name", name, "served", true, "storage", name == "v1")
	if schema != nil {
		version["schema"] = fields("openAPIV3Schema", schema)
	}
	for key, value := range fields(more...) {
		version[key] = value
	}
	return version
}

// having returns a schema of objects with one property.
func having(name string, schema any, more ...any) map[string]any {
	return with(fields("type", "object", "properties", fields(name, schema)), more...)
}

// with returns a map with more members.
func with(m map[string]any, more ...any) map[string]any {
	out := clone(m).(map[string]any)
	for key, value := range fields(more...) {
		out[key] = value
	}
	return out
}

// of returns a definition with one version, in whose schema the property a has this schema.
func of(schema any, more ...any) map[string]any {
	return tins(tin("v1", having("a", schema), more...))
}

// str returns a schema of strings.
func str(more ...any) map[string]any { return with(fields("type", "string"), more...) }

// at returns a document with another value at a path of keys.
func at(doc map[string]any, path string, to any) map[string]any {
	out := clone(doc).(map[string]any)
	m := out
	keys := strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		next, ok := m[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[key] = next
		}
		m = next
	}
	m[keys[len(keys)-1]] = to
	return out
}

// established returns a definition that is served.
func established(doc map[string]any) map[string]any {
	return at(doc, "status.conditions", list(fields("type", "NamesAccepted", "status", "False", "lastTransitionTime", nil,
		"reason", "", "message", ""), fields("type", "Established", "status", "True", "lastTransitionTime", nil, "reason", "",
		"message", "")))
}

func rule(expression string, more ...any) []any {
	return list(with(fields("rule", expression), more...))
}

// costly returns the schema of an array with a rule that exceeds the cost limit of a single rule.
func costly(more ...any) map[string]any {
	return with(fields("type", "array", "items", str(), "x-kubernetes-validations",
		rule("self.all(x, self.all(y, x == y))")), more...)
}

// embedded returns a schema with an embedded object, in whose metadata one property has a schema.
func embedded(member string, schema any, more ...any) map[string]any {
	return with(fields("type", "object", "x-kubernetes-embedded-resource", true, "properties",
		fields("metadata", having(member, schema))), more...)
}

func arrayOf(items any, more ...any) map[string]any {
	return with(fields("type", "array", "items", items), more...)
}

func mapOf(values any, more ...any) map[string]any {
	return with(fields("type", "object", "additionalProperties", values), more...)
}

// many returns n selectable fields, and the properties that they select.
func many(n int) (selected []any, properties map[string]any) {
	properties = map[string]any{}
	for _, c := range "abcdefghijklmnopqrstuvwxyz"[:n] {
		properties[string(c)] = str()
		selected = append(selected, fields("jsonPath", "."+string(c)))
	}
	return selected, properties
}

func selecting(n int) map[string]any {
	selected, properties := many(n)
	return tins(tin("v1", fields("type", "object", "properties", properties), "selectableFields", selected))
}

var (
	unpruned  = fields("type", "object", "default", fields("x", 1), "properties", fields("z", str()))
	prunedToo = fields("type", "object", "default", fields("z", "x"), "properties", fields("z", str()))
	looseSet  = arrayOf(str("nullable", true), "x-kubernetes-list-type", "set")
)

// examples returns definitions that random ones rarely resemble.
func examples() (all []example) {
	add := func(docs ...map[string]any) {
		for _, doc := range docs {
			all = append(all, example{doc: doc}, example{doc: established(doc)})
		}
	}
	after := func(old map[string]any, docs ...map[string]any) {
		for _, doc := range docs {
			all = append(all, example{doc: doc, old: old}, example{doc: doc, old: established(old)})
		}
	}
	exampleDefaults(add, after)
	exampleVersions(add, after)
	exampleRules(add, after)
	exampleSchemas(add, after)
	exampleSpecs(add, after)
	exampleRepairs(add, after)
	exampleShown(add)
	return all
}

type (
	adder    = func(docs ...map[string]any)
	replacer = func(old map[string]any, docs ...map[string]any)
)

func exampleDefaults(add adder, after replacer) {
	add(
		of(fields("type", "foo", "default", 1)),
		of(fields("x-kubernetes-preserve-unknown-fields", true, "default", 5, "enum", list(1))),
		of(fields("x-kubernetes-preserve-unknown-fields", true, "default", 5)),
		of(fields("type", "integer", "default", 1, "x-kubernetes-validations", rule("self > 1"))),
		of(fields("type", "integer", "default", 2, "x-kubernetes-validations", rule("self > 1"))),
		of(arrayOf(str("default", 1))), of(arrayOf(str("default", "x"))),
		of(arrayOf(having("b", str("default", 1)))),
		of(mapOf(str("default", 1))),
		of(unpruned), of(arrayOf(unpruned)), of(mapOf(unpruned)), of(having("b", unpruned)), of(prunedToo),
		tins(tin("v1", fields("type", "object", "properties", fields("metadata",
			fields("type", "object", "default", fields("name", "A")))))),
		tins(tin("v1", having("apiVersion", str("default", "")))),
		tins(tin("v1", having("kind", str("default", "x")))),
		tins(tin("v1", having("metadata", having("name", str("default", "A"))))),
		of(embedded("name", str("default", "A"))), of(embedded("name", str("default", "a"))),
		of(embedded("name", fields("type", "integer", "default", 1))),
		of(embedded("finalizers", arrayOf(str("default", "A/ b")))),
		of(embedded("finalizers", arrayOf(str("default", "a/b")))),
		of(arrayOf(embedded("name", str("default", "A")))), of(arrayOf(arrayOf(embedded("name", str("default", "A"))))),
		of(mapOf(embedded("name", str("default", "A")))),
		of(embedded("labels", mapOf(str("default", "x y")))),
		of(embedded("labels", fields("type", "object", "default", fields("a b", "c")))),
		of(embedded("x", str(), "default", fields("metadata", fields("name", 1)))),
		of(embedded("x", str(), "default", fields("metadata", fields("name", "A")))),
		of(embedded("x", str(), "default", fields("apiVersion", "v1", "kind", "A", "metadata", fields("name", "A")))),
		of(embedded("x", str(), "default", fields("apiVersion", "v1", "kind", "A", "metadata", fields("name", "a")))),
		of(embedded("x", str(), "default", fields("apiVersion", "v1", "kind", "A", "metadata", fields("unknown", "a")))),
		of(fields("type", "object", "x-kubernetes-embedded-resource", true, "properties", fields("apiVersion",
			str("default", "")))),
		of(fields("type", "object", "x-kubernetes-embedded-resource", true, "properties", fields("apiVersion",
			str("default", "v1")))),
		of(fields("type", "object", "x-kubernetes-embedded-resource", true, "properties", fields("kind",
			str("default", "")))),
		of(fields("type", "object", "default", fields("color", "blue"), "anyOf", list(fields("additionalProperties", false)),
			"properties", fields("color", str()))),
		tins(tin("v1", having("b", unpruned, "x-kubernetes-int-or-string", true))),
		of(fields("type", "string", "x-kubernetes-int-or-string", true, "default", 1)),
		of(fields("type", "object", "x-kubernetes-int-or-string", true, "default", fields())),
	)
	for _, unpruned := range []map[string]any{unpruned, arrayOf(unpruned), mapOf(unpruned), having("b", unpruned)} {
		after(of(unpruned), of(unpruned), of(prunedToo), of(having("c", unpruned)))
		after(of(prunedToo), of(unpruned))
		after(of(fields("properties", fields("b", unpruned))), of(unpruned))
	}
	after(of(arrayOf(prunedToo)), of(unpruned))
	after(of(mapOf(prunedToo)), of(unpruned))
	after(of(fields("type", "object", "default", fields())), of(unpruned))
	after(of(str()), of(unpruned))
	after(of(fields("id", "x", "type", "object", "default", fields("x", 1))), of(unpruned))
}

func exampleVersions(add adder, after replacer) {
	status := fields("status", fields())
	scale := fields("scale", fields("specReplicasPath", ".spec.a", "statusReplicasPath", ".status.a"))
	atStatus := with(having("a", str()), "minProperties", 1)
	plain := having("a", str())
	other := having("b", str())
	for _, subresources := range [][2]any{{status, nil}, {nil, status}, {status, status}, {scale, status}, {status, scale},
		{scale, nil}, {nil, nil}, {scale, scale}} {
		for _, schemas := range [][2]any{{atStatus, plain}, {plain, atStatus}, {atStatus, atStatus}} {
			var versions []any
			for i, name := range []string{"v1", "v2"} {
				v := tin(name, schemas[i])
				if subresources[i] != nil {
					v["subresources"] = subresources[i]
				}
				versions = append(versions, v)
			}
			add(tins(versions...))
		}
	}
	add(tins(tin("v1", atStatus), tin("v1", plain, "subresources", status)),
		tins(tin("v1", plain, "subresources", status), tin("v1", atStatus)))
	expensive := having("a", costly())
	expensiveToo := having("b", costly())
	cases := []map[string]any{
		tins(tin("v1", expensive)), tins(tin("v1", plain)), tins(tin("v2", expensive)),
		tins(tin("v1", expensive), tin("v2", expensive)), tins(tin("v1", plain), tin("v2", expensive)),
		tins(tin("v1", expensive), tin("v2", plain)), tins(tin("v1", expensive), tin("v2", expensiveToo)),
		tins(tin("v1", expensiveToo), tin("v2", expensive)), tins(tin("v1", other), tin("v2", plain)),
		tins(tin("v1", plain), tin("v2", other), tin("v3", expensive)),
		tins(tin("v3", expensive), tin("v1", expensiveToo), tin("v2", plain)),
		tins(tin("v1", nil), tin("v2", expensive)), tins(tin("v1", nil), tin("v2", nil)), tins(tin("v1", nil)),
	}
	for _, old := range cases {
		after(old, cases...)
	}
	add(cases...)
}

func exampleRules(add adder, after replacer) {
	for _, path := range []string{".b", ".b.c", ".b['c']", ".b['c'].d", "['b']", ".b[c]", ".m.x", ".m['x']",
		".m['x']['y']",
		".m.x.c", ".m['x'].c", ".o['x']", ".o.x", ".o['x'].y", ".b.x", ".", "b", "..b", ".b['c", ".b['", ".b['c']d",
		".b['c\\'d']", ".m['a\\'b']", ".m['a\\b']", ".l", ".l[0]", ".b.", ".e", ".e.x"} {
		add(of(fields("type", "object", "properties", fields(
			"b", having("c", having("d", str())), "m", mapOf(having("c", str())), "o",
			fields("type", "object", "additionalProperties", true), "l", arrayOf(str()),
			"e", fields("type", "object", "properties", fields(), "additionalProperties", str())),
			"x-kubernetes-validations", rule("true", "fieldPath", path))))
		add(tins(tin("v1", fields("type", "object", "properties", fields(
			"b", having("c", having("d", str())), "m", mapOf(str()), "o",
			fields("type", "object", "additionalProperties", true), "l", arrayOf(str()), "e",
			fields("type", "boolean"), "i", fields("type", "integer"), "n", fields("type", "number"))),
			"selectableFields", list(fields("jsonPath", path)))))
	}
	stored := of(str("x-kubernetes-validations", rule("[self].includes('a')", "messageExpression",
		"[self].includes('a') ? 'x' : 'y'")))
	newer := of(str("maxLength", 9, "x-kubernetes-validations",
		rule("[self].includes('a')", "messageExpression", "[self].includes('a') ? 'x' : 'y'")))
	fresh := of(str("x-kubernetes-validations", rule("true", "messageExpression", "'x'")))
	unknown := of(str("x-kubernetes-validations", rule("nope(self)", "messageExpression", "nope(self)")))
	for _, old := range []map[string]any{stored, newer, fresh, unknown} {
		after(old, stored, newer, fresh, unknown)
	}
	rules := func(schema map[string]any, expression string, more ...any) map[string]any {
		return with(schema, "x-kubernetes-validations", rule(expression, more...))
	}
	preserved := fields("x-kubernetes-preserve-unknown-fields", true)
	add(
		of(rules(str(), "self == oldSelf")), of(rules(arrayOf(rules(str(), "self == oldSelf")), "true")),
		of(arrayOf(rules(str(), "self == oldSelf"))),
		of(arrayOf(rules(having("k", str("default", "a")), "self == oldSelf"), "x-kubernetes-list-type", "map",
			"x-kubernetes-list-map-keys", list("k"))),
		of(rules(str(), "1")), of(rules(str(), "self +")), of(rules(str(), "true", "messageExpression", "1")),
		of(rules(str(), "true", "optionalOldSelf", true)), of(rules(str(), "true", "optionalOldSelf", false)),
		of(rules(preserved, "true")), of(rules(preserved, "self.a == 1")), of(rules(arrayOf(preserved), "true")),
		of(rules(mapOf(preserved), "true")), of(rules(having("p", preserved), "true")),
		of(rules(having("p", rules(preserved, "true")), "true")),
		of(rules(having("p", arrayOf(rules(preserved, "true"))), "true")),
		of(having("p", rules(arrayOf(preserved), "true"))),
		of(rules(having("a-b", str()), "self.a__dash__b == ''")), of(rules(having("a b", str()), "true")),
		of(rules(having("a b", rules(str(), "true")), "true")), of(rules(having("a b", rules(preserved, "true")), "true")),
		of(rules(fields("x-kubernetes-int-or-string", true), "true")),
		of(rules(fields("x-kubernetes-int-or-string", true, "type", "string"), "self == ''")),
		of(rules(fields("x-kubernetes-int-or-string", true, "type", "array", "items", str()), "true")),
		of(rules(fields("type", "foo"), "true")), of(rules(fields("type", "object", "nullable", true), "true")),
		of(rules(fields("type", "array"), "true")), of(rules(arrayOf(fields("type", "foo")), "true")),
		of(rules(arrayOf(str(), "x-kubernetes-list-type", "foo"), "true")),
		of(rules(fields("type", "object", "x-kubernetes-map-type", "foo"), "true")),
		of(rules(embedded("name", str()), "self.metadata.name == ''")),
		of(rules(embedded("name", str()), "self.metadata.labels == {}")),
		of(rules(fields("type", "array", "items", str(), "x-kubernetes-embedded-resource", true,
			"x-kubernetes-preserve-unknown-fields", true), "true")),
		tins(tin("v1", rules(with(preserved), "true"))), tins(tin("v1", rules(with(preserved, "type", "object"), "true"))),
		tins(tin("v1", rules(having("a", preserved), "true"))), tins(tin("v1", rules(having("a", rules(str(), "1")),
			"true"))),
		tins(tin("v1", with(preserved, "properties", fields("a", rules(str(), "true"), "b", rules(preserved, "true"))))),
		tins(tin("v1", rules(with(preserved, "properties", fields("a", rules(str(), "true"))), "true"))),
		tins(tin("v1", rules(with(preserved, "properties", fields("a", rules(str("maxLength", 1), "true")),
			"x-kubernetes-int-or-string", true), "true"))),
		tins(tin("v1", rules(having("apiVersion", str()), "self.apiVersion == self.kind"))),
		tins(tin("v1", rules(having("spec", str()), "self.metadata.name == self.spec"))),
		tins(tin("v1", rules(having("spec", str()), "self.metadata.labels == self.spec"))),
		tins(tin("v1", rules(with(having("spec", str()), "type", "array"), "true"))),
		of(costly()), of(costly("maxItems", 3, "items", str("maxLength", 3))), of(arrayOf(costly("maxItems", 10))),
		of(rules(str(), "true", "message", " ")), of(rules(str(), "true", "message", "a\nb")),
		of(rules(str(), "true\n", "message", "")), of(rules(str(), "true ||\n true")),
		of(rules(str(), " ")), of(rules(str(), "true", "reason", "FieldValueInvalid")),
		of(rules(str(), "true", "reason", "x")), of(rules(str(), "true", "messageExpression", " ")),
		of(rules(str(), "true", "fieldPath", " ")), of(rules(str(), "true", "fieldPath", "\n")),
		of(rules(with(having("b", str()), "not", fields("id", "x")), "true", "fieldPath", ".nope")),
		of(rules(having("b", arrayOf(list(str()))), "true", "fieldPath", ".nope")),
		of(rules(with(having("b", str()), "anyOf", list(fields("$ref", "x"))), "true", "fieldPath", ".nope")),
		of(rules(with(having("b", str()), "definitions", fields("x", fields("id", "x"))), "true", "fieldPath", ".nope")),
	)
}

func exampleSchemas(add adder, after replacer) {
	scalar := str()
	both := func(docs ...map[string]any) {
		add(docs...)
		for _, doc := range docs {
			after(of(scalar), doc)
			version := doc["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
			schema := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
			after(doc, of(scalar), of(having("b", schema["properties"].(map[string]any)["a"])))
			relic := at(doc, "spec.preserveUnknownFields", true)
			after(relic, relic, doc)
			add(relic)
		}
	}
	both(
		of(fields("type", "foo")), of(fields("type", "null")), of(fields()), of(fields("nullable", true)),
		of(fields("x-kubernetes-int-or-string", true)),
		of(fields("x-kubernetes-preserve-unknown-fields", true)), of(fields("x-kubernetes-preserve-unknown-fields", false)),
		of(looseSet), of(arrayOf(fields("type", "object"), "x-kubernetes-list-type", "set")),
		of(arrayOf(fields("type", "object", "x-kubernetes-map-type", "granular"), "x-kubernetes-list-type", "set")),
		of(arrayOf(fields("type", "object", "x-kubernetes-map-type", "atomic"), "x-kubernetes-list-type", "set")),
		of(arrayOf(arrayOf(scalar), "x-kubernetes-list-type", "set")),
		of(arrayOf(arrayOf(scalar, "x-kubernetes-list-type", "atomic"), "x-kubernetes-list-type", "set")),
		of(arrayOf(arrayOf(scalar, "x-kubernetes-list-type", "set"), "x-kubernetes-list-type", "set")),
		of(arrayOf(str("x-kubernetes-list-type", "set"), "x-kubernetes-list-type", "set")),
		of(arrayOf(str("x-kubernetes-list-type", "set"), "x-kubernetes-list-type", "atomic")),
		of(arrayOf(having("k", scalar), "x-kubernetes-list-type", "map", "x-kubernetes-list-map-keys", list("k"))),
		of(arrayOf(having("k", scalar, "required", list("k")), "x-kubernetes-list-type", "map",
			"x-kubernetes-list-map-keys", list("k"))),
		of(arrayOf(having("k", scalar, "required", list("x")), "x-kubernetes-list-type", "map",
			"x-kubernetes-list-map-keys", list("k"))),
		of(arrayOf(having("k", str("default", "x")), "x-kubernetes-list-type", "map",
			"x-kubernetes-list-map-keys", list("k"))),
		of(arrayOf(having("k", str("default", "x", "nullable", true)), "x-kubernetes-list-type", "map",
			"x-kubernetes-list-map-keys", list("k"))),
		of(arrayOf(having("k", arrayOf(scalar, "default", list())), "x-kubernetes-list-type", "map",
			"x-kubernetes-list-map-keys", list("k"))),
		of(arrayOf(having("k", fields("type", "object", "default", fields())), "x-kubernetes-list-type", "map",
			"x-kubernetes-list-map-keys", list("k"))),
		of(arrayOf(having("k", str("default", "x"), "nullable", true), "x-kubernetes-list-type", "map",
			"x-kubernetes-list-map-keys", list("k"))),
		of(arrayOf(having("k", scalar), "x-kubernetes-list-type", "map")),
		of(arrayOf(having("k", str("default", "x")), "x-kubernetes-list-type", "atomic", "x-kubernetes-list-map-keys",
			list("k"))),
		of(arrayOf(having("k", str("default", "x")), "x-kubernetes-list-map-keys", list("k"))),
		of(arrayOf(having("k", scalar), "x-kubernetes-list-map-keys", list("k"))),
		of(arrayOf(scalar, "x-kubernetes-list-type", "map", "x-kubernetes-list-map-keys", list("k"))),
		of(fields("type", "array", "x-kubernetes-list-type", "set")),
		of(fields("type", "array", "x-kubernetes-list-type", "map", "x-kubernetes-list-map-keys", list("k"))),
		of(arrayOf(list(), "x-kubernetes-list-type", "map", "x-kubernetes-list-map-keys", list("k"))),
		of(arrayOf(list(scalar), "x-kubernetes-list-type", "map", "x-kubernetes-list-map-keys", list("k"))),
		of(arrayOf(list(), "x-kubernetes-list-type", "set")), of(arrayOf(list())), of(arrayOf(list(scalar))),
		of(with(scalar, "x-kubernetes-list-type", "set")), of(with(scalar, "x-kubernetes-map-type", "atomic")),
		of(fields("x-kubernetes-preserve-unknown-fields", true, "x-kubernetes-list-type", "set")),
		of(fields("type", "object", "x-kubernetes-map-type", "x")), of(arrayOf(scalar, "x-kubernetes-list-type", "x")),
		of(with(scalar, "x-kubernetes-validations", rule("true"))), of(embedded("name", scalar)),
		of(mapOf(scalar, "properties", fields("a", scalar))),
		of(fields("type", "object", "additionalProperties", false, "properties", fields("a", scalar))),
		of(fields("type", "object", "additionalProperties", true, "properties", fields("a", scalar))),
		of(embedded("name", mapOf(str("default", "x")))), of(embedded("name", str("x-kubernetes-embedded-resource", true))),
		of(with(scalar, "uniqueItems", true)), of(fields("type", "object", "patternProperties", fields("a",
			fields("type", "foo")))),
		of(fields("type", "object", "definitions", fields("a", fields("type", "foo")))),
		of(fields("type", "object", "dependencies", fields("a", fields("type", "foo")))),
		of(fields("type", "object", "dependencies", fields("a", list("b"), "b", fields("type", "foo")))),
		of(fields("type", "array", "items", scalar, "additionalItems", fields("type", "foo"))),
		of(fields("type", "array", "items", scalar, "additionalItems", false)),
		of(fields("type", "object", "not", fields("items", list(fields("type", "foo"))))),
		of(with(scalar, "anyOf", list(fields("pattern", "("), fields("pattern", "a")))),
		of(with(scalar, "allOf", list(fields("not", fields("id", "x"))))),
		of(with(scalar, "oneOf", list(fields("properties", fields("b", fields("type", "foo")))))),
		of(having("b", scalar, "not", fields("properties", fields("b", fields("properties", fields("c",
			fields("minLength", 1))))))),
		of(having("b", scalar, "not", fields("not", fields("properties", fields("c", fields("minLength", 1)))))),
		of(having("b", arrayOf(scalar), "not", fields("properties", fields("b", fields("items", fields("items",
			fields("minLength", 1))))))),
		of(fields("type", "string", "$ref", "")), of(fields("type", "string", "$schema", "x")),
	)
	for _, key := range []string{"id", "$schema", "$ref"} {
		for _, value := range []string{"", "x"} {
			add(tins(tin("v1", having("a", scalar, key, value, "type", "string"), "subresources", fields("status", fields()))),
				tins(tin("v1", having("a", scalar, key, value), "subresources", fields("status", fields()))))
		}
	}
	exampleRoots(add)
}

// exampleRoots puts every keyword at the root, with and without a status subresource, into metadata, and into junctors.
func exampleRoots(add adder) {
	for _, keyword := range keywords {
		for _, value := range keyword.values {
			root := having("a", str(), keyword.name, value)
			add(tins(tin("v1", root)), tins(tin("v1", root, "subresources", fields("status", fields()))),
				tins(tin("v1", having("metadata", fields("type", "object", keyword.name, value)))),
				tins(tin("v1", having("metadata", having("name", str(keyword.name, value))))),
				of(with(str(), "anyOf", list(fields(keyword.name, value)))),
				of(with(str(), "anyOf", list(fields("type", "integer", keyword.name, value), fields("type", "string")))),
				of(with(fields("x-kubernetes-int-or-string", true), "allOf",
					list(fields("anyOf", list(fields("type", "integer"), fields("type", "string")), keyword.name, value)))))
		}
	}
}

func exampleSpecs(add adder, after replacer) {
	plain := of(str())
	for _, key := range []string{"metadata", "spec", "status"} {
		add(tins(tin("v1", having(key, str()))))
	}
	for _, warning := range []any{"", "x", strings.Repeat("x", 256), strings.Repeat("x", 257), "a\tb", "\tb", "é",
		"a\u200bb"} {
		for _, deprecated := range []bool{true, false} {
			add(of(str(), "deprecated", deprecated, "deprecationWarning", warning))
		}
	}
	for _, format := range []string{"", "byte", "date", "date-time", "double", "float", "int32", "int64", "password",
		"x"} {
		for _, typ := range []string{"string", "integer", "x", ""} {
			add(of(str(), "additionalPrinterColumns", list(fields("name", "a", "type", typ, "format", format, "jsonPath", ".a",
				"description", "d", "priority", 2))))
		}
	}
	for _, name := range []string{"", "a", "9", "a9", "9a", "-", "A", "a.b", strings.Repeat("a", 64), "a,b"} {
		add(at(plain, "spec.names.plural", name), at(plain, "spec.names.singular", name), at(plain, "spec.names.kind", name),
			at(plain, "spec.names.shortNames", list(name)), at(plain, "spec.names.categories", list(name)),
			at(plain, "spec.group", name), at(plain, "spec.group", name+".com"), at(plain, "spec.scope", name),
			at(plain, "metadata.generateName", name), at(at(plain, "metadata.name", ""), "metadata.generateName", name),
			at(at(plain, "metadata.name", ""), "metadata.generateName", "a-"),
			tins(tin(name, having("a", str()), "storage", true)))
		for _, under := range []string{"plural", "singular", "kind", "listKind"} {
			add(at(plain, "status.acceptedNames", fields("plural", "a", "kind", "A", under, name)))
		}
		add(at(plain, "status.acceptedNames", fields("plural", "a", "kind", "A", "shortNames", list(name), "categories",
			list(name))))
	}
	for _, path := range []string{"", ".a", ".spec", ".spec.a", ".status.a", ".specx", "a", ".spec.", ".statusx.a"} {
		add(of(str(), "subresources", fields("scale", fields("specReplicasPath", ".spec.a", "statusReplicasPath", ".status.a",
			"labelSelectorPath", path))))
	}
	for _, n := range []int{7, 8, 9, 10} {
		for _, m := range []int{8, 9} {
			after(selecting(m), selecting(n))
			first, second := selecting(n), selecting(m)
			two := func(a, b map[string]any) map[string]any {
				v := clone(b["spec"].(map[string]any)["versions"].([]any)[0]).(map[string]any)
				v["name"], v["storage"] = "v2", false
				return tins(a["spec"].(map[string]any)["versions"].([]any)[0], v)
			}
			after(two(first, second), two(first, second), two(second, first), two(second, second), first)
			after(first, two(first, second))
		}
	}
	for _, stored := range [][]any{nil, {}, {"v1"}, {"v0"}, {"v0", "v0"}, {"v1", "v0"}, {"v0", "v1", "v0"}} {
		add(at(plain, "status.storedVersions", stored))
		after(at(plain, "status.storedVersions", stored), plain, tins())
	}
	for _, note := range []string{"", "unapproved", "unapproved, x", "x", "https://a/b", "//a/b", "https:///b",
		"https:b", "/b",
		"xunapproved"} {
		elder := at(at(plain, "spec.group", "example.k8s.io"), "metadata.name", "tins.example.k8s.io")
		one := at(elder, "metadata.annotations", fields("api-approved.kubernetes.io", note))
		add(one, elder)
		after(elder, one)
		after(one, elder)
		for _, other := range []string{"", "unapproved", "x", "https://a/b", "//a/b"} {
			after(at(elder, "metadata.annotations", fields("api-approved.kubernetes.io", other)), one)
		}
	}
	after(plain, at(plain, "spec.scope", "a<b"))
	unready := established(plain)
	for _, condition := range unready["status"].(map[string]any)["conditions"].([]any) {
		condition.(map[string]any)["status"] = "False"
	}
	after(unready, at(plain, "spec.scope", "Cluster"))
	for _, key := range []string{"scope", "names.kind", "group", "names.plural", "names.singular"} {
		after(plain, at(plain, "spec."+key, "Cluster"), at(plain, "spec."+key, "x"))
	}
	exampleConversions(add, after, plain)
}

func exampleConversions(add adder, after replacer, plain map[string]any) {
	hook := func(bundle any, reviews ...any) map[string]any {
		client := fields("url", "https://a.b")
		if bundle != nil {
			client["caBundle"] = bundle
		}
		return at(plain, "spec.conversion", fields("strategy", "Webhook", "webhook",
			fields("clientConfig", client, "conversionReviewVersions", reviews)))
	}
	hooks := []map[string]any{plain, hook(nil, "v1"), hook("bm8gUEVN", "v1"), hook("", "v1"), hook(nil, "v3"), hook(nil),
		hook(nil, "v1", "v1"), hook(nil, "V1"), hook(certificate, "v1beta1"), hook("bm8gUEVN", "v3"),
		at(hook(nil, "v1"), "spec.preserveUnknownFields", true), at(plain, "spec.conversion", fields("strategy", "x")),
		at(hook(nil, "v1"), "spec.conversion.strategy", "None")}
	for _, old := range hooks {
		after(old, hooks...)
	}
	add(hooks...)
}

// exampleRepairs adds definitions with an error in a default or a rule, and beside or above it a schema that does not
// compile.
func exampleRepairs(add adder, after replacer) {
	ints := list(fields("type", "integer"), str())
	broken := []map[string]any{
		fields("type", "foo"), fields("type", "foo", "format", "int32"), fields("type", "foo", "nullable", true),
		fields("type", "foo", "x-kubernetes-int-or-string", true), fields("type", "object", "x-kubernetes-map-type", "foo"),
		arrayOf(str(), "x-kubernetes-list-type", "foo"), arrayOf(having("k", str()), "x-kubernetes-list-type", "map"),
		str("$ref", ""), str("not", fields("$ref", "")), str("allOf", list(fields("$ref", ""))),
		str("anyOf", list(fields("$ref", ""))), str("oneOf", list(fields("$ref", ""))),
		str("not", fields("not", fields("$ref", ""))),
		arrayOf(fields("type", "foo")), mapOf(fields("type", "foo")), having("x", fields("type", "foo")),
		arrayOf(having("k", str()), "x-kubernetes-list-type", "set", "x-kubernetes-list-map-keys", list("k")),
		arrayOf(having("k", str()), "x-kubernetes-list-type", "map", "x-kubernetes-list-map-keys", list("k")),
		having("x", str("not", fields("additionalProperties", false))),
	}
	beside := []map[string]any{
		str("default", 1), str("default", "x"), unpruned, str("x-kubernetes-validations", rule("1")),
		fields("x-kubernetes-preserve-unknown-fields", true, "default", fields("a", 1)),
		fields("x-kubernetes-int-or-string", true, "default", "x"), fields("x-kubernetes-int-or-string", true, "default",
			fields()),
		fields("type", "object", "x-kubernetes-map-type", "atomic", "default", fields()),
		arrayOf(str(), "x-kubernetes-list-type", "set", "default", list("a", "a")),
		arrayOf(having("k", str("default", "")), "x-kubernetes-list-type", "map", "x-kubernetes-list-map-keys", list("k"),
			"default", list(fields("k", "a"), fields("k", "a"))),
		mapOf(str(), "default", fields("a", 1), "anyOf", list(fields("additionalProperties", false))),
		fields("type", "object", "additionalProperties", false, "default", fields("a", 1)),
		having("x", str(), "default", fields("x", "y"), "not", fields("additionalProperties", false)),
		having("x", str(), "default", fields("x", "y"), "oneOf", list(fields("additionalProperties", false))),
		having("x", str(), "default", fields("x", "y"), "allOf", list(fields("additionalProperties", false))),
		having("x", having("z", str()), "default", fields("x", fields("z", "y")), "not",
			fields("properties", fields("x", fields("additionalProperties", false)))),
		having("x", str(), "default", fields("x", "y"), "not", fields("allOf", list(fields("additionalProperties", false)))),
		arrayOf(fields("type", "object", "additionalProperties", false), "default", list(fields("a", 1))),
		having("x", fields("type", "foo", "format", "date"), "default", fields("x", 5)),
		fields("type", "foo", "minLength", 3, "default", "x"),
		arrayOf(with(having("k", str()), "required", list("k"), "x-kubernetes-validations", rule("self == oldSelf")),
			"x-kubernetes-list-type", "map", "x-kubernetes-list-map-keys", list("k"), "maxItems", 5),
		arrayOf(str(), "x-kubernetes-list-type", "set", "default", list("a", "b"), "x-kubernetes-validations",
			rule("self == ['b', 'a']")),
	}
	for _, b := range broken {
		for _, good := range beside {
			doc := of(fields("type", "object", "properties", fields("b", good, "c", b)))
			add(doc)
			after(doc, of(fields("type", "object", "properties", fields("b", unpruned, "c", b))))
		}
		rules := of(with(b, "x-kubernetes-validations", rule("true")))
		after(rules, rules)
		rules = of(with(having("c", b), "x-kubernetes-validations", rule("true")))
		after(rules, rules)
	}
	for _, good := range beside {
		add(of(good))
	}
	add(
		tins(tin("v1", fields("x-kubernetes-int-or-string", true, "x-kubernetes-validations", rule("true")))),
		of(fields("x-kubernetes-int-or-string", true, "oneOf", list(fields("anyOf", ints)))),
		of(fields("x-kubernetes-int-or-string", true, "not", fields("anyOf", ints))),
		of(fields("x-kubernetes-int-or-string", true, "not", fields("allOf", list(fields("anyOf", ints))))),
		of(arrayOf(str(), "not", fields("items", fields("anyOf", ints)))),
		of(having("b", str(), "not", fields("properties", fields("b", fields("anyOf", ints))))),
	)
	untyped := at(of(fields("properties", fields("b", str()))), "spec.preserveUnknownFields", true)
	for _, extension := range []map[string]any{
		fields("x-kubernetes-embedded-resource", true), fields("x-kubernetes-preserve-unknown-fields", true),
		fields("x-kubernetes-int-or-string", true), fields("x-kubernetes-list-map-keys", list("k")),
		fields("x-kubernetes-list-type", "set"), fields("x-kubernetes-map-type", "atomic"),
		fields("x-kubernetes-validations", rule("true")),
	} {
		doc := at(of(with(fields("properties", fields("b", str())), "items", extension)), "spec.preserveUnknownFields", true)
		after(untyped, doc, untyped)
		after(doc, doc)
	}
	after(of(mapOf(unpruned)), of(unpruned), of(mapOf(unpruned)))
}

// exampleShown adds definitions that errors print as a whole, with every member set.
func exampleShown(add adder) {
	full := fields("id", "i", "$schema", "s", "$ref", "r", "description", "d", "type", "object", "nullable", true,
		"format", "f", "title", "t", "default", 1, "maximum", 2, "exclusiveMaximum", true, "minimum", 1,
		"exclusiveMinimum", true, "maxLength", 3, "minLength", 4, "pattern", "p", "maxItems", 5, "minItems", 6,
		"uniqueItems", true, "multipleOf", 7, "enum", list("e"), "maxProperties", 8, "minProperties", 9, "required",
		list("q"),
		"items", str(), "allOf", list(str()), "oneOf", list(str(), str()), "anyOf", list(str()), "not", str(),
		"properties", fields("a", str(), "b", str()), "additionalProperties", str(), "patternProperties", fields("c", str()),
		"dependencies", fields("d", list("e"), "f", str()), "additionalItems", str(), "definitions", fields("g", str()),
		"externalDocs", fields("description", "d", "url", "u"), "example", 3)
	for key, value := range fields("x-kubernetes-preserve-unknown-fields", true, "x-kubernetes-embedded-resource", true,
		"x-kubernetes-int-or-string", true, "x-kubernetes-list-map-keys", list("k"), "x-kubernetes-list-type", "set",
		"x-kubernetes-map-type", "atomic", "x-kubernetes-validations", list(fields("rule", "true", "message", "m",
			"messageExpression", "'m'", "reason", "FieldValueInvalid", "fieldPath", ".a", "optionalOldSelf", true))) {
		full[key] = value
	}
	status := fields("status", fields())
	version := tin("v1", full, "deprecated", true, "deprecationWarning", "w", "subresources",
		fields("status", fields(), "scale", fields("specReplicasPath", ".spec.a", "statusReplicasPath", ".status.b",
			"labelSelectorPath", ".status.c")),
		"additionalPrinterColumns", list(fields("name", "n", "type", "integer", "format", "int32", "description", "d",
			"priority",
			12, "jsonPath", ".a")), "selectableFields", list(fields("jsonPath", "")))
	add(tins(tin("v1", full, "subresources", status)),
		tins(tin("v1", fields("type", "object", "minProperties", 1, "items", list(full, full)), "subresources", status)),
		tins(version, tin("v1", str())), tins(tin("v1", nil), version),
		tins(tin("v1", fields("type", "object", "id", "x"), "selectableFields", list(fields("jsonPath", ""))),
			tin("v2", str(), "selectableFields", list(fields("jsonPath", ".b")))),
		tins(tin("v1", fields("type", "object", "properties", fields("a", having("b", str()), "ab", str(), "m", mapOf(str()),
			"mx", str())), "selectableFields", list(fields("jsonPath", ".a.b"), fields("jsonPath", ".ab"),
			fields("jsonPath", ".m.x"), fields("jsonPath", ".mx")))),
		at(of(str()), "metadata.name", "tins.example.com-"))
}

// certificate is a certificate as in a definition: PEM in base64.
const certificate = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJCakNCcmFBREFnRUNBZ0VCTUFvR0NDcUdTTTQ5QkFNQ01Bd3hDakFJQmdOVkJBTVRBV0V3SUJjTk56QXcKTVRBeE1EQXdNREF3V2hnUE1qQTVOakV3TURJd056QTJOREJhTUF3eENqQUlCZ05WQkFNVEFXRXdXVEFUQmdjcQpoa2pPUFFJQkJnZ3Foa2pPUFFNQkJ3TkNBQVFkNjRWUG8zQmluaERmY3RDRTZ6SzBCSG1xWC92dXk1dlNUdUdBCkRVbWt3MkZMS1pDZ2paMzFPTGxOdUxHalpPN1F1c0tSYnZOWXBUa0FkR21SUXRpc01Bb0dDQ3FHU000OUJBTUMKQTBnQU1FVUNJUUNLSEhFUjNzR1JOVkFTMmh4eDBBOUp4d0RmZFRGUzJDaldyVHFCbWlNTk9nSWdPcWd2ZUNLLwo3QWZ5NllPS1hTdE9rS2RZRm9PSWp5dVlwcUUrdzhPODY1dz0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="

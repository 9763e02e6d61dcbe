package crd

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// place is a place in a document, with the functions that change it.
type place struct {
	key    string
	value  any
	schema bool // whether this is a schema
	set    func(any)
	drop   func()
}

// places lists every place below the metadata and the spec of a document.
func places(doc map[string]any) (found []place) {
	var walk func(key string, v any, schema bool, set func(any))
	walk = func(key string, v any, schema bool, set func(any)) {
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				inner := k == "openAPIV3Schema" || schema && schemaUnder[k] || isSchemas[key] && !schema
				put := func(x any) { v[k] = x }
				found = append(found, place{k, v[k], inner && isMap(v[k]), put, func() { delete(v, k) }})
				walk(k, v[k], inner, put)
			}
		case []any:
			for i := range v {
				inner := isSchemas[key] && !schema
				put := func(x any) { v[i] = x }
				found = append(found, place{key, v[i], inner && isMap(v[i]), put,
					func() { set(slices.Delete(slices.Clone(v), i, i+1)) }})
				walk("", v[i], inner, put)
			}
		}
	}
	for _, top := range []string{"metadata", "spec"} {
		walk(top, doc[top], false, func(x any) { doc[top] = x })
	}
	return found
}

func isMap(v any) bool { _, ok := v.(map[string]any); return ok }

// schemaUnder are the keys of a schema whose value is a schema; isSchemas are those whose value contains several
// schemas.
var (
	schemaUnder = map[string]bool{"items": true, "not": true, "additionalProperties": true, "additionalItems": true}
	isSchemas   = map[string]bool{"properties": true, "patternProperties": true, "definitions": true,
		"dependencies": true, "allOf": true, "anyOf": true, "oneOf": true}
)

// mutator makes variants of documents, always the same ones for a seed.
type mutator struct {
	rng  *rand.Rand
	docs []map[string]any
	// named holds the values that the documents have under a key, at any path.
	named map[string][]any
}

func newMutator(docs []map[string]any) *mutator {
	m := &mutator{docs: docs, named: map[string][]any{}}
	for _, doc := range docs {
		for _, p := range places(doc) {
			m.named[p.key] = append(m.named[p.key], p.value)
		}
	}
	return m
}

func clone(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var copied any
	if err := json.Unmarshal(text, &copied); err != nil {
		panic(err)
	}
	return copied
}

// variant returns a document with a few changes.
func (m *mutator) variant(seed uint64, doc map[string]any) map[string]any {
	m.rng = rand.New(rand.NewPCG(seed, 0xc2d))
	out := clone(doc).(map[string]any)
	for range 1 + m.rng.IntN(4) {
		all := places(out)
		if m.rng.IntN(2) == 0 {
			if schemas := slices.DeleteFunc(slices.Clone(all),
				func(p place) bool { return !p.schema }); len(schemas) > 0 {
				m.keyword(schemas[m.rng.IntN(len(schemas))].value.(map[string]any))
				continue
			}
		}
		if len(all) > 0 {
			m.change(all[m.rng.IntN(len(all))])
		}
	}
	return out
}

func pick[T any](m *mutator, from []T) T { return from[m.rng.IntN(len(from))] }

// keyword adds a keyword to a schema, or changes one.
func (m *mutator) keyword(schema map[string]any) {
	k := pick(m, keywords)
	schema[k.name] = clone(pick(m, k.values))
}

func (m *mutator) change(p place) {
	switch roll := m.rng.IntN(10); {
	case roll < 3:
		p.drop()
	case roll < 5 && len(m.named[p.key]) > 0:
		p.set(clone(pick(m, m.named[p.key])))
	case roll < 6 && isMap(p.value):
		key := pick(m, memberNames)
		if values := m.named[key]; len(values) > 0 {
			p.value.(map[string]any)[key] = clone(pick(m, values))
		}
	default:
		p.set(m.other(p.value))
	}
}

// other returns a replacement for a value, mostly of the same type.
func (m *mutator) other(v any) any {
	switch v := v.(type) {
	case string:
		switch m.rng.IntN(6) {
		case 0:
			return v + pick(m, texts)
		case 1:
			return pick(m, texts) + v
		case 2:
			return strings.ToUpper(v)
		}
		return pick(m, texts)
	case float64:
		return pick(m, []any{-1, 0, 1, 1 << 40, 65536})
	case bool:
		return !v
	case []any:
		if len(v) == 0 || m.rng.IntN(3) == 0 {
			return []any{}
		}
		return append(slices.Clone(v), clone(v[m.rng.IntN(len(v))]))
	case map[string]any:
		return map[string]any{}
	}
	return nil
}

// memberNames are the names of members that are put where they do not belong.
var memberNames = []string{"schema", "subresources", "additionalPrinterColumns", "selectableFields",
	"deprecationWarning", "clientConfig", "webhook",
	"scale", "status", "shortNames", "metadata", "apiVersion", "kind", "spec", "properties"}

var texts = []string{"", "a", "A", "-a", "a.b", "a b", "é<&>\"", "\t", "a\nb", ".", ".a", "a.", ".spec", ".spec.",
	".spec.color", ".spec.nope", ".spec.labels", ".spec.ports",
	".metadata.name", ".status.x", "['a']", ".spec['color']", ".spec.labels['a']", ".spec.labels['a\\'b\\q']",
	".spec.labels['a", ".spec[color]", ".spec['color']x", ".spec.labels.b", "x['y']",
	"v1", "v2", "v1beta1", "None", "Webhook", "Cluster", "k8s.io", "x.k8s.io", "kubernetes.io", "https://a.b/c",
	"http://a.b", "https://u:p@h/p?q#f", "https://", "::", "https://\x7f",
	"unapproved, why", "YQ==", "/", "//", "/a//b", "/A", "a/b", "0", "1", "(", "[a-", "string", "object", "any", "null",
	"int32", "atomic", "set", "map", "granular",
	strings.Repeat("a", 64), strings.Repeat("a.", 130), strings.Repeat("long ", 60)}

func list(v ...any) []any { return v }

func fields(keysAndValues ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i < len(keysAndValues); i += 2 {
		out[keysAndValues[i].(string)] = keysAndValues[i+1]
	}
	return out
}

// keywords are the keywords of schemas, with valid and invalid values.
var keywords = []struct {
	name   string
	values []any
}{
	{"type", list("string", "object", "array", "integer", "number", "boolean", "null", "", "any", "Object")},
	{"format", list("int32", "date", "nonsense", "")},
	{"title", list("t", "")},
	{"description", list("d")},
	{"nullable", list(true, false)},
	{"default", list("red", 1, 1.5, true, nil, fields(), fields("color", "red"), fields("unknown", 1), list(),
		list("a", "a"), fields("metadata", fields("name", "A")))},
	{"id", list("x", "")},
	{"$schema", list("x", "http://json-schema.org/draft-04/schema#")},
	{"$ref", list("#/definitions/a", "")},
	{"uniqueItems", list(true, false)},
	{"enum", list(list("red"), list(), list(1, nil))},
	{"required", list(list("color"), list())},
	{"maximum", list(1, 1.5)},
	{"exclusiveMaximum", list(true)},
	{"minLength", list(0, 3)},
	{"maxItems", list(0, 3)},
	{"maxProperties", list(0, 3)},
	{"multipleOf", list(0, 2)},
	{"pattern", list("^a$", "(", "[a-", "a{1001}", "", "\\q")},
	{"items", list(fields("type", "string"), fields(), list(fields("type", "string")), list(),
		fields("type", "object", "nullable", true),
		fields("type", "array", "items", fields("type", "string"), "x-kubernetes-list-type", "set"),
		fields("type", "object", "properties", fields("k", fields("type", "object"))))},
	{"properties", list(fields(), fields("a", fields("type", "string")), fields("a", fields()),
		fields("metadata", fields("type", "string")),
		fields("metadata", fields("type", "object", "description", "x")), fields("kind", fields("type", "integer"),
			"apiVersion", fields("type", "object")),
		fields("metadata", fields("type", "object", "default", fields("name", "x"))),
		fields("metadata",
			fields("type", "object", "properties", fields("name", fields("type", "string", "default", "A"), "labels",
				fields("type", "object", "additionalProperties", fields("type", "string", "default", "x"))))),
		fields("metadata", fields("type", "object", "x-kubernetes-embedded-resource", true)),
		fields("metadata", fields("type", "object", "properties",
			fields("finalizers", fields("type", "array", "items", fields("type", "string"))))))},
	{"additionalProperties", list(true, false, fields("type", "string"), fields(),
		fields("type", "object", "default", fields()))},
	{"patternProperties", list(fields("a", fields("type", "string")), fields())},
	{"additionalItems", list(true, false, fields("type", "string"))},
	{"definitions", list(fields("a", fields("type", "string", "id", "x")), fields())},
	{"dependencies", list(fields("a", list("b")), fields("a", fields("type", "x")), fields())},
	{"not", list(fields(), fields("required", list("a")), fields("type", "string"),
		fields("properties", fields("a", fields("minLength", 1))), fields("items", fields("minLength", 1)))},
	{"allOf", list(list(), list(fields("description", "d", "title", "t", "default", 1, "nullable", true, "type",
		"string")),
		list(fields("anyOf", list(fields("type", "integer"), fields("type", "string")))),
		list(fields(), fields("anyOf", list(fields("type", "integer"), fields("type", "string")))),
		list(fields("x-kubernetes-preserve-unknown-fields", true, "x-kubernetes-embedded-resource", true,
			"x-kubernetes-int-or-string", true)),
		list(fields("x-kubernetes-list-map-keys", list("a"), "x-kubernetes-list-type", "map", "x-kubernetes-map-type",
			"atomic", "x-kubernetes-validations", list(fields("rule", "true")))))},
	{"anyOf", list(list(fields("type", "integer"), fields("type", "string")),
		list(fields("type", "string"), fields("type", "integer")),
		list(fields("type", "integer"), fields("type", "string", "minLength", 1)),
		list(fields("type", "integer", "additionalProperties", false, "externalDocs", fields("url", "x")),
			fields("type", "string")), list(fields("additionalProperties", true)),
		list(fields("additionalProperties", false)),
		list(fields("type", "integer", "additionalProperties", false, "items", list()), fields("type", "string")),
		list(fields("properties", fields("metadata", fields()))), list(fields("pattern", "(")))},
	{"oneOf", list(list(fields("required", list("a"))),
		list(fields("properties", fields("color", fields("pattern", "x"), "nope", fields("pattern", "y")))),
		list(fields("not", fields("allOf", list(fields("type", "x"))))))},
	{"x-kubernetes-preserve-unknown-fields", list(true, false)},
	{"x-kubernetes-embedded-resource", list(true, false)},
	{"x-kubernetes-int-or-string", list(true, false)},
	{"x-kubernetes-list-map-keys", list(list("k"), list(), list("port", "port"), list("nope"))},
	{"x-kubernetes-list-type", list("atomic", "set", "map", "x", "")},
	{"x-kubernetes-map-type", list("atomic", "granular", "x", "")},
	{"x-kubernetes-validations", list(list(), list(fields("rule", "")), list(fields("rule", " ")),
		list(fields("rule", "true", "message", " ")), list(fields("rule", "true", "message", "a\nb")),
		list(fields("rule", "true ||\n false")), list(fields("rule", "true ||\n false", "message", "x")),
		list(fields("rule", "true", "messageExpression", " ")),
		list(fields("rule", "true", "reason", "Nope")), list(fields("rule", "true", "fieldPath", " ")),
		list(fields("rule", "true", "fieldPath", ".a\n")), list(fields("rule", "true", "fieldPath", ".spec.color")),
		list(fields("rule", "true", "fieldPath", ".spec.labels['x']")),
		list(fields("rule", "true", "fieldPath", ".nope")))},
	{"externalDocs", list(fields("url", "x"))},
	{"example", list(1, nil, fields("a", 1))},
}

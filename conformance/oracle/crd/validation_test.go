package crd

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	objects = flag.Int("objects", 400, "how many variants of each definition are compared")
	seed    = flag.Uint64("seed", 1, "which variants they are")
)

// corpus returns the definitions from which variants are made.
func corpus(t testing.TB) (docs []map[string]any) {
	text, err := os.ReadFile("testdata/definitions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var doc map[string]any
		if err := yaml.Unmarshal(part, &doc); err != nil {
			t.Fatal(err)
		}
		docs = append(docs, doc)
	}
	return docs
}

func text(t testing.TB, doc any) []byte {
	t.Helper()
	out, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// neverFired lists, by parts of their text and with the reason, errors in upstream's source that no definition of
// version v1 leads to.
var neverFired = map[string]string{
	"top-level and per-version schemas are mutually exclusive": moved,

	"top-level and per-version subresources are mutually exclusive":                                                                           moved,
	"top-level and per-version additionalPrinterColumns are mutually exclusive":                                                               moved,
	"per-version schemas may not all be set to identical values (top-level validation should be used instead)":                                moved,
	"per-version subresources may not all be set to identical values (top-level subresources should be used instead)":                         moved,
	"per-version additionalPrinterColumns may not all be set to identical values (top-level additionalPrinterColumns should be used instead)": moved,
	"must match the first version in spec.versions":                                                                                           "a definition of v1 has no spec.version: it is the name of the first",
	"must not be empty":                                  "the one caller that could have an empty path demands one before",
	"must be a json path in the dot notation":            "strings.Split gives at least one part",
	"error building validator: ":                         "what could not be built has been refused before",
	"failed to validate default value inside metadata: ": "upstream: this should never happen",
	"internal error: failed to retrieve type information for x-kubernetes-validations": "of a node with rules there is type information",
}

const moved = "a definition of v1 has both only per version; what is the same in all is moved, for all of them"

// cases are handwritten changes to definitions, for errors that random changes rarely cause.
var cases = []struct {
	name string // of the definition
	path []any  // keys and indexes
	to   any
}{
	{"relics.example.com", list("spec", "conversion"), fields("strategy", "Webhook", "webhook",
		fields("conversionReviewVersions", list("v1"), "clientConfig", fields("url", "https://a")))},
	{"widgets.example.com", list("spec", "names", "listKind"), "Widget"},
	{"widgets.example.com", list("spec", "versions", 0, "selectableFields", 0, "jsonPath"), ".metadata.name"},
	{"widgets.example.com", list("spec", "versions", 0, "subresources", "scale", "labelSelectorPath"), ".replicas"},
	{"forks.tools.k8s.io", list("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "list"),
		fields("type", "array", "x-kubernetes-list-type", "map", "x-kubernetes-list-map-keys", list("k"), "items",
			list(fields("type", "object")))},
	{"forks.tools.k8s.io", list("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "list", "items",
		"x-kubernetes-validations"), list(fields("rule", "self == oldSelf"))},
	{"forks.tools.k8s.io", list("spec", "versions", 0, "schema", "openAPIV3Schema", "x-kubernetes-validations"),
		list(fields("rule", "true", "optionalOldSelf", true))},
	{"widgets.example.com", list("spec", "versions", 0, "subresources", "scale", "statusReplicasPath"), ".replicas"},
	{"widgets.example.com", list("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec", "properties",
		"template", "additionalProperties"), true},
	{"widgets.example.com", list("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec", "properties",
		"anything", "x-kubernetes-validations"), list(fields("rule", "true"))},
	{"widgets.example.com", list("spec", "versions", 0, "subresources", "scale", "specReplicasPath"), ".replicas"},
	{"widgets.example.com", list("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec", "properties",
		"ports", "items", "properties", "port", "type"), "object"},
	{"widgets.example.com", list("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec", "properties",
		"template", "x-kubernetes-int-or-string"), true},
	{"widgets.example.com", list("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec", "properties",
		"template", "properties", "metadata", "properties", "labels", "default"), list()},
	{"widgets.example.com", list("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec", "properties",
		"template", "properties", "metadata", "properties", "labels", "default"), fields("a b", "x")},
	{"twins.example.com", list("spec", "versions"), unstructured("id", "x")},
	{"twins.example.com", list("spec", "versions"), unstructured("$ref", "x")},
	{"twins.example.com", list("spec", "versions"), unstructured("items", list(fields("type", "string")))},
	{"twins.example.com", list("spec", "versions"),
		unstructured("not", fields("items", list(fields("type", "string"))))},
	{"twins.example.com", list("spec", "versions"), unstructured("additionalItems", true)},
	{"twins.example.com", list("spec", "versions"), unstructured("definitions", fields("a", fields()))},
	{"twins.example.com", list("spec", "versions"), unstructured("patternProperties", fields("a", fields()))},
	{"twins.example.com", list("spec", "versions"), unstructured("dependencies", fields("a", fields()))},
	{"twins.example.com", list("spec", "versions"), unstructured("x-kubernetes-preserve-unknown-fields", false)},
}

// unstructured returns versions with a schema that has no structural form and a selectable field without a path; one
// with a path makes upstream panic.
func unstructured(key string, value any) any {
	version := fields("name", "v1", "served", true, "storage", true, "selectableFields", list(fields("jsonPath", "")))
	version["schema"] = fields("openAPIV3Schema", fields("type", "object", key, value))
	return list(version)
}

// put replaces the value at a path.
func put(v any, path []any, to any) any {
	if len(path) == 0 {
		return to
	}
	switch at := path[0].(type) {
	case string:
		m := v.(map[string]any)
		m[at] = put(m[at], path[1:], to)
	case int:
		items := v.([]any)
		items[at] = put(items[at], path[1:], to)
	}
	return v
}

// Every definition is refused with the same errors as in upstream, when it is created, when it replaces another and
// when its status is written.
//
// SPEC: EXT-1, VAL-1
func TestValidationIsUpstreams(t *testing.T) {
	docs := corpus(t)
	m := newMutator(docs)
	compared, refused, causes, differences := 0, 0, 0, 0
	report := func(what string, v verdict, doc ...any) {
		compared++
		if len(v.theirs) > 0 {
			refused++
			causes += len(v.theirs)
		}
		if d := v.difference(); d != "" {
			if differences++; differences <= 10 {
				t.Errorf("%s:%s", what, d)
				for _, doc := range doc {
					t.Logf("%.3000s", text(t, doc))
				}
			}
		}
	}
	byName := map[string]map[string]any{}
	for _, doc := range docs {
		byName[doc["metadata"].(map[string]any)["name"].(string)] = doc
	}
	for i, c := range cases {
		variant := put(clone(byName[c.name]), c.path, c.to)
		if d, ok := decode(t, text(t, variant)); ok {
			report("create", create(d), variant)
		} else {
			t.Errorf("case %d cannot be decoded", i)
		}
	}
	for i, doc := range docs {
		var old definition
		var oldDoc map[string]any
		for n := range *objects {
			variant := doc
			if n > 0 {
				variant = m.variant(*seed<<32+uint64(i*1_000_000+n), doc)
			}
			d, ok := decode(t, text(t, variant))
			if !ok {
				continue
			}
			report("create", create(d), variant)
			if oldDoc != nil {
				report("update", update(d, old), variant, oldDoc)
				report("status", updateStatus(d, old), variant, oldDoc)
			}
			if n%5 == 0 {
				old, oldDoc = d, variant
			}
		}
	}
	t.Logf("%d compared, %d refused for %d causes, %d differences", compared, refused, causes, differences)
	if *objects >= 400 && (refused < compared/4 || compared-refused < compared/20) {
		t.Errorf("of %d writes %d are refused: the variants are lopsided", compared, refused)
	}
	checkFired(t)
}

package defaults

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"plinth/conformance/internal/scheme"
	"plinth/conformance/internal/vectors"
	"plinth/internal/builtin"
	"plinth/object"
)

// document is one object from which variants are made.
type document = map[string]any

// corpus reads the vectors and the manifests, by kind. Vectors of versions that no server serves, and of kinds that are
// not resources, are left out.
func corpus(t testing.TB) map[schema.GroupVersionKind][]document {
	t.Helper()
	kinds := make(map[schema.GroupVersionKind][]document)
	served := map[schema.GroupVersionKind]bool{}
	for _, r := range builtin.Resources(builtin.Config{}.Every()) {
		served[schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}] = true
	}
	for _, v := range vectors.All(t) {
		unstable := strings.Contains(v.Kind.Version, "alpha") || strings.Contains(v.Kind.Version, "beta")
		if served[v.Kind] || !unstable {
			add(t, kinds, v.JSON)
		}
	}
	manifests, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, path := range manifests {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range bytes.Split(text, []byte("\n---\n")) {
			converted, err := yaml.YAMLToJSON(part)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			add(t, kinds, converted)
		}
	}
	return kinds
}

func add(t testing.TB, kinds map[schema.GroupVersionKind][]document, text []byte) {
	t.Helper()
	doc, ok := parsedDocument(text)
	if !ok {
		t.Fatalf("no object: %s", text)
	}
	apiVersion, _ := doc["apiVersion"].(string)
	kind, _ := doc["kind"].(string)
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	if _, hasMetadata := doc["metadata"]; hasMetadata && scheme.Scheme.Recognizes(gvk) {
		kinds[gvk] = append(kinds[gvk], doc)
	}
}

func parsedDocument(text []byte) (document, bool) {
	var doc document
	err := json.Unmarshal(text, &doc)
	return doc, err == nil
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func parse(t testing.TB, text []byte) object.Value {
	t.Helper()
	parsed, err := object.ParseJSON(text)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return parsed.Value
}

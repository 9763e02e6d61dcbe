package validation

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"plinth/conformance/internal/vectors"
)

// testdata holds the documents and the tables that package validation is tested with.
const testdata = "../../../internal/builtin/validation/testdata"

// corpus returns the documents of every kind: those of package validation first, then the vector, which has every
// field.
func corpus(t testing.TB) map[schema.GroupVersionKind][]map[string]any {
	documents := map[schema.GroupVersionKind][]map[string]any{}
	own, err := filepath.Glob(filepath.Join(testdata, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range own {
		for text := range bytes.SplitSeq(read(t, file), []byte("\n---\n")) {
			var doc map[string]any
			if err := yaml.Unmarshal(text, &doc); err != nil {
				t.Fatal(err)
			}
			version, _ := doc["apiVersion"].(string)
			kind, _ := doc["kind"].(string)
			gv, err := schema.ParseGroupVersion(version)
			if err != nil {
				t.Fatal(err)
			}
			gvk := gv.WithKind(kind)
			documents[gvk] = append(documents[gvk], doc)
		}
	}
	for _, v := range vectors.All(t) {
		documents[v.Kind] = append(documents[v.Kind], v.Document(t))
	}
	return documents
}

func read(t testing.TB, file string) []byte {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

package defaults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"plinth/object"
)

// document is one object to make variants of.
type document = map[string]any

// corpus reads the vectors and the manifests, by kind. Vectors of versions that the reference does not serve by default,
// and of what is no resource, are left out.
func corpus(t testing.TB) map[schema.GroupVersionKind][]document {
	t.Helper()
	kinds := make(map[schema.GroupVersionKind][]document)
	vectors, err := filepath.Glob(filepath.Join(moduleDir(t, "k8s.io/api"), "testdata", "HEAD", "*.json"))
	if err != nil || len(vectors) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	for _, path := range vectors {
		if strings.Contains(filepath.Base(path), "alpha") || strings.Contains(filepath.Base(path), "beta") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		add(t, kinds, text)
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
	apiVersion, _ := doc["apiVersion"].(string) // some vectors are no objects, and have none
	kind, _ := doc["kind"].(string)
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	if _, hasMetadata := doc["metadata"]; hasMetadata && legacyscheme.Scheme.Recognizes(gvk) {
		kinds[gvk] = append(kinds[gvk], doc)
	}
}

func parsedDocument(text []byte) (document, bool) {
	var doc document
	err := json.Unmarshal(text, &doc)
	return doc, err == nil
}

// moduleDir is where the go command keeps the source of a module that this one depends on.
func moduleDir(t testing.TB, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("go list -m %s: %v", module, err)
	}
	return strings.TrimSpace(string(out))
}

// decode is the typed decoding of the reference, without defaulting.
func decode(gvk schema.GroupVersionKind, text []byte) (runtime.Object, error) {
	typed, err := legacyscheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, typed); err != nil {
		return nil, err
	}
	return typed, nil
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

// difference names the first place where two values differ.
func difference(path string, want, got object.Value) string {
	switch {
	case object.Equal(want, got):
		return ""
	case want.Kind() == object.Map && got.Kind() == object.Map:
		for _, m := range want.Members() {
			other, ok := got.Get(m.Key)
			if !ok {
				return fmt.Sprintf("%s.%s: missing, want %s", path, m.Key, object.AppendJSON(nil, m.Value))
			}
			if d := difference(path+"."+m.Key, m.Value, other); d != "" {
				return d
			}
		}
		for _, m := range got.Members() {
			if _, ok := want.Get(m.Key); !ok {
				return fmt.Sprintf("%s.%s: %s, want it missing", path, m.Key, object.AppendJSON(nil, m.Value))
			}
		}
	case want.Kind() == object.List && got.Kind() == object.List && want.Len() == got.Len():
		for i, item := range want.Items() {
			if d := difference(fmt.Sprintf("%s[%d]", path, i), item, got.Items()[i]); d != "" {
				return d
			}
		}
	}
	return fmt.Sprintf("%s: %s, want %s", path, object.AppendJSON(nil, got), object.AppendJSON(nil, want))
}

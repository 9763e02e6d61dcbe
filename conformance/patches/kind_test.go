package patches

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"plinth/internal/builtin/gotypes"
	"plinth/object"
	"plinth/schema"
)

// kind is a built-in kind with the object that k8s.io/api brings along for it, in which every field is filled in.
type kind struct {
	name   string
	golang reflect.Type
	typ    *schema.Type
	vector map[string]any
}

// often are the kinds that make half of all cases: they are the ones with lists that merge.
var often = []string{"core.v1.Pod", "apps.v1.Deployment", "apps.v1.StatefulSet", "core.v1.Service", "core.v1.Node",
	"policy.v1.PodDisruptionBudget", "core.v1.ServiceAccount", "apps.v1.ControllerRevision", "core.v1.PersistentVolumeClaim",
	"certificates.k8s.io.v1.CertificateSigningRequest", "admissionregistration.k8s.io.v1.ValidatingWebhookConfiguration",
	"resource.k8s.io.v1.ResourceClaim"}

// readKinds reads the vectors of every kind that has a Go type in k8s.io/api.
var readKinds = sync.OnceValues(func() (map[string]*kind, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "HEAD", "*.json"))
	if err != nil {
		return nil, err
	}
	kinds := map[string]*kind{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		parts := strings.Split(name, ".")
		of := gvk.GroupVersionKind{
			Group: strings.Join(parts[:len(parts)-2], "."), Version: parts[len(parts)-2], Kind: parts[len(parts)-1],
		}
		if of.Group == "core" {
			of.Group = ""
		}
		if !scheme.Scheme.Recognizes(of) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		o, err := scheme.Scheme.New(of)
		if err != nil {
			return nil, err
		}
		k := &kind{name: name, golang: reflect.TypeOf(o).Elem()}
		k.typ = gotypes.OfType(k.golang)
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &k.vector); err != nil {
			return nil, err
		}
		kinds[name] = k
	}
	return kinds, nil
})

func kindsOf(t testing.TB) map[string]*kind {
	t.Helper()
	kinds, err := readKinds()
	if err != nil {
		t.Fatal(err)
	}
	if len(kinds) < 150 {
		t.Fatalf("only %d vectors found", len(kinds))
	}
	return kinds
}

// typed is a live object as the API server has it: what decoding makes of a document, as untyped content. It is false for
// documents that cannot be decoded.
func (k *kind) typed(doc map[string]any) (map[string]any, bool) {
	o := reflect.New(k.golang).Interface()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(jsonOf(doc), o); err != nil {
		return nil, false
	}
	live, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	return live, err == nil
}

func jsonOf(v any) []byte { return object.AppendJSON(nil, valueOf(v)) }

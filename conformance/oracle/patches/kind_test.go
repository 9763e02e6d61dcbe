package patches

import (
	"reflect"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"plinth/conformance/internal/vectors"
	"plinth/internal/gotypes"
	"plinth/object"
	"plinth/schema"
)

// kind is a built-in kind with its vector from k8s.io/api, in which every field is set.
type kind struct {
	name   string
	golang reflect.Type
	typ    *schema.Type
	vector map[string]any
}

// often are the kinds of half of all cases: those with lists that merge.
var often = []string{"core.v1.Pod", "apps.v1.Deployment", "apps.v1.StatefulSet", "core.v1.Service", "core.v1.Node",
	"policy.v1.PodDisruptionBudget", "core.v1.ServiceAccount", "apps.v1.ControllerRevision",
	"core.v1.PersistentVolumeClaim",
	"certificates.k8s.io.v1.CertificateSigningRequest", "admissionregistration.k8s.io.v1.ValidatingWebhookConfiguration",
	"resource.k8s.io.v1.ResourceClaim"}

// readKinds reads all vectors, one for each kind.
var readKinds = sync.OnceValues(func() (map[string]*kind, error) {
	all, err := vectors.Read()
	if err != nil {
		return nil, err
	}
	kinds := map[string]*kind{}
	for _, v := range all {
		k := &kind{name: v.Name, golang: v.Type, typ: gotypes.OfType(v.Type)}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(v.JSON, &k.vector); err != nil {
			return nil, err
		}
		kinds[v.Name] = k
	}
	return kinds, nil
})

func kindsOf(t testing.TB) map[string]*kind {
	t.Helper()
	kinds, err := readKinds()
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}

// typed returns a live object as in the API server: the decoded document, converted to unstructured content; false for
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

package merge

import (
	"reflect"
	"strings"
	"sync"

	gvk "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"plinth/internal/gotypes"
	"plinth/schema"
)

// builtins are built-in types that differ in how they merge.
var builtins = []struct {
	name          string
	status, scale bool
}{
	{"v1/Pod", true, false},
	{"v1/Service", true, false},
	{"v1/Node", true, false},
	{"v1/ConfigMap", false, false},
	{"v1/Secret", false, false},
	{"v1/PersistentVolume", true, false},
	{"v1/ServiceAccount", false, false},
	{"v1/Endpoints", false, false},
	{"apps/v1/Deployment", true, true},
	{"apps/v1/StatefulSet", true, true},
	{"batch/v1/CronJob", true, false},
	{"autoscaling/v2/HorizontalPodAutoscaler", true, false},
	{"rbac.authorization.k8s.io/v1/Role", false, false},
	{"rbac.authorization.k8s.io/v1/ClusterRoleBinding", false, false},
	{"networking.k8s.io/v1/NetworkPolicy", false, false},
	{"networking.k8s.io/v1/Ingress", true, false},
	{"discovery.k8s.io/v1/EndpointSlice", false, false},
	{"policy/v1/PodDisruptionBudget", true, false},
	{"admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration", false, false},
	{"flowcontrol.apiserver.k8s.io/v1/FlowSchema", true, false},
	{"resource.k8s.io/v1/ResourceClaim", true, false},
	{"storage.k8s.io/v1/StorageClass", false, false},
}

// gvkOf parses a name in builtins.
func gvkOf(name string) gvk.GroupVersionKind {
	apiVersion, kind := name[:strings.LastIndex(name, "/")], name[strings.LastIndex(name, "/")+1:]
	gv, err := gvk.ParseGroupVersion(apiVersion)
	if err != nil {
		panic(err)
	}
	return gv.WithKind(kind)
}

// builtinType returns the compiled type of a built-in kind.
func builtinType(name string) *schema.Type {
	o, err := scheme.Scheme.New(gvkOf(name))
	if err != nil {
		panic(err)
	}
	return gotypes.OfType(reflect.TypeOf(o).Elem())
}

// builtinKinds returns the kinds of builtins.
var builtinKinds = sync.OnceValue(func() []*kind {
	var kinds []*kind
	for _, b := range builtins {
		of := gvkOf(b.name)
		k := &kind{group: of.Group, name: of.Kind, builtin: true, status: b.status}
		k.versions = []*version{{name: of.Version, typ: builtinType(b.name)}}
		if b.scale {
			k.scale = map[string]string{k.apiVersion(of.Version): "replicas"}
		}
		kinds = append(kinds, k)
	}
	return kinds
})

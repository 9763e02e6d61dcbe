package merge

import (
	"reflect"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"

	"plinth/internal/builtin"
	"plinth/internal/builtin/gotypes"
	"plinth/schema"
)

// builtinType is the compiled type of a kind that is not a resource of its own.
func builtinType(name string) *schema.Type {
	if name == "Scale" {
		return gotypes.OfType(reflect.TypeFor[autoscalingv1.Scale]())
	}
	return nil
}

// builtinKinds are the types of the cluster that differ in how they merge.
var builtinKinds = sync.OnceValue(func() []*kind {
	wanted := map[string]struct {
		status bool
		scale  map[string]string
	}{
		"v1/Pod":                                 {status: true},
		"v1/Service":                             {status: true},
		"v1/Node":                                {status: true},
		"v1/ConfigMap":                           {},
		"v1/Secret":                              {},
		"v1/PersistentVolume":                    {status: true},
		"v1/ServiceAccount":                      {},
		"v1/Endpoints":                           {},
		"apps/v1/Deployment":                     {status: true, scale: map[string]string{"apps/v1": "replicas"}},
		"apps/v1/StatefulSet":                    {status: true, scale: map[string]string{"apps/v1": "replicas"}},
		"batch/v1/CronJob":                       {status: true},
		"autoscaling/v2/HorizontalPodAutoscaler": {status: true},
		"rbac.authorization.k8s.io/v1/Role":      {},
		"rbac.authorization.k8s.io/v1/ClusterRoleBinding":                {},
		"networking.k8s.io/v1/NetworkPolicy":                             {},
		"networking.k8s.io/v1/Ingress":                                   {status: true},
		"discovery.k8s.io/v1/EndpointSlice":                              {},
		"policy/v1/PodDisruptionBudget":                                  {status: true},
		"admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration": {},
		"flowcontrol.apiserver.k8s.io/v1/FlowSchema":                     {status: true},
		"resource.k8s.io/v1/ResourceClaim":                               {status: true},
		"storage.k8s.io/v1/StorageClass":                                 {},
	}
	var kinds []*kind
	for _, r := range builtin.Resources(builtin.Config{}) {
		name := r.Version + "/" + r.Kind
		if r.Group != "" {
			name = r.Group + "/" + name
		}
		want, ok := wanted[name]
		if !ok {
			continue
		}
		delete(wanted, name)
		k := &kind{group: r.Group, name: r.Kind, builtin: true, status: want.status, scale: want.scale}
		k.versions = []*version{{name: r.Version, typ: r.Schema()}}
		kinds = append(kinds, k)
	}
	for name := range wanted {
		panic("no built-in kind " + name)
	}
	return kinds
})

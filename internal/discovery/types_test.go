package discovery

import (
	"reflect"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	autoscaling2 "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	networking "k8s.io/api/networking/v1"
	node "k8s.io/api/node/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	resource "k8s.io/api/resource/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	storagemigration "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gvkschema "k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/internal/builtin/gotypes"
	"plinth/internal/engine"
	"plinth/schema"
)

func builtinResources(t testing.TB) []*engine.Resource {
	s := runtime.NewScheme()
	for _, f := range []func(*runtime.Scheme) error{admissionregistration.AddToScheme, apps.AddToScheme, authentication.AddToScheme, authorization.AddToScheme, autoscaling.AddToScheme, autoscaling2.AddToScheme, batch.AddToScheme, certificates.AddToScheme, coordination.AddToScheme, core.AddToScheme, discovery.AddToScheme, events.AddToScheme, flowcontrol.AddToScheme, networking.AddToScheme, node.AddToScheme, policy.AddToScheme, rbac.AddToScheme, resource.AddToScheme, scheduling.AddToScheme, storage.AddToScheme, storagemigration.AddToScheme} {
		f(s)
	}
	types := s.AllKnownTypes()
	get := func(g, v, k string) func() *schema.Type {
		typ := types[gvkschema.GroupVersionKind{Group: g, Version: v, Kind: k}]
		if typ == nil {
			t.Fatal(g, v, k)
		}
		return func() *schema.Type { return gotypes.OfType(typ) }
	}
	_ = reflect.TypeFor[int]
	all := recordedResources(t)
	for _, r := range all {
		r.Schema = get(r.Group, r.Version, r.Kind)
		for _, sub := range r.Subresources {
			if sub.Kind != r.Kind {
				sub.Schema = get(sub.Group, sub.Version, sub.Kind)
			}
		}
	}
	return all
}

package etcdform_test

import (
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/etcdform"
	"plinth/internal/store"
)

func newForm(mediaType string) *etcdform.Form {
	return etcdform.New(engine.NewRegistry(builtin.Resources(builtin.Config{})), mediaType)
}

// SPEC: STORE-3
func TestPaths(t *testing.T) {
	f := newForm("")
	for _, c := range []struct{ resource, name, path string }{
		{"/pods", "ns/a", "pods/ns/a"},
		{"/namespaces", "a", "namespaces/a"},
		{"/nodes", "n", "minions/n"},
		{"/services", "ns/a", "services/specs/ns/a"},
		{"/endpoints", "ns/a", "services/endpoints/ns/a"},
		{"/replicationcontrollers", "ns/a", "controllers/ns/a"},
		{"networking.k8s.io/ingresses", "ns/a", "ingress/ns/a"},
		{"apps/deployments", "ns/a", "deployments/ns/a"},
		{"/events", "ns/a", "events/ns/a"},
		{"rbac.authorization.k8s.io/clusterroles", "system:a", "clusterroles/system:a"},
		{"apiextensions.k8s.io/customresourcedefinitions", "as.b.c",
			"apiextensions.k8s.io/customresourcedefinitions/as.b.c"},
		{"apiregistration.k8s.io/apiservices", "v1.", "apiregistration.k8s.io/apiservices/v1."},
		{"stable.example.com/crontabs", "ns/a", "stable.example.com/crontabs/ns/a"},
		{"stable.example.com/crontabs", "a", "stable.example.com/crontabs/a"},
		{"stable.example.com/services", "a/b", "stable.example.com/services/a/b"},
	} {
		k := store.Key{Resource: c.resource, Name: c.name}
		if path, ok := f.Path(k); path != c.path || !ok {
			t.Errorf("%s is at %q, %v; want %q", k, path, ok, c.path)
		}
		if got, ok := f.Key(c.path); got != k || !ok {
			t.Errorf("%q is %s, %v; want %s", c.path, got, ok, k)
		}
	}
	for _, path := range []string{"", "/", "pods", "pods/", "pods/ns", "pods/ns/", "pods//a", "pods/ns/a/b",
		"namespaces/a/b",
		"health", "ranges/servicenodeports", "masterleases/10.0.0.1", "peerserverleases/a",
		"services/ns/a",
		"services/specs", "services/specs/ns", "services", "podgroups/ns/a", "nodes/n", "apps/deployments/ns/a",
		"stable.example.com", "stable.example.com/", "stable.example.com/crontabs", "stable.example.com/crontabs/",
		"stable.example.com/crontabs/ns/", "stable.example.com/crontabs/a/b/c", "networking.k8s.io/ingresses/ns/a",
		"apiextensions.k8s.io/customresourcedefinitions/a/b", "./a/b", "stable.example.com//a"} {
		if k, ok := f.Key(path); ok {
			t.Errorf("%q is %s", path, k)
		}
	}
	for _, resource := range []string{"plinth/claims", "apps/unknown", "", "a.b", "a.b/"} {
		if path, ok := f.Path(store.Key{Resource: resource, Name: "a"}); ok {
			t.Errorf("%s is at %q", resource, path)
		}
	}
}

package builtin

import (
	"slices"
	"strings"
	"testing"

	"plinth/internal/engine"
	"plinth/merge"
)

// resetsOf are the fields that writes to an endpoint of the built-in type of this name cannot change.
func resetsOf(group, resource, subresource string) map[string]merge.Set {
	for _, r := range Resources(Config{}.Every()) {
		if r.Group != group || r.Name != resource {
			continue
		}
		if subresource == "" {
			return r.Resets
		}
		if s := r.Subresource(subresource); s != nil {
			return s.Resets
		}
	}
	return nil
}

// SPEC: SSA-14
func TestResets(t *testing.T) {
	for _, test := range []struct{ group, resource, subresource, apiVersions, except string }{
		{"apps", "statefulsets", "", "apps/v1", ".status"},
		{"apps", "statefulsets", "status", "apps/v1", ".spec"},
		{"apps", "statefulsets", "scale", "", ""},
		{"apps", "deployments", "status", "apps/v1", ".spec .metadata.labels"},
		{"apps", "controllerrevisions", "", "", ""},
		{"", "pods", "", "v1", ".status"},
		{"", "pods", "status", "v1", ".spec .metadata.deletionTimestamp .metadata.ownerReferences"},
		{"", "pods", "resize", "", ""},
		{"", "namespaces", "finalize", "v1", ".status"},
		{"", "deployments", "", "", ""},
		{"autoscaling", "horizontalpodautoscalers", "", "autoscaling/v1 autoscaling/v2", ".status"},
		{"autoscaling", "horizontalpodautoscalers", "status", "autoscaling/v1 autoscaling/v2", ".spec"},
		{"certificates.k8s.io", "certificatesigningrequests", "approval", "certificates.k8s.io/v1",
			".spec .status.certificate"},
		{"storage.k8s.io", "csinodes", "status", "storage.k8s.io/v1", ".metadata .spec"},
	} {
		got := resetsOf(test.group, test.resource, test.subresource)
		var apiVersions []string
		for apiVersion, f := range got {
			apiVersions = append(apiVersions, apiVersion)
			if except := strings.ReplaceAll(f.String(), "\n", " "); except != test.except {
				t.Errorf("%s %s/%s in %s: all but %s, want %s", test.group, test.resource, test.subresource, apiVersion,
					except, test.except)
			}
		}
		slices.Sort(apiVersions)
		if got := strings.Join(apiVersions, " "); got != test.apiVersions {
			t.Errorf("%s %s/%s: in %s, want %s", test.group, test.resource, test.subresource, got, test.apiVersions)
		}
	}
}

// The row of a type with a status has the fields that each of its two endpoints cannot change, in each version, and has
// no other endpoint.
//
// SPEC: SSA-14
func TestResetsOfServedTypes(t *testing.T) {
	served := map[string]bool{}
	for _, r := range Resources(Config{}.Every()) {
		endpoint := r.Group + " " + r.Name + "/"
		served[endpoint] = true
		hasStatus := slices.ContainsFunc(r.Subresources, func(s *engine.Subresource) bool { return s.Name == "status" })
		for _, subresource := range []string{"", "status"} {
			if _, ok := resetsOf(r.Group, r.Name, subresource)[r.APIVersion()]; ok != hasStatus {
				t.Errorf("%s %s/%s: it has untouched fields: %v", r.APIVersion(), r.Name, subresource, ok)
			}
		}
		for _, s := range r.Subresources {
			served[endpoint+s.Name] = true
		}
	}
	for _, g := range groups(Config{}) {
		for _, k := range g.kinds {
			for subresource := range k.untouched {
				if endpoint := g.name + " " + k.name + "/" + subresource; !served[endpoint] {
					t.Errorf("%s is not served", endpoint)
				}
			}
		}
	}
}

package server

import (
	"strings"
	"testing"
)

// Administrative access to devices is for namespaces with a label, in claims, templates and allocations, in every
// version. A label holds from the request after its write.
//
// SPEC: AUTH-2
func TestAdminAccessToDevices(t *testing.T) {
	const (
		group     = "/apis/resource.k8s.io/"
		refused   = "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
		request   = `{"name":"r","exactly":{"deviceClassName":"c"}},{"name":"a","exactly":{"deviceClassName":"c","adminAccess":true}}`
		flat      = `{"name":"r","deviceClassName":"c","adminAccess":true}`
		either    = `{"name":"r","firstAvailable":[{"name":"s","deviceClassName":"c"}]}`
		claim     = `{"metadata":{"name":"%"},"spec":{"devices":{"requests":[@]}}}`
		template  = `{"metadata":{"name":"%"},"spec":{"spec":{"devices":{"requests":[@]}}}}`
		allocated = `{"metadata":{"name":"plain"},"spec":{"devices":{"requests":[` + either + `]}},"status":{"allocation":{"devices":{"results":[` +
			`{"request":"r","driver":"d.example.com","pool":"p","device":"x"},` +
			`{"request":"r","driver":"d.example.com","pool":"p","device":"y","adminAccess":true}]}}}}`
		label = `{"metadata":{"name":"default","labels":{"resource.kubernetes.io/admin-access":"%"}}}`
	)
	with := func(text, name, requests string) string {
		return strings.NewReplacer("%", name, "@", requests).Replace(text)
	}
	in := func(version, resource string) string {
		return "POST " + group + version + "/namespaces/default/" + resource
	}
	s := tenantsWith(t, t.TempDir(), func(c *Config) { c.Versions.Pairs = []string{"resource.k8s.io/v1beta1=true"} })
	const (
		namespace = "PUT /api/v1/namespaces/default"
		status    = "PUT " + group + "v1/namespaces/default/resourceclaims/plain/status"
	)
	refusedAt := func(path string) string { return path + ".adminAccess: " + refused }
	first, second := refusedAt("spec.devices.requests[0]"), refusedAt("spec.devices.requests[1]")
	for _, step := range []asked{
		{"sesame", in("v1", "resourceclaims"), with(claim, "plain", either), 201, ""},
		{"sesame", in("v1", "resourceclaims"), with(claim, "a", request), 422, second},
		{"sesame", in("v1beta1", "resourceclaims"), with(claim, "b", flat), 422, first},
		{"sesame", in("v1", "resourceclaimtemplates"), with(template, "a", request), 422, second},
		{"sesame", in("v1beta1", "resourceclaimtemplates"), with(template, "b", flat), 422, first},
		{"sesame", status, allocated, 422, refusedAt("status.allocation.devices.results[1]")},
		{"sesame", namespace, with(label, "yes", ""), 200, ""},
		{"sesame", in("v1", "resourceclaims"), with(claim, "a", request), 422, refused},
		{"sesame", namespace, with(label, "true", ""), 200, ""},
		{"sesame", in("v1", "resourceclaims"), with(claim, "a", request), 201, ""},
		{"sesame", in("v1beta1", "resourceclaims"), with(claim, "b", flat), 201, ""},
		{"sesame", in("v1", "resourceclaimtemplates"), with(template, "a", request), 201, ""},
		{"sesame", in("v1beta1", "resourceclaimtemplates"), with(template, "b", flat), 201, ""},
		{"sesame", status, allocated, 200, ""},
		{"sesame", namespace, with(label, "false", ""), 200, ""},
		{"sesame", status, allocated, 200, ""}, // what is granted stays
	} {
		step.check(t, s)
	}
}

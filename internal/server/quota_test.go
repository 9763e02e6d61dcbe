package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// configMap is a ConfigMap of that name.
func configMap(name string) jsonObject { return jsonObject{"metadata": map[string]any{"name": name}} }

// quotaOf is a ResourceQuota.
func quotaOf(name string, hard map[string]any) jsonObject {
	return jsonObject{"metadata": map[string]any{"name": name}, "spec": map[string]any{"hard": hard}}
}

// awaitUsed waits until a quota says that so much is used.
func awaitUsed(t *testing.T, c *testClient, quota, resource, want string) {
	t.Helper()
	var got string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		got = c.must(200, http.MethodGet, "/api/v1/namespaces/default/resourcequotas/"+quota, nil).text("status", "used",
			resource)
		if got == want {
			return
		}
	}
	t.Errorf("quota %s says that %q of %s is used, want %q", quota, got, resource, want)
}

// A quota limits from the request after its write, counts what was there and what is gone, and keeps both over a
// restart.
//
// SPEC: AUTH-5
func TestResourceQuota(t *testing.T) {
	const maps, quotas = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/resourcequotas"
	config := quiet(t.TempDir())
	c, s := serveFrom(t, config)
	c.must(201, http.MethodPost, maps, configMap("before"))
	// kube-root-ca.crt is a ConfigMap, too: it is made with the namespace, but perhaps not yet.
	awaitExists(t, c, maps+"/kube-root-ca.crt")
	c.must(201, http.MethodPost, quotas, quotaOf("q", map[string]any{"configmaps": 4, "count/secrets": 1,
		"count/nodes": 1, "count/nothing.example.com": 1, "count/deployments.apps": 1}))
	c.must(201, http.MethodPost, maps, configMap("a"))
	c.must(201, http.MethodPost, maps, configMap("b"))
	const refusal = `configmaps "c" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=4, ` +
		`limited: configmaps=4`
	for _, query := range []string{"", "?dryRun=All"} {
		if got := c.must(403, http.MethodPost, maps+query, configMap("c")).text("message"); got != refusal {
			t.Errorf("got %q", got)
		}
	}
	// A taken name and too much at once are refused for the quota, as in the reference.
	c.must(403, http.MethodPost, maps, configMap("a"))
	awaitUsed(t, c, "q", "configmaps", "4")
	awaitUsed(t, c, "q", "count/secrets", "0")
	// What no object in a namespace uses is not there.
	used := c.must(200, http.MethodGet, quotas+"/q", nil).at("status", "used").(map[string]any)
	if len(used) != 3 || used["count/deployments.apps"] != "0" {
		t.Errorf("used is %v", used)
	}
	c.must(200, http.MethodDelete, maps+"/a", nil)
	c.must(201, http.MethodPost, maps, configMap("c"))
	c.must(200, http.MethodPut, quotas+"/q", quotaOf("q", map[string]any{"configmaps": 5}))
	c.must(201, http.MethodPost, maps, configMap("d"))
	c.must(403, http.MethodPost, maps, configMap("e"))
	// An update that adds nothing is accepted even over the limit.
	c.must(200, http.MethodPut, quotas+"/q", quotaOf("q", map[string]any{"configmaps": 2}))
	c.must(200, http.MethodPut, maps+"/d", configMap("d"))
	awaitUsed(t, c, "q", "configmaps", "5")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	c, _ = serveFrom(t, config)
	c.must(403, http.MethodPost, maps, configMap("e"))
	for _, name := range []string{"b", "c", "d", "before"} {
		c.must(200, http.MethodDelete, maps+"/"+name, nil)
	}
	c.must(201, http.MethodPost, maps, configMap("e"))
	c.must(403, http.MethodPost, maps, configMap("f"))
	c.must(200, http.MethodDelete, quotas+"/q", nil)
	c.must(201, http.MethodPost, maps, configMap("f"))
}

// awaitExists waits until a path exists.
func awaitExists(t *testing.T, c *testClient, path string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		code, _, err := c.do(c.ctx, http.MethodGet, path, "", nil, 200, 404)
		if err != nil {
			t.Fatal(err)
		}
		if code == 200 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not come", path)
		}
	}
}

// Quotas count objects of custom types, and Pods by what they request, until these have ended.
//
// SPEC: AUTH-5
func TestQuotaOfPodsAndCustomObjects(t *testing.T) {
	const in = "/api/v1/namespaces/default/"
	config := quiet(t.TempDir())
	config.DisableAdmission = []string{"ServiceAccount"}
	c, _ := serveFrom(t, config)
	c.must(201, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", jsonObject{
		"metadata": map[string]any{"name": "widgets.example.com"}, "spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "kind": "Widget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object"}}}}}})
	awaitExists(t, c, "/apis/example.com/v1/widgets")
	c.must(201, http.MethodPost, in+"resourcequotas", quotaOf("q", map[string]any{
		"requests.cpu": "1", "count/widgets.example.com": "1", "pods": "10"}))
	widget := func(name string) jsonObject {
		return jsonObject{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}}
	}
	c.must(201, http.MethodPost, "/apis/example.com/v1/namespaces/default/widgets", widget("a"))
	c.must(403, http.MethodPost, "/apis/example.com/v1/namespaces/default/widgets", widget("b"))
	pod := func(name string, cpu any) jsonObject {
		return jsonObject{"metadata": map[string]any{"name": name}, "spec": map[string]any{"containers": []any{map[string]any{
			"name": "c", "image": "i", "resources": map[string]any{"requests": map[string]any{"cpu": cpu}}}}}}
	}
	c.must(201, http.MethodPost, in+"pods", pod("a", "600m"))
	got := c.must(403, http.MethodPost, in+"pods", pod("b", "500m")).text("message")
	if !strings.HasSuffix(got, "exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, "+
		"limited: requests.cpu=1") {
		t.Errorf("got %q", got)
	}
	nothing := pod("b", "1")
	nothing["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["resources"] = nil
	if got := c.must(403, http.MethodPost, in+"pods", nothing).text("message"); !strings.HasSuffix(got,
		"failed quota: q: must specify requests.cpu for: c") {
		t.Errorf("got %q", got)
	}
	ended := c.must(200, http.MethodGet, in+"pods/a", nil)
	ended["status"].(map[string]any)["phase"] = "Succeeded"
	c.must(200, http.MethodPut, in+"pods/a/status", ended)
	c.must(201, http.MethodPost, in+"pods", pod("b", "500m"))
	awaitUsed(t, c, "q", "requests.cpu", "500m")
	awaitUsed(t, c, "q", "pods", "1")
	awaitUsed(t, c, "q", "count/widgets.example.com", "1")
	// The generated names of a create are judged like others.
	for i := range 2 {
		generated := pod("", "250m")
		generated["metadata"] = map[string]any{"generateName": fmt.Sprintf("g%d-", i)}
		c.must(201, http.MethodPost, in+"pods", generated)
	}
	c.must(403, http.MethodPost, in+"pods", pod("c", "1m"))
}

// Claims of devices count as extended resources, too; a change of a DeviceClass and one of a Pod show in the status.
//
// SPEC: AUTH-5
func TestQuotaOfExtendedResources(t *testing.T) {
	const quotas = "/api/v1/namespaces/default/resourcequotas"
	const claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
	const classes = "/apis/resource.k8s.io/v1/deviceclasses"
	c, _ := serveFrom(t, quiet(t.TempDir()))
	claim := func(name string, devices int) jsonObject {
		return jsonObject{"metadata": map[string]any{"name": name}, "spec": map[string]any{"devices": map[string]any{
			"requests": []any{map[string]any{"name": "r", "exactly": map[string]any{"deviceClassName": "gpu",
				"count": devices}}}}}}
	}
	class := func(resource string) jsonObject {
		return jsonObject{"metadata": map[string]any{"name": "gpu"}, "spec": map[string]any{"extendedResourceName": resource}}
	}
	c.must(201, http.MethodPost, claims, claim("before", 2))
	c.must(201, http.MethodPost, quotas, quotaOf("q", map[string]any{"requests.example.com/gpu": 3,
		"gpu.deviceclass.resource.k8s.io/devices": 9}))
	awaitUsed(t, c, "q", "requests.example.com/gpu", "0")
	awaitUsed(t, c, "q", "gpu.deviceclass.resource.k8s.io/devices", "2")
	c.must(201, http.MethodPost, classes, class("example.com/gpu"))
	awaitUsed(t, c, "q", "requests.example.com/gpu", "2")
	const refusal = `resourceclaims.resource.k8s.io "more" is forbidden: exceeded quota: q, requested: ` +
		`requests.example.com/gpu=2, used: requests.example.com/gpu=2, limited: requests.example.com/gpu=3`
	if got := c.must(403, http.MethodPost, claims, claim("more", 2)).text("message"); got != refusal {
		t.Errorf("got %q", got)
	}
	c.must(201, http.MethodPost, claims, claim("one", 1))
	awaitUsed(t, c, "q", "requests.example.com/gpu", "3")
	c.must(200, http.MethodPut, classes+"/gpu", class("example.com/other"))
	awaitUsed(t, c, "q", "requests.example.com/gpu", "0")
	c.must(201, http.MethodPost, claims, claim("more", 2))
}

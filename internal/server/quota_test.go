package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
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

// readUsed is what a quota of the namespace default says that is used of a resource, at once.
func (c *testClient) readUsed(t *testing.T, quota, resource string) string {
	t.Helper()
	const quotas = "/api/v1/namespaces/default/resourcequotas"
	used := c.must(200, http.MethodGet, quotas+"/"+quota, nil).text("status", "used", resource)
	for _, path := range []string{quotas, "/api/v1/resourcequotas"} {
		for _, item := range c.must(200, http.MethodGet, path, nil).at("items").([]any) {
			if in := jsonObject(item.(map[string]any)); in.text("metadata", "name") == quota &&
				in.text("status", "used", resource) != used {
				t.Errorf("%s has %q of %s, the quota itself %q", path, in.text("status", "used", resource), resource, used)
			}
		}
	}
	return used
}

// Who reads a quota sees what was created and deleted before, as from a kube-apiserver, which writes the status before
// the object.
//
// SPEC: AUTH-5
func TestQuotaIsReadAsItIs(t *testing.T) {
	const maps, quotas = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/resourcequotas"
	config := quiet(t.TempDir())
	config.Controllers = []string{"resourcequota-controller"}
	c, _ := serveFrom(t, config)
	c.must(201, http.MethodPost, quotas, quotaOf("q", map[string]any{"configmaps": 1000}))
	for i := range 20 {
		if got := c.readUsed(t, "q", "configmaps"); got != fmt.Sprint(i) {
			t.Fatalf("%s are used, want %d", got, i)
		}
		c.must(201, http.MethodPost, maps, configMap(fmt.Sprint("m", i)))
	}
	c.must(200, http.MethodDelete, maps+"/m0", nil)
	if got := c.readUsed(t, "q", "configmaps"); got != "19" {
		t.Errorf("%s are used, want 19", got)
	}
	if hard := c.must(200, http.MethodGet, quotas+"/q", nil).text("status", "hard", "configmaps"); hard != "1k" {
		t.Errorf("the limit is %q", hard)
	}
}

// The admission of requests is not a controller: under the quota controller of a kube-controller-manager, the server
// adds what it lets in to the status that this one has written, and leaves the rest to it.
//
// SPEC: AUTH-5, RUN-8
func TestQuotaUnderAnotherCounter(t *testing.T) {
	const maps, quotas = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/resourcequotas"
	config := quiet(t.TempDir())
	config.Controllers = []string{"-namespace-controller"}
	c, _ := serveFrom(t, config)
	count := func(used map[string]any) {
		t.Helper()
		q := c.must(200, http.MethodGet, quotas+"/q", nil)
		q["status"] = map[string]any{"hard": map[string]any{"configmaps": "10", "secrets": "5"}, "used": used}
		c.must(200, http.MethodPut, quotas+"/q/status", q)
	}
	expect := func(want string) {
		t.Helper()
		if got := c.readUsed(t, "q", "configmaps"); got != want {
			t.Errorf("%q are used, want %q", got, want)
		}
	}
	c.must(201, http.MethodPost, quotas, quotaOf("q", map[string]any{"configmaps": 10, "secrets": 5}))
	c.must(201, http.MethodPost, maps, configMap("a"))
	if status := c.must(200, http.MethodGet, quotas+"/q", nil).at("status"); len(status.(map[string]any)) > 0 {
		t.Errorf("nobody has counted yet, and the status is %v", status)
	}
	count(map[string]any{"configmaps": "1"})
	c.must(201, http.MethodPost, maps, configMap("b"))
	expect("2")
	c.must(201, http.MethodPost, maps, configMap("c"))
	c.must(200, http.MethodDelete, maps+"/a", nil)
	c.must(200, http.MethodDelete, maps+"/b", nil)
	expect("2") // what was deleted is counted by the other one
	count(map[string]any{"configmaps": "1"})
	expect("1")
	c.must(201, http.MethodPost, maps, configMap("d"))
	expect("2")
	q := c.must(200, http.MethodGet, quotas+"/q", nil)
	if used := q.at("status", "used").(map[string]any); len(used) != 1 {
		t.Errorf("used is %v, and only configmaps was counted", used)
	}
	// Without a read it gets there, too.
	c.must(201, http.MethodPost, maps, configMap("e"))
	watched := c.must(200, http.MethodGet, quotas+"/q?resourceVersion=0", nil)
	for end := time.Now().Add(20 * time.Second); watched.text("status", "used", "configmaps") != "3"; {
		if time.Now().After(end) {
			t.Fatalf("used stays %v", watched.at("status"))
		}
		time.Sleep(10 * time.Millisecond)
		watched = c.must(200, http.MethodGet, quotas+"/q?resourceVersion=0", nil)
	}
	managers := map[string]bool{}
	for _, entry := range q.at("metadata", "managedFields").([]any) {
		managers[jsonObject(entry.(map[string]any)).text("manager")] = true
	}
	if !managers["kube-apiserver"] {
		t.Errorf("the managers are %v", managers)
	}
}

// Many creates share a status of their quota.
//
// SPEC: AUTH-5
func TestCreatesShareAQuotaStatus(t *testing.T) {
	for _, controllers := range []string{"resourcequota-controller", "-namespace-controller"} {
		synctest.Test(t, func(t *testing.T) {
			s, client := inMemory(t, func(c *Config) {
				c.Controllers = []string{controllers}
				c.FeatureGates = quiet("").FeatureGates
			})
			defer s.Close()
			defer client.CloseIdleConnections()
			const in = "/api/v1/namespaces/default/"
			ask(t, s, client, http.MethodPost, in+"resourcequotas", `{"metadata":{"name":"q"},
				"spec":{"hard":{"configmaps":"500"}}}`, 201).Body.Close()
			ask(t, s, client, http.MethodPut, in+"resourcequotas/q/status", `{"metadata":{"name":"q"},
				"status":{"hard":{"configmaps":"500"},"used":{"configmaps":"0"}}}`, 200).Body.Close()
			time.Sleep(10 * time.Second)
			before := s.plane.Store.Revision()
			const creates = 100
			for i := range creates {
				ask(t, s, client, http.MethodPost, in+"configmaps", fmt.Sprintf(`{"metadata":{"name":"m%d"}}`, i), 201).
					Body.Close()
			}
			time.Sleep(time.Second)
			if extra := s.plane.Store.Revision() - before - creates; extra > 2 {
				t.Errorf("%d creates made %d other writes", creates, extra)
			}
		})
	}
}

package server

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"
)

// enter is the page of another plane, to which the user of p goes.
func (p *browserPage) enter(plane string) *browserPage {
	p.t.Helper()
	there := *p
	there.at, there.cookie = "/clusters/"+plane+"/console", ""
	there.wants(200, http.MethodPost, "/console/enter", `{"plane":"`+plane+`"}`, "Cookie", p.cookie)
	there.key = ""
	var answer struct{ Key string }
	if err := json.Unmarshal([]byte(there.wants(200, http.MethodGet, there.at+"/session", "")), &answer); err != nil {
		p.t.Fatal(err)
	}
	there.key = answer.Key
	return &there
}

// secretsOf asks for the Secrets of the plane whose page p is.
func (p *browserPage) secretsOf(code int) {
	p.t.Helper()
	p.wants(code, http.MethodGet, p.at+"/api/api/v1/secrets", "")
}

// In the console of a plane a user has the rights that the plane gives at that moment, and stays signed in while the
// plane is closed because nobody uses it.
//
// SPEC: BEY-9, BEY-14
func TestConsoleOfPlanes(t *testing.T) {
	s, admin := serveConsole(t, func(c *Config) {
		c.Storage, c.Planes, c.planeIdle = "embedded", true, 50*time.Millisecond
	})
	for _, name := range []string{"a", "b"} {
		admin.must(201, http.MethodPost, planesPath, jsonObject{"apiVersion": "plinth/v1alpha1", "kind": "Plane",
			"metadata": map[string]any{"name": name}})
	}
	const roles = "/apis/rbac.authorization.k8s.io/v1/"
	admin.must(201, http.MethodPost, roles+"clusterroles", jsonObject{"metadata": map[string]any{"name": "admin-of-a"},
		"rules": []any{map[string]any{"apiGroups": []any{"plinth"}, "verbs": []any{"access"},
			"resources": []any{"planes"}, "resourceNames": []any{"a"}}}})
	admin.must(201, http.MethodPost, roles+"clusterrolebindings", jsonObject{
		"metadata": map[string]any{"name": "admin-of-a"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin-of-a"},
		"subjects": []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}}})

	first := openPage(t, s)
	if user := first.signIn(`{"token":"secret"}`); user != "alice" {
		t.Fatalf("signed in as %q", user)
	}
	first.wants(403, http.MethodGet, "/console/api/api/v1/secrets", "")
	a, b := first.enter("a"), first.enter("b")
	a.secretsOf(200)
	b.secretsOf(403)
	within(t, "the planes are closed", func() bool { return s.planes.Figures().Open == 0 })
	a.secretsOf(200)
	a.wants(201, http.MethodPost, a.at+"/api/api/v1/namespaces/default/configmaps",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"seen"}}`)
	b.wants(403, http.MethodGet, b.at+"/api/api/v1/namespaces/default/configmaps/seen", "")
	first.wants(404, http.MethodGet, "/console/api/api/v1/namespaces/default/configmaps/seen", "")
	// The first plane's planes are not reached from the console of another plane, nor other planes by its API.
	a.wants(404, http.MethodGet, a.at+"/api"+planesPath, "")
	a.wants(404, http.MethodGet, a.at+"/api/clusters/b/api/v1/secrets", "")
	first.wants(403, http.MethodGet, "/console/api/clusters/a/api/v1/secrets", "")

	admin.must(200, http.MethodDelete, roles+"clusterrolebindings/admin-of-a", nil)
	a.secretsOf(403)
	admin.must(200, http.MethodDelete, planesPath+"/a", nil)
	a.secretsOf(404)
	first.wants(204, http.MethodDelete, "/console/session", "")
	b.secretsOf(401)
}

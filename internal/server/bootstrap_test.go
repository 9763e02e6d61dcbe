package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"plinth/internal/peers"
)

// Changes that users make to the initial objects are reverted at the next start if the reference reverts them, and are
// kept otherwise. A start that finds all objects up to date writes only the identity Lease.
//
// SPEC: RUN-1
func TestInitialObjects(t *testing.T) {
	const (
		flows   = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
		levels  = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
		classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
		maps    = "/api/v1/namespaces/kube-system/configmaps"
		since   = maps + "/kube-apiserver-legacy-service-account-token-tracking"
		trust   = maps + "/extension-apiserver-authentication"
		leases  = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	)
	c := quiet(t.TempDir())
	c.FeatureGates = nil
	c.EndpointReconciler = "none" // each start uses a different port
	begin := func() (*Server, *apiClient) {
		t.Helper()
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return s, clientOf(t, s)
	}
	end := func(s *Server, client *apiClient) {
		t.Helper()
		client.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	must := func(client *apiClient, method, path string, body jsonObject, code int) jsonObject {
		t.Helper()
		kind := "application/json"
		if method == http.MethodPatch {
			kind = "application/merge-patch+json"
		}
		_, answer, err := client.do(t.Context(), method, path, kind, body, code)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	patch := func(client *apiClient, path string, body jsonObject) {
		t.Helper()
		must(client, http.MethodPatch, path, body, 200)
	}
	precedence := func(n int) map[string]any { return map[string]any{"matchingPrecedence": n} }
	annotation := func(value any) map[string]any {
		return map[string]any{"annotations": map[string]any{"apf.kubernetes.io/autoupdate-spec": value}}
	}

	s, client := begin()
	// mandatory
	patch(client, flows+"/exempt", jsonObject{"metadata": annotation("false")})
	// the server's
	patch(client, flows+"/system-nodes", jsonObject{"spec": precedence(501)})
	// a user's
	patch(client, flows+"/service-accounts", jsonObject{"spec": precedence(9001), "metadata": annotation("false")})
	// changed: a user's
	patch(client, flows+"/global-default", jsonObject{"spec": precedence(9901), "metadata": annotation(nil)})
	must(client, http.MethodDelete, flows+"/probes", nil, 200)
	old := jsonObject{"metadata": map[string]any{"name": "old",
		"annotations": map[string]any{"apf.kubernetes.io/autoupdate-spec": "true"}},
		"spec": map[string]any{"type": "Limited",
			"limited": map[string]any{"limitResponse": map[string]any{"type": "Reject"}}}}
	must(client, http.MethodPost, levels, old, 201)
	patch(client, classes+"/system-node-critical", jsonObject{"description": "mine"})
	must(client, http.MethodDelete, classes+"/system-cluster-critical", nil, 200)
	patch(client, since, jsonObject{"data": map[string]any{"since": "ever"}})
	patch(client, trust, jsonObject{"data": map[string]any{"client-ca-file": "", "other": "x"}})
	must(client, http.MethodDelete, "/api/v1/namespaces/default/services/kubernetes", nil, 200)
	gone := jsonObject{"metadata": map[string]any{"name": "apiserver-gone",
		"labels": map[string]any{peers.IdentityLabel: "kube-apiserver"}},
		"spec": map[string]any{"holderIdentity": "x", "leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"}}
	must(client, http.MethodPost, leases, gone, 201)
	end(s, client)

	s, client = begin()
	for path, want := range map[string]string{
		flows + "/exempt": "1 true", flows + "/system-nodes": "500 true", flows + "/service-accounts": "9001 false",
		flows + "/global-default": "9901 false", flows + "/probes": "2 true",
	} {
		flow := must(client, http.MethodGet, path, nil, 200)
		if have := fmt.Sprint(flow.at("spec", "matchingPrecedence"), " ",
			flow.text("metadata", "annotations", "apf.kubernetes.io/autoupdate-spec")); have != want {
			t.Errorf("%s has %s, want %s", path, have, want)
		}
	}
	must(client, http.MethodGet, levels+"/old", nil, 404)
	if class := must(client, http.MethodGet, classes+"/system-node-critical", nil, 200); class.text(
		"description") != "mine" {
		t.Errorf("the PriorityClass is %v", class)
	}
	must(client, http.MethodGet, classes+"/system-cluster-critical", nil, 200)
	if day := must(client, http.MethodGet, since, nil, 200).text("data", "since"); len(day) != len(time.DateOnly) {
		t.Errorf("tokens are tracked since %q", day)
	}
	told := must(client, http.MethodGet, trust, nil, 200)
	if !strings.HasPrefix(told.text("data", "client-ca-file"), "-----BEGIN CERTIFICATE-----") ||
		told.text("data", "other") != "x" {
		t.Errorf("of authentication is told %v", told)
	}
	must(client, http.MethodGet, "/api/v1/namespaces/default/services/kubernetes", nil, 200)
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		code, _, err := client.do(t.Context(), http.MethodGet, leases+"/apiserver-gone", "", nil, 200, 404)
		if err != nil || time.Now().After(until) {
			t.Fatalf("the expired Lease: %d, %v", code, err)
		}
		if code == 404 {
			break
		}
	}
	end(s, client)

	// All objects are up to date now.
	before := s.plane.Store.Revision()
	s, client = begin()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		list := must(client, http.MethodGet, leases, nil, 200)
		items, ok := list["items"].([]any)
		if !ok || len(items) > 1 || time.Now().After(until) {
			t.Fatalf("there are the Leases %v", list)
		}
		if len(items) == 1 { // the server makes it once it serves
			break
		}
	}
	end(s, client)
	// The Lease was made and deleted, twice at most: the renewal of a slow test.
	if wrote := s.plane.Store.Revision() - before; wrote < 2 || wrote > 3 {
		t.Errorf("a start that finds everything in its place has written %d times", wrote)
	}
}

// A missing role or binding that an earlier release had as a part of another one inherits what its operator changed
// there: a binding takes subjects, labels and annotations, and so perhaps the word that the server must not update it;
// a role is a copy of the old one, unless that is aggregated.
//
// SPEC: RUN-1, AUTH-2
func TestInheritedPolicy(t *testing.T) {
	const (
		bindings = rbacPath + "/clusterrolebindings"
		roles    = rbacPath + "/clusterroles"
		auto     = "rbac.authorization.kubernetes.io/autoupdate"
	)
	c := quiet(t.TempDir())
	c.Controllers = nil
	var client *apiClient
	begin := func() (*Server, func(method, path string, body jsonObject, code int) jsonObject) {
		t.Helper()
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		client = clientOf(t, s)
		return s, func(method, path string, body jsonObject, code int) jsonObject {
			t.Helper()
			kind := "application/json"
			if method == http.MethodPatch {
				kind = "application/merge-patch+json"
			}
			_, answer, err := client.do(t.Context(), method, path, kind, body, code)
			if err != nil {
				t.Fatal(err)
			}
			return answer
		}
	}
	s, do := begin()
	nobody := []any{map[string]any{"kind": "Group", "name": "few", "apiGroup": "rbac.authorization.k8s.io"}}
	do(http.MethodPatch, bindings+"/system:discovery", jsonObject{"subjects": nobody,
		"metadata": map[string]any{"annotations": map[string]any{auto: "false", "mine": "x"}}}, 200)
	do(http.MethodDelete, bindings+"/system:public-info-viewer", nil, 200)
	// Of these roles one is as it was before aggregation, the other one is aggregated.
	do(http.MethodPatch, roles+"/edit", jsonObject{"aggregationRule": nil, "rules": []any{map[string]any{
		"verbs": []any{"get"}, "apiGroups": []any{"example.com"}, "resources": []any{"mine"}}}}, 200)
	do(http.MethodDelete, roles+"/system:aggregate-to-edit", nil, 200)
	do(http.MethodDelete, roles+"/system:aggregate-to-view", nil, 200)
	client.CloseIdleConnections()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, do = begin()
	viewer := do(http.MethodGet, bindings+"/system:public-info-viewer", nil, 200)
	if have := fmt.Sprint(viewer["subjects"]); have != fmt.Sprint(nobody) {
		t.Errorf("the subjects are %s", have)
	}
	if viewer.text("metadata", "annotations", auto) != "false" || viewer.text("metadata", "annotations", "mine") != "x" ||
		viewer.text("roleRef", "name") != "system:public-info-viewer" {
		t.Errorf("the binding is %v", viewer)
	}
	edit := do(http.MethodGet, roles+"/system:aggregate-to-edit", nil, 200)
	rules := fmt.Sprint(edit["rules"])
	if !strings.Contains(rules, "example.com") || !strings.Contains(rules, "pods/exec") {
		t.Errorf("the role for editors has the rules %s", rules)
	}
	if rules := fmt.Sprint(do(http.MethodGet, roles+"/system:aggregate-to-view", nil, 200)["rules"]); strings.Contains(
		rules, "example.com") {
		t.Errorf("the role for viewers has the rules %s", rules)
	}
	client.CloseIdleConnections()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A server that starts with a thousand policies compiles none of them, nor does a request that none of them matches;
// one that matches compiles those.
//
// SPEC: AUTH-3, AUTH-7
func TestThousandPoliciesAtRestart(t *testing.T) {
	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	const configMaps = "/api/v1/namespaces/default/configmaps"
	dir := t.TempDir()
	start := func() *Server {
		c := quiet(dir)
		c.Controllers = []string{"-validatingadmissionpolicy-status-controller"} // it compiles to check types
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := start()
	client := clientOf(t, s).Client
	for i := range 1000 {
		resource := "secrets"
		if i < 3 {
			resource = "configmaps"
		}
		told(t, ask(t, s, client, http.MethodPost, policies, fmt.Sprintf(`{"metadata": {"name": "p%d"}, "spec": {
			"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
			"resources": [%q]}]}, "validations": [{"expression": "object.metadata.name != 'bad'"}]}}`, i, resource), 201))
		told(t, ask(t, s, client, http.MethodPost, policies[:len(policies)-len("ies")]+"ybindings", fmt.Sprintf(
			`{"metadata": {"name": "p%d"}, "spec": {"policyName": "p%d", "validationActions": ["Deny"]}}`, i, i), 201))
	}
	client.CloseIdleConnections()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s = start()
	t.Logf("started after %s", time.Since(began))
	defer s.Close()
	client = clientOf(t, s).Client
	defer client.CloseIdleConnections()
	compiled := func() string {
		metrics := told(t, ask(t, s, client, http.MethodGet, "/metrics", "", 200))
		_, rest, _ := strings.Cut(metrics, "\nplinth_compiled_expressions ")
		n, _, _ := strings.Cut(rest, "\n")
		return n
	}
	if n := compiled(); n != "0" {
		t.Errorf("%s expressions are compiled at the start", n)
	}
	const accounts = "/api/v1/namespaces/default/serviceaccounts"
	told(t, ask(t, s, client, http.MethodPost, accounts, `{"metadata": {"name": "a"}}`, 201))
	if n := compiled(); n != "0" {
		t.Errorf("%s expressions are compiled for a request that no policy matches", n)
	}
	told(t, ask(t, s, client, http.MethodPost, configMaps, `{"metadata": {"name": "good"}}`, 201))
	told(t, ask(t, s, client, http.MethodPost, configMaps, `{"metadata": {"name": "bad"}}`, 422))
	if n := compiled(); n != "3" {
		t.Errorf("%s expressions are compiled for a request that three policies match", n)
	}
}

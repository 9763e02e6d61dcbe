package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A TokenReview accepts the same tokens as the authentication of requests.
//
// SPEC: AUTH-2
func TestTokenReview(t *testing.T) {
	s := inProcess(t, t.TempDir())
	defer s.Close()
	for spec, want := range map[string]string{
		`{"token":"sesame"}`: `"status":{"audiences":["https://kubernetes.default.svc.cluster.local"],"authenticated":true,"user":{"groups":["system:masters","system:authenticated"],"uid":"1","username":"admin"}}`,
		`{"token":"wrong"}`:  `"status":{"error":"invalid bearer token","user":{}}`,
		// No token here is for another audience.
		`{"token":"sesame","audiences":["vault"]}`: `"status":{"error":"invalid bearer token","user":{}}`,
	} {
		r := httptest.NewRequest("POST", "/apis/authentication.k8s.io/v1/tokenreviews",
			strings.NewReader(`{"spec":`+spec+`}`))
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, asAdmin(r))
		if w.Code != http.StatusCreated || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", spec, w.Code, w.Body)
		}
	}
}

// The body of an operation has the namespace of the URL, as that of any create: a body without one gets it, and one of
// a type without namespaces loses it.
//
// SPEC: AUTH-1, URI-1
func TestReviewsAreInTheNamespaceOfTheURL(t *testing.T) {
	c, _ := serveFrom(t, quiet(t.TempDir()))
	const reviews = "/apis/authorization.k8s.io/v1"
	review := func(kind, namespace, asked string) jsonObject {
		resource := map[string]any{"verb": "get", "resource": "pods"}
		if asked != "" {
			resource["namespace"] = asked
		}
		meta := map[string]any{}
		if namespace != "" {
			meta["namespace"] = namespace
		}
		return jsonObject{"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": meta,
			"spec": map[string]any{"user": "jane", "resourceAttributes": resource}}
	}
	const local = reviews + "/namespaces/default/localsubjectaccessreviews"
	answer := c.must(201, http.MethodPost, local, review("LocalSubjectAccessReview", "", "default"))
	if got := answer.text("metadata", "namespace"); got != "default" {
		t.Errorf("the answer is in %q", got)
	}
	c.must(422, http.MethodPost, local, review("LocalSubjectAccessReview", "", ""))
	c.must(422, http.MethodPost, local, review("LocalSubjectAccessReview", "", "other"))
	c.must(400, http.MethodPost, local, review("LocalSubjectAccessReview", "other", "other"))
	answer = c.must(201, http.MethodPost, reviews+"/subjectaccessreviews", review("SubjectAccessReview", "default", ""))
	if got := answer.text("metadata", "namespace"); got != "" {
		t.Errorf("the answer is in %q", got)
	}
}

// The pages for debugging are in no list, and the documents of the issuer are described, if they are served.
//
// SPEC: RUN-3, URI-8
func TestListedPaths(t *testing.T) {
	for _, issuer := range []string{"", "not-a-url"} {
		config := quiet(t.TempDir())
		if issuer != "" {
			config.ServiceAccounts.Issuers = []string{issuer}
		}
		c, _ := serveFrom(t, config)
		for _, path := range []string{"/", "/statusz"} {
			if _, text := c.plain(path); strings.Contains(text, "/debug") {
				t.Errorf("%s has %s", path, text)
			}
		}
		if code, _ := c.plain("/debug/api_priority_and_fairness/dump_queues"); code != 200 {
			t.Errorf("a page for debugging: %d", code)
		}
		paths := c.must(200, http.MethodGet, "/openapi/v2", nil).at("paths").(map[string]any)
		documents := c.must(200, http.MethodGet, "/openapi/v3", nil).at("paths").(map[string]any)
		for _, name := range []string{"openid/v1/jwks", ".well-known/openid-configuration"} {
			_, second := paths["/"+name+"/"]
			_, third := documents[name]
			if served := issuer == ""; second != served || third != served {
				t.Errorf("issuer %q: %s is described: %v, %v", issuer, name, second, third)
			}
		}
	}
}

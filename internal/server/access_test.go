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

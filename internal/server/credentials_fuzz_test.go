package server

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/auth/oidc/issuertest"
)

// Any credential, in any header and beside any certificate, is tried with all authenticators enabled: no request panics
// or fails with a server error, and a request is authenticated only if it has a valid token, or one that is valid but
// for white space.
//
// SPEC: AUTH-1
func FuzzCredentials(f *testing.F) {
	issuer := issuertest.Start(f)
	dir := f.TempDir()
	c := quiet(dir)
	c.Storage, c.TokenAuthFile, c.BootstrapTokens = "memory", tokenFile(f, dir), true
	c.OIDC.IssuerURL, c.OIDC.ClientID, c.OIDC.CAFile, c.OIDC.Given = issuer.URL, "me", issuer.CAFile(), true
	s, err := Start(f.Context(), c)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	account := s.tokenOf(f)
	foreign := issuer.Token(issuertest.Claims{"sub": "jane", "aud": "me"})
	good := []string{"sesame", account, foreign}
	expired := issuer.Token(issuertest.Claims{"sub": "jane", "aud": "me", "exp": 1})
	for _, token := range append(good, expired, foreign[:strings.LastIndex(foreign, ".")+1], account+"x",
		"abcdef.0123456789abcdef", "eyJhbGciOiJub25lIn0.e30.") {
		f.Add("Bearer "+token, "base64url.bearer.authorization.k8s.io.c2VzYW1l, a",
			"Impersonate-User: x\nX-Remote-User: admin", "jane")
	}
	f.Add("Basic c2VzYW1l", "base64url.bearer.authorization.k8s.io.eA, a",
		"Impersonate-Extra-%zz: x\nImpersonate-Group: system:masters", "system:node:a/b")
	f.Fuzz(func(t *testing.T, authorization, protocols, headers, name string) {
		r := httptest.NewRequest("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", strings.NewReader("{}"))
		for line := range strings.SplitSeq(headers, "\n") {
			if key, value, ok := strings.Cut(line, ":"); ok {
				r.Header.Add(key, strings.TrimSpace(value))
			}
		}
		r.Header["Authorization"], r.Header["Upgrade"], r.Header["Content-Type"] = []string{authorization},
			[]string{"websocket"}, []string{"application/json"}
		r.Header["Sec-Websocket-Protocol"] = []string{protocols}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: name,
			Organization: []string{access.Masters}}}}}
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, r.WithContext(auth.Remember(r.Context(), nil)))
		if w.Code >= http.StatusInternalServerError {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		var review struct {
			Status struct {
				UserInfo struct{ Username string }
			}
		}
		if w.Code != http.StatusCreated || json.Unmarshal(w.Body.Bytes(), &review) != nil {
			return
		}
		shown := strings.Join(strings.Fields(authorization+protocols), "")
		for _, token := range append(good, "c2VzYW1l") {
			if strings.Contains(shown, token) {
				return
			}
		}
		t.Errorf("%q and %q are %q", authorization, protocols, review.Status.UserInfo.Username)
	})
}

// tokenOf is a token of a service account.
func (s *Server) tokenOf(t testing.TB) string {
	t.Helper()
	ask := func(path, body string) []byte {
		r := asAdmin(httptest.NewRequest("POST", path, strings.NewReader(body)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, r)
		if w.Code != http.StatusCreated {
			t.Fatal(fmt.Sprint(path, ": ", w.Code, w.Body))
		}
		return w.Body.Bytes()
	}
	ask("/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"fuzz"}}`)
	var made struct{ Status struct{ Token string } }
	if err := json.Unmarshal(ask("/api/v1/namespaces/default/serviceaccounts/fuzz/token", `{}`), &made); err != nil {
		t.Fatal(err)
	}
	return made.Status.Token
}

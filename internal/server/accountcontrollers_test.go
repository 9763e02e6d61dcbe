package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plinth/object"
)

// eventually waits until a GET returns what a test expects; for a code other than 200 the object is null.
func (s *accounts) eventually(path, what string, want func(object.Value) bool) object.Value {
	s.t.Helper()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, asAdmin(httptest.NewRequest("GET", path, nil)))
		seen := object.Nil
		if w.Code == http.StatusOK {
			parsed, err := object.ParseJSON(w.Body.Bytes())
			if err != nil {
				s.t.Fatal(err)
			}
			seen = parsed.Value
		}
		if want(seen) {
			return seen
		}
		if time.Now().After(until) {
			s.t.Fatalf("%s: %s: %d %s", path, what, w.Code, w.Body)
		}
	}
}

func there(v object.Value) bool { return !v.IsNull() }
func gone(v object.Value) bool  { return v.IsNull() }

// Every namespace has a ServiceAccount default and the server's authority, which are restored when they are removed.
//
// SPEC: AUTH-2
func TestWhatNamespacesHave(t *testing.T) {
	s := withAccounts(t, nil)
	const account, authority = "/serviceaccounts/default", "/configmaps/kube-root-ca.crt"
	for _, namespace := range []string{"default", "kube-system", "u"} {
		at := "/api/v1/namespaces/" + namespace
		uid := s.eventually(at+account, "there", there).At("metadata", "uid").Str()
		s.eventually(at+authority, "the authority", func(v object.Value) bool {
			return v.At("data", "ca.crt").Str() == string(s.certificates.authority) && len(s.certificates.authority) > 0 &&
				strings.HasPrefix(v.At("metadata", "annotations", "kubernetes.io/description").Str(), "Contains a CA bundle")
		})
		s.ask("DELETE", at+account, "", 200)
		s.eventually(at+account, "another one", func(v object.Value) bool {
			return there(v) &&
				v.At("metadata", "uid").Str() != uid
		})
		s.ask("PATCH", at+authority, `{"data":{"ca.crt":"x","other":"y"}}`, 200)
		s.eventually(at+authority, "mended", func(v object.Value) bool {
			return v.At("data", "ca.crt").Str() == string(s.certificates.authority) && v.At("data").Len() == 1
		})
		s.ask("DELETE", at+authority, "", 200)
		s.eventually(at+authority, "there again", there)
	}
	s.ask("DELETE", "/api/v1/namespaces/u", "", 200)
	s.eventually("/api/v1/namespaces/u", "gone, with what was in it", gone)
}

// A Secret that is made for a token gets one that authenticates as its ServiceAccount, and is deleted with it.
//
// SPEC: AUTH-2
func TestTokenSecrets(t *testing.T) {
	s := withAccounts(t, nil)
	make := func(name, account string) {
		s.ask("POST", "/api/v1/namespaces/u/secrets", fmt.Sprintf(
			`{"metadata":{"name":%q,"annotations":{"kubernetes.io/service-account.name":%q}},"type":"kubernetes.io/service-account-token"}`, name, account), 201)
	}
	const path = "/api/v1/namespaces/u/secrets/"
	make("s", "a")
	filled := s.eventually(path+"s", "filled", func(v object.Value) bool { return v.At("data", "token").Str() != "" })
	token, err := base64.StdEncoding.DecodeString(filled.At("data", "token").Str())
	if err != nil {
		t.Fatal(err)
	}
	if got := s.whose(string(token)); got != accountA+"null" {
		t.Errorf("the token is %s", got)
	}
	if filled.At("data").Len() != 3 || filled.At("metadata", "annotations",
		"kubernetes.io/service-account.uid").Str() == "" {
		t.Errorf("the Secret is %s", object.AppendJSON(nil, filled))
	}
	s.ask("PATCH", path+"s", `{"data":{"token":null}}`, 200)
	s.eventually(path+"s", "filled again", func(v object.Value) bool { return v.At("data", "token").Str() != "" })
	make("lost", "nobody")
	s.eventually(path+"lost", "gone", gone)
	s.ask("PATCH", "/api/v1/namespaces/u/serviceaccounts/a", `{"secrets":[{"name":"s"},{"name":"x"}]}`, 200)
	s.ask("DELETE", path+"s", "", 200)
	s.eventually("/api/v1/namespaces/u/serviceaccounts/a", "without the Secret",
		func(v object.Value) bool { return v.At("secrets").Len() == 1 })
	make("t", "a")
	s.eventually(path+"t", "filled", func(v object.Value) bool { return v.At("data", "token").Str() != "" })
	s.ask("DELETE", "/api/v1/namespaces/u/serviceaccounts/a", "", 200)
	s.eventually(path+"t", "gone with its ServiceAccount", gone)
}

// A token that was generated and not used for a year is marked invalid, so that requests with it are refused, and is
// deleted after another year; uses of tokens are counted by their type.
//
// SPEC: AUTH-2, RUN-3
func TestUnusedTokens(t *testing.T) {
	began := time.Now()
	var later atomic.Int64
	s := withAccounts(t, func(c *Config) {
		c.Now = func() time.Time { return began.Add(time.Duration(later.Load())) }
	})
	const path, day = "/api/v1/namespaces/u/secrets/", 24 * time.Hour
	tokens := map[string]string{}
	for _, name := range []string{"made", "generated"} {
		s.ask("POST", "/api/v1/namespaces/u/secrets", fmt.Sprintf(`{"metadata":{"name":%q,"annotations":{
			"kubernetes.io/service-account.name":"a"}},"type":"kubernetes.io/service-account-token"}`, name), 201)
		text := s.eventually(path+name, "filled", func(v object.Value) bool {
			return v.At("data", "token").Str() != ""
		}).At("data", "token").Str()
		token, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = string(token)
	}
	s.ask("PATCH", "/api/v1/namespaces/u/serviceaccounts/a", `{"secrets":[{"name":"generated"}]}`, 200)
	// after advances the clock by this many days, and makes the controller process the Secret.
	after := func(days int) {
		later.Store(int64(time.Duration(days) * day))
		s.ask("PATCH", path+"generated", fmt.Sprintf(`{"metadata":{"annotations":{"day":"%d"}}}`, days), 200)
	}
	const invalid = "kubernetes.io/legacy-token-invalid-since"
	for name, token := range tokens {
		if got := s.whose(token); got != accountA+"null" {
			t.Errorf("%s is %s", name, got)
		}
	}
	after(367)
	today := began.Add(367 * day).UTC().Format(time.DateOnly)
	s.eventually(path+"generated", "marked", func(v object.Value) bool {
		return v.At("metadata", "labels", invalid).Str() == today
	})
	if got := s.whose(tokens["generated"]); got != "401" {
		t.Errorf("marked invalid it is %s", got)
	}
	s.eventually(path+"generated", "used", func(v object.Value) bool {
		return v.At("metadata", "labels", "kubernetes.io/legacy-token-last-used").Str() == today
	})
	if got := s.whose(tokens["made"]); got != accountA+"null" {
		t.Errorf("the one that was made is %s", got)
	}
	figures := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(figures, asAdmin(httptest.NewRequest("GET", "/metrics", nil)))
	for _, line := range []string{
		"serviceaccount_legacy_tokens_total 4", "serviceaccount_legacy_auto_token_uses_total 1",
		"serviceaccount_legacy_manual_token_uses_total 2", "serviceaccount_invalid_legacy_auto_token_uses_total 1",
		"serviceaccount_stale_tokens_total 0", "serviceaccount_valid_tokens_total 0",
	} {
		if !strings.Contains(figures.Body.String(), line+"\n") {
			t.Errorf("there is no %s", line)
		}
	}
	after(367 + 367)
	s.eventually(path+"generated", "gone", gone)
	s.eventually(path+"made", "there", there)
}

// A new user's certificate is issued once the request is approved, and authenticates the user; a node's request is
// approved automatically; a request that does not fit its signer fails; and old requests are deleted.
//
// SPEC: AUTH-1, AUTH-2
func TestSigningRequests(t *testing.T) {
	s := withAccounts(t, nil)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	seconds := 3600
	request := func(name, signer, usages string, subject pkix.Name) {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
		if err != nil {
			t.Fatal(err)
		}
		text := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
		s.ask("POST", path,
			fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"request":%q,"signerName":%q,"usages":%s,"expirationSeconds":%d}}`,
				name, text, signer, usages, seconds), 201)
	}
	approve := func(name string) {
		s.ask("PATCH", path+"/"+name+"/approval",
			`{"status":{"conditions":[{"type":"Approved","status":"True","reason":"x","message":"y"}]}}`, 200)
	}
	issued := func(v object.Value) bool { return v.At("status", "certificate").Str() != "" }
	jane := pkix.Name{CommonName: "jane", Organization: []string{"devs"}}
	request("jane", "kubernetes.io/kube-apiserver-client", `["client auth"]`, jane)
	approve("jane")
	text, err := base64.StdEncoding.DecodeString(s.eventually(path+"/jane", "issued", issued).At("status",
		"certificate").Str())
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if life := leaf.NotAfter.Sub(s.now()); life < 59*time.Minute || life > 61*time.Minute || leaf.IsCA {
		t.Errorf("it lasts %s, authority: %v", life, leaf.IsCA)
	}
	r := httptest.NewRequest("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", strings.NewReader("{}"))
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, r)
	if !strings.Contains(w.Body.String(), `"groups":["devs","system:authenticated"],"username":"jane"`) {
		t.Errorf("by the certificate it is %s", w.Body)
	}
	request("server", "kubernetes.io/kube-apiserver-client", `["server auth"]`, jane)
	approve("server")
	s.eventually(path+"/server", "failed", func(v object.Value) bool {
		return strings.Contains(string(object.AppendJSON(nil, v.At("status"))),
			"invalid usage for client certificate: server auth")
	})
	request("other", "example.com/x", `["client auth"]`, jane)
	approve("other")
	request("node", "kubernetes.io/kube-apiserver-client-kubelet", `["client auth","digital signature"]`,
		pkix.Name{CommonName: "system:node:n", Organization: []string{"system:nodes"}})
	s.eventually(path+"/node", "approved and issued", issued)
	if s.eventually(path+"/other", "there", there).At("status", "certificate").Str() != "" {
		t.Error("the request of another signer is signed")
	}
	// The metrics count them by signer. Another signer issues two certificates, of which one lasts as was requested.
	seconds = 24 * 3600
	request("longer", "example.com/y", `["client auth"]`, jane)
	approve("longer")
	for _, name := range []string{"other", "longer"} {
		encoded := base64.StdEncoding.EncodeToString(text)
		s.ask("PATCH", path+"/"+name+"/status", fmt.Sprintf(`{"status":{"certificate":%q}}`, encoded), 200)
	}
	counted := func(name, signer string) float64 {
		for _, line := range metricsOf(t, clientOf(t, s.Server), "apiserver_certificates_registry_"+name) {
			if labels, value, _ := strings.Cut(line, "} "); strings.HasSuffix(labels, `signerName="`+signer+`"`) {
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
		return 0
	}
	for signer, want := range map[string][2]float64{"kubernetes.io/kube-apiserver-client": {1, 1},
		"kubernetes.io/kube-apiserver-client-kubelet": {1, 1}, "other": {2, 1}} {
		// A certificate can be read before it is counted.
		for until := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			have := [2]float64{counted("csr_requested_duration_total", signer), counted("csr_honored_duration_total", signer)}
			if have == want {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("%s: requested and honored %v, want %v", signer, have, want)
			}
		}
	}
}

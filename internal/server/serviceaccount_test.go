package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/auth/serviceaccount"
	"plinth/object"
)

// accounts is a server whose clock a test moves, with a ServiceAccount u/a.
type accounts struct {
	*Server
	t     *testing.T
	clock atomic.Pointer[time.Time] // of the server, whose goroutines read it
}

func (s *accounts) now() time.Time { return *s.clock.Load() }

func (s *accounts) setNow(now time.Time) { s.clock.Store(&now) }

func withAccounts(t *testing.T, edit func(*Config)) *accounts {
	t.Helper()
	s := &accounts{t: t}
	s.setNow(time.Now())
	c := Defaults()
	dir := t.TempDir()
	c.DataDir, c.Storage, c.SecurePort, c.Logger = dir, "memory", 0, slog.New(slog.DiscardHandler)
	c.TokenAuthFile, c.AuthorizationModes, c.Now = tokenFile(t, dir), []string{"AlwaysAllow"},
		s.now
	if edit != nil {
		edit(&c)
	}
	var err error
	if s.Server, err = Start(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.ask("POST", "/api/v1/namespaces", `{"metadata":{"name":"u"}}`, 201)
	s.ask("POST", "/api/v1/namespaces/u/serviceaccounts", `{"metadata":{"name":"a"}}`, 201)
	return s
}

// ask sends a request as the administrator.
func (s *accounts) ask(method, path, body string, code int) object.Value {
	s.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if method == "PATCH" {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, asAdmin(r))
	if w.Code != code {
		s.t.Fatalf("%s %s %s: %d %s", method, path, body, w.Code, w.Body)
	}
	parsed, err := object.ParseJSON(w.Body.Bytes())
	if err != nil {
		s.t.Fatal(err)
	}
	return parsed.Value
}

// token requests a token with a spec.
func (s *accounts) token(spec string) string {
	s.t.Helper()
	return s.ask("POST", "/api/v1/namespaces/u/serviceaccounts/a/token", `{"spec":`+spec+`}`, 201).At("status",
		"token").Str()
}

// whose returns the user that a token authenticates, or the code with which it is refused.
func (s *accounts) whose(token string) string {
	s.t.Helper()
	r := httptest.NewRequest("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", strings.NewReader("{}"))
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, r)
	if w.Code != http.StatusCreated {
		if strings.TrimSpace(
			w.Body.String()) != `{"kind":"Status","apiVersion":"v1","metadata":{},"code":401,"message":"Unauthorized","reason":"Unauthorized","status":"Failure"}` &&
			!strings.Contains(w.Body.String(), `"message":"Unauthorized"`) {
			s.t.Errorf("refused with %s", w.Body)
		}
		return fmt.Sprint(w.Code)
	}
	parsed, err := object.ParseJSON(w.Body.Bytes())
	if err != nil {
		s.t.Fatal(err)
	}
	info := parsed.Value.At("status", "userInfo")
	extra := info.At("extra").Without("authentication.kubernetes.io/credential-id")
	return info.At("username").Str() + string(object.AppendJSON(nil, extra))
}

// review is the status of a TokenReview.
func (s *accounts) review(token string, audiences ...string) string {
	s.t.Helper()
	spec := object.Fields("token", object.StringOf(token))
	if audiences != nil {
		spec = spec.With("audiences", object.Strings(audiences...))
	}
	body := object.AppendJSON(nil, object.Fields("spec", spec))
	status := s.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", string(body), 201).At("status")
	if !status.At("authenticated").Bool() {
		return status.At("error").Str()
	}
	return status.At("user", "username").Str() + " " + string(object.AppendJSON(nil, status.At("audiences")))
}

const accountA = "system:serviceaccount:u:a"

// A token is valid from its creation to its expiry, give or take a minute, for its audiences, as long as its
// ServiceAccount exists; once that is deleted, requests with the token are refused.
//
// SPEC: AUTH-1, AUTH-2
func TestBoundToken(t *testing.T) {
	s := withAccounts(t, nil)
	token, foreign := s.token(`{"expirationSeconds":600}`), s.token(`{"audiences":["vault"]}`)
	start := s.now()
	for _, c := range []struct {
		after time.Duration
		want  string
	}{
		{0, accountA + "{}"}, {-time.Minute, accountA + "{}"}, {-time.Minute - 2*time.Second, "401"},
		{11*time.Minute - time.Second, accountA + "{}"}, {11*time.Minute + 2*time.Second, "401"},
		{time.Minute, accountA + "{}"},
	} {
		if s.setNow(start.Add(c.after)); s.whose(token) != c.want {
			t.Errorf("after %s it is %s, want %s", c.after, s.whose(token), c.want)
		}
	}
	s.setNow(start)
	for _, c := range []struct {
		token     string
		audiences []string
		want      string
	}{
		{token, nil, accountA + ` ["` + serviceaccount.DefaultIssuer + `"]`},
		{token, []string{"x", serviceaccount.DefaultIssuer}, accountA + ` ["` + serviceaccount.DefaultIssuer + `"]`},
		{foreign, []string{"vault", "x"}, accountA + ` ["vault"]`},
		{foreign, nil, `[invalid bearer token, token audiences ["vault"] is invalid for the target audiences ["` +
			serviceaccount.DefaultIssuer + `"]]`},
		{token, []string{"vault"}, `[invalid bearer token, token audiences ["` + serviceaccount.DefaultIssuer +
			`"] is invalid for the target audiences ["vault"]]`},
	} {
		if got := s.review(c.token, c.audiences...); got != c.want {
			t.Errorf("for %q it is %s, want %s", c.audiences, got, c.want)
		}
	}
	if got := s.whose(foreign); got != "401" {
		t.Errorf("a token for others is %s", got)
	}
	s.ask("DELETE", "/api/v1/namespaces/u/serviceaccounts/a", "", 200)
	if got := s.whose(token); got != "401" {
		t.Errorf("without its ServiceAccount it is %s", got)
	}
	s.ask("POST", "/api/v1/namespaces/u/serviceaccounts", `{"metadata":{"name":"a"}}`, 201)
	if got := s.whose(token); got != "401" {
		t.Errorf("with another ServiceAccount of that name it is %s", got)
	}
}

// A token that is bound to an object names it, and is invalid when the object is gone.
//
// SPEC: AUTH-1, AUTH-2
func TestTokenBoundToObject(t *testing.T) {
	s := withAccounts(t, nil)
	pod := s.ask("POST", "/api/v1/namespaces/u/pods", `{"metadata":{"name":"p"},"spec":{"serviceAccountName":"a","nodeName":"n","terminationGracePeriodSeconds":100,
		"containers":[{"name":"c","image":"i"}]}}`, 201).At("metadata", "uid").Str()
	node := s.ask("POST", "/api/v1/nodes", `{"metadata":{"name":"n"}}`, 201).At("metadata", "uid").Str()
	s.ask("POST", "/api/v1/namespaces/u/secrets", `{"metadata":{"name":"s"}}`, 201)
	ref := func(kind, name string) string {
		return fmt.Sprintf(`{"boundObjectRef":{"apiVersion":"v1","kind":%q,"name":%q}}`, kind, name)
	}
	toPod, toSecret, toNode := s.token(ref("Pod", "p")), s.token(ref("Secret", "s")), s.token(ref("Node", "n"))
	extra := func(entries ...string) string {
		var m []object.Member
		for i := 0; i < len(entries); i += 2 {
			m = append(m, object.Member{Key: "authentication.kubernetes.io/" + entries[i], Value: object.Strings(entries[i+1])})
		}
		return accountA + string(object.AppendJSON(nil, object.MapOf(m...)))
	}
	ofPod := extra("node-name", "n", "node-uid", node, "pod-name", "p", "pod-uid", pod)
	check := func(when, pod, secret, node string) {
		t.Helper()
		for _, c := range [][3]string{{"Pod", s.whose(toPod), pod}, {"Secret", s.whose(toSecret), secret},
			{"Node", s.whose(toNode), node}} {
			if c[1] != c[2] {
				t.Errorf("%s, bound to a %s: it is %s, want %s", when, c[0], c[1], c[2])
			}
		}
	}
	ofNode, ofSecret := extra("node-name", "n", "node-uid", node), accountA+"{}"
	check("at first", ofPod, ofSecret, ofNode)
	s.ask("DELETE", "/api/v1/nodes/n", "", 200)
	s.ask("DELETE", "/api/v1/namespaces/u/secrets/s", "", 200)
	check("without Node and Secret", ofPod, "401", "401")
	s.ask("DELETE", "/api/v1/namespaces/u/pods/p", "", 200) // which takes 100 s
	s.setNow(s.now().Add(100*time.Second + 50*time.Second))
	check("when the Pod should have ended", ofPod, "401", "401")
	s.setNow(s.now().Add(20 * time.Second))
	check("when the Pod should have ended a minute ago", "401", "401", "401")
}

// A token that this server did not sign is refused, whatever its claims are.
//
// SPEC: AUTH-1
func TestForgedTokens(t *testing.T) {
	s := withAccounts(t, nil)
	good := s.token(`{}`)
	head, rest, _ := strings.Cut(good, ".")
	body, signature, _ := strings.Cut(rest, ".")
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	decoded, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(filepath.Join(s.config.DataDir, "pki", "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, public)
	symmetric := encode(`{"alg":"HS256"}`) + "." + body
	mac.Write([]byte(symmetric))
	other := withAccounts(t, nil).token(`{}`)
	for name, token := range map[string]string{
		"alg none":                  encode(`{"alg":"none"}`) + "." + body + ".",
		"alg none with a signature": encode(`{"alg":"none"}`) + "." + body + "." + signature,
		"a symmetric signature":     symmetric + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)),
		"another algorithm": encode(strings.Replace(string(decoded), "ES256", "ES384", 1)) + "." + body +
			"." + signature,
		"no key named":     encode(`{"alg":"ES256"}`) + "." + body + "." + signature,
		"another server's": other,
		"other claims": head + "." + encode(strings.Replace(string(claims), `"u"`, `"kube-system"`, 1)) +
			"." + signature,
		"the signature of something else": head + "." + body + "." + other[strings.LastIndexByte(other, '.')+1:],
		"no signature":                    head + "." + body + ".",
		"two parts":                       head + "." + body,
		"four parts":                      good + ".x",
		"an encrypted one":                good + ".x.y",
		"JSON": `{"payload":"` + body + `","signatures":[{"protected":"` + head +
			`","signature":"` + signature + `"}]}`,
		"a key of its own": encode(`{"alg":"ES256","jwk":{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}}`) +
			"." + body + "." + signature,
		"a critical extension": encode(`{"alg":"ES256","crit":["x"],"x":1}`) + "." + body + "." + signature,
		"a legacy one that nobody signed": encode(`{"alg":"none"}`) + "." +
			encode(`{"iss":"kubernetes/serviceaccount","sub":"`+accountA+`"}`) + ".",
		"the good one with something else": good + "A",
	} {
		if got := s.whose(token); got != "401" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := s.whose(good); got != accountA+"{}" {
		t.Errorf("the good one: %s", got)
	}
	key, err := serviceaccount.ReadPrivateKey(filepath.Join(s.config.DataDir, "pki", "sa.key"))
	if _, ok := key.(*ecdsa.PrivateKey); !ok || err != nil {
		t.Errorf("the key is a %T, %v", key, err)
	}
	if info, err := os.Stat(filepath.Join(s.config.DataDir, "pki", "sa.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its file is %v, %v", info, err)
	}
}

// A TokenRequest is answered as the reference answers it (conformance/http/tokens compares more of them).
//
// SPEC: AUTH-2, URI-7
func TestTokenRequest(t *testing.T) {
	s := withAccounts(t, func(c *Config) { c.ServiceAccounts.MaxExpiration = 24 * time.Hour })
	const path = "/api/v1/namespaces/u/serviceaccounts/a/token"
	s.ask("POST", "/api/v1/namespaces/u/serviceaccounts", `{"metadata":{"name":"b"}}`, 201)
	s.ask("POST", "/api/v1/namespaces/u/pods",
		`{"metadata":{"name":"p"},"spec":{"serviceAccountName":"a","containers":[{"name":"c","image":"i"}]}}`, 201)
	s.ask("POST", "/api/v1/namespaces/u/pods",
		`{"metadata":{"name":"q"},"spec":{"serviceAccountName":"b","containers":[{"name":"c","image":"i"}]}}`, 201)
	long := s.ask("POST", path, `{"spec":{"expirationSeconds":100000}}`, 201)
	if got := long.At("spec", "expirationSeconds").Int(); got != 24*60*60 {
		t.Errorf("it lasts %d seconds", got)
	}
	projected := s.ask("POST", path,
		`{"spec":{"expirationSeconds":3607,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"p"}}}`, 201)
	if got, want := projected.At("status", "expirationTimestamp").Str(),
		s.now().Add(3607*time.Second).UTC().Format(time.RFC3339); got != want {
		t.Errorf("a token of a Pod is told to end at %s, want %s", got, want)
	}
	var claims struct {
		Expires, Issued int64
		Exp, Iat        int64
		Kubernetes      struct{ Warnafter int64 } `json:"kubernetes.io"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(projected.At("status", "token").Str(), ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	if claims.Exp-claims.Iat != 365*24*60*60 || claims.Kubernetes.Warnafter-claims.Iat != 3607 {
		t.Errorf("its claims are %s", payload)
	}
	for body, want := range map[string]string{
		`{"metadata":{"name":"b"}}`:          `metadata.name: Invalid value: "b": must match the service account name if specified`,
		`{"metadata":{"uid":"x"}}`:           `Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "a": the UID in the token request (x) does not match`,
		`{"spec":{"expirationSeconds":599}}`: `spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes`,

		`{"spec":{"expirationSeconds":4294967297}}`: `may not specify a duration larger than 2^32 seconds`,

		`{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"x"}}}`:    `pods "x" not found`,
		`{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":"Pod"}}}`:               `Name parameter required.`,
		`{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"q"}}}`:    `cannot bind token for serviceaccount "a" to pod running with different serviceaccount name.`,
		`{"spec":{"boundObjectRef":{"apiVersion":"x/v1","kind":"Pod","name":"q"}}}`:  `cannot bind token to object of type x/v1, Kind=Pod`,
		`{"spec":{"boundObjectRef":{"kind":"Pod","name":"p","uid":"x"}}}`:            `Operation cannot be fulfilled on Pod "p": the UID in the bound object reference (x) does not match`,
		`{"spec":{"attestations":{"a":["b"]}}}`:                                      `spec.attestations: Invalid value: {"a":["b"]}: attestations may only be specified with a webhook`,
		`{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":"Node","name":"a/b"}}}`: `Name parameter invalid`,
	} {
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, asAdmin(r))
		parsed, err := object.ParseJSON(w.Body.Bytes())
		if err != nil || !strings.Contains(parsed.Value.At("message").Str(), want) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	token, counted := projected.At("status", "token").Str(), &s.plane.Verifier.Counters
	for _, after := range []time.Duration{time.Minute, 3600 * time.Second} {
		if s.setNow(s.now().Add(after)); !strings.HasPrefix(s.whose(token), accountA) {
			t.Errorf("%s later it is %s", after, s.whose(token))
		}
	}
	if counted.Valid.Load() != 1 || counted.Stale.Load() != 1 || counted.Legacy.Load() != 0 {
		t.Errorf("its uses are counted as %d valid, %d stale, %d legacy ones", counted.Valid.Load(), counted.Stale.Load(),
			counted.Legacy.Load())
	}
}

// The token of a Secret is valid as long as the Secret contains it, and the Secret records when it was last used.
//
// SPEC: AUTH-2
func TestLegacyToken(t *testing.T) {
	s := withAccounts(t, nil)
	const path = "/api/v1/namespaces/u/secrets/s"
	uid := s.ask("GET", "/api/v1/namespaces/u/serviceaccounts/a", "", 200).At("metadata", "uid").Str()
	token, err := s.accountKeys.static.Legacy("u", "a", uid, "s")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.whose(token); got != "401" {
		t.Errorf("without its Secret it is %s", got)
	}
	s.ask("POST", "/api/v1/namespaces/u/secrets", `{"metadata":{"name":"s"},"data":{"token":"`+
		base64.StdEncoding.EncodeToString([]byte(token))+`"}}`, 201)
	if got := s.whose(token); got != accountA+"null" {
		t.Errorf("it is %s", got)
	}
	if used := s.ask("GET", path, "", 200).At("metadata", "labels",
		access.LegacyTokenLastUsed).Str(); used != s.now().UTC().Format(time.DateOnly) {
		t.Errorf("it was last used on %q", used)
	}
	s.ask("PATCH", path, `{"metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":"2026-01-01"}}}`, 200)
	if got := s.review(token); !strings.Contains(got,
		"the token in secret u/s for service account u/a has been marked invalid.") {
		t.Errorf("marked invalid it is %s", got)
	}
	s.ask("PATCH", path, `{"metadata":{"labels":null},"data":{"token":"eA=="}}`, 200)
	if got := s.review(token); got != "[invalid bearer token, Token does not match server's copy]" {
		t.Errorf("with another token in the Secret it is %s", got)
	}
}

// The bootstrap tokens of new nodes are Secrets, and are valid as long as these say so.
//
// SPEC: AUTH-1
func TestBootstrapTokens(t *testing.T) {
	s := withAccounts(t, func(c *Config) { c.BootstrapTokens = true })
	const path, token = "/api/v1/namespaces/kube-system/secrets", "abcdef.0123456789abcdef"
	data := map[string]string{
		"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
		"expiration":        s.now().Add(time.Hour).UTC().Format(time.RFC3339),
		"auth-extra-groups": "system:bootstrappers:b,system:bootstrappers:a",
	}
	write := func(method, at, key, value string) {
		t.Helper()
		var members []object.Member
		for k, v := range data {
			if k == key {
				v = value
			}
			members = append(members, object.Member{Key: k, Value: object.StringOf(v)})
		}
		code := map[string]int{"POST": 201, "PUT": 200}[method]
		s.ask(method, at, string(object.AppendJSON(nil, object.Fields("metadata",
			object.Fields("name", object.StringOf("bootstrap-token-abcdef")),
			"type", object.StringOf("bootstrap.kubernetes.io/token"), "stringData", object.MapOf(members...)))), code)
	}
	if got := s.whose(token); got != "401" {
		t.Errorf("without a Secret it is %s", got)
	}
	write("POST", path, "", "")
	if got := s.review(token); got != "system:bootstrap:abcdef "+`["`+serviceaccount.DefaultIssuer+`"]` {
		t.Errorf("it is %s", got)
	}
	for key, value := range map[string]string{
		"token-id": "abcdeg", "token-secret": "0123456789abcdeg", "usage-bootstrap-authentication": "yes",
		"expiration": "tomorrow", "auth-extra-groups": "system:masters",
	} {
		write("PUT", path+"/bootstrap-token-abcdef", key, value)
		if got := s.whose(token); got != "401" {
			t.Errorf("with %s %s it is %s", key, value, got)
		}
	}
	write("PUT", path+"/bootstrap-token-abcdef", "", "")
	if s.setNow(s.now().Add(2 * time.Hour)); s.whose(token) != "401" {
		t.Errorf("after its time it is %s", s.whose(token))
	}
}

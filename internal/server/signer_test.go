package server

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/auth/externaljwt/signertest"
)

// withSigner is a server whose tokens an external signer signs.
func withSigner(t *testing.T, edit func(*Config)) (*signertest.Signer, *accounts) {
	t.Helper()
	program := signertest.New(t)
	program.Start(t)
	return program, withAccounts(t, func(c *Config) {
		c.ServiceAccounts.SigningEndpoint = program.Socket
		if edit != nil {
			edit(c)
		}
	})
}

// page returns a document beside the API, and its Cache-Control.
func (s *accounts) page(path string) (body, caching string) {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, asAdmin(httptest.NewRequest("GET", path, nil)))
	if w.Code != http.StatusOK {
		s.t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String(), w.Header().Get("Cache-Control")
}

// refresh fetches the keys of a signer that may just have been started: a call on the connection to the one before
// fails.
func (s *accounts) refresh() {
	s.t.Helper()
	end := time.Now().Add(time.Minute)
	err := s.accountKeys.Refresh(s.t.Context())
	for ; err != nil && time.Now().Before(end); err = s.accountKeys.Refresh(s.t.Context()) {
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// keysOf is the IDs of the published keys.
func (s *accounts) keysOf() string {
	s.t.Helper()
	body, _ := s.page("/openid/v1/jwks")
	var ids []string
	for _, m := range regexp.MustCompile(`"kid":"([^"]*)"`).FindAllStringSubmatch(body, -1) {
		ids = append(ids, m[1])
	}
	return strings.Join(ids, " ")
}

// An external signer signs tokens; its keys verify them and are published, except those that are excluded. Tokens of
// its keys are valid while it is away. A key that it takes back is not valid from the next call on, although a token
// was verified with it before; a new one is found when a token names it.
//
// SPEC: AUTH-2, AUTH-9
func TestExternalSigner(t *testing.T) {
	program, s := withSigner(t, nil)
	token := s.token(`{}`)
	if header, _, _ := strings.Cut(token, "."); header != base64.RawURLEncoding.EncodeToString(
		[]byte(`{"alg":"ES256","kid":"key-1","typ":"JWT"}`)) {
		t.Errorf("the header is %s", header)
	}
	for range 2 { // the second time from the cache
		if got := s.whose(token); got != accountA+"{}" {
			t.Errorf("the token is of %s", got)
		}
	}
	if _, caching := s.page("/.well-known/openid-configuration"); !regexp.MustCompile(
		`^public, max-age=3(600|5\d\d)$`).MatchString(caching) {
		t.Errorf("Cache-Control is %q", caching)
	}
	program.Set(func(state *signertest.State) {
		state.KeyID, state.Keys = "key-2", []string{"key-1", "key-2", "old"}
		state.Unpublished = map[string]bool{"old": true}
	})
	second := s.token(`{}`) // the key is not known, and so is asked for
	if got := s.whose(second); got != accountA+"{}" {
		t.Errorf("the token of a new key is of %s", got)
	}
	if got := s.keysOf(); got != "key-1 key-2" {
		t.Errorf("the published keys are %s", got)
	}
	program.Set(func(state *signertest.State) { state.KeyID = "old" })
	if message := s.ask("POST", "/api/v1/namespaces/u/serviceaccounts/a/token", `{}`, 500).At("message").Str(); message !=
		"Internal error occurred: failed to generate token: while validating header: key used for signing JWT "+
			"(kid: old) is excluded from OIDC discovery docs" {
		t.Errorf("of a key that is excluded: %s", message)
	}
	program.Stop()
	for _, token := range []string{token, second} {
		if got := s.whose(token); got != accountA+"{}" {
			t.Errorf("while the signer is away, the token is of %s", got)
		}
	}
	program.Set(func(state *signertest.State) { state.KeyID, state.Keys = "key-2", []string{"key-2"} })
	program.Start(t)
	s.refresh()
	if got := s.whose(token); got != "401" {
		t.Errorf("after its key was taken back the token is of %s", got)
	}
	if got := s.whose(second); got != accountA+"{}" {
		t.Errorf("the other token is of %s", got)
	}
	program.Set(func(state *signertest.State) { state.Unpublished["key-2"] = true })
	s.refresh()
	if got := s.keysOf(); got != "key-2" { // of the last document that could be made
		t.Errorf("without a key that can be published the published keys are %s", got)
	}
	metrics := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(metrics, asAdmin(httptest.NewRequest("GET", "/metrics", nil)))
	for _, want := range []string{`fetch_keys_request_total{code="OK"} `, `sign_request_total{code="OK"} 2`,
		`sign_request_total{code="unknown-non-grpc"} 1`, `fetch_keys_success_timestamp 1.`,
		`fetch_keys_data_timestamp 1.`,
		`request_duration_seconds_count{code="OK",method="/v1.ExternalJWTSigner/Sign"} 3`,
		`request_duration_seconds_count{code="OK",method="/v1.ExternalJWTSigner/Metadata"} 1`} {
		if !strings.Contains(metrics.Body.String(), "\napiserver_externaljwt_"+want) {
			t.Errorf("there is no metric %s", want)
		}
	}
	if _, err := os.Stat(filepath.Join(s.config.DataDir, "pki", "sa.key")); err == nil {
		t.Error("there is a key that nothing uses")
	}
}

// No token lasts longer than the signer allows: neither one that is asked for, nor one of a Pod that is extended.
//
// SPEC: AUTH-9
func TestLifetimesOfExternalSigners(t *testing.T) {
	program, s := withSigner(t, nil)
	lasts := func(s *accounts, spec string) int64 {
		answer := s.ask("POST", "/api/v1/namespaces/u/serviceaccounts/a/token", `{"spec":`+spec+`}`, 201)
		return answer.At("spec", "expirationSeconds").Int()
	}
	if got := lasts(s, `{"expirationSeconds":100000}`); got != 24*60*60 {
		t.Errorf("a token lasts %d s", got)
	}
	s.ask("POST", "/api/v1/namespaces/u/pods",
		`{"metadata":{"name":"p"},"spec":{"serviceAccountName":"a","containers":[{"name":"c","image":"i"}]}}`, 201)
	token := s.token(`{"expirationSeconds":3607,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"p"}}`)
	s.setNow(s.now().Add(24*time.Hour + 30*time.Second))
	if got := s.whose(token); !strings.HasPrefix(got, accountA) {
		t.Errorf("after a day the extended token is of %s", got)
	}
	s.setNow(s.now().Add(time.Minute))
	if got := s.whose(token); got != "401" {
		t.Errorf("after more than a day it is of %s", got)
	}
	_, shorter := withSigner(t, func(c *Config) { c.ServiceAccounts.MaxExpiration = time.Hour })
	if got := lasts(shorter, `{"expirationSeconds":100000}`); got != 60*60 {
		t.Errorf("with --service-account-max-token-expiration=1h a token lasts %d s", got)
	}
	c := Defaults()
	c.DataDir, c.Storage, c.SecurePort = t.TempDir(), "memory", 0
	c.ServiceAccounts.SigningEndpoint, c.ServiceAccounts.MaxExpiration = program.Socket, 48*time.Hour
	if server, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(),
		"service-account-max-token-expiration cannot be set longer than the token expiration supported by "+
			"service-account-signing-endpoint: 48h0m0s > 24h0m0s") {
		t.Errorf("a longer --service-account-max-token-expiration is %v", err)
		server.Close() //nolint:errcheck // the test has failed
	}
}

// SPEC: AUTH-9
func TestFlagsOfExternalSigners(t *testing.T) {
	for name, c := range map[string]struct {
		want string
		edit func(*Config)
	}{
		"signing key": {"service-account-signing-key-file and service-account-signing-endpoint are mutually exclusive and " +
			"cannot be set at the same time", func(c *Config) { c.ServiceAccounts.SigningKeyFile = "x" }},
		"keys": {"can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with " +
			"`--service-account-signing-endpoint` (They are mutually exclusive)",
			func(c *Config) { c.ServiceAccounts.KeyFiles = []string{"x"} }},
		"gate": {"setting `--service-account-signing-endpoint` requires enabling ExternalServiceAccountTokenSigner " +
			"feature gate", func(c *Config) {
			c.EmulatedVersion, c.FeatureGates = []string{"1.35"}, []string{"ExternalServiceAccountTokenSigner=false"}
		}},
		"locked gate": {"cannot set feature gate ExternalServiceAccountTokenSigner to false, feature is locked to true",
			func(c *Config) { c.FeatureGates = []string{"ExternalServiceAccountTokenSigner=false"} }},
		"socket": {"invalid value \"@a b\" passed for `--service-account-signing-endpoint`, when prefixed with @ must be " +
			"a valid abstract socket name", func(c *Config) { c.ServiceAccounts.SigningEndpoint = "@a b" }},
		"abstract socket": {"", func(c *Config) { c.ServiceAccounts.SigningEndpoint = "@a.b-c_d" }},
	} {
		config := Defaults()
		config.ServiceAccounts.SigningEndpoint = "/x"
		c.edit(&config)
		if err := config.validate(); c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Requests for tokens that wait for the signer hold no place, however many they are.
//
// SPEC: AUTH-8, AUTH-9
func TestExternalSignerHangs(t *testing.T) {
	const places, n = 2, 20
	program, s := withSigner(t, func(c *Config) { c.places = places })
	program.Set(func(state *signertest.State) { state.Hang = "Sign" })
	var requests sync.WaitGroup
	for range n {
		requests.Go(func() {
			w := httptest.NewRecorder()
			s.http.Handler.ServeHTTP(w, asAdmin(httptest.NewRequest("POST",
				"/api/v1/namespaces/u/serviceaccounts/a/token", strings.NewReader(`{}`))))
			if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(),
				"failed to generate token: while signing jwt: rpc error: code = Unavailable") {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	for end := time.Now().Add(time.Minute); program.Calls("Sign") < n && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if calls := program.Calls("Sign"); calls != n {
		t.Errorf("of %d requests %d have reached the signer", n, calls)
	}
	s.ask("GET", "/api/v1/namespaces/u/serviceaccounts/a", "", 200)
	program.Stop()
	requests.Wait()
}

package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plinth/internal/auth/oidc/issuertest"
)

// Users of the console sign in at an issuer of the AuthenticationConfiguration, with the secret of its file, as the
// user whom the configuration makes of the token. The secret is read each time. Neither it nor a code or token is in
// the log.
//
// SPEC: BEY-14
func TestConsoleSignInAtIssuer(t *testing.T) {
	i := issuertest.Start(t)
	i.SignIns(issuertest.Client{ID: "me", Redirects: []string{"https://"}, Secret: "hush1"})
	dir := t.TempDir()
	config, secret := filepath.Join(dir, "config"), filepath.Join(dir, "secret")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := json.Marshal(string(i.CA))
	if err != nil {
		t.Fatal(err)
	}
	write(secret, "hush1\n")
	write(config, fmt.Sprintf(`{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [
		{"issuer": {"url": %q, "certificateAuthority": %s, "audiences": ["me", "you"], "audienceMatchPolicy": "MatchAny"},
		"claimMappings": {"username": {"expression": "'oidc:' + claims.sub"}},
		"userValidationRules": [{"expression": "user.username != 'oidc:eve'", "message": "not eve"}]}]}`, i.URL, ca))
	var log lines
	s, _ := serveConsole(t, func(c *Config) {
		c.AuthenticationConfig, c.ConsoleSecrets = config, []string{i.URL + "=" + secret}
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	p := openPage(t, s)
	if text := p.wants(200, http.MethodGet, "/console/oidc", ""); !strings.Contains(text, i.URL) ||
		strings.Contains(text, "hush") {
		t.Errorf("the issuers are %s", text)
	}
	secrets := []string{"hush"}
	// attempt signs a user in and returns the answer, which has a code.
	attempt := func(user string, code int) string {
		t.Helper()
		var to struct{ Location string }
		within(t, "the issuer is found", func() bool {
			answer := p.send(t.Context(), http.MethodPost, "/console/oidc",
				fmt.Sprintf(`{"issuer":%q,"at":"/console/r/x"}`, i.URL), "Origin", s.URL())
			defer answer.Body.Close()
			return json.NewDecoder(answer.Body).Decode(&to) == nil && answer.StatusCode == http.StatusOK
		})
		back := i.LogIn(to.Location, user, "allow")
		q := back.Query()
		secrets = append(secrets, q.Get("code"), q.Get("state"))
		p.site = "cross-site"
		p.wants(200, http.MethodGet, back.RequestURI(), "") // as the issuer has the browser do
		p.site = "same-origin"
		return p.wants(code, http.MethodPost, back.EscapedPath(), fmt.Sprintf(`{"code":%q,"state":%q}`, q.Get("code"),
			q.Get("state")))
	}
	text := attempt("ann", 200)
	var answer struct{ Key, At string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.At != "/console/r/x" ||
		!strings.Contains(text, `"username":"oidc:ann"`) {
		t.Errorf("the session is %s %v", text, err)
	}
	p.key = answer.Key
	if text := p.wants(403, http.MethodGet, "/console/api/api/v1/configmaps", ""); !strings.Contains(text, "oidc:ann") {
		t.Errorf("the user is %s", text)
	}
	if text := attempt("eve", 401); !strings.Contains(text, "does not accept the token of "+i.URL) {
		t.Errorf("a user who is not valid: %s", text)
	}
	i.SignIns(issuertest.Client{ID: "me", Redirects: []string{"https://"}, Secret: "hush2"})
	if text := attempt("ann", 401); !strings.Contains(text, "invalid_client") {
		t.Errorf("with the old secret: %s", text)
	}
	write(secret, "hush2")
	attempt("ann", 200)
	if !strings.Contains(log.String(), "not eve") || !strings.Contains(log.String(), "invalid_client") {
		t.Errorf("the log does not say why: %s", &log)
	}
	for _, secret := range secrets {
		if strings.Contains(log.String(), secret) {
			t.Errorf("%s is in the log", secret)
		}
	}
}

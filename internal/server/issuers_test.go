package server

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plinth/internal/auth/oidc/issuertest"
	"plinth/internal/pki"
)

// whoAmI is the user that a server authenticates a token as: "name [groups]", or the code.
func whoAmI(s *Server, token string) string {
	r := httptest.NewRequest("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, r)
	var review struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}
	if w.Code != http.StatusCreated || json.Unmarshal(w.Body.Bytes(), &review) != nil {
		return fmt.Sprint(w.Code)
	}
	return fmt.Sprint(review.Status.UserInfo.Username, " ", review.Status.UserInfo.Groups)
}

// eventually waits until a server authenticates a token as this user.
func eventually(t *testing.T, s *Server, token, want string) {
	t.Helper()
	got := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if got = whoAmI(s, token); got == want {
			return
		}
	}
	t.Errorf("got %s, want %s", got, want)
}

// SPEC: AUTH-1
func TestIssuerByFlags(t *testing.T) {
	i := issuertest.Start(t)
	claims := issuertest.Claims{"sub": "jane", "email": "jane@example.com", "aud": "me", "groups": []string{"devs"},
		"hd": "a,b"}
	token := i.Token(claims)
	for _, c := range []struct {
		edit func(*OIDC)
		want string
	}{
		{func(*OIDC) {}, i.URL + "#jane [system:authenticated]"},
		{func(o *OIDC) { o.UsernamePrefix = "-" }, "jane [system:authenticated]"},
		{func(o *OIDC) { o.UsernamePrefix, o.GroupsClaim, o.GroupsPrefix = "x:", "groups", "g:" },
			"x:jane [g:devs system:authenticated]"},
		{func(o *OIDC) { o.UsernameClaim = "email" }, "jane@example.com [system:authenticated]"},
		{func(o *OIDC) { o.RequiredClaims = []string{"hd=x", "sub=jane", "hd=a,b"} }, i.URL + "#jane [system:authenticated]"},
	} {
		s := started(t, func(config *Config) {
			o := &config.OIDC
			o.IssuerURL, o.ClientID, o.CAFile, o.Given = i.URL, "me", i.CAFile(), true
			c.edit(o)
		})
		eventually(t, s, token, c.want)
		if got := whoAmI(s, i.Token(issuertest.Claims{"sub": "jane", "aud": "you"})); got != "401" {
			t.Errorf("a token for somebody else: %s", got)
		}
	}
	s := started(t, func(c *Config) {
		o := &c.OIDC
		o.IssuerURL, o.ClientID, o.CAFile, o.RequiredClaims, o.SigningAlgs, o.Given = i.URL, "me", i.CAFile(),
			[]string{"hd=a"}, []string{"RS256"}, true
	})
	// The issuer is known when its tokens with the claim are taken.
	eventually(t, s, i.Token(issuertest.Claims{"sub": "jane", "aud": "me", "hd": "a"}),
		i.URL+"#jane [system:authenticated]")
	if got := whoAmI(s, token); got != "401" {
		t.Errorf("a claim with another value: %s", got)
	}
	i.Use(i.NewKey("ES256"))
	if got := whoAmI(s, i.Token(issuertest.Claims{"sub": "jane", "aud": "me", "hd": "a"})); got != "401" {
		t.Errorf("an algorithm that is not taken: %s", got)
	}
}

// The authorities of an issuer are read again when their file changes. What is no certificate leaves the ones before in
// use.
//
// SPEC: AUTH-1, AUTH-11
func TestAuthoritiesOfIssuersAreReadAgain(t *testing.T) {
	i := issuertest.Start(t)
	other, err := pki.Open("", "another-ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	right, err := os.ReadFile(i.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(text []byte) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file+".new", text, 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	write(other.PEM)
	var log lines
	s := started(t, func(c *Config) {
		c.OIDC.IssuerURL, c.OIDC.ClientID, c.OIDC.CAFile, c.OIDC.Given, c.Logger = i.URL, "me", file, true, log.logger()
	})
	token := func(name string) string { return i.Token(issuertest.Claims{"sub": name, "aud": "me"}) }
	user := func(name string) string { return i.URL + "#" + name + " [system:authenticated]" }
	if got := whoAmI(s, token("jane")); got != "401" {
		t.Errorf("with authorities that have not signed the issuer's certificate: %s", got)
	}
	write(right)
	eventually(t, s, token("jane"), user("jane"))
	write([]byte("no certificate"))
	within(t, "the log says that the file is not used", func() bool {
		return strings.Contains(log.String(), "was not reloaded")
	})
	eventually(t, s, token("joe"), user("joe"))
	if !strings.Contains(page(t, s, "/metrics"), `plinth_file_reloads_total{flag="--oidc-ca-file",result="success"} 1`) {
		t.Error("the reload is not counted")
	}
}

// SPEC: AUTH-1
func TestSettingsOfAuthenticationThatContradict(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	const text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true, conditions: [{path: /livez}]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, edit := range map[string]func(*Config){
		"authentication-config file and oidc-* flags are mutually exclusive": func(c *Config) {
			c.AuthenticationConfig,
				c.OIDC.Given = file, true
		},
		"oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set": func(c *Config) {
			c.OIDC.Given, c.OIDC.ClientID = true, "me"
		},
		"anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file": func(c *Config) {
			c.AuthenticationConfig, c.AnonymousAuthGiven = file, true
		},
		"URL scheme must be https": func(c *Config) {
			c.OIDC.Given, c.OIDC.IssuerURL, c.OIDC.ClientID = true,
				"http://a", "me"
		},
		`unsupported authentication webhook version "v2", supported versions are "v1", "v1beta1"`: func(c *Config) {
			c.TokenWebhook.ConfigFile, c.TokenWebhook.Version = kubeconfigOf(t, "https://127.0.0.1:1", nil), "v2"
		},
		"no such file or directory": func(c *Config) { c.AuthenticationConfig = file + "x" },
		"--console-oidc-client-secret-file: open": func(c *Config) {
			c.ConsoleSecrets = []string{"https://a=" + file + "x"}
		},
		"--console-oidc-client-secret-file: " + os.DevNull + " is empty": func(c *Config) {
			c.ConsoleSecrets = []string{"https://a=" + os.DevNull}
		},
	} {
		c := quiet(t.TempDir())
		c.Storage = "memory"
		edit(&c)
		s, err := Start(t.Context(), c)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	s := started(t, func(c *Config) { c.AuthenticationConfig = file })
	for path, code := range map[string]int{"/livez": 200, "/readyz": 401, "/version": 401} {
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != code {
			t.Errorf("%s without credentials: %d, want %d", path, w.Code, code)
		}
	}
}

// kubeconfigOf is a kubeconfig with the URL of a webhook.
func kubeconfigOf(t *testing.T, url string, authority []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(
		`{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":%q`, url)
	if authority != nil {
		ca := file + ".crt"
		if err := os.WriteFile(ca, authority, 0o600); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf(`,"certificate-authority":%q`, ca)
	}
	if err := os.WriteFile(file, []byte(text+"}}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A webhook is called for tokens that the server itself does not know, and once only while its response is cached.
//
// SPEC: AUTH-1
func TestTokenWebhook(t *testing.T) {
	var asked atomic.Int32
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Spec struct{ Token string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		switch review.Spec.Token {
		case "jane":
			_, _ = w.Write([]byte(`{"status":{"authenticated":true,"user":{"username":"jane","groups":["devs"]}}}`))
		case "broken":
			w.WriteHeader(http.StatusForbidden)
		default:
			_, _ = w.Write([]byte(`{"status":{"authenticated":false}}`))
		}
	}))
	defer hook.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	s := started(t, func(c *Config) {
		c.TokenAuthFile = tokenFile(t, c.DataDir)
		c.TokenWebhook.ConfigFile = kubeconfigOf(t, hook.URL, authority)
	})
	for _, step := range []struct {
		token, want string
		asked       int
	}{
		{"sesame", "admin [system:masters system:authenticated]", 0}, {"jane", "jane [devs system:authenticated]", 1},
		{"jane", "jane [devs system:authenticated]", 1},
		{"joe", "401", 2}, {"joe", "401", 2}, {"broken", "401", 3}, {"broken", "401", 4},
	} {
		if got := whoAmI(s, step.token); got != step.want || int(asked.Load()) != step.asked {
			t.Errorf("%s: %s, asked %d times; want %s, %d", step.token, got, asked.Load(), step.want, step.asked)
		}
	}
}

package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"plinth/object"
)

// said is a log that several goroutines may write to.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Tokens, keys and passwords never appear in the logs, in the audit log at a level without bodies, or in metrics; and
// files that only the server may read cannot be read by others.
//
// SPEC: AUTH-1 AUTH-4
func TestSecretsStayWhereTheyAre(t *testing.T) {
	dir := t.TempDir()
	const (
		admin, wrong, long = "token-of-the-admin", "token-that-is-wrong", "token-in-a-socket"
		password, reviewed = "open-sesame", "token-to-be-reviewed"
	)
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	log := &said{}
	c := Defaults()
	c.DataDir, c.SecurePort = filepath.Join(dir, "data"), 0
	c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c.TokenAuthFile = file("tokens.csv", admin+",root,1,system:masters\nother-token,somebody,2\n")
	c.Flags = map[string]string{"token-auth-file": c.TokenAuthFile}
	c.Audit.PolicyFile = file("policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
	c.Audit.Log.Path = filepath.Join(dir, "audit", "audit.log")
	s, err := Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			s.Close()
		}
	}()
	requests := 0
	ask := func(method, path, body string, header ...string) (int, string) {
		t.Helper()
		requests++
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+admin)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, r)
		text, err := io.ReadAll(w.Result().Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.Code, string(text)
	}
	other := base64.StdEncoding.EncodeToString([]byte("other-" + password))
	encoded := base64.RawURLEncoding.EncodeToString([]byte(long))
	secret := func(value string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"a":"` + value + `"}}`
	}
	const secrets, apply, merge = "/api/v1/namespaces/default/secrets", "application/apply-patch+yaml",
		"application/merge-patch+json"
	const tokens = "/api/v1/namespaces/default/serviceaccounts/robot/token"
	issued := ""
	for _, q := range []struct {
		method, path, body string
		header             []string
		code               int
	}{
		{"GET", "/api", "", []string{"Authorization", "Bearer " + wrong}, 401},
		{"GET", "/api", "", []string{"Authorization", "bearer  " + wrong}, 403},
		{"GET", "/api", "", []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+password))},
			403},
		{"GET", "/api", "", []string{"Authorization", "", "Upgrade", "websocket", "Connection", "Upgrade",
			"Sec-Websocket-Protocol", "base64url.bearer.authorization.k8s.io." + encoded + ", a"}, 401},
		{"POST", secrets, secret(password), nil, 201},
		{"POST", secrets, secret(password), nil, 409},
		{"POST", secrets, `{"metadata":{"name":"No!"},"stringData":{"a":"` + password + `"}}`, nil, 422},
		{"POST", secrets, `{"metadata":{"name":"t"},"data":{"a":"` + password + `"}}`, nil, 400},
		{"PATCH", secrets + "/s?fieldManager=m", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"a":"` +
			other + `"}}`, []string{"Content-Type", apply}, 409},
		{"PATCH", secrets + "/s", `{"stringData":{"a":"new-` + password + `"}}`, []string{"Content-Type", merge}, 200},
		{"PATCH", secrets + "/s", `{"stringData":{"a":7}}`, []string{"Content-Type", merge}, 422},
		{"GET", secrets, "", nil, 200},
		{"POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"` + reviewed + `"}}`, nil, 201},
		{"POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`, nil, 201},
		{"POST", tokens, `{"spec":{"audiences":["a"]}}`, nil, 201},
		{"POST", tokens, `{"spec":{}}`, nil, 201},
		{"GET", "/healthz", "", []string{"Authorization", "Bearer other-token"}, 200},
	} {
		code, text := ask(q.method, q.path, q.body, q.header...)
		if code != q.code {
			t.Errorf("%s %s: %d, want %d: %s", q.method, q.path, code, q.code, text)
		}
		if q.path == tokens {
			parsed, err := object.ParseJSON([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			issued = parsed.Value.At("status", "token").Str()
		}
	}
	parts := strings.Split(issued, ".")
	if len(parts) != 3 {
		t.Fatalf("no token was issued: %q", issued)
	}
	if code, text := ask("GET", "/api", "", "Authorization",
		"Bearer "+parts[0]+"."+parts[1]+".AAAA"); code != http.StatusUnauthorized {
		t.Errorf("a forged token: %d %s", code, text)
	}
	if code, text := ask("GET", "/api", "", "Authorization", "Bearer "+issued); code != http.StatusOK {
		t.Errorf("the token that was issued: %d %s", code, text)
	}
	var seen strings.Builder
	for _, page := range []string{"/metrics", "/metrics/slis", "/statusz", "/flagz", "/debug/pprof/cmdline"} {
		_, text := ask("GET", page, "")
		seen.WriteString(text)
	}
	closed = true
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	audit, err := os.ReadFile(c.Audit.Log.Path)
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(audit, []byte("\n")); lines < requests ||
		!strings.Contains(seen.String(), "apiserver_audit_event_total") || log.String() == "" {
		t.Fatalf("%d requests have left %d lines, and a log of %d bytes", requests, lines, len(log.String()))
	}
	for _, word := range []string{admin, wrong, long, encoded, password,
		base64.StdEncoding.EncodeToString([]byte(password)), other, reviewed, "other-token", parts[1], parts[2], "AAAA"} {
		for place, text := range map[string]string{"the log": log.String(), "the audit log": string(audit),
			"what is served": seen.String()} {
			if at := strings.Index(text, word); at >= 0 {
				t.Errorf("%s is in %s: …%s…", word, place, text[max(0, at-200):min(len(text), at+100)])
			}
		}
	}
	private(t, dir)
}

// private reports secret files of the server that other users can read.
func private(t *testing.T, dir string) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		held := bytes.Contains(text, []byte("PRIVATE KEY")) || bytes.Contains(text, []byte("client-key-data")) ||
			strings.Contains(path, "audit.log")
		stored := strings.Contains(path, string(filepath.Separator)+"store"+string(filepath.Separator))
		if !held && !stored {
			return nil
		}
		found++
		closed := info.Mode().Perm()&0o077 == 0
		for parent := filepath.Dir(path); !closed && len(parent) >= len(dir); parent = filepath.Dir(parent) {
			of, err := os.Stat(parent)
			if err != nil {
				return err
			}
			closed = stored && of.Mode().Perm()&0o077 == 0 // the library's files, in a private directory of ours
		}
		if !closed {
			t.Errorf("%s is %v", path, info.Mode())
		}
		return nil
	})
	if err != nil || found < 5 {
		t.Errorf("%d such files: %v", found, err)
	}
}

// Values that clients choose do not become values of labels, and results of health checks and authentication are
// counted.
//
// SPEC: RUN-3
func TestFiguresOfAccess(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte("a,root,1,system:masters\nb,jane@example.com,2\nc,admin,3\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	s := started(t, func(c *Config) { c.TokenAuthFile = tokens })
	ask := func(path, token string) string {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, r)
		return w.Body.String()
	}
	for _, token := range []string{"a", "b", "c", "wrong", "wrong, too"} {
		ask("/metrics", token)
		ask("/livez?verbose", token)
	}
	got := ask("/metrics", "a")
	for _, line := range []string{
		`authentication_attempts{result="success"} 7`, `authentication_attempts{result="error"} 4`,
		`authentication_duration_seconds_count{result="error"} 4`,
		`authenticated_user_requests{username="other"} 3`, `authenticated_user_requests{username="email_id"} 2`,
		`authenticated_user_requests{username="admin"} 2`,
		`authorization_attempts_total{result="allowed"} 5`, `authorization_attempts_total{result="no-opinion"} 2`,
		`authorization_duration_seconds_count{result="no-opinion"} 2`,
		`apiserver_audit_event_total 0`, `apiserver_audit_requests_rejected_total 0`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("there is no %s", line)
		}
	}
	if strings.Contains(got, "jane") || strings.Contains(got, "root") {
		t.Error("a user is a label")
	}
	got = ask("/metrics/slis", "a")
	for _, line := range []string{`kubernetes_healthcheck{name="etcd",type="livez"} 1`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 3`} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("there is no %s in\n%s", line, got)
		}
	}
}

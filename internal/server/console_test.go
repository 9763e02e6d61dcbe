package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plinth/internal/console"
)

// browserPage is the console's page in a browser, as far as the server sees it: its cookies, and the headers that a
// browser adds.
type browserPage struct {
	t      *testing.T
	url    string
	client *http.Client
	cookie string
	key    string
	site   string // Sec-Fetch-Site
	at     string // the path of its cookie; "": that of the first plane
}

func openPage(t *testing.T, s *Server, certificates ...tls.Certificate) *browserPage {
	t.Helper()
	transport := &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}
	t.Cleanup(transport.CloseIdleConnections)
	return &browserPage{t: t, url: s.URL(), site: "same-origin", client: &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// send sends a request, and keeps the cookie that the answer sets.
func (p *browserPage) send(ctx context.Context, method, path, body string, header ...string) *http.Response {
	p.t.Helper()
	rq, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	rq.Header.Set("Content-Type", "application/json")
	for name, value := range map[string]string{"Sec-Fetch-Site": p.site, "X-Plinth-Console": p.key} {
		if value != "" {
			rq.Header.Set(name, value)
		}
	}
	if p.cookie != "" && strings.HasPrefix(path, cmp.Or(p.at, console.Path)) {
		rq.Header.Set("Cookie", p.cookie)
	}
	for i := 0; i < len(header); i += 2 {
		rq.Header.Set(header[i], header[i+1])
	}
	answer, err := p.client.Do(rq)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range answer.Cookies() {
		if c.Path != cmp.Or(p.at, console.Path) || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
			p.t.Errorf("the cookie is %s", c)
		}
		p.cookie = c.Name + "=" + c.Value
	}
	return answer
}

// wants sends a request and returns the answer, which must have a code.
func (p *browserPage) wants(code int, method, path, body string, header ...string) string {
	p.t.Helper()
	answer := p.send(p.t.Context(), method, path, body, header...)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	if answer.StatusCode != code {
		p.t.Errorf("%s %s %s: %d, want %d: %.300s", method, path, body, answer.StatusCode, code, text)
	}
	return string(text)
}

// signIn begins a session and returns the name of its user.
func (p *browserPage) signIn(body string) string {
	p.t.Helper()
	p.key = ""
	text := p.wants(200, http.MethodPost, "/console/session", body)
	var answer struct {
		User struct{ Username string }
		Key  string
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		p.t.Fatal(err)
	}
	p.key = answer.Key
	return answer.User.Username
}

// serveConsole starts a server with a console, on which the token "secret" is that of alice, who may read ConfigMaps.
func serveConsole(t *testing.T, change func(*Config)) (*Server, *testClient) {
	t.Helper()
	c := quiet(t.TempDir())
	c.Storage, c.Console, c.TokenAuthFile = "memory", true, filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(c.TokenAuthFile, []byte("secret,alice,1\nother,bob,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&c)
	}
	admin, s := serveFrom(t, c)
	admin.must(201, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", jsonObject{
		"metadata": map[string]any{"name": "reader"},
		"rules": []any{map[string]any{"apiGroups": []any{""}, "verbs": []any{"get", "list", "watch"},
			"resources": []any{"configmaps", "pods/proxy", "services/proxy"}}}})
	admin.must(201, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", jsonObject{
		"metadata": map[string]any{"name": "alice"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
		"subjects": []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}}})
	return s, admin
}

// A session has the rights of its user: those of a token, of a certificate, or of the client that asked for a code.
//
// SPEC: BEY-14
func TestConsoleSessions(t *testing.T) {
	s, admin := serveConsole(t, nil)
	p := openPage(t, s)
	if text := p.wants(200, http.MethodGet, "/console/r/core/v1/pods", ""); !strings.Contains(text, "<!doctype html>") {
		t.Errorf("the page is %.100s", text)
	}
	p.wants(401, http.MethodGet, "/console/session", "")
	p.wants(401, http.MethodPost, "/console/session", `{"token":"wrong"}`)
	p.wants(401, http.MethodPost, "/console/session", `{"code":"wrong"}`)
	p.wants(401, http.MethodPost, "/console/session", `{}`)
	if user := p.signIn(`{"token":"secret"}`); user != "alice" {
		t.Errorf("the user is %q", user)
	}
	p.wants(200, http.MethodGet, "/console/session", "")
	p.wants(200, http.MethodGet, "/console/api"+configMaps, "")
	p.wants(403, http.MethodGet, "/console/api/api/v1/namespaces/default/secrets", "")
	p.wants(403, http.MethodPost, "/console/api"+configMaps, `{"metadata":{"name":"a"}}`)
	first := *p
	if user := p.signIn(`{"token":"other"}`); user != "bob" || p.cookie == first.cookie || p.key == first.key {
		t.Errorf("the user is %q, and the session a new one: %t", user, p.cookie != first.cookie)
	}
	p.wants(403, http.MethodGet, "/console/api"+configMaps, "")
	first.wants(401, http.MethodGet, "/console/api"+configMaps, "") // its browser has begun another one

	code := admin.must(201, http.MethodPost, "/console/code", nil).text("code")
	if user := p.signIn(`{"code":"` + code + `"}`); user != "plinth-admin" {
		t.Errorf("the user is %q", user)
	}
	p.wants(201, http.MethodPost, "/console/api"+configMaps, `{"metadata":{"name":"a"}}`)
	second := openPage(t, s)
	second.wants(401, http.MethodPost, "/console/session", `{"code":"`+code+`"}`) // once

	p.wants(204, http.MethodDelete, "/console/session", "")
	p.wants(401, http.MethodGet, "/console/session", "")

	certified := openPage(t, s, admin.Transport.(*http.Transport).TLSClientConfig.Certificates...)
	if user := certified.signIn(`{}`); user != "plinth-admin" {
		t.Errorf("the user is %q", user)
	}
	// The session counts, and not the certificate that the browser shows as well.
	if user := certified.signIn(`{"token":"secret"}`); user != "alice" {
		t.Errorf("the user is %q", user)
	}
	certified.wants(403, http.MethodGet, "/console/api/api/v1/namespaces/default/secrets", "")

	leaf, err := s.certificates.pki.Leaf("bob", pkix.Name{CommonName: "bob"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		t.Fatal(err)
	}
	bob := openPage(t, s, pair)
	bob.wants(403, http.MethodGet, configMaps, "") // and the result of verifying the certificate is known
	code = admin.must(201, http.MethodPost, "/console/code", nil).text("code")
	if user := bob.signIn(`{"code":"` + code + `"}`); user != "plinth-admin" {
		t.Errorf("the code of plinth-admin begins a session of %q", user)
	}
	if user := bob.signIn(`{}`); user != "bob" {
		t.Errorf("the certificate of bob begins a session of %q", user)
	}
}

// What is not the console's page, of this origin, with its session and its key, gets nothing; and neither does a
// session whose credential is not valid any more.
//
// SPEC: BEY-14
func TestConsoleKeepsOut(t *testing.T) {
	s, admin := serveConsole(t, nil)
	p := openPage(t, s)
	p.signIn(`{"token":"secret"}`)
	for _, site := range []string{"", "none", "same-site", "cross-site", "SAME-ORIGIN"} {
		other := *p
		other.site = site
		other.wants(403, http.MethodGet, "/console/api"+configMaps, "")
		other.wants(403, http.MethodGet, "/console/session", "")
		other.wants(403, http.MethodDelete, "/console/session", "")
		other.wants(403, http.MethodPost, "/console/session", `{"token":"secret"}`)
	}
	for _, key := range []string{"", "wrong", p.key + "x"} {
		other := *p
		other.key = key
		other.wants(403, http.MethodGet, "/console/api"+configMaps, "")
		other.wants(403, http.MethodDelete, "/console/session", "")
	}
	// The cookie is none elsewhere.
	p.wants(403, http.MethodGet, configMaps, "", "Cookie", p.cookie)
	// A form of a page of anybody has another media type, and no code comes from a browser.
	p.wants(415, http.MethodPost, "/console/session", `{"token":"secret"}`, "Content-Type", "text/plain")
	p.wants(403, http.MethodPost, "/console/code", "", "Authorization", "Bearer secret")
	p.wants(405, http.MethodPut, "/console/session", "")
	p.wants(405, http.MethodPost, "/console/", "")
	p.wants(404, http.MethodGet, "/console/static/none.js", "")
	p.wants(413, http.MethodPost, "/console/session", `{"token":"`+strings.Repeat("x", 1<<20)+`"}`)
	p.wants(400, http.MethodPost, "/console/session", `[]`)
	p.wants(400, http.MethodPost, "/console/session", `{"token":"a","code":"b"}`)
	// Nothing that goes to another server.
	for _, path := range []string{"/api/v1/namespaces/default/pods/a/proxy/", "/api/v1/namespaces/default/pods/a/log",
		"/api/v1/namespaces/default/services/a/proxy", "/api/v1/namespaces/default/pods/a/exec?command=x"} {
		if text := p.wants(403, http.MethodGet, "/console/api"+path, ""); !strings.Contains(text, "the console sends no") {
			t.Errorf("%s: %s", path, text)
		}
	}
	// Headers of the browser do not say who it is.
	p.wants(403, http.MethodGet, "/console/api/api/v1/secrets", "", "Authorization", "Bearer other", "X-Remote-User",
		"plinth-admin", "X-Remote-Group", "system:masters")
	p.wants(403, http.MethodGet, "/console/api"+configMaps, "", "Impersonate-User", "plinth-admin")

	for _, header := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Cross-Origin-Opener-Policy"} {
		for _, path := range []string{"/console/", "/console/session", "/console/static/none"} {
			answer := p.send(t.Context(), http.MethodGet, path, "")
			answer.Body.Close()
			if answer.Header.Get(header) == "" {
				t.Errorf("%s has no %s", path, header)
			}
		}
	}
	certificates := admin.Transport.(*http.Transport).TLSClientConfig.Certificates
	browser := openPage(t, s, certificates...)
	for site, code := range map[string]int{"cross-site": 403, "same-site": 403, "none": 200, "same-origin": 200} {
		browser.site = site
		browser.wants(code, http.MethodGet, configMaps, "")
	}
}

// A session ends with its credential, and its watches end with it.
//
// SPEC: BEY-14
func TestConsoleSessionsEnd(t *testing.T) {
	s, admin := serveConsole(t, nil)
	token := admin.must(201, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts",
		jsonObject{"metadata": map[string]any{"name": "robot"}}).text("metadata", "name")
	token = admin.must(201, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/"+token+"/token",
		jsonObject{"spec": map[string]any{}}).text("status", "token")
	p := openPage(t, s)
	if user := p.signIn(`{"token":"` + token + `"}`); user != "system:serviceaccount:default:robot" {
		t.Errorf("the user is %q", user)
	}
	p.wants(200, http.MethodGet, "/console/session", "")
	admin.must(200, http.MethodDelete, "/api/v1/namespaces/default/serviceaccounts/robot", nil)
	p.wants(401, http.MethodGet, "/console/session", "")
	p.wants(401, http.MethodGet, "/console/api/api", "")

	p.signIn(`{"token":"secret"}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watch := p.send(ctx, http.MethodGet, "/console/api"+configMaps+"?watch=true", "")
	defer watch.Body.Close()
	if watch.StatusCode != 200 {
		t.Fatalf("the watch: %s", watch.Status)
	}
	admin.must(201, http.MethodPost, configMaps, jsonObject{"metadata": map[string]any{"name": "seen"}})
	var seen bytes.Buffer
	for !strings.Contains(seen.String(), `"seen"`) {
		if _, err := io.CopyN(&seen, watch.Body, 1); err != nil {
			t.Fatal(err)
		}
	}
	p.wants(204, http.MethodDelete, "/console/session", "")
	if _, err := io.Copy(&seen, watch.Body); ctx.Err() != nil {
		t.Errorf("the watch has not ended with its session: %v", err)
	}
}

// Without --console there is none.
//
// SPEC: BEY-14
func TestNoConsole(t *testing.T) {
	s, admin := serveConsole(t, func(c *Config) { c.Console = false })
	openPage(t, s).wants(403, http.MethodGet, "/console/", "") // nobody may know whether it is there
	p := openPage(t, s, admin.Transport.(*http.Transport).TLSClientConfig.Certificates...)
	p.wants(404, http.MethodGet, "/console/", "")
	p.site = "cross-site" // as on the reference
	p.wants(200, http.MethodGet, configMaps, "")
}

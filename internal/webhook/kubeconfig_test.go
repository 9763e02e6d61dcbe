package webhook

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// SPEC: AUTH-4
func TestRemote(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) == "refuse" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, "%s %s %s", r.URL, r.Header.Get("Authorization"), body)
	}))
	defer server.Close()
	dir := t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, text := range map[string]string{"ca.pem": string(authority), "token": "fresh\n", "empty": " "} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data := base64.StdEncoding.EncodeToString(authority)
	read := func(cluster, user string) (*Remote, error) {
		file := filepath.Join(dir, "kubeconfig")
		text := fmt.Sprintf("clusters: [{name: c, cluster: {server: %q, %s}}]\nusers: [{name: u, user: {%s}}]\n"+
			"contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", server.URL+"/path", cluster, user)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return FromKubeconfig(file)
	}
	for _, c := range []struct{ cluster, user, want string }{
		{"certificate-authority: ca.pem", "token: sesame", "Bearer sesame"},
		{"certificate-authority-data: " + data, "tokenFile: token", "Bearer fresh"},
		{"insecure-skip-tls-verify: true", "username: a, password: b", "Basic YTpi"},
		{"insecure-skip-tls-verify: true", "", ""},
	} {
		r, err := read(c.cluster, c.user)
		if err != nil {
			t.Errorf("%s %s: %v", c.cluster, c.user, err)
			continue
		}
		if got, err := r.Post(t.Context(), []byte("body")); err != nil || string(got) != "/path?timeout=30s "+c.want+" body" {
			t.Errorf("%s %s: %s, %v", c.cluster, c.user, got, err)
		}
		if _, err := r.Post(t.Context(), []byte("refuse")); err == nil {
			t.Error("a response with code 403: have no error, want one")
		}
	}
	if r, err := read("", ""); err != nil {
		t.Error(err)
	} else if _, err := r.Post(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a webhook with an unknown CA: have %v, want an error about its certificate", err)
	}
	for _, c := range []struct{ cluster, user, want string }{
		{"certificate-authority: ca.pem, insecure-skip-tls-verify: true", "", "cannot both be set"},
		{"certificate-authority: token", "", "contains no certificate"},
		{"certificate-authority: gone", "", "gone"},
		{"", "tokenFile: empty", "no token"},
		{"", "tokenFile: gone", "gone"},
		{"", "exec: {command: x}", "not supported"},
		{"", "auth-provider: {name: x}", "not supported"},
		{"", "as: admin", "not supported"},
		{"", "client-certificate: ca.pem", "client certificate"},
		{"proxy-url: ':'", "", "proxy-url"},
	} {
		if _, err := read(c.cluster, c.user); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.cluster, c.user, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"": "current-context is not set", "current-context: x": `no context "x"`, "{": "yaml",
		"current-context: x\nclusters: [{name: c, cluster: {server: 'ftp://x'}}]\ncontexts: [{name: x, context: {cluster: c}}]":            "is not an http or https URL",
		"current-context: x\nclusters: [{name: c, cluster: {server: 'https://x'}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]": "no user with the name",
	} {
		if _, err := parseKubeconfig([]byte(text), dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// The file is read again after fileLife. As long as it is missing or empty, the last token is used.
func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	put := func(text string) {
		err := os.WriteFile(path, []byte(text), 0o600)
		if text == "-" {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f, now := newTokenFile(path), time.Now()
	for _, c := range []struct {
		put   string
		after time.Duration
		want  string
	}{
		{"a", 0, "a"}, {"b", fileLife - 1, "a"}, {"b", fileLife, "b"},
		{"-", 2 * fileLife, "b"}, {" ", 2 * fileLife, "b"}, {"c", 2 * fileLife, "c"},
	} {
		put(c.put)
		if got, err := f.get(now.Add(c.after)); got != c.want || err != nil {
			t.Errorf("%q in the file after %v: have %q, %v, want %q", c.put, c.after, got, err, c.want)
		}
	}
}

package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"plinth/internal/engine"
)

func authenticator(t *testing.T, tokens string) *Authenticator {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := New(file)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// SPEC: AUTH-1
func TestAuthenticate(t *testing.T) {
	a := authenticator(t, "sesame,alice,u1,\"devs,ops\"\nbare,bob,u2\n")
	alice := engine.User{Name: "alice", UID: "u1", Groups: []string{"devs", "ops", Authenticated}}
	bob := engine.User{Name: "bob", UID: "u2", Groups: []string{Authenticated}}
	anonymous := engine.User{Name: Anonymous, Groups: []string{Unauthenticated}}
	for _, c := range []struct {
		header string
		want   engine.User
		err    error
	}{
		{"", anonymous, nil},
		{"Bearer sesame", alice, nil},
		{"bearer  sesame ", alice, nil},
		{"Bearer bare", bob, nil},
		{"Bearer wrong", engine.User{}, ErrInvalid},
		{"Bearer", anonymous, nil},
		{"Basic c2VzYW1l", anonymous, nil},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		got, err := a.Authenticate(r)
		if !reflect.DeepEqual(got, c.want) || err != c.err {
			t.Errorf("Authorization %q: got %+v, %v", c.header, got, err)
		}
	}
}

// SPEC: AUTH-1
func TestAuthenticateByCertificate(t *testing.T) {
	a := authenticator(t, "")
	r := httptest.NewRequest("GET", "/", nil)
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: "carol", Organization: []string{Masters}}}
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
	if got, _ := a.Authenticate(r); got.Name != Anonymous {
		t.Errorf("an unverified certificate counts as %q", got.Name)
	}
	r.TLS.VerifiedChains = [][]*x509.Certificate{{cert}}
	got, err := a.Authenticate(r)
	want := engine.User{Name: "carol", Groups: []string{Masters, Authenticated}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestTokenFileErrorsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"ok,a,b\nshort,a\n": "line 2",
		",a,b\n":            "line 1",
		"\"open":            "quote",
	} {
		err := authenticator(t, "").readTokens(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want it to name %s", text, err, want)
		}
	}
	if _, err := New("/does/not/exist"); err == nil {
		t.Error("a missing token file is no error")
	}
}

func TestPublicPaths(t *testing.T) {
	anonymous := engine.User{Name: Anonymous, Groups: []string{Unauthenticated}}
	master := engine.User{Name: "root", Groups: []string{Masters}}
	for _, c := range []struct {
		user       engine.User
		verb, path string
		want       bool
	}{
		{anonymous, "get", "/healthz", true},
		{anonymous, "get", "/version", true},
		{anonymous, "post", "/version", false},
		{anonymous, "get", "/metrics", false},
		{anonymous, "get", "/api", false},
		{master, "get", "/metrics", true},
	} {
		if got := MayReadPath(c.user, c.verb, c.path); got != c.want {
			t.Errorf("%s %s as %s: %v", c.verb, c.path, c.user.Name, got)
		}
	}
}

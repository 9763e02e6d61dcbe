package tokens

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/authority"
	"plinth/conformance/internal/harness"
)

// review asks a server as which user it authenticates a request, and returns the status code and the body.
func (s *server) review(cert *tls.Certificate, headers []string) (int, []byte) {
	s.t.Helper()
	return s.send(cert, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", headers)
}

// Both servers trust the same proxies, and take the user of a request from the same headers.
//
// SPEC: AUTH-1
func TestFrontProxy(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("CONFORMANCE_REFERENCE is not set")
	}
	dir := t.TempDir()
	made := func(a *authority.Authority, err error) *authority.Authority {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	proxies := made(authority.New("proxies", time.Hour))
	below := made(proxies.New("below", time.Hour))
	people := made(authority.New("people", time.Hour))
	foreign := made(authority.New("proxies", time.Hour)) // an authority with the same name
	file := func(name string, a *authority.Authority) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, a.PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	own := func(a *authority.Authority, name string, change func(*x509.Certificate),
		above ...*authority.Authority) *tls.Certificate {
		t.Helper()
		cert, err := a.Sign(pkix.Name{CommonName: name, Organization: []string{"of-the-certificate"}}, change, above...)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	certificates := []struct {
		name string
		cert *tls.Certificate
	}{
		{"a proxy", own(proxies, "front", nil)},
		{"another proxy that is allowed", own(proxies, "back", nil)},
		{"a proxy whose name is not allowed", own(proxies, "side", nil)},
		{"a proxy whose name is allowed in other case", own(proxies, "Front", nil)},
		{"a proxy without a name", own(proxies, "", nil)},
		{"a proxy with an allowed name beside its own", own(proxies, "side",
			func(c *x509.Certificate) { c.DNSNames = []string{"front"} })},
		{"an expired proxy", own(proxies, "front", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })},
		{"a proxy of tomorrow", own(proxies, "front",
			func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute * 30) })},
		{"a proxy with a server's certificate", own(proxies, "front",
			func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })},
		{"a proxy of another authority", own(foreign, "front", nil)},
		{"a proxy of an authority below, with it", own(below, "front", nil, below)},
		{"a proxy of an authority below, without it", own(below, "front", nil)},
		{"a client", own(people, "front", nil)},
		{"an expired client", own(people, "front", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })},
		{"no certificate", nil},
	}
	bearer := "Authorization: Bearer "
	headers := [][]string{
		{}, {"X-Remote-User: jane"}, {"X-Remote-User: "}, {"X-Second-User: jack"},
		{"X-Second-User: jack", "X-Remote-User: jane"},
		{"X-Remote-User: ", "X-Second-User: jack"}, {"X-Remote-User: jane", "X-Remote-User: jack"}, {"x-remote-user: jane"},
		{"X-Remote_User: jane"},
		{"X-Remote-Group: g"}, {"X-Remote-User: jane", "X-Remote-Group: g"},
		{"X-Remote-User: jane", "X-Remote-Group: system:masters"},
		{"X-Remote-User: jane", "X-Remote-Group: b", "X-Other-Group: a", "X-Remote-Group: b", "X-Remote-Group: "},
		{"X-Remote-User: jane", "X-Remote-Group: a,b"}, {"X-Remote-User: jane", "X-Third-Group: a"},
		{"X-Remote-User: jane", "X-Remote-Group: system:authenticated"},
		{"X-Remote-User: jane", "X-Remote-Group: system:unauthenticated"},
		{"X-Remote-User: system:anonymous"}, {"X-Remote-User: system:anonymous", "X-Remote-Group: g"},
		{"X-Remote-User: jane", "X-Remote-Uid: 7"}, {"X-Remote-Uid: 7"},
		{"X-Remote-User: jane", "X-Remote-Uid: 7", "X-Remote-Uid: 8"}, {"X-Remote-User: jane", "X-Remote-Uid: "},
		{"X-Remote-User: jane", "X-Remote-Extra-Scopes: view"}, {"X-Remote-User: jane", "X-Remote-Extra-Scopes: view",
			"X-Remote-Extra-Scopes: edit", "X-More-Scopes: all"},
		{"X-Remote-User: jane", "X-Remote-Extra-Example.com%2fScopes: view"},
		{"X-Remote-User: jane", "X-Remote-Extra-%zz: view"},
		{"X-Remote-User: jane", "X-Remote-Extra-: view"}, {"X-Remote-User: jane", "X-Remote-Extra: view"},
		{"X-Remote-User: jane", "X-Remote-Extra-A: "},
		{"X-Remote-Extra-Scopes: view"},
		{"X-Remote-User: jane", bearer + harness.UserToken}, {"X-Remote-User: jane", bearer + "wrong"},
		{bearer + harness.UserToken},
		{"X-Remote-User: admin", "X-Remote-Group: system:masters", "Impersonate-User: jack"},
		{"X-Remote-User: jane", "Impersonate-User: jack"},
	}
	servers := servers(t, "--requestheader-client-ca-file="+file("proxies.crt", proxies),
		"--client-ca-file="+file("people.crt", people),
		"--requestheader-allowed-names=front,back", "--requestheader-username-headers=X-Remote-User,X-Second-User",
		"--requestheader-group-headers=X-Remote-Group,X-Other-Group", "--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-,X-More-")
	compared, believed := 0, 0
	for _, c := range certificates {
		for _, h := range headers {
			compare(t, c.name+": "+strings.Join(h, ", "), servers, func(s *server) (int, []byte) {
				code, body := s.review(c.cert, h)
				if strings.Contains(string(body), `"jane"`) && code == 201 {
					believed++
				}
				return code, body
			})
			compared++
		}
	}
	t.Logf("%d requests, %d answers say the name of a header", compared, believed)
	if compared < 500 || believed < 120 {
		t.Error("that is too little to have compared anything")
	}
}

// Without a list of names, every certificate of the authority is a proxy's; a server without proxies ignores their
// headers.
//
// SPEC: AUTH-1
func TestFrontProxyDefaults(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("CONFORMANCE_REFERENCE is not set")
	}
	proxies, err := authority.New("proxies", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	// Plinth has its own authority for clients. Without one, the reference would accept only certificates of proxies.
	people, err := authority.New("people", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, clients := filepath.Join(dir, "proxies.crt"), filepath.Join(dir, "people.crt")
	for name, a := range map[string]*authority.Authority{file: proxies, clients: people} {
		if err := os.WriteFile(name, a.PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := proxies.Sign(pkix.Name{CommonName: "anyone"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{
		{"--client-ca-file=" + clients, "--requestheader-client-ca-file=" + file,
			"--requestheader-username-headers=X-Remote-User"},
		{"--client-ca-file=" + clients, "--requestheader-client-ca-file=" + file,
			"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-"},
		{"--client-ca-file=" + file, "--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group"},
		{"--client-ca-file=" + clients, "--requestheader-username-headers=X-Remote-User", "--anonymous-auth=false"},
	} {
		servers := servers(t, flags...)
		for _, h := range [][]string{{"X-Remote-User: jane", "X-Remote-Group: g", "X-Remote-Uid: 7", "X-Remote-Extra-A: b"},
			{"X-Remote-Group: g"}, {}} {
			compare(t, fmt.Sprint(flags, h), servers, func(s *server) (int, []byte) { return s.review(cert, h) })
		}
	}
}

package server

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestConfigNamesEveryFault(t *testing.T) {
	c := Defaults()
	if err := c.validate(); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	c.Storage, c.BindAddress, c.SecurePort, c.TLSCertFile, c.FeatureGates = "tape", "here", 70000, "x.crt", "A"
	c.MinRequestTimeout, c.StrictTransport = -1, []string{"max-age=1", "max-age", "includeSubdomains", ""}
	err := c.validate()
	for _, flag := range []string{"--storage", "--bind-address", "--secure-port", "--tls-private-key-file", "--feature-gates",
		"--min-request-timeout", `"max-age"`, `"includeSubdomains"`, `""`,
	} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("the error does not name %s: %v", flag, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "max-age=1\"") {
		t.Errorf("a good directive is refused: %v", err)
	}
}

func TestFeatureGates(t *testing.T) {
	f, unknown, err := parseFeatures("WatchList=false, SomethingElse=true")
	if err != nil || f["WatchList"] || !f["APIResponseCompression"] || len(unknown) != 1 || unknown[0] != "SomethingElse" {
		t.Errorf("got %v, unknown %v, %v", f, unknown, err)
	}
	for _, bad := range []string{"WatchList", "WatchList=maybe"} {
		if _, _, err := parseFeatures(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// SPEC: AUTH-1
func TestCertificatesAreKeptAndRenewed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	now := time.Now()
	open := func(at time.Time) *pki {
		t.Helper()
		p, err := openPKI(dir, at)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	leaf := func(p *pki, hosts ...string) pair {
		t.Helper()
		l, err := p.leaf("server", pkix.Name{CommonName: "plinth"}, hosts)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := leaf(open(now), "localhost", "127.0.0.1")
	if again := leaf(open(now), "localhost"); string(again.cert) != string(first.cert) {
		t.Error("a restart makes another certificate")
	}
	if other := leaf(open(now), "elsewhere.example"); string(other.cert) == string(first.cert) {
		t.Error("a certificate that does not stand for a host is kept")
	}
	old := leaf(open(now), "elsewhere.example")
	if renewed := leaf(open(now.Add(leafLife-renewBefore+time.Hour)), "elsewhere.example"); string(renewed.cert) == string(old.cert) {
		t.Error("a certificate that is about to end is kept")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
	}
	p := open(now)
	loaded, err := tls.X509KeyPair(first.cert, first.key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.ca)
	if _, err := loaded.Leaf.Verify(x509.VerifyOptions{DNSName: "localhost", Roots: roots}); err != nil {
		t.Error(err)
	}
}

// Addresses with leading zeros, and ranges with bits beyond their prefix, are refused unless the gate is turned off; what is
// no address at all is refused in any case.
//
// SPEC: VAL-4, RUN-1
func TestStrictAddressesAreGated(t *testing.T) {
	for gates, want := range map[string]int{"": 422, "StrictIPCIDRValidation=true": 422, "StrictIPCIDRValidation=false": 201} {
		c := quiet(t.TempDir())
		c.Storage, c.FeatureGates = "memory", gates
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		client := clientOf(t, s)
		for kind, send := range map[string]struct {
			path string
			body map[string]any
			code int
		}{
			"endpoints": {"/api/v1/namespaces/default/endpoints", map[string]any{
				"subsets": []any{map[string]any{"addresses": []any{map[string]any{"ip": "192.168.3.011"}}, "ports": []any{map[string]any{"port": 1}}}},
			}, want},
			"policy": {"/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", map[string]any{
				"spec": map[string]any{"podSelector": map[string]any{}, "ingress": []any{map[string]any{"from": []any{map[string]any{
					"ipBlock": map[string]any{"cidr": "172.017.0.0/16", "except": []any{"172.17.001.0/24"}},
				}}}}},
			}, want},
			"nonsense": {"/api/v1/namespaces/default/endpoints", map[string]any{
				"subsets": []any{map[string]any{"addresses": []any{map[string]any{"ip": "192.168.3.x"}}, "ports": []any{map[string]any{"port": 1}}}},
			}, 422},
		} {
			send.body["metadata"] = map[string]any{"name": kind}
			answer, err := client.send(t.Context(), "POST", send.path, "application/json", send.body)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode != send.code {
				t.Errorf("%q %s: %d, want %d: %s", gates, kind, answer.StatusCode, send.code, text)
			}
		}
		client.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

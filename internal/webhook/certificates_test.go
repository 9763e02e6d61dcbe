package webhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// issue makes a certificate of an authority; nil: of itself.
func issue(t *testing.T, template, authority *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber, template.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
	if authority == nil {
		authority = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// Certificates of outdated forms are counted, be they refused or accepted.
//
// SPEC: RUN-3, EXT-2, AUTH-4
func TestOutdatedCertificates(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const name = "back.default.svc"
	authority := issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, key, key)
	for _, row := range []struct {
		name      string
		names     []string
		algorithm x509.SignatureAlgorithm
		self      bool // signed by itself
		insecure  bool // not verified
		san, sha1 int64
	}{
		{name: "good", names: []string{name}},
		{name: "good, not verified", names: []string{name}, insecure: true},
		{name: "no names", san: 1},
		{name: "no names, not verified", insecure: true, san: 1},
		{name: "SHA-1", names: []string{name}, algorithm: x509.ECDSAWithSHA1, sha1: 1},
		{name: "SHA-1, not verified", names: []string{name}, algorithm: x509.ECDSAWithSHA1, insecure: true, sha1: 1},
		{name: "SHA-1 of itself", names: []string{name}, algorithm: x509.ECDSAWithSHA1, self: true, insecure: true},
		{name: "another name", names: []string{"front.default.svc"}},
	} {
		template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: row.names,
			SignatureAlgorithm: row.algorithm, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
		by := authority
		if row.self {
			by = nil
		}
		leaf := issue(t, template, by, key, key)
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}}}
		server.StartTLS()
		roots := x509.NewCertPool()
		roots.AddCert(authority)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name,
			InsecureSkipVerify: row.insecure}}
		request, err := http.NewRequest("GET", server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := transport.RoundTrip(request)
		ctx, notes := Noting(t.Context())
		var c Outdated
		c.Count(ctx, name, answer, err)
		if err == nil {
			answer.Body.Close()
		}
		if c.MissingSAN.Load() != row.san || c.InsecureSHA1.Load() != row.sha1 {
			t.Errorf("%s: %d without names, %d with SHA-1 are counted (%v)", row.name, c.MissingSAN.Load(),
				c.InsecureSHA1.Load(), err)
		}
		noted := notes.All()
		_, san := noted["missing-san.invalid-cert.kubernetes.io/"+name]
		_, sha1 := noted["insecure-sha1.invalid-cert.kubernetes.io/"+name]
		if san != (row.san > 0) || sha1 != (row.sha1 > 0) {
			t.Errorf("%s: the notes are %v", row.name, noted)
		}
		server.Close()
	}
}

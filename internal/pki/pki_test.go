package pki

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// pkiFiles are the files of a folder of certificates, by name.
type pkiFiles map[string]string

func readPKI(t *testing.T, dir string) pkiFiles {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := pkiFiles{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(b)
	}
	return files
}

func (f pkiFiles) write(t *testing.T, dir string) {
	t.Helper()
	for name, content := range f {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// servedPKI is the folder of a server that has served.
func servedPKI(t *testing.T) pkiFiles {
	t.Helper()
	dir := t.TempDir()
	p, err := Open(dir, "plinth-ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"server", "admin"} {
		if _, err := p.Leaf(name, pkix.Name{CommonName: name}, nil); err != nil {
			t.Fatal(err)
		}
	}
	return readPKI(t, dir)
}

// The error about a damaged authority names the file. It is never replaced, as clients trust its certificate.
//
// SPEC: AUTH-1
func TestDamagedAuthority(t *testing.T) {
	whole := servedPKI(t)
	for _, name := range []string{"ca.key", "ca.crt"} {
		for _, content := range []string{"", "no PEM", servedPKI(t)[name]} {
			dir := t.TempDir()
			damaged := maps.Clone(whole)
			damaged[name] = content
			damaged.write(t, dir)
			if _, err := Open(dir, "plinth-ca", time.Now()); err == nil ||
				!strings.Contains(err.Error(), "certificate authority in "+dir) {
				t.Errorf("%s with %.20q: %v", name, content, err)
			}
			if !maps.Equal(readPKI(t, dir), damaged) {
				t.Errorf("%s with %.20q: files were changed", name, content)
			}
		}
	}
}

// Every subset of the files of a folder of certificates: the authority is the old one, or the folder is refused with an
// error that names the missing file, and is not changed. A new authority is created only if no certificate was signed
// yet.
//
// SPEC: AUTH-1
func TestPartsOfPKI(t *testing.T) {
	whole := servedPKI(t)
	names := slices.Sorted(maps.Keys(whole))
	if len(names) != 6 {
		t.Fatalf("a folder holds %v", names)
	}
	for set := range 1 << len(names) {
		part := pkiFiles{}
		for i, name := range names {
			if set>>i&1 == 1 {
				part[name] = whole[name]
			}
		}
		has := func(name string) bool { return part[name] != "" }
		cert, key, signed := has("ca.crt"), has("ca.key"), has("admin.crt") || has("server.crt")
		dir := t.TempDir()
		part.write(t, dir)
		p, err := Open(dir, "plinth-ca", time.Now())
		if cert && !key || !cert && signed {
			for _, name := range []string{"ca.crt", "ca.key"} {
				if !has(name) && (err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "missing")) {
					t.Errorf("%v: %v, want that %s is missing", slices.Sorted(maps.Keys(part)), err, name)
				}
			}
			if !maps.Equal(readPKI(t, dir), part) {
				t.Errorf("%v: files were changed", slices.Sorted(maps.Keys(part)))
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", slices.Sorted(maps.Keys(part)), err)
			continue
		}
		now := readPKI(t, dir)
		if cert && now["ca.crt"] != whole["ca.crt"] || key && now["ca.key"] != whole["ca.key"] {
			t.Errorf("%v: the authority is another one", slices.Sorted(maps.Keys(part)))
		}
		if key { // every certificate that it has signed is still valid
			checkSigned(t, p, whole)
		}
		if leaf, err := p.Leaf("admin", pkix.Name{CommonName: "admin"}, nil); err != nil || cert && has("admin.crt") &&
			has("admin.key") != (string(leaf.Cert) == whole["admin.crt"]) {
			t.Errorf("%v: the administrator's certificate: %v", slices.Sorted(maps.Keys(part)), err)
		}
	}
}

func checkSigned(t *testing.T, p *Authority, whole pkiFiles) {
	t.Helper()
	dir := t.TempDir()
	whole.write(t, dir)
	before, err := Open(dir, "plinth-ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := before.Leaf("admin", pkix.Name{CommonName: "admin"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.Certificate)
	options := x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	loaded, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loaded.Leaf.Verify(options); err != nil {
		t.Errorf("a certificate that was valid is no longer: %v", err)
	}
}

// SPEC: AUTH-1
func TestCertificatesAreKeptAndRenewed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	now := time.Now()
	open := func(at time.Time) *Authority {
		t.Helper()
		p, err := Open(dir, "plinth-ca", at)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	leaf := func(p *Authority, hosts ...string) Pair {
		t.Helper()
		l, err := p.Leaf("server", pkix.Name{CommonName: "plinth"}, hosts)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := leaf(open(now), "localhost", "127.0.0.1")
	if again := leaf(open(now), "localhost"); string(again.Cert) != string(first.Cert) {
		t.Error("a restart makes another certificate")
	}
	if other := leaf(open(now), "elsewhere.example"); string(other.Cert) == string(first.Cert) {
		t.Error("a certificate that does not stand for a host is kept")
	}
	old := leaf(open(now), "elsewhere.example")
	if renewed := leaf(open(now.Add(LeafLife*2/3+time.Hour)), "elsewhere.example"); string(
		renewed.Cert) == string(old.Cert) {
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
	loaded, err := tls.X509KeyPair(first.Cert, first.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.Certificate)
	if _, err := loaded.Leaf.Verify(x509.VerifyOptions{DNSName: "localhost", Roots: roots}); err != nil {
		t.Error(err)
	}
}

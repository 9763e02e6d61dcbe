package etcd

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/authority"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

// certify writes a certificate for both ends of a connection, and its key, as NAME.crt and NAME.key.
func certify(t *testing.T, by *authority.Authority, dir, name string) {
	t.Helper()
	made, err := by.Sign(pkix.Name{CommonName: name}, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	})
	if err == nil {
		err = authority.Write(dir, name, made)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// found makes an authority, and writes its certificate as NAME.crt.
func found(t *testing.T, dir, name string) *authority.Authority {
	t.Helper()
	a, err := authority.New(name, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), a.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// An etcd whose certificate is of another authority, or which does not accept the one of the server, is an error at
// once that says so. With the right ones the server starts.
//
// SPEC: STORE-2
func TestWrongCertificates(t *testing.T) {
	dir := t.TempDir()
	ours, other := found(t, dir, "ours"), found(t, dir, "other")
	certify(t, ours, dir, "member")
	certify(t, ours, dir, "client")
	certify(t, other, dir, "stranger")
	in := func(name string) string { return filepath.Join(dir, name) }
	p := startEtcd(t, reference.EtcdOptions{URL: strings.Replace(freeURL(t), "http:", "https:", 1), Flags: []string{
		"--cert-file", in("member.crt"), "--key-file", in("member.key"), "--client-cert-auth",
		"--trusted-ca-file", in("ours.crt")}})
	flags := func(ca, client string) []string {
		all := []string{"--etcd-servers=" + p.URL, "--etcd-cafile=" + in(ca+".crt")}
		if client != "" {
			all = append(all, "--etcd-certfile="+in(client+".crt"), "--etcd-keyfile="+in(client+".key"))
		}
		return all
	}
	harness.Run(t, harness.Options{Kind: harness.Plinth, Flags: flags("ours", "client")})
	program, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		flags []string
		says  string
	}{
		"another authority":            {flags("other", "client"), "x509: certificate signed by unknown authority"},
		"no certificate of the client": {flags("ours", ""), "tls: "},
		"a stranger's certificate":     {flags("ours", "stranger"), "tls: "},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second) // it would wait for a minute
		defer cancel()
		output, err := exec.CommandContext(ctx, program, append([]string{"serve", "--secure-port=0", "--data-dir",
			t.TempDir()}, c.flags...)...).CombinedOutput()
		if err == nil || ctx.Err() != nil || !strings.Contains(string(output), c.says) ||
			!strings.Contains(string(output), "--etcd-servers") {
			t.Errorf("%s: %v\n%s\nshould say %s", name, err, output, c.says)
		}
	}
}

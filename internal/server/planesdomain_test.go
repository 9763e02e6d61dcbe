package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plinth/internal/pki"
)

// The server's own certificate is for the domain of planes and for every name directly below it; also when there is one
// from a start without the domain.
//
// SPEC: BEY-9
func TestCertificateForPlanes(t *testing.T) {
	dir := t.TempDir()
	for _, domain := range []string{"", "planes.example", ""} {
		c := quiet(dir)
		c.Planes, c.PlanesDomain = true, domain
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		authority, _ := s.Administrator()
		for name, want := range map[string]bool{"localhost": true, "a.planes.example": domain != "",
			"planes.example": domain != "", "a.b.planes.example": false, "planes.example.org": false} {
			_, err := anonymous(t, s, func(config *tls.Config) {
				config.InsecureSkipVerify, config.ServerName, config.RootCAs = false, name, x509.NewCertPool()
				config.RootCAs.AppendCertsFromPEM(authority)
			})
			// A certificate that was made for more names remains.
			if (err == nil) != want && (want || domain != "") {
				t.Errorf("with the domain %q, %s: %v", domain, name, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A certificate from a file that is not for the names of planes is told of.
func TestCertificateThatIsNotForPlanes(t *testing.T) {
	dir := t.TempDir()
	other, err := pki.Open(dir, "other-ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair := func(name string, hosts ...string) (cert, key string) {
		if _, err := other.Leaf(name, pkix.Name{CommonName: name}, hosts); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	}
	for name, told := range map[string]bool{"neither": true, "serving": false, "named": false, "no domain": false} {
		var log bytes.Buffer
		started(t, func(c *Config) {
			c.Logger, c.Planes, c.PlanesDomain = slog.New(slog.NewTextHandler(&log, nil)), true, "planes.example"
			c.TLSCertFile, c.TLSKeyFile = pair("a", "localhost")
			switch name {
			case "serving":
				c.TLSCertFile, c.TLSKeyFile = pair("b", "localhost", "*.planes.example")
			case "named":
				cert, key := pair("c", "*.planes.example")
				c.TLSNamed = []string{cert + "," + key}
			case "no domain":
				c.Planes, c.PlanesDomain = true, ""
			}
		}).Close()
		if strings.Contains(log.String(), "names of planes") != told {
			t.Errorf("%s: %s", name, &log)
		}
	}
}

// The domain has to be one, and no name of the server may be below it.
func TestPlanesDomains(t *testing.T) {
	for domain, good := range map[string]bool{"": true, "planes.example.com": true, "localhost": true, "a": true,
		strings.Repeat("a.", 94) + "a": true, strings.Repeat("a.", 94) + "ab": false,
		"Planes.example": false, "planes.example.": false, ".planes.example": false, "*.example": false, "10.0.0.1": false,
		"a b": false, "planes.example:443": false, "ä.example": false, "-": false,
		"svc": false, "default.svc": false, "example.org": false, "plane.example.org": true, "org": false} {
		c := Defaults()
		c.Planes, c.PlanesDomain, c.ExternalHostname = true, domain, "api.Example.org:6443"
		if err := c.validate(); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "--planes-domain") {
			t.Errorf("%q: %v", domain, err)
		}
	}
	name, err := os.Hostname()
	if _, domain, ok := strings.Cut(name, "."); err == nil && ok {
		c := Defaults()
		if c.Planes, c.PlanesDomain = true, domain; c.validate() == nil {
			t.Errorf("%q, with this machine in it, is accepted", domain)
		}
	}
}

// What cannot be with planes is refused, and the error names the flag and what it takes.
//
// SPEC: BEY-9
func TestSettingsWithPlanes(t *testing.T) {
	for want, set := range map[string]func(c *Config){
		"--planes needs the embedded store":         func(c *Config) { c.Etcd.Servers = []string{"http://e:1"} },
		`--planes-egress: "127.0.0.1" is no prefix`: func(c *Config) { c.PlanesEgress = []string{"127.0.0.1"} },
		"--planes-domain is for --planes, which is not set": func(c *Config) {
			c.Planes, c.PlanesDomain = false, "a.example"
		},
	} {
		c := Defaults()
		c.Planes = true
		if set(&c); c.validate() == nil || !strings.Contains(c.validate().Error(), want) {
			t.Errorf("%v, want %q", c.validate(), want)
		}
	}
}

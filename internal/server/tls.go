package server

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/durable"
	"plinth/internal/pki"
)

// ownAuthority is the name of the authority that a server makes for itself.
const ownAuthority = "plinth-ca"

// administrator is the user of the kubeconfig that the server writes.
const administrator = "plinth-admin"

// certificates are those of a server, and those that it believes.
type certificates struct {
	pki       *pki.Authority    // the server's own authority
	authority []byte            // by which clients verify this server, as PEM; written to kubeconfigs
	clients   []byte            // the authorities that sign client certificates, as PEM
	tls       *tls.Config       // of the listener
	own       *x509.Certificate // the server's certificate, if its own authority signed it
	admin     pki.Pair          // the administrator's client certificate
}

// openCertificates opens the server's own authority, collects those of clients, and makes the certificates of the
// server and of its administrator where they are missing.
func (c *Config) openCertificates(now time.Time) (*certificates, error) {
	k := &certificates{}
	var err error
	if k.tls, err = c.tls(); err != nil {
		return nil, err
	}
	c.warnOfSuites(k.tls.CipherSuites)
	if dir := c.inDataDir("pki"); c.Authority.Cert != nil {
		k.pki, err = pki.Given(c.Authority, dir, now)
	} else {
		k.pki, err = pki.Open(dir, ownAuthority, now)
	}
	if err != nil {
		return nil, err
	}
	k.tls.ClientCAs = x509.NewCertPool()
	k.tls.ClientCAs.AddCert(k.pki.Certificate)
	k.clients = k.pki.PEM
	if c.ClientCAFile != "" {
		text, err := appendAuthorities(k.tls.ClientCAs, "--client-ca-file", c.ClientCAFile)
		if err != nil {
			return nil, err
		}
		k.clients = slices.Concat(k.clients, text)
	}
	serving, err := k.serving(c)
	if err != nil {
		return nil, err
	}
	k.tls.Certificates = []tls.Certificate{serving}
	if len(c.TLSNamed) > 0 { // otherwise GetCertificate is not called for clients that send no name
		k.tls.Certificates = nil
		if k.tls.GetCertificate, err = byName(c.TLSNamed, &serving); err != nil {
			return nil, err
		}
	}
	k.admin, err = k.pki.Leaf("admin", pkix.Name{CommonName: administrator, Organization: []string{access.Masters}}, nil)
	return k, err
}

// expired returns an error after the server's own certificate has expired. A restart creates a new one.
func (k *certificates) expired(now time.Time) error {
	if k.own == nil || now.Before(k.own.NotAfter) {
		return nil
	}
	return fmt.Errorf("the server's own certificate has expired at %s", k.own.NotAfter.UTC().Format(time.RFC3339))
}

// appendAuthorities adds the certificates of a PEM file to a pool, and returns the file.
func appendAuthorities(to *x509.CertPool, flag, file string) (text []byte, err error) {
	if text, err = os.ReadFile(file); err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if !to.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate in %s", flag, file)
	}
	return text, nil
}

var tlsVersions = map[string]uint16{
	"": tls.VersionTLS12, "VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11,
	"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
}

// oldSuites are names of cipher suites that Go and the reference had before, and the reference still accepts, with the
// names of today.
var oldSuites = map[string]string{
	"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
}

// http2Suites are the cipher suites of which a server of HTTP/2 over TLS 1.2 must have one (RFC 9113, section 9.2.2).
var http2Suites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}

// warnOfSuites logs which of the cipher suites are insecure.
func (c *Config) warnOfSuites(ids []uint16) {
	for _, suite := range tls.InsecureCipherSuites() {
		if slices.Contains(ids, suite.ID) {
			c.Logger.Warn("--tls-cipher-suites has an insecure cipher suite", "suite", suite.Name)
		}
	}
}

// tls returns the TLS configuration without certificates.
func (c *Config) tls() (*tls.Config, error) {
	config := &tls.Config{
		ClientAuth: tls.RequestClientCert, // package auth verifies it, so that a bad one is answered with 401
		NextProtos: []string{"h2", "http/1.1"},
	}
	var ok bool
	if config.MinVersion, ok = tlsVersions[c.TLSMinVersion]; !ok {
		return nil, fmt.Errorf("--tls-min-version: %q is none of VersionTLS10, VersionTLS11, "+
			"VersionTLS12, VersionTLS13", c.TLSMinVersion)
	}
	suites := append(tls.CipherSuites(), tls.InsecureCipherSuites()...)
	for _, name := range c.TLSCipherSuites {
		i := slices.IndexFunc(suites, func(s *tls.CipherSuite) bool { return s.Name == cmp.Or(oldSuites[name], name) })
		if i < 0 {
			return nil, fmt.Errorf("--tls-cipher-suites: Cipher suite %s not supported or doesn't exist", name)
		}
		config.CipherSuites = append(config.CipherSuites, suites[i].ID)
	}
	// net/http says so only once it serves, when the server has reported that it is ready.
	if len(config.CipherSuites) > 0 && !c.DisableHTTP2 && config.MinVersion < tls.VersionTLS13 &&
		!slices.ContainsFunc(http2Suites, func(id uint16) bool { return slices.Contains(config.CipherSuites, id) }) {
		return nil, fmt.Errorf("--tls-cipher-suites: HTTP/2 needs one of %s and %s; add one, or set --disable-http2-serving",
			tls.CipherSuiteName(http2Suites[0]), tls.CipherSuiteName(http2Suites[1]))
	}
	for _, number := range c.TLSCurves {
		id := tls.CurveID(number)
		if int32(id) != number || strings.HasPrefix(id.String(), "CurveID(") {
			return nil, fmt.Errorf("--tls-curve-preferences: %d is none of Go's key exchanges", number)
		}
		config.CurvePreferences = append(config.CurvePreferences, id)
	}
	if c.DisableHTTP2 {
		config.NextProtos = []string{"http/1.1"}
	}
	return config, nil
}

// serving returns the server's certificate, and sets the authority by which clients verify it: the server's own, or the
// configured certificate file, which may contain its authority.
func (k *certificates) serving(c *Config) (tls.Certificate, error) {
	k.authority = k.pki.PEM
	certFile, keyFile := c.TLSCertFile, c.TLSKeyFile
	if certFile == "" && c.CertDir != "" {
		certFile, keyFile = filepath.Join(c.CertDir, "apiserver.crt"), filepath.Join(c.CertDir, "apiserver.key")
		if present, err := both(certFile, keyFile); err != nil {
			return tls.Certificate{}, fmt.Errorf("--cert-dir: %w", err)
		} else if !present {
			return k.issue(c, certFile, keyFile)
		}
	}
	if certFile == "" {
		leaf, err := k.pki.Leaf("server", pkix.Name{CommonName: "plinth"}, c.hosts())
		if err != nil {
			return tls.Certificate{}, err
		}
		signed, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
		k.own = signed.Leaf
		return signed, err
	}
	given, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return given, err
	}
	k.authority, err = os.ReadFile(certFile)
	return given, err
}

// both says whether both files of a pair exist. Half a pair is an error, because the missing file is not created alone
// and the existing one must not be overwritten.
func both(certFile, keyFile string) (bool, error) {
	_, noCert := os.Stat(certFile)
	_, noKey := os.Stat(keyFile)
	switch {
	case errors.Is(noCert, fs.ErrNotExist) && errors.Is(noKey, fs.ErrNotExist):
		return false, nil
	case noCert != nil || noKey != nil:
		return false, errors.Join(noCert, noKey)
	}
	return true, nil
}

// issue creates the pair of --cert-dir. As the reference's, the file holds the certificate and its authority, so that
// a client can trust the file as an authority.
func (k *certificates) issue(c *Config, certFile, keyFile string) (tls.Certificate, error) {
	if err := os.MkdirAll(c.CertDir, 0o755); err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := k.pki.Leaf("server", pkix.Name{CommonName: "plinth"}, c.hosts())
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf.Cert = append(slices.Clone(leaf.Cert), k.pki.PEM...)
	if err := errors.Join(durable.WriteFile(durable.FS, keyFile, leaf.Key),
		durable.WriteFile(durable.FS, certFile, leaf.Cert)); err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(leaf.Cert, leaf.Key)
}

// hosts are the names and addresses for which the server's own certificate is valid.
func (c *Config) hosts() []string {
	hosts := []string{
		"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
	}
	for _, host := range []string{c.BindAddress, c.AdvertiseAddress} {
		if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() && !ip.IsLoopback() {
			hosts = append(hosts, host)
		}
	}
	if c.ExternalHostname != "" {
		hosts = append(hosts, c.ExternalHostname)
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		hosts = append(hosts, name)
	}
	return hosts
}

// byName selects a certificate of --tls-sni-cert-key by the server name that the client sends. Names given in the flag
// take precedence over the names in a certificate, and exact names over wildcards.
func byName(pairs []string, otherwise *tls.Certificate) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	all := map[string]*tls.Certificate{}
	var own []*tls.Certificate // certificates for which the flag gives no names
	for _, text := range pairs {
		files, names, named := strings.Cut(text, ":")
		certFile, keyFile, ok := strings.Cut(files, ",")
		if !ok {
			return nil, fmt.Errorf("--tls-sni-cert-key: %q is neither CERT,KEY nor CERT,KEY:NAME,NAME", text)
		}
		loaded, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key: %w", err)
		}
		if !named {
			own = append(own, &loaded)
			continue
		}
		for name := range strings.SplitSeq(names, ",") {
			all[strings.ToLower(strings.TrimSpace(name))] = &loaded
		}
	}
	for _, c := range own {
		names := slices.Clone(c.Leaf.DNSNames)
		for _, ip := range c.Leaf.IPAddresses {
			names = append(names, ip.String())
		}
		for _, name := range names {
			if name = strings.ToLower(name); all[name] == nil {
				all[name] = c
			}
		}
	}
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
		if name == "" && hello.Conn != nil { // clients send no name for an address
			name, _, _ = net.SplitHostPort(hello.Conn.LocalAddr().String())
		}
		_, domain, _ := strings.Cut(name, ".")
		return cmp.Or(all[name], all["*."+domain], otherwise), nil
	}, nil
}

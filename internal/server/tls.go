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

// NewAuthority makes an authority for Config.Authority, which is valid from a time on.
func NewAuthority(at time.Time) (pki.Pair, error) { return pki.New(ownAuthority, at) }

// administrator is the user of the kubeconfig that the server writes.
const administrator = "plinth-admin"

// authorities opens the server's own authority, and collects those of clients.
func (s *Server) authorities() error {
	c := &s.config
	var err error
	if s.tls, err = c.tls(); err != nil {
		return err
	}
	c.warnOfSuites(s.tls.CipherSuites)
	if dir, now := c.inDataDir("pki"), s.clock(); c.Authority.Cert != nil {
		s.pki, err = pki.Given(c.Authority, dir, now)
	} else {
		s.pki, err = pki.Open(dir, ownAuthority, now)
	}
	if err != nil {
		return err
	}
	s.tls.ClientCAs = x509.NewCertPool()
	s.tls.ClientCAs.AddCert(s.pki.Certificate)
	s.clients, s.authority = s.pki.PEM, s.pki.PEM
	if c.ClientCAFile == "" {
		return nil
	}
	text, err := appendAuthorities(s.tls.ClientCAs, "--client-ca-file", c.ClientCAFile)
	s.clients = slices.Concat(s.clients, text)
	return err
}

// certify creates the certificates of the server and of its administrator, where they are missing.
func (s *Server) certify() error {
	c := &s.config
	serving, authority, err := s.serving()
	if err != nil {
		return err
	}
	s.tls.Certificates = []tls.Certificate{serving}
	if len(c.TLSNamed) > 0 { // otherwise GetCertificate is not called for clients that send no name
		s.tls.Certificates = nil
		if s.tls.GetCertificate, err = byName(c.TLSNamed, &serving); err != nil {
			return err
		}
	}
	s.authority = authority
	s.admin, err = s.pki.Leaf("admin", pkix.Name{CommonName: administrator, Organization: []string{access.Masters}}, nil)
	return err
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

// serving returns the server's certificate, and the PEM by which clients verify it: that of the server's own authority,
// or the configured certificate file, which may contain its authority.
func (s *Server) serving() (tls.Certificate, []byte, error) {
	c := &s.config
	certFile, keyFile := c.TLSCertFile, c.TLSKeyFile
	if certFile == "" && c.CertDir != "" {
		certFile, keyFile = filepath.Join(c.CertDir, "apiserver.crt"), filepath.Join(c.CertDir, "apiserver.key")
		if there, err := both(certFile, keyFile); err != nil {
			return tls.Certificate{}, nil, fmt.Errorf("--cert-dir: %w", err)
		} else if !there {
			return s.issue(certFile, keyFile)
		}
	}
	if certFile == "" {
		leaf, err := s.pki.Leaf("server", pkix.Name{CommonName: "plinth"}, s.hosts())
		if err != nil {
			return tls.Certificate{}, nil, err
		}
		signed, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
		s.own = signed.Leaf
		return signed, s.pki.PEM, err
	}
	given, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return given, nil, err
	}
	text, err := os.ReadFile(certFile)
	return given, text, err
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
func (s *Server) issue(certFile, keyFile string) (tls.Certificate, []byte, error) {
	if err := os.MkdirAll(s.config.CertDir, 0o755); err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf, err := s.pki.Leaf("server", pkix.Name{CommonName: "plinth"}, s.hosts())
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf.Cert = append(slices.Clone(leaf.Cert), s.pki.PEM...)
	if err := errors.Join(durable.WriteFile(durable.FS, keyFile, leaf.Key),
		durable.WriteFile(durable.FS, certFile, leaf.Cert)); err != nil {
		return tls.Certificate{}, nil, err
	}
	signed, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	return signed, s.pki.PEM, err
}

// hosts are the names and addresses for which the server's own certificate is valid.
func (s *Server) hosts() []string {
	hosts := []string{
		"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
	}
	for _, host := range []string{s.config.BindAddress, s.config.AdvertiseAddress} {
		if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() && !ip.IsLoopback() {
			hosts = append(hosts, host)
		}
	}
	if s.config.ExternalHostname != "" {
		hosts = append(hosts, s.config.ExternalHostname)
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

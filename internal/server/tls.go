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
	"sync"
	"sync/atomic"
	"time"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/configfile"
	"plinth/internal/durable"
	"plinth/internal/expiry"
	"plinth/internal/pki"
)

// ownAuthority is the name of the authority that a server makes for itself.
const ownAuthority = "plinth-ca"

// administrator is the user of the kubeconfig that the server writes.
const administrator = "plinth-admin"

// certificates are those of a server, and those that it believes. Handshakes use them as they are at that time: they
// are renewed, and read again, while the server runs.
type certificates struct {
	config *Config
	pki    *pki.Authority // the server's own authority
	files  *configfile.Files
	expiry expiry.Certificates
	front  *frontProxy
	base   *tls.Config                // what a handshake needs besides certificates
	now    atomic.Pointer[tls.Config] // base with certificates, made by publish
	// clients and proxies are the authorities of client certificates and of front proxies.
	clients, proxies *auth.Authorities
	used             func(left time.Duration) // is told of the certificates of clients

	// What follows is written by one goroutine, under mu: the one that starts the server, and then that of follow.
	mu        sync.Mutex
	authority []byte            // by which clients verify this server, as PEM; written to kubeconfigs
	serving   *tls.Certificate  // for clients that send no name of named
	own       *x509.Certificate // serving, if the server's own authority signed it and the server renews it
	admin     pki.Pair          // the administrator's client certificate
	named     []namedPair
	// The authorities of clients and of proxies, as PEM; proxies are nil without any.
	clientPEM, proxyPEM []byte
	planes              []*x509.Certificate // with the subjects of the authorities of planes
}

// readAuthority reads the authority of --cluster-signing-cert-file.
func (c *Config) readAuthority() (err error) {
	if c.SigningCertFile == "" {
		return nil
	}
	if c.Authority.Cert, err = os.ReadFile(c.SigningCertFile); err != nil {
		return fmt.Errorf("--cluster-signing-cert-file: %w", err)
	}
	if c.Authority.Key, err = os.ReadFile(c.SigningKeyFile); err != nil {
		return fmt.Errorf("--cluster-signing-key-file: %w", err)
	}
	if _, err = pki.Given(c.Authority, "", time.Time{}); err != nil {
		return fmt.Errorf("--cluster-signing-cert-file: %w", err)
	}
	return nil
}

// openCertificates opens the server's own authority, collects those of clients, and makes the certificates of the
// server and of its administrator where they are missing. What is from files is read again when they change.
func (c *Config) openCertificates(now time.Time, files *configfile.Files) (*certificates, error) {
	k := &certificates{config: c, files: files, clients: auth.NewAuthorities(), proxies: auth.NewAuthorities()}
	var err error
	if k.base, err = c.tls(); err != nil {
		return nil, err
	}
	c.warnOfSuites(k.base.CipherSuites)
	if c.ExternalHostname != "" && c.externalHost() == "" {
		c.Logger.Error("--external-hostname is no host: no certificate and no kubeconfig has it", "host", c.ExternalHostname)
	}
	if dir := c.inDataDir("pki"); c.Authority.Cert != nil {
		k.pki, err = pki.Given(c.Authority, dir, now)
	} else {
		k.pki, err = pki.Open(dir, ownAuthority, now)
	}
	if err != nil {
		return nil, err
	}
	k.expiry.Set("own-ca", "", k.pki.PEM)
	for _, open := range []func() error{k.openClients, k.openProxies, k.openServing, k.openNamed} {
		if err := open(); err != nil {
			return nil, err
		}
	}
	if k.front, err = c.openFrontProxy(k); err != nil {
		return nil, err
	}
	k.publish()
	k.warnOfPlanesDomain()
	return k, k.issueAdmin(now)
}

// listener is the TLS configuration of the port.
func (k *certificates) listener() *tls.Config {
	return &tls.Config{NextProtos: k.base.NextProtos, MinVersion: k.base.MinVersion,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return k.now.Load(), nil }}
}

// publish has later handshakes use the certificates as they are.
func (k *certificates) publish() {
	next := k.base.Clone()
	next.ClientCAs = x509.NewCertPool() // those of proxies, too, but of these only a proxy is accepted
	next.ClientCAs.AppendCertsFromPEM(k.clientPEM)
	next.ClientCAs.AppendCertsFromPEM(k.proxyPEM)
	for _, c := range k.planes {
		next.ClientCAs.AddCert(c)
	}
	if len(k.named) == 0 {
		next.Certificates = []tls.Certificate{*k.serving}
	} else { // with Certificates, GetCertificate is not called for clients that send no name
		next.GetCertificate = byName(k.named, k.serving)
	}
	k.now.Store(next)
}

// change changes the certificates and has handshakes use them.
func (k *certificates) change(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
	if k.now.Load() != nil { // else the server starts, and publishes when it has all
		k.publish()
	}
}

// trust replaces the authorities of clients and of proxies.
func (k *certificates) trust(clients, proxies []byte) error {
	believed, err := expiry.Parse(clients)
	if err != nil {
		return err
	}
	var proxy []*x509.Certificate
	if proxies != nil {
		if proxy, err = expiry.Parse(proxies); err != nil {
			return err
		}
	}
	if err := k.config.FrontProxy.separate(believed, proxy); err != nil {
		return err
	}
	k.change(func() { k.clientPEM, k.proxyPEM = clients, proxies })
	k.clients.Set(believed)
	k.proxies.Set(proxy)
	return nil
}

// openClients reads the authorities of client certificates besides the server's own.
func (k *certificates) openClients() error {
	file := k.config.ClientCAFile
	if file == "" {
		return k.trust(k.pki.PEM, nil)
	}
	return k.openAuthorities("--client-ca-file", "client-ca", file, func(text []byte) error {
		return k.trust(slices.Concat(k.pki.PEM, text), k.proxyPEM)
	})
}

// openProxies reads the authorities of front proxies.
func (k *certificates) openProxies() error {
	file := k.config.FrontProxy.CAFile
	if file == "" {
		return nil
	}
	return k.openAuthorities("--requestheader-client-ca-file", "requestheader-client-ca", file, func(text []byte) error {
		return k.trust(k.clientPEM, text)
	})
}

// openAuthorities reads the file of a flag, with authorities for a use, and has trust use them.
func (k *certificates) openAuthorities(flag, use, file string, trust func(text []byte) error) error {
	return k.files.Use(flag, []string{file}, func(texts [][]byte) error {
		_, err := expiry.Parse(texts[0])
		if err == nil {
			err = trust(texts[0])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		k.expiry.Set(use, file, texts[0])
		return nil
	})
}

// trusted are the authorities of clients and of proxies, as PEM.
func (k *certificates) trusted() (clients, proxies []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.proxyPEM == nil {
		return k.clientPEM, k.front.authority
	}
	return k.clientPEM, k.proxyPEM
}

// administrator is what a kubeconfig of the administrator has.
func (k *certificates) administrator() (authority []byte, admin pki.Pair) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.authority, k.admin
}

// issueAdmin reads or makes the administrator's certificate.
func (k *certificates) issueAdmin(now time.Time) error {
	admin, err := k.pki.At(now).Leaf("admin", pkix.Name{CommonName: administrator, Organization: []string{access.Masters}},
		nil)
	if err != nil {
		return err
	}
	k.expiry.Set("administrator", "", admin.Cert)
	k.change(func() { k.admin = admin })
	return nil
}

// renew replaces the certificates that the server has made itself and that are due. It returns whether one was.
func (k *certificates) renew(now time.Time) (renewed bool, err error) {
	due := func(use string, c *x509.Certificate, issue func(time.Time) error) {
		if c == nil || !pki.Due(c, now) {
			return
		}
		if failed := issue(now); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", use, failed))
			return
		}
		renewed = true
		k.config.Logger.Info("a certificate was renewed", "use", use)
	}
	due("serving", k.own, k.issueServing)
	if admin, failed := expiry.Parse(k.admin.Cert); failed == nil {
		due("administrator", admin[0], k.issueAdmin)
	}
	due("front-proxy-client", k.front.own(), k.front.issue)
	return renewed, err
}

// expired returns an error after the server's own certificate has expired, which is renewed long before.
func (k *certificates) expired(now time.Time) error {
	k.mu.Lock()
	own := k.own
	k.mu.Unlock()
	if own == nil || now.Before(own.NotAfter) {
		return nil
	}
	return fmt.Errorf("the server's own certificate has expired at %s", own.NotAfter.UTC().Format(time.RFC3339))
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

// openServing reads or makes the server's certificate. Clients verify it by the server's own authority, or by the
// configured certificate file, which may contain its authority.
func (k *certificates) openServing() error {
	c := k.config
	k.authority = k.pki.PEM
	certFile, keyFile, flag := c.TLSCertFile, c.TLSKeyFile, "--tls-cert-file and --tls-private-key-file"
	if certFile == "" && c.CertDir != "" {
		certFile, keyFile = c.pairInCertDir()
		flag = "--cert-dir"
		if present, err := both(certFile, keyFile); err != nil {
			return fmt.Errorf("--cert-dir: %w", err)
		} else if !present {
			if err := k.issueServing(time.Time{}); err != nil {
				return err
			}
		}
	}
	if certFile == "" {
		return k.issueServing(time.Time{})
	}
	return k.files.Use(flag, []string{certFile, keyFile}, func(texts [][]byte) error {
		given, err := tls.X509KeyPair(texts[0], texts[1])
		if err != nil {
			return err
		}
		k.expiry.Set("serving", certFile, texts[0])
		k.change(func() {
			k.serving, k.authority, k.own = &given, texts[0], nil
			if flag == "--cert-dir" && given.Leaf.CheckSignatureFrom(k.pki.Certificate) == nil {
				k.own = given.Leaf
				k.authority = k.pki.PEM
			}
		})
		return nil
	})
}

// pairInCertDir are the files of the pair of --cert-dir.
func (c *Config) pairInCertDir() (certFile, keyFile string) {
	return filepath.Join(c.CertDir, "apiserver.crt"), filepath.Join(c.CertDir, "apiserver.key")
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

// issueServing makes the server's certificate: in --cert-dir, or in the data directory. As the reference's, the file in
// --cert-dir holds the certificate and its authority, so that a client can trust the file as an authority. Without a
// time it is that of the start.
func (k *certificates) issueServing(now time.Time) error {
	by := k.pki
	if !now.IsZero() {
		by = by.At(now)
	}
	leaf, err := by.Leaf("server", pkix.Name{CommonName: "plinth"}, k.config.hosts())
	if err != nil {
		return err
	}
	signed, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		return err
	}
	if k.config.CertDir == "" {
		k.expiry.Set("serving", "", leaf.Cert)
		k.change(func() { k.serving, k.own = &signed, signed.Leaf })
		return nil
	}
	// It is used when it is read again, as any other pair.
	certFile, keyFile := k.config.pairInCertDir()
	leaf.Cert = append(slices.Clone(leaf.Cert), k.pki.PEM...)
	return errors.Join(os.MkdirAll(k.config.CertDir, 0o755), durable.WriteFile(durable.FS, keyFile, leaf.Key),
		durable.WriteFile(durable.FS, certFile, leaf.Cert))
}

// hosts are the names and addresses for which the server's own certificate is valid.
func (c *Config) hosts() []string {
	if c.PlanesDomain == "" {
		return c.ownHosts()
	}
	return append(c.ownHosts(), c.PlanesDomain, "*."+c.PlanesDomain)
}

// ownHosts are those of the server itself.
func (c *Config) ownHosts() []string {
	hosts := []string{
		"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
	}
	for _, host := range []string{c.BindAddress, c.AdvertiseAddress} {
		if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() && !ip.IsLoopback() {
			hosts = append(hosts, host)
		}
	}
	if host := c.externalHost(); host != "" {
		hosts = append(hosts, host)
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		hosts = append(hosts, name)
	}
	return hosts
}

// namedPair is a certificate of --tls-sni-cert-key, with the names that the flag gives it; nil: it has its own.
type namedPair struct {
	names []string
	pair  *tls.Certificate
}

// openNamed reads the certificates of --tls-sni-cert-key.
func (k *certificates) openNamed() error {
	k.named = make([]namedPair, len(k.config.TLSNamed))
	for i, text := range k.config.TLSNamed {
		files, names, given := strings.Cut(text, ":")
		certFile, keyFile, ok := strings.Cut(files, ",")
		if !ok {
			return fmt.Errorf("--tls-sni-cert-key: %q is neither CERT,KEY nor CERT,KEY:NAME,NAME", text)
		}
		if given {
			k.named[i].names = strings.Split(names, ",")
		}
		if err := k.files.Use("--tls-sni-cert-key", []string{certFile, keyFile}, func(texts [][]byte) error {
			loaded, err := tls.X509KeyPair(texts[0], texts[1])
			if err != nil {
				return err
			}
			k.expiry.Set("serving", certFile, texts[0])
			k.change(func() { k.named[i].pair = &loaded })
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// byName selects a certificate by the server name that the client sends. Names given in the flag take precedence over
// the names in a certificate, and exact names over wildcards.
func byName(named []namedPair, otherwise *tls.Certificate) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	all := map[string]*tls.Certificate{}
	for _, n := range named {
		for _, name := range n.names {
			all[strings.ToLower(strings.TrimSpace(name))] = n.pair
		}
	}
	for _, n := range named {
		if n.names != nil {
			continue
		}
		names := slices.Clone(n.pair.Leaf.DNSNames)
		for _, ip := range n.pair.Leaf.IPAddresses {
			names = append(names, ip.String())
		}
		for _, name := range names {
			if name = strings.ToLower(name); all[name] == nil {
				all[name] = n.pair
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
	}
}

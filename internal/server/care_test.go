package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/kubeconfig"
	"plinth/internal/pki"
)

// lines is a log that a test reads while a server writes it.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// within waits until something holds, at most for a time that only a failure takes.
func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: it does not come", what)
		}
	}
}

// shown is the certificate that a server shows to a client that asks for a name.
func shown(t *testing.T, s *Server, name string) *x509.Certificate {
	t.Helper()
	raw, err := dialer(s)(t.Context(), "tcp", strings.TrimPrefix(s.URL(), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	connection := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, ServerName: name})
	defer connection.Close()
	if err := connection.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return connection.ConnectionState().PeerCertificates[0]
}

// user is who a request with these credentials is by, "" for one that is refused.
func user(t *testing.T, client *http.Client, s *Server, header http.Header) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "POST",
		s.URL()+"/apis/authentication.k8s.io/v1/selfsubjectreviews", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(request.Header, header)
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, name, _ := strings.Cut(string(text), `"username":"`)
	name, _, _ = strings.Cut(name, `"`)
	return name
}

// page is what the administrator reads at a path.
func page(t *testing.T, s *Server, path string) string {
	t.Helper()
	_, admin := s.Administrator()
	answer, err := with(t, s, admin).Get(s.URL() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// with is a client of a server with a certificate, whose connections are its own.
func with(t *testing.T, s *Server, pair pki.Pair) *http.Client {
	t.Helper()
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: dialer(s), ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// The certificates that a server has made itself are renewed while it runs, when less than a third of their life is
// left: new handshakes have the new one, and the kubeconfig of the data directory has the administrator's, unless
// someone has changed the entry.
//
// SPEC: AUTH-11
func TestCertificatesAreRenewed(t *testing.T) { synctest.Test(t, renewCertificates) }

func renewCertificates(t *testing.T) {
	for _, kept := range []bool{true, false} {
		var passed atomic.Int64
		start := time.Now()
		c := quiet(t.TempDir())
		c.Storage, c.Listener = "memory", newPipes()
		c.Now = func() time.Time { return start.Add(time.Duration(passed.Load())) }
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		file := filepath.Join(c.DataDir, "kubeconfig")
		read := func() string {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		if !kept { // someone has given the entry another address
			text := strings.Replace(read(), s.URL(), "https://elsewhere.example", 1)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		authority, admin := s.Administrator()
		first, before, forwards := shown(t, s, ""), read(), s.certificates.front.own()
		passed.Store(int64(pki.LeafLife*2/3 - time.Hour)) // not yet
		within(t, "a look", func() bool { return !s.certificates.expiry.LastLook().Before(c.Now()) })
		if !shown(t, s, "").Equal(first) || read() != before {
			t.Error("a certificate is renewed too early")
		}
		passed.Store(int64(pki.LeafLife*2/3 + time.Hour))
		within(t, "another serving certificate", func() bool { return !shown(t, s, "").Equal(first) })
		within(t, "another certificate of the administrator", func() bool {
			_, now := s.Administrator()
			return !bytes.Equal(now.Cert, admin.Cert)
		})
		within(t, "another certificate for forwarding", func() bool { return !s.certificates.front.own().Equal(forwards) })
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority)
		if _, err := shown(t, s, "").Verify(x509.VerifyOptions{DNSName: "localhost", Roots: roots,
			CurrentTime: start.Add(pki.LeafLife)}); err != nil {
			t.Errorf("the renewed certificate: %v", err)
		}
		_, now := s.Administrator()
		if name := user(t, with(t, s, now), s, nil); name != administrator {
			t.Errorf("the renewed certificate is that of %q", name)
		}
		want, err := kubeconfig.Merge([]byte(before), s.entry(s.externalURL()))
		if err != nil {
			t.Fatal(err)
		}
		if kept {
			within(t, "the kubeconfig", func() bool { return read() == string(want) })
		} else if within(t, "the loop's next turn", func() bool {
			return !s.certificates.expiry.LastLook().Before(c.Now())
		}); read() != before {
			t.Error("an entry that someone has changed is rewritten")
		}
		if text, err := os.ReadFile(filepath.Join(c.DataDir, "pki", "ca.crt")); err != nil ||
			!bytes.Equal(text, authority) {
			t.Errorf("the authority is another one (%v)", err)
		}
	}
}

// A pair in --cert-dir that the server's own authority has signed is renewed, too, and no other.
//
// SPEC: AUTH-11
func TestCertDirIsRenewed(t *testing.T) { synctest.Test(t, renewCertDir) }

func renewCertDir(t *testing.T) {
	var passed atomic.Int64
	start, dir := time.Now(), t.TempDir()
	s := started(t, func(c *Config) {
		c.CertDir, c.Listener = dir, newPipes()
		c.Now = func() time.Time { return start.Add(time.Duration(passed.Load())) }
	})
	first := shown(t, s, "")
	passed.Store(int64(pki.LeafLife*2/3 + time.Hour))
	within(t, "another serving certificate", func() bool { return !shown(t, s, "").Equal(first) })
	text, err := os.ReadFile(filepath.Join(dir, "apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if block, _ := pem.Decode(text); !bytes.Equal(block.Bytes, shown(t, s, "").Raw) {
		t.Error("the file has another certificate")
	}
}

// Files are used when they change, without a restart and on connections that are open. What is wrong leaves in use what
// was read before, and is in the log.
//
// SPEC: AUTH-11
func TestFilesAreReloaded(t *testing.T) { synctest.Test(t, reloadFiles) }

func reloadFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(at(name+".new"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(at(name+".new"), at(name)); err != nil {
			t.Fatal(err)
		}
	}
	authority := func() *pki.Authority {
		t.Helper()
		a, err := pki.Open("", "other-ca", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	leaf := func(by *pki.Authority, name string, hosts ...string) pki.Pair {
		t.Helper()
		pair, err := by.Leaf(name, pkix.Name{CommonName: name}, hosts)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	serve := func(file, name, host string) {
		pair := leaf(authority(), name, host)
		write(file+".key", string(pair.Key))
		write(file+".crt", string(pair.Cert))
	}
	key := func() string {
		t.Helper()
		made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(made)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
	clients, proxies := []*pki.Authority{authority(), authority()}, []*pki.Authority{authority(), authority()}
	serve("serving", "one", "serving.example")
	serve("named", "one", "named.example")
	write("clients", string(clients[0].PEM))
	write("proxies", string(proxies[0].PEM))
	write("tokens", "sesame,one,u\n")
	write("accounts", key())
	var log lines
	s := started(t, func(c *Config) {
		c.Logger, c.Listener = log.logger(), newPipes()
		c.TLSCertFile, c.TLSKeyFile = at("serving.crt"), at("serving.key")
		c.TLSNamed = []string{at("named.crt") + "," + at("named.key")}
		c.ClientCAFile, c.TokenAuthFile = at("clients"), at("tokens")
		c.FrontProxy = FrontProxy{CAFile: at("proxies"), UserHeaders: []string{"X-Remote-User"}}
		c.ServiceAccounts.SigningKeyFile = at("accounts")
	})
	byClient := []*http.Client{with(t, s, leaf(clients[0], "joe")), with(t, s, leaf(clients[1], "joe"))}
	byProxy := []*http.Client{with(t, s, leaf(proxies[0], "proxy")), with(t, s, leaf(proxies[1], "proxy"))}
	anyone := with(t, s, leaf(authority(), "nobody"))
	forwarded := http.Header{"X-Remote-User": {"ann"}}
	bearer := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
	published := func() string { return page(t, s, "/openid/v1/jwks") }
	keys := published()
	for _, of := range []struct {
		flag   string
		file   string // that gets what is wrong
		change func()
		state  func() string
		want   [2]string
	}{
		{"--tls-cert-file and --tls-private-key-file", "serving.key", func() { serve("serving", "two", "serving.example") },
			func() string { return shown(t, s, "").Subject.CommonName }, [2]string{"one", "two"}},
		{"--tls-sni-cert-key", "named.crt", func() { serve("named", "two", "named.example") },
			func() string { return shown(t, s, "named.example").Subject.CommonName }, [2]string{"one", "two"}},
		{"--client-ca-file", "clients", func() { write("clients", string(clients[1].PEM)) },
			func() string { return user(t, byClient[0], s, nil) + "," + user(t, byClient[1], s, nil) },
			[2]string{"joe,", ",joe"}},
		{"--requestheader-client-ca-file", "proxies", func() { write("proxies", string(proxies[1].PEM)) },
			func() string { return user(t, byProxy[0], s, forwarded) + "," + user(t, byProxy[1], s, forwarded) },
			[2]string{"ann,", ",ann"}},
		{"--token-auth-file", "tokens", func() { write("tokens", "sesame,two,u\n") },
			func() string { return user(t, anyone, s, bearer("sesame")) }, [2]string{"one", "two"}},
		{"--service-account-signing-key-file", "accounts", func() { write("accounts", key()) },
			func() string { return fmt.Sprint(published() == keys) }, [2]string{"true", "false"}},
	} {
		if state := of.state(); state != of.want[0] {
			t.Fatalf("%s: at first %q, want %q", of.flag, state, of.want[0])
		}
		of.change()
		within(t, of.flag, func() bool { return of.state() == of.want[1] })
		// Half of the pair may have been refused before.
		before := len(log.String())
		write(of.file, "line one,\n\"no such thing")
		within(t, of.flag+", refused", func() bool {
			for line := range strings.Lines(log.String()[before:]) {
				if strings.Contains(line, "level=ERROR") && strings.Contains(line, of.flag) && strings.Contains(line, "not used") {
					return true
				}
			}
			return false
		})
		if state := of.state(); state != of.want[1] {
			t.Errorf("%s: with a wrong file %q, want %q", of.flag, state, of.want[1])
		}
	}
}

// What expires soon is in the log when the server starts, by what it is for.
//
// SPEC: AUTH-11
func TestExpiryIsWarnedOf(t *testing.T) {
	dir := t.TempDir()
	old, err := pki.Open(dir, "old-ca", time.Now().Add(-pki.LeafLife+48*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Leaf("server", pkix.Name{CommonName: "given"}, []string{"localhost"}); err != nil {
		t.Fatal(err)
	}
	var log lines
	s := started(t, func(c *Config) {
		c.Logger = log.logger()
		c.TLSCertFile, c.TLSKeyFile = filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	})
	within(t, "a warning", func() bool { return strings.Contains(log.String(), "a certificate expires on") })
	if text := log.String(); !strings.Contains(text, "use=serving") || !strings.Contains(text, "CN=given") ||
		strings.Count(text, "a certificate expires") != 1 {
		t.Errorf("the log has %s", text)
	}
	shows := page(t, s, "/metrics")
	for _, use := range []string{`use="serving"`, `use="administrator"`, `use="own-ca"`, `use="front-proxy-client"`,
		`use="front-proxy-ca"`, `apiserver_client_certificate_expiration_seconds_count 1`} {
		if !strings.Contains(shows, use) {
			t.Errorf("/metrics has no %s", use)
		}
	}
}

// A host that is no part of a URL is not in the kubeconfig, which would be of no use. As the reference, the server
// starts.
//
// SPEC: RUN-1
func TestExternalHostnameThatIsNone(t *testing.T) {
	var log lines
	s := started(t, func(c *Config) { c.ExternalHostname, c.Logger = "a b", log.logger() })
	text, err := os.ReadFile(filepath.Join(s.config.DataDir, "kubeconfig"))
	if err != nil || !strings.Contains(string(text), "server: "+s.URL()) {
		t.Errorf("the kubeconfig is %s (%v)", text, err)
	}
	if !strings.Contains(log.String(), "--external-hostname") {
		t.Errorf("the log does not say so: %s", log.String())
	}
}

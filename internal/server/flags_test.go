package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plinth/internal/etcdstub"
	"plinth/internal/pki"
)

// started starts a server in memory with a changed configuration, and closes it when the test ends.
func started(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	c := quiet(t.TempDir())
	c.Storage = "memory"
	change(&c)
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// anonymous sends a request without credentials.
func anonymous(t *testing.T, s *Server, edit func(*tls.Config)) (*http.Response, error) {
	t.Helper()
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	if edit != nil {
		edit(transport.TLSClientConfig)
	}
	answer, err := (&http.Client{Transport: transport}).Get(s.URL() + "/readyz")
	if err == nil {
		answer.Body.Close()
	}
	return answer, err
}

// The pair in --cert-dir is used if it exists, and created otherwise; half a pair is an error.
//
// SPEC: RUN-1, RUN-2
func TestCertDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	first := started(t, func(c *Config) { c.CertDir = dir })
	for _, name := range []string{"apiserver.crt", "apiserver.key"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	// A client that has the file can verify the server.
	text, err := os.ReadFile(filepath.Join(dir, "apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	trust := func(config *tls.Config) {
		config.InsecureSkipVerify, config.RootCAs = false, x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(text)
	}
	// the second one has another authority
	for _, s := range []*Server{first, started(t, func(c *Config) { c.CertDir = dir })} {
		if _, err := anonymous(t, s, trust); err != nil {
			t.Error(err)
		}
	}
	if again, err := os.ReadFile(filepath.Join(dir, "apiserver.crt")); err != nil || string(again) != string(text) {
		t.Errorf("a pair that was there was replaced (%v)", err)
	}
	if err := os.Remove(filepath.Join(dir, "apiserver.key")); err != nil {
		t.Fatal(err)
	}
	c := quiet(t.TempDir())
	c.CertDir = dir
	if s, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "--cert-dir") {
		s.Close()
		t.Errorf("half a pair: %v", err)
	}
}

// SPEC: RUN-1
func TestTLSFlags(t *testing.T) {
	dir := t.TempDir()
	other, err := pki.Open(dir, "other-ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	files := func(name string, hosts ...string) string {
		if _, err := other.Leaf(name, pkix.Name{CommonName: name}, hosts); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name+".crt") + "," + filepath.Join(dir, name+".key")
	}
	s := started(t, func(c *Config) {
		c.TLSMinVersion, c.DisableHTTP2 = "VersionTLS13", true
		c.TLSNamed = []string{files("own", "own.example", "wild.example"),
			files("given", "given.example") + ":Wild.example,*.any.example"}
	})
	for name, want := range map[string]string{
		"own.example": "own", "wild.example": "given", "a.any.example": "given", "any.example": "plinth",
		"other.example": "plinth", "": "plinth",
	} {
		answer, err := anonymous(t, s, func(config *tls.Config) { config.ServerName = name })
		if err != nil {
			t.Fatal(err)
		}
		if got := answer.TLS.PeerCertificates[0].Subject.CommonName; got != want || answer.ProtoMajor != 1 {
			t.Errorf("%q: the certificate of %s, HTTP/%d", name, got, answer.ProtoMajor)
		}
	}
	if _, err := anonymous(t, s, func(config *tls.Config) { config.MaxVersion = tls.VersionTLS12 }); err == nil {
		t.Error("TLS 1.2 is spoken")
	}
	s = started(t, func(c *Config) {
		c.TLSCipherSuites, c.TLSCurves = []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, []int32{int32(tls.CurveP384)}
	})
	// Without HTTP/2, and where TLS 1.2 is not spoken, any suites will do. Insecure ones are warned of.
	for _, change := range []func(c *Config){
		func(c *Config) { c.DisableHTTP2 = true }, func(c *Config) { c.TLSMinVersion = "VersionTLS13" },
	} {
		var log bytes.Buffer
		c := quiet(t.TempDir())
		c.TLSCipherSuites, c.Logger = []string{"TLS_RSA_WITH_AES_128_CBC_SHA256"}, slog.New(slog.NewTextHandler(&log, nil))
		change(&c)
		config, err := c.tls()
		if err != nil {
			t.Fatal(err)
		}
		c.warnOfSuites(config.CipherSuites)
		if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, c.TLSCipherSuites[0]) {
			t.Errorf("the log says nothing of an insecure suite: %s", text)
		}
	}
	// The reference's older name of a suite that today ends in SHA256.
	old := started(t, func(c *Config) {
		c.TLSCipherSuites, c.DisableHTTP2 = []string{"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"}, true
	})
	answer, err := anonymous(t, old, func(config *tls.Config) { config.MaxVersion = tls.VersionTLS12 })
	if err != nil || answer.TLS.CipherSuite != tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 {
		t.Errorf("suite %x, %v", answer.TLS.CipherSuite, err)
	}
	answer, err = anonymous(t, s, func(config *tls.Config) { config.MaxVersion = tls.VersionTLS12 })
	if err != nil || answer.TLS.CipherSuite != tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 ||
		answer.TLS.CurveID != tls.CurveP384 {
		t.Errorf("suite %x, curve %s, %v", answer.TLS.CipherSuite, answer.TLS.CurveID, err)
	}
}

// SPEC: RUN-1, AUTH-1
func TestAccessFlags(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   map[string]int // by token, of a list of namespaces and of /readyz
	}{
		"RBAC": {func(*Config) {}, map[string]int{"": 403200, "jane": 403200, "root": 200200}},
		"Node": {func(c *Config) { c.AuthorizationModes = []string{"Node"} },
			map[string]int{"": 403403, "jane": 403403, "root": 200200}},
		"AlwaysDeny": {func(c *Config) { c.AuthorizationModes = []string{"AlwaysDeny"} },
			map[string]int{"": 403403, "jane": 403403, "root": 200200}},
		"AlwaysAllow": {func(c *Config) { c.AuthorizationModes = []string{"AlwaysAllow"} },
			map[string]int{"": 401401, "jane": 200200, "root": 200200}},
		"no anonymous": {func(c *Config) { c.AnonymousAuth = false },
			map[string]int{"": 401401, "jane": 403200, "root": 200200}},
	} {
		tokens := filepath.Join(t.TempDir(), "tokens.csv")
		if err := os.WriteFile(tokens, []byte("jane,jane,1\nroot,root,2,system:masters\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := started(t, func(config *Config) { config.TokenAuthFile = tokens; c.change(config) })
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		for token, want := range c.want {
			got := 0
			for _, path := range []string{"/api/v1/namespaces", "/readyz"} {
				r, _ := http.NewRequest("GET", s.URL()+path, nil)
				if token != "" {
					r.Header.Set("Authorization", "Bearer "+token)
				}
				answer, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				answer.Body.Close()
				got = got*1000 + answer.StatusCode
			}
			if got != want {
				t.Errorf("%s: %q gets %d, want %d", name, token, got, want)
			}
		}
		client.CloseIdleConnections()
	}
}

// Versions of the API are enabled and disabled by --runtime-config; unknown ones are logged.
//
// SPEC: RUN-4
func TestRuntimeConfig(t *testing.T) {
	var log strings.Builder
	s := started(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		c.Versions.Pairs = []string{"api/all=false", "v1=true", "apps/v1/deployments=true", "batch/v1",
			"batch/v1/cronjobs=false", "x.example/v1alpha1=true"}
	})
	client := clientOf(t, s)
	for path, code := range map[string]int{
		"/api/v1/namespaces": 200, "/apis/apps/v1/deployments": 200, "/apis/apps/v1/replicasets": 404,
		"/apis/batch/v1/jobs":     200,
		"/apis/batch/v1/cronjobs": 404, "/apis/policy/v1": 404, "/apis/apps/v1": 200,
	} {
		answer, err := client.send(t.Context(), http.MethodGet, path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != code {
			t.Errorf("%s: %s, want %d", path, answer.Status, code)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "[x.example/v1alpha1]") {
		t.Errorf("the log says\n%s", text)
	}
	for text, want := range map[string]string{"v1=false": "namespaces", "a/b=x": "neither true nor false",
		"a": "neither GROUP/VERSION"} {
		c := quiet(t.TempDir())
		c.Versions.Pairs = []string{text}
		if s, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", text, s, err)
		}
	}
}

// SPEC: RUN-1
func TestOtherFlags(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "debug.sock")
	s := started(t, func(c *Config) {
		c.ExternalHostname, c.CORSAllowedOrigins, c.DebugSocket, c.GoawayChance = "api.example",
			[]string{`^https://good\.example$`}, socket, 0.02
		c.PermitAddressSharing, c.PermitPortSharing = true, true
	})
	client := clientOf(t, s)
	for origin, want := range map[string]string{"https://good.example": "https://good.example 204",
		"https://bad.example": " 403", "": " 403"} {
		r, _ := http.NewRequest(http.MethodOptions, s.URL()+"/api", nil)
		r.Header.Set("Origin", origin)
		answer, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}).Do(
			r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if got := fmt.Sprint(answer.Header.Get("Access-Control-Allow-Origin"), " ", answer.StatusCode); got != want {
			t.Errorf("a page of %q gets %s", origin, got)
		}
	}
	answer, err := client.send(t.Context(), http.MethodGet, "/api", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	if !strings.Contains(string(text), `"serverAddress":"api.example:`) {
		t.Errorf("discovery says %s", text)
	}
	connections := map[string]bool{}
	for range 500 { // one in 50 ends its connection
		answer, err := client.send(t.Context(), http.MethodGet, "/readyz", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.Header.Get("Connection") == "close" {
			t.Error("a client sees the header")
		}
		connections[string(answer.TLS.PeerCertificates[0].Raw)+fmt.Sprintf("%p", answer.TLS)] = true
	}
	if len(connections) < 2 {
		t.Error("no connection was ended")
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /debug/pprof/cmdline HTTP/1.0\r\n\r\n")
	if profile, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || profile.StatusCode != 200 {
		t.Errorf("the socket answers %v, %v", profile, err)
	}
	second := started(t, func(c *Config) { // SO_REUSEPORT
		c.PermitPortSharing, c.SecurePort = true, s.listener.Addr().(*net.TCPAddr).Port
	})
	if second.URL() != s.URL() {
		t.Errorf("%s and %s", s.URL(), second.URL())
	}
}

// A server that is asked to stop continues to serve for a while, and is not ready meanwhile.
//
// SPEC: RUN-1
func TestShutdownDelay(t *testing.T) {
	c := quiet(t.TempDir())
	c.Storage, c.ShutdownDelay = "memory", 300*time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	lines, out := io.Pipe()
	done := make(chan error, 1)
	s, err := Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- s.Serve(ctx, out); out.Close() }()
	said := bufio.NewScanner(lines)
	said.Scan()
	_, rest, _ := strings.Cut(said.Text(), " at ")
	url, _, _ := strings.Cut(rest, " ")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	stop()
	began := time.Now()
	for said.Scan() && !strings.Contains(said.Text(), "closing") {
	}
	go io.Copy(io.Discard, lines)
	time.Sleep(50 * time.Millisecond) // it prints this just before
	for path, want := range map[string]int{"/readyz": 500, "/livez": 200} {
		answer, err := client.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
	if err := <-done; err != nil || time.Since(began) < c.ShutdownDelay {
		t.Errorf("it ended after %s: %v", time.Since(began), err)
	}
}

// A server that cannot accept connections any more ends, with an error, also while it waits to close.
//
// SPEC: RUN-1
func TestServingFails(t *testing.T) {
	for what, stopped := range map[string]bool{"serving": false, "closing": true} {
		c := quiet(t.TempDir())
		c.Storage, c.ShutdownDelay = "memory", time.Hour
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if stopped {
			stop()
		}
		if err := s.listener.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Serve(ctx, io.Discard); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Data is stored in the directory that the etcd stub returns, separately for each prefix; and objects exist after a
// restart.
//
// SPEC: RUN-2
func TestEtcdServers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := "http://" + l.Addr().String()
	l.Close()
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- etcdstub.Serve(ctx, etcdstub.Config{DataDir: dir, NoSync: true, URLs: []string{at}}) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	with := func(prefix string) *Server {
		c := quiet("")
		c.Etcd.Servers, c.Etcd.Prefix = []string{at}, prefix
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	twice := quiet(t.TempDir())
	twice.DataDirGiven, twice.Etcd.Servers = true, []string{at}
	if _, err := Start(t.Context(), twice); err == nil || !strings.Contains(err.Error(),
		"--data-dir and --etcd-servers: only one of them") {
		t.Errorf("two directories: %v", err)
	}
	s := with("/registry")
	body := jsonObject{"metadata": map[string]any{"name": "kept"}}
	if _, _, err := clientOf(t, s).do(t.Context(), http.MethodPost, "/api/v1/namespaces", "application/json", body,
		201); err != nil {
		t.Fatal(err)
	}
	other := with("/../other")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = with("registry/")
	for server, code := range map[*Server]int{s: 200, other: 404} {
		if _, _, err := clientOf(t, server).do(t.Context(), http.MethodGet, "/api/v1/namespaces/kept", "", nil,
			code); err != nil {
			t.Error(err)
		}
		if !server.config.noSync || filepath.Dir(server.config.DataDir) != dir {
			t.Errorf("kept in %s, unsynced %v", server.config.DataDir, server.config.noSync)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A setting that would restrict access and is not implemented is an error that names it.
//
// SPEC: RUN-1
func TestRefusedSettings(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"ABAC's authorization policy file not passed": func(c *Config) {
			c.AuthorizationModes = []string{"RBAC", "ABAC"}
		},
		"cannot specify --authorization-policy-file without mode ABAC": func(c *Config) {
			c.AuthorizationPolicyFile = "/nowhere"
		},
		"open /elsewhere: no such file": func(c *Config) {
			c.AuthorizationModes, c.AuthorizationPolicyFile = []string{"ABAC"}, "/elsewhere"
		},
		"Webhook's authorization config file not": func(c *Config) {
			c.AuthorizationModes = []string{"RBAC",
				"Webhook"}
		},
		"at least one authorization-mode": func(c *Config) { c.AuthorizationModes = nil },
		`has mode specified more than once`: func(c *Config) {
			c.AuthorizationModes = []string{"RBAC", "RBAC"}
		},
		"authorization-webhook-config-file without": func(c *Config) { c.AuthorizationWebhook.ConfigFile = "/nowhere" },
		"open /nowhere: no such file":               func(c *Config) { c.AuthorizationConfig = "/nowhere" },
		`authorization-mode "rbac" is not a valid`:  func(c *Config) { c.AuthorizationModes = []string{"rbac"} },

		`there is no admission plugin "Nope"`: func(c *Config) { c.DisableAdmission = []string{"Nope"} },
		"--admission-control goes with neither": func(c *Config) {
			c.AdmissionControl, c.DisableAdmission = []string{"AlwaysAdmit"}, []string{"Priority"}
		},
		"--allow-privileged=false": func(c *Config) { c.AllowPrivileged = false },
		"--storage-media-type: application/yaml is not supported": func(c *Config) {
			c.Etcd.MediaType = "application/yaml"
		},
		"--storage: memory cannot be combined with --etcd-servers": func(c *Config) {
			c.Storage, c.Etcd.Servers = "memory",
				[]string{"http://a"}
		},
		"--etcd-servers-overrides: \"events#http://a\" is not of the form": func(c *Config) {
			c.Etcd.Overrides = []string{"events#http://a"}
		},
		"--etcd-servers-overrides: \"/events#http://a;\" is not of the form": func(c *Config) {
			c.Etcd.Overrides = []string{"/events#http://a;"}
		},
		"--etcd-servers-overrides: /pods cannot be in another etcd": func(c *Config) {
			c.Etcd.Overrides = []string{"/pods#http://a"}
		},
		"--etcd-servers-overrides: there is no --etcd-servers": func(c *Config) {
			c.Etcd.Overrides = []string{"/events#http://a"}
		},
		"--etcd-servers or --data-dir":                   func(c *Config) { c.DataDir, c.Storage = "", "embedded" },
		"--etcd-certfile and --etcd-keyfile go together": func(c *Config) { c.Etcd.CertFile = "a" },
		"--tls-min-version":                              func(c *Config) { c.TLSMinVersion = "1.2" },
		"--tls-cipher-suites":                            func(c *Config) { c.TLSCipherSuites = []string{"RC5"} },
		"--tls-cipher-suites: HTTP/2 needs one of TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 and": func(c *Config) {
			c.TLSCipherSuites = []string{"TLS_RSA_WITH_AES_128_CBC_SHA256"}
		},
		"--tls-curve-preferences":                          func(c *Config) { c.TLSCurves = []int32{1} },
		"--cors-allowed-origins":                           func(c *Config) { c.CORSAllowedOrigins = []string{"example"} },
		"--goaway-chance":                                  func(c *Config) { c.GoawayChance = 0.5 },
		"--shutdown-delay-duration":                        func(c *Config) { c.ShutdownDelay = -1 },
		"--max-mutating-requests-inflight: -1 is negative": func(c *Config) { c.MaxMutatingInflight = -1 },
		"their sum has to be positive": func(c *Config) {
			c.MaxMutatingInflight,
				c.MaxRequestsInflight = 0, 0
		},
		"--http2-max-streams-per-connection: -1 is negativ": func(c *Config) { c.HTTP2MaxStreams = -1 },
		`--advertise-address: "here"`:                       func(c *Config) { c.AdvertiseAddress = "here" },
		"--storage-initialization-timeout":                  func(c *Config) { c.Etcd.Timeout = 0 },
		`"job-controller" is not in the list of known con`: func(c *Config) {
			c.Controllers = []string{"*",
				"job-controller"}
		},
		"--service-cluster-ip-range: 10.0.0.0/31 has fe":    func(c *Config) { c.Services.ClusterIPRange = "10.0.0.1/31" },
		`--service-cluster-ip-range: netip.ParsePrefix("x"`: func(c *Config) { c.Services.ClusterIPRange = "10.0.0.0/24,x" },
		"--kubernetes-service-node-port: -1 is negative":    func(c *Config) { c.Services.NodePort = -1 },
		"--tls-sni-cert-key":                                func(c *Config) { c.TLSNamed = []string{"only"} },
		"--etcd-servers: http://127.0.0.1:1": func(c *Config) {
			c.Etcd.Servers,
				c.Etcd.Timeout = []string{"http://127.0.0.1:1"}, time.Millisecond
		},
	} {
		c := quiet(t.TempDir())
		c.Storage = "memory"
		if strings.Contains(want, "127.0.0.1") {
			c.Storage = "embedded"
		}
		change(&c)
		s, err := Start(t.Context(), c)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The Service kubernetes leads to the server, from the beginning and after a restart at another address; additions by
// other writers are kept. The Service itself is, as in the reference, never changed: its endpoints have the address of
// the server.
//
// SPEC: RUN-1, RUN-2
func TestServiceKubernetes(t *testing.T) {
	c := quiet(t.TempDir())
	c.Services.ClusterIPRange, c.AdvertiseAddress = "fd00::/108,10.1.0.0/16", "192.0.2.7"
	first := 0
	for round := range 3 {
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		client := clientOf(t, s)
		port := s.listener.Addr().(*net.TCPAddr).Port
		if round == 0 {
			first = port
		}
		for path, want := range map[string][]string{
			"/api/v1/namespaces/default/services/kubernetes": {
				`"clusterIPs":["fd00::1"]`, `"ipFamilies":["IPv6"]`,
				fmt.Sprintf(`"port":443,"protocol":"TCP","targetPort":%d}`, first),
				`"component":"apiserver"`, `"provider":"kubernetes"`, `"manager":"kube-apiserver","operation":"Update"`,
			},
			"/api/v1/namespaces/default/endpoints/kubernetes": {
				fmt.Sprintf(`"subsets":[{"addresses":[{"ip":"192.0.2.7"}],"ports":[{"name":"https","port":%d,"protocol":"TCP"}]}]`,
					port),
			},
			"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes": {
				`"addressType":"IPv4"`, `"addresses":["192.0.2.7"],"conditions":{"ready":true}`, fmt.Sprintf(`"port":%d`, port),
				`"kubernetes.io/service-name":"kubernetes"`,
			},
		} {
			answer, err := client.send(t.Context(), http.MethodGet, path, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			for _, part := range want {
				if !strings.Contains(string(text), part) {
					t.Errorf("round %d: no %s in %s", round, part, text)
				}
			}
			if round > 0 && !strings.Contains(string(text), `"mine":"x"`) {
				t.Errorf("round %d: a label is gone: %s", round, text)
			}
			mine := jsonObject{"metadata": map[string]any{"labels": map[string]any{"mine": "x"}}}
			if _, _, err := client.do(t.Context(), http.MethodPatch, path, "application/merge-patch+json", mine,
				200); err != nil {
				t.Error(err)
			}
		}
		client.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := started(t, func(c *Config) { c.Services.NodePort, c.EndpointReconciler = 30001, "none" })
	client := clientOf(t, s)
	if _, _, err := client.do(t.Context(), http.MethodGet, "/api/v1/namespaces/default/endpoints/kubernetes", "", nil,
		404); err != nil {
		t.Error(err)
	}
	_, service, err := client.do(t.Context(), http.MethodGet, "/api/v1/namespaces/default/services/kubernetes",
		"", nil, 200)
	if err != nil || service.text("spec", "type") != "NodePort" || service.text("spec", "clusterIP") != "10.0.0.1" {
		t.Errorf("%v, %v", service, err)
	}
}

// A server whose address is of the other IP family than before is ready: the EndpointSlice, whose addressType is
// immutable, is made again; the Endpoints are changed.
//
// SPEC: RUN-1, RUN-2
func TestServiceKubernetesOfTheOtherFamily(t *testing.T) {
	c := quiet(t.TempDir())
	uids := map[string]bool{}
	for _, round := range []struct{ ranges, address, family string }{
		{"10.0.0.0/29,fd00::/125", "192.0.2.7", "IPv4"},
		{"fd00::/125,10.0.0.0/29", "2001:db8::7", "IPv6"},
		{"10.0.0.0/29", "192.0.2.8", "IPv4"},
	} {
		c.Services.ClusterIPRange, c.AdvertiseAddress = round.ranges, round.address
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		client := clientOf(t, s)
		answer, err := client.send(t.Context(), http.MethodGet, "/readyz?verbose", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != 200 {
			t.Errorf("%s: not ready: %s", round.address, text)
		}
		_, slice, err := client.do(t.Context(), http.MethodGet,
			"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes", "", nil, 200)
		if err != nil || slice.text("addressType") != round.family ||
			fmt.Sprint(slice.at("endpoints")) != "[map[addresses:["+round.address+"] conditions:map[ready:true]]]" {
			t.Errorf("%s: the slice %v, %v", round.address, slice, err)
		}
		uids[slice.text("metadata", "uid")] = true
		_, endpoints, err := client.do(t.Context(), http.MethodGet, "/api/v1/namespaces/default/endpoints/kubernetes", "",
			nil, 200)
		if err != nil || !strings.Contains(fmt.Sprint(endpoints.at("subsets")), "[map[ip:"+round.address+"]]") {
			t.Errorf("%s: the endpoints %v, %v", round.address, endpoints, err)
		}
		client.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(uids) != 3 {
		t.Errorf("%d slices in three rounds", len(uids))
	}
}

// A namespace that is being deleted is removed if a controller runs that empties it, and stays otherwise:
// kube-apiserver leaves that to kube-controller-manager.
//
// SPEC: DEL-5, RUN-2
func TestControllers(t *testing.T) {
	for list, goes := range map[string]bool{
		"*": true, "namespace-controller": true, "*,-namespace-controller": false, "": false,
		// the first counts
		"-namespace-controller,namespace-controller,*": false, "namespace-controller,-namespace-controller": true,
		"namespace": true, "*,-namespace": false, "*,-garbage-collector-controller": true, "garbagecollector": false,
	} {
		s := started(t, func(c *Config) {
			if c.Controllers = nil; list != "" {
				c.Controllers = strings.Split(list, ",")
			}
		})
		client := clientOf(t, s)
		body := jsonObject{"metadata": map[string]any{"name": "n"}}
		if _, _, err := client.do(t.Context(), http.MethodPost, "/api/v1/namespaces", "application/json", body,
			201); err != nil {
			t.Fatal(err)
		}
		if _, _, err := client.do(t.Context(), http.MethodDelete, "/api/v1/namespaces/n", "", nil, 200); err != nil {
			t.Fatal(err)
		}
		code := 200
		for until := time.Now().Add(10 * time.Second); code == 200 &&
			time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
			var err error
			if code, _, err = client.do(t.Context(), http.MethodGet, "/api/v1/namespaces/n", "", nil, 200, 404); err != nil {
				t.Fatal(err)
			}
			if !goes {
				until = until.Add(-time.Second) // a few checks are enough
			}
		}
		if code == 404 != goes {
			t.Errorf("--controllers=%s: the namespace answers %d", list, code)
		}
	}
}

// A version that is off by default is served if --runtime-config turns it on; the objects are the same in each version.
// A kind is gone while its feature gate is off.
//
// SPEC: RUN-4
func TestBetaVersions(t *testing.T) {
	const v1 = "/apis/certificates.k8s.io/v1/clustertrustbundles"
	const v1beta1 = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles"
	off, client := inMemory(t, nil)
	defer closed(t, off, client)
	told(t, ask(t, off, client, http.MethodPost, v1, `{"metadata": {"name": "b"}, "spec": {"trustBundle": "x"}}`, 422))
	told(t, ask(t, off, client, http.MethodGet, v1, "", 200))
	told(t, ask(t, off, client, http.MethodGet, v1beta1, "", 404))

	on, client := inMemory(t, func(c *Config) { c.Versions.Pairs = []string{"resource.k8s.io/v1beta2=true"} })
	defer closed(t, on, client)
	const rule = `{"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoSchedule"}}}`
	const stable, beta = "/apis/resource.k8s.io/v1/devicetaintrules", "/apis/resource.k8s.io/v1beta2/devicetaintrules"
	for path, version := range map[string]string{stable: "v1", beta: "v1beta2"} {
		want := `"apiVersion":"resource.k8s.io/` + version + `"`
		name := "of-" + version
		made := told(t, ask(t, on, client, http.MethodPost, path, strings.Replace(rule, `"r"`, `"`+name+`"`, 1), 201))
		if !strings.Contains(made, want) {
			t.Errorf("%s: created is %s", path, made)
		}
	}
	for path, version := range map[string]string{stable: "v1", beta: "v1beta2"} {
		want := `"apiVersion":"resource.k8s.io/` + version + `"`
		for _, name := range []string{"of-v1", "of-v1beta2"} {
			if got := told(t, ask(t, on, client, http.MethodGet, path+"/"+name, "", 200)); !strings.Contains(got, want) {
				t.Errorf("%s/%s: %s", path, name, got)
			}
		}
		if list := told(t, ask(t, on, client, http.MethodGet, path, "", 200)); strings.Count(list, `"name":"of-`) != 2 {
			t.Errorf("the list of %s is %s", path, list)
		}
	}
	without, client := inMemory(t, func(c *Config) {
		c.FeatureGates = []string{"ClusterTrustBundle=false", "ClusterTrustBundleProjection=false"}
	})
	defer closed(t, without, client)
	told(t, ask(t, without, client, http.MethodGet, v1, "", 404))
}

package plane

import (
	"bufio"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/addresses"
	"plinth/internal/admission"
	"plinth/internal/auth"
	"plinth/internal/auth/serviceaccount"
	"plinth/internal/authz"
	"plinth/internal/egress"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/initial"
	"plinth/internal/nodes"
	"plinth/internal/pki"
	"plinth/internal/storage"
)

// served is a plane in memory behind a port, whose clients are all system:masters.
type served struct {
	*Plane
	t    *testing.T
	http *httptest.Server
}

// configOf is the configuration of a plane without a storage.
func configOf(t *testing.T) Config {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := serviceaccount.NewStaticKeys([]crypto.PublicKey{private.Public()}, private)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.Open("", "plinth-ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	gates, _, err := features.Parse("")
	if err != nil {
		t.Fatal(err)
	}
	roles, err := authz.New(authz.FromModes([]authz.Mode{authz.RBAC}, nil),
		authz.Options{Logger: logger, Features: gates})
	if err != nil {
		t.Fatal(err)
	}
	services, err := new(addresses.Flags).Config()
	if err != nil {
		t.Fatal(err)
	}
	return Config{Features: gates, Releases: features.Current, Logger: logger, Addresses: services, Authority: roles,
		Self:           initial.Self{Port: 443, Trusted: func() (clients, proxies []byte) { return authority.PEM, nil }},
		Address:        "localhost:443",
		Authentication: auth.Config{Clients: auth.NewAuthorities(authority.Certificate), Audiences: []string{"here"}},
		Accounts:       Accounts{Keys: keys, Static: keys, Issuers: []string{"here"}},
		Signer:         Signer{Certificate: authority.Certificate, Key: authority.Key, Bundle: authority.PEM},
		Admission:      admission.Config{Selection: admission.Selection{Disabled: []string{"ServiceAccount"}}},
		Controllers:    Controllers{"-namespace-controller"},
		Nodes:          nodes.Config{Kubelets: nodes.DefaultKubelets()}}
}

func serve(t *testing.T, change func(*Config)) *served {
	t.Helper()
	c := configOf(t)
	c.Storage = func(ctx context.Context, types *engine.Registry, define engine.Define) (*storage.Storage, error) {
		return storage.Open(ctx, storage.Config{HistoryBytes: 1 << 20, Registry: types, Define: define, Logger: c.Logger,
			FirstNodePort: c.Addresses.FirstPort, LastNodePort: c.Addresses.LastPort})
	}
	if change != nil {
		change(&c)
	}
	p, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s := &served{Plane: p, t: t}
	masters := &access.Identity{User: access.User{Name: "admin", Groups: []string{access.Masters, access.Authenticated}}}
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.Handler().ServeHTTP(w, r.WithContext(auth.As(r.Context(), masters)))
	}))
	t.Cleanup(func() {
		p.Quit()
		s.http.Close()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// send sends a request and returns the answer.
func (s *served) send(method, path, body string) (code int, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.http.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := s.http.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(got)
}

// make creates an object.
func (s *served) make(path, body string) {
	s.t.Helper()
	if code, text := s.send(http.MethodPost, path, body); code != http.StatusCreated {
		s.t.Fatalf("POST %s: %d %s", path, code, text)
	}
}

// upgrade sends a request that upgrades its connection, and returns the answer.
func (s *served) upgrade(path string) (code int, text string) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.http.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", path)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return answer.StatusCode, ""
	}
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(got)
}

// target is a program at a loopback address: a webhook, an aggregated API server and a kubelet in one.
type target struct {
	*httptest.Server
	port     int
	caBundle string
	arrived  atomic.Int64 // connections
}

// counter is a listener that counts connections.
type counter struct {
	net.Listener
	n *atomic.Int64
}

func (c counter) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}

func newTarget(t *testing.T) *target {
	x := &target{}
	x.Server = httptest.NewUnstartedServer(x)
	x.Listener = counter{x.Listener, &x.arrived}
	x.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that end early
	authority, err := pki.Open("", "back-ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := authority.Leaf("back", pkix.Name{CommonName: "back"}, []string{"127.0.0.1", "back.default.svc"})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		t.Fatal(err)
	}
	x.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	x.StartTLS()
	t.Cleanup(x.Close)
	x.port = x.Server.Listener.Addr().(*net.TCPAddr).Port
	x.caBundle = base64.StdEncoding.EncodeToString(authority.PEM)
	return x
}

func (x *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Header.Get("Upgrade") != "":
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "SPDY/3.1")
		w.WriteHeader(http.StatusSwitchingProtocols)
	case r.Method == http.MethodPost:
		var review struct {
			APIVersion, Kind string
			Request          struct {
				UID, DesiredAPIVersion string
				Objects                []map[string]any
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, o := range review.Request.Objects {
			o["apiVersion"] = review.Request.DesiredAPIVersion
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind,
			"response": map[string]any{"uid": review.Request.UID, "allowed": true,
				"convertedObjects": review.Request.Objects, "result": map[string]any{"status": "Success"}}})
	default:
		io.WriteString(w, `{"kind":"ThingList","apiVersion":"back.example.com/v1","metadata":{},"items":[]}`)
	}
}

// hook registers a validating webhook for ConfigMaps of a name.
func (s *served) hook(name, client string) {
	s.make("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
		`{"metadata":{"name":"`+name+`"},"webhooks":[{"name":"a.example.com","sideEffects":"None","timeoutSeconds":30,
			"admissionReviewVersions":["v1"],"clientConfig":`+client+`,
			"matchConditions":[{"name":"n","expression":"object.metadata.name == '`+name+`'"}],
			"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]}]}`)
}

// outgoing makes the objects that name a target at a loopback address, and are the requests that go there.
func outgoing(s *served, x *target) map[string]func() (code int, text string) {
	port := strconv.Itoa(x.port)
	s.make("/api/v1/namespaces/default/services", `{"metadata":{"name":"back"},"spec":{"type":"ExternalName",
		"externalName":"localhost","ports":[{"port":`+port+`}]}}`)
	service := `"service":{"namespace":"default","name":"back","port":` + port + `}`
	s.hook("url", `{"url":"https://127.0.0.1:`+port+`/","caBundle":"`+x.caBundle+`"}`)
	s.hook("service", `{`+service+`,"caBundle":"`+x.caBundle+`"}`)
	s.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"things.example.com"},
		"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"things","kind":"Thing"},
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":
		{"url":"https://127.0.0.1:`+port+`/","caBundle":"`+x.caBundle+`"}}},"versions":[
		{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},
		{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	s.make("/apis/example.com/v1/things", `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"}}`)
	s.make("/apis/apiregistration.k8s.io/v1/apiservices", `{"metadata":{"name":"v1.back.example.com"},"spec":{
		"group":"back.example.com","version":"v1","groupPriorityMinimum":1,"versionPriority":1,
		"insecureSkipTLSVerify":true,`+service+`}}`)
	available := `{"status":{"conditions":[{"type":"Available","status":"True","reason":"x","message":"x",
		"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	const status = "/apis/apiregistration.k8s.io/v1/apiservices/v1.back.example.com/status"
	if code, text := s.patch(status, available); code != 200 {
		s.t.Fatalf("%d %s", code, text)
	}
	s.make("/api/v1/nodes", `{"metadata":{"name":"here"},"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],
		"daemonEndpoints":{"kubeletEndpoint":{"Port":`+port+`}}}}`)
	s.make("/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{"nodeName":"here",
		"containers":[{"name":"c","image":"i"}]}}`)
	create := func(name string) func() (int, string) {
		return func() (int, string) {
			return s.send(http.MethodPost, "/api/v1/namespaces/default/configmaps?dryRun=All",
				`{"metadata":{"name":"`+name+`"}}`)
		}
	}
	get := func(path string) func() (int, string) {
		return func() (int, string) { return s.send(http.MethodGet, path, "") }
	}
	return map[string]func() (int, string){
		"a webhook": create("url"), "a webhook of a Service": create("service"),
		"a conversion webhook": get("/apis/example.com/v2/things/a"),
		"an APIService":        get("/apis/back.example.com/v1/things"),
		"a log of a kubelet":   get("/api/v1/namespaces/default/pods/p/log"),
		"a command at a kubelet": func() (int, string) {
			return s.upgrade("/api/v1/namespaces/default/pods/p/exec?command=x&stdout=true")
		},
	}
}

func (s *served) patch(path, body string) (code int, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPatch, s.http.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := s.http.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(got)
}

// Whatever a plane connects to, its policy is asked: what is at a loopback address is reached without a restriction,
// and gets no connection with one.
//
// SPEC: BEY-9
func TestEgress(t *testing.T) {
	for _, restricted := range []bool{false, true} {
		x := newTarget(t)
		s := serve(t, func(c *Config) {
			if restricted {
				c.Egress = egress.Restrict(nil)
			}
		})
		all := outgoing(s, x)
		x.arrived.Store(0)
		for name, send := range all {
			code, text := send()
			switch arrived := x.arrived.Swap(0); {
			case restricted && (arrived > 0 || code < 400 || !strings.Contains(text, egress.ErrRefused.Error())):
				t.Errorf("%s with a restriction: %d connections, %d %s", name, arrived, code, text)
			case !restricted && (arrived == 0 || code >= 400):
				t.Errorf("%s: %d connections, %d %s", name, arrived, code, text)
			}
			x.CloseClientConnections() // the next one opens its own
		}
		refused := 0
		_, text := s.send(http.MethodGet, "/api/v1/componentstatuses", "")
		if restricted {
			refused = 2 // the managers of this machine, which are asked at a loopback address
		}
		if n := strings.Count(text, egress.ErrRefused.Error()); n != refused {
			t.Errorf("of the components %d are refused, want %d: %s", n, refused, text)
		}
	}
}

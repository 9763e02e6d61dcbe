package peerproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
	"plinth/internal/aggregation"
	"plinth/internal/apierr"
	"plinth/internal/discovery"
	"plinth/internal/pki"
	"plinth/object"
)

// cluster has the peers of a test.
type cluster struct {
	t         *testing.T
	authority *pki.Authority
	proxy     *Proxy

	mu      sync.Mutex
	servers map[string]string // addresses by identity
	shared  *Versions
	counts  map[string]int
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, servers: map[string]string{}, counts: map[string]int{}}
	pair, err := pki.New("peers", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if c.authority, err = pki.Given(pair, "", time.Now()); err != nil {
		t.Fatal(err)
	}
	certificate := c.leaf("front-proxy-client", nil)
	count := func(format string, args ...any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.counts[fmt.Sprintf(format, args...)]++
	}
	c.proxy = New(Config{
		Certificate: func() (*tls.Certificate, error) { return certificate, nil },
		AddressOf: func(_ context.Context, identity string) (string, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if address := c.servers[identity]; address != "" {
				return address, nil
			}
			return "", errors.New("there is no such key")
		},
		Shared: func() *Versions {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.shared
		},
		Logger: slog.New(slog.DiscardHandler),
		Metrics: Metrics{
			Rerouted:   func(code int, g, v, r string) { count("rerouted %d %s/%s/%s", code, g, v, r) },
			Unlocated:  func(g, v, r string) { count("unlocated %s/%s/%s", g, v, r) },
			SyncFailed: func(kind string) { count("unsynced %s", kind) },
		},
	})
	c.proxy.Trust(c.pool())
	return c
}

func (c *cluster) leaf(name string, hosts []string) *tls.Certificate {
	c.t.Helper()
	pair, err := c.authority.Leaf(name, pkix.Name{CommonName: name}, hosts)
	if err != nil {
		c.t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	return &certificate
}

func (c *cluster) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.authority.Certificate)
	return pool
}

// peer starts a server that says at /apis that it serves this, GROUP/VERSION/RESOURCE, and answers other requests with
// handler.
func (c *cluster) peer(identity string, handler http.HandlerFunc, serves ...string) *httptest.Server {
	c.t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api", "/apis":
			if !strings.HasPrefix(r.Header.Get("Accept"), ownOnly+",") || r.Header.Get(Forwarded) != "true" ||
				r.Header.Get("X-Remote-User") != "system:apiserver" || r.TLS.PeerCertificates == nil {
				http.Error(w, fmt.Sprint(r.Header), http.StatusBadRequest)
				return
			}
			groups := serves
			if r.URL.Path == "/api" {
				groups = []string{"/v1/pods"}
			}
			_, _ = w.Write(document(groups...))
		default:
			handler(w, r)
		}
	}))
	s.Config.ErrorLog, s.EnableHTTP2 = log.New(io.Discard, "", 0), true
	s.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: c.pool(),
		Certificates: []tls.Certificate{*c.leaf("peer", []string{serverName})}}
	s.StartTLS()
	c.t.Cleanup(s.Close)
	c.at(identity, s.Listener.Addr().String())
	return s
}

// at sets the address of a peer; "": it has none.
func (c *cluster) at(identity, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[identity] = address
}

func (c *cluster) share(versions ...[2]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shared = &Versions{}
	for _, v := range versions {
		(*c.shared)[v] = true
	}
}

// document is an APIGroupDiscoveryList.
func document(serves ...string) []byte {
	var items []object.Value
	for _, name := range serves {
		part := strings.Split(name, "/")
		text := object.StringOf
		items = append(items, object.Fields("metadata", object.Fields("name", text(part[0])), "versions",
			object.ListOf(object.Fields("version", text(part[1]), "freshness", text("Current"), "resources", object.ListOf(
				object.Fields("resource", text(part[2]), "scope", text("Namespaced"), "verbs",
					object.Strings("delete", "list")))))))
	}
	return object.AppendJSON(nil, object.Fields("kind", object.StringOf("APIGroupDiscoveryList"), "items",
		object.ListOf(items...)))
}

// sync has the proxy find out what these peers serve.
func (c *cluster) sync(identities ...string) error {
	return c.proxy.sync(c.t.Context(), "own", identities)
}

// ask sends a request through the proxy; nil: it does not forward it.
func (c *cluster) ask(group, version, name string, r *http.Request) (*httptest.ResponseRecorder, error) {
	forward := c.proxy.Forwards(group, version, name)
	if forward == nil {
		return nil, nil
	}
	w := httptest.NewRecorder()
	w.Header()["Audit-Id"] = []string{"id"}
	return w, forward(w, r, &access.Attributes{User: access.User{Name: "alice", Groups: []string{"a"}}})
}

func (c *cluster) counted(want map[string]int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !maps.Equal(c.counts, want) {
		c.t.Errorf("counted %v, want %v", c.counts, want)
	}
}

// A request goes to a peer that serves the resource, as the user of this server, and says that it was forwarded,
// whatever its client says. It goes nowhere if no peer serves the resource.
//
// SPEC: URI-12
func TestForward(t *testing.T) {
	c := newCluster(t)
	c.peer("a", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "%s %s %s %q %q %q %q", r.Method, r.URL.RequestURI(), body, r.Header[Forwarded],
			r.Header["X-Remote-User"], r.Header["X-Remote-Group"], r.Header["Audit-Id"])
	}, "batch/v1/jobs", "apps/v1/deployments")
	if err := c.sync("a"); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/apis/batch/v1/namespaces/x/jobs?dryRun=All", strings.NewReader("body"))
	r.Header[Forwarded], r.Header["X-Remote-User"] = []string{"false"}, []string{"root"}
	w, err := c.ask("batch", "v1", "jobs", r)
	if err != nil || w.Code != http.StatusCreated ||
		w.Body.String() != `POST /apis/batch/v1/namespaces/x/jobs?dryRun=All body ["true"] ["alice"] ["a"] ["id"]` {
		t.Errorf("%v, %v", w, err)
	}
	for _, other := range [][3]string{{"batch", "v1", "cronjobs"}, {"batch", "v2", "jobs"}, {"", "v1", "jobs"}} {
		if w, err := c.ask(other[0], other[1], other[2], r); w != nil || err != nil ||
			c.proxy.Serves(other[0], other[1], other[2]) {
			t.Errorf("%v was forwarded", other)
		}
	}
	if !c.proxy.Serves("", "v1", "pods") {
		t.Error("what is served at /api is not forwarded")
	}
	c.counted(map[string]int{"rerouted 200 //": 2, "rerouted 201 batch/v1/jobs": 1})
}

// A peer that does not answer, or is not the one that it should be, is 503 in plain text. One whose address is not
// known is a Status, unless another one serves the resource, too.
//
// SPEC: URI-12
func TestPeersThatFail(t *testing.T) {
	c := newCluster(t)
	ok := func(http.ResponseWriter, *http.Request) {}
	gone := c.peer("a", ok, "batch/v1/jobs")
	if err := c.sync("a"); err != nil {
		t.Fatal(err)
	}
	get := func() (*httptest.ResponseRecorder, error) {
		return c.ask("batch", "v1", "jobs", httptest.NewRequest("GET", "/apis/batch/v1/jobs", nil))
	}
	gone.Close()
	w, err := get()
	if err != nil || w.Code != http.StatusServiceUnavailable ||
		w.Header().Get("Content-Type") != "text/plain; charset=utf-8" ||
		!strings.HasPrefix(w.Body.String(), "error trying to reach service: ") {
		t.Errorf("%v, %v", w, err)
	}
	c.at("a", "")
	var status *apierr.Error
	if _, err = get(); !errors.As(err, &status) || status.Code != http.StatusServiceUnavailable ||
		status.Message != "Error getting ip and port info of the remote server while proxying" {
		t.Errorf("without an address: %v", err)
	}
	c.peer("b", ok, "batch/v1/jobs")
	if err := c.sync("a", "b"); err == nil {
		t.Error("it is known what a server serves that cannot be reached")
	}
	for range 5 {
		if w, err := get(); err != nil || w.Code != http.StatusOK {
			t.Errorf("%v, %v", w, err)
		}
	}
	c.counted(map[string]int{"rerouted 200 //": 4, "rerouted 503 batch/v1/jobs": 1, "unlocated batch/v1/jobs": 1,
		"unsynced hostport_resolution": 1, "rerouted 200 batch/v1/jobs": 5})

	c.proxy.Trust(x509.NewCertPool()) // of nobody
	if w, err := get(); err != nil || w.Code != http.StatusServiceUnavailable ||
		!strings.Contains(w.Body.String(), "x509: certificate signed by unknown authority") {
		t.Errorf("%v, %v", w, err)
	}
	if err := c.sync("b"); err == nil || !c.proxy.Serves("batch", "v1", "jobs") {
		t.Error("a server that cannot be reached serves nothing any more")
	}
	if err := c.sync(); err != nil || c.proxy.Serves("batch", "v1", "jobs") || c.proxy.Discovered() != nil {
		t.Error("a server that is gone serves something")
	}
	if err := c.sync("b"); err == nil || c.proxy.Serves("batch", "v1", "jobs") {
		t.Error("a server that is not trusted counts as a peer")
	}
}

// upgrade sends a request for jobs that upgrades its connection through the proxy, as a server does, and returns the
// answer and the connection behind it. served receives when the proxy is done with it.
func (c *cluster) upgrade(protocol string) (answer *http.Response, conn net.Conn, in *bufio.Reader,
	served <-chan struct{}) {
	c.t.Helper()
	done := make(chan struct{})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		w.Header()["Audit-Id"] = []string{"id"}
		asked := &access.Attributes{User: access.User{Name: "alice", Groups: []string{"a"}}}
		if err := c.proxy.Forwards("batch", "v1", "jobs")(w, r, asked); err != nil {
			c.t.Error(err)
		}
	}))
	c.t.Cleanup(front.Close)
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /apis/batch/v1/namespaces/x/jobs/y/attach?stdin=1 HTTP/1.1\r\nHost: x\r\n"+
		"Connection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\nX-Remote-User: root\r\n"+
		"%s: false\r\n\r\nfirst ", protocol, Forwarded)
	in = bufio.NewReader(conn)
	if answer, err = http.ReadResponse(in, nil); err != nil {
		c.t.Fatal(err)
	}
	return answer, conn, in, done
}

// upgrades is a peer that upgrades connections. It sends back a line, and then waits until the other side closes the
// connection; after the line "end" it closes it itself. closed receives why it has come to an end.
func upgrades(closed chan<- error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			closed <- err
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"+
			"Asked: %s %q %q %q %q %q\r\n\r\n", r.Header.Get("Upgrade"), r.URL.RequestURI(), r.Header[Forwarded],
			r.Header["X-Remote-User"], r.Header["X-Remote-Group"], r.Header["Audit-Id"], r.Header["Sec-Websocket-Protocol"])
		for {
			line, err := buffered.ReadString('\n')
			if err != nil || line == "end\n" {
				closed <- err
				return
			}
			fmt.Fprintf(conn, "got %s", line)
		}
	}
}

// A connection is upgraded by the peer, as that of the user of this server. Its bytes pass both ways, those that come
// with the request included, until one side closes it.
//
// The reference does not name the user to the peer then: it takes the dialer out of the RoundTripper that would
// (proxy.UpgradeAwareHandler without UpgradeTransport).
//
// SPEC: URI-12
func TestUpgrades(t *testing.T) {
	for _, protocol := range []string{"websocket", "SPDY/3.1"} {
		for _, last := range []string{"", "end\n"} {
			c, closed := newCluster(t), make(chan error, 1)
			c.peer("a", upgrades(closed), "batch/v1/jobs")
			if err := c.sync("a"); err != nil {
				t.Fatal(err)
			}
			answer, conn, in, served := c.upgrade(protocol)
			const asked = `/apis/batch/v1/namespaces/x/jobs/y/attach?stdin=1 ["true"] ["alice"] ["a"] ["id"] ["v5.channel.k8s.io"]`
			if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != protocol ||
				answer.Header.Get("Asked") != asked {
				t.Fatalf("%s: %v", protocol, answer)
			}
			for _, line := range []string{"line\n", "another\n"} {
				_, _ = io.WriteString(conn, line)
				if got, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(got, "got ") || !strings.HasSuffix(got, line) {
					t.Fatalf("%s: %q, %v", protocol, got, err)
				}
			}
			if _, _ = io.WriteString(conn, last); last == "" {
				conn.Close()
				if err := <-closed; err != io.EOF {
					t.Errorf("%s: the peer does not see that the client has gone: %v", protocol, err)
				}
			} else if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("%s: the client does not see that the peer has gone: %q, %v", protocol, rest, err)
			}
			<-served
			c.counted(map[string]int{"rerouted 200 //": 2, "rerouted 0 batch/v1/jobs": 1})
		}
	}
}

// A peer that does not upgrade a connection, or cannot be reached, is answered as in the reference: what the peer says,
// if it is an error, or else 503 in plain text.
//
// SPEC: URI-12
func TestUpgradesThatFail(t *testing.T) {
	for _, test := range []struct {
		name    string
		peer    http.HandlerFunc
		breaks  func(*cluster, *httptest.Server)
		code    int
		text    string // what the answer begins with
		counted int
	}{
		{"refused", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, nil,
			http.StatusForbidden, "no\n", 0},
		{"not upgraded", func(http.ResponseWriter, *http.Request) {}, nil,
			http.StatusServiceUnavailable, "invalid upgrade response: status code 200\n", http.StatusServiceUnavailable},
		{"gone", nil, func(_ *cluster, peer *httptest.Server) { peer.Close() },
			http.StatusServiceUnavailable, "error dialing backend: dial tcp ", http.StatusServiceUnavailable},
		{"another one", nil, func(c *cluster, _ *httptest.Server) { c.proxy.Trust(x509.NewCertPool()) },
			http.StatusServiceUnavailable, "error dialing backend: tls: failed to verify certificate: x509: ",
			http.StatusServiceUnavailable},
		{"broken off", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil,
			http.StatusServiceUnavailable, "unexpected EOF\n", http.StatusServiceUnavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t)
			peer := c.peer("a", test.peer, "batch/v1/jobs")
			if err := c.sync("a"); err != nil {
				t.Fatal(err)
			}
			if test.breaks != nil {
				test.breaks(c, peer)
			}
			answer, _, _, served := c.upgrade("websocket")
			text, err := io.ReadAll(answer.Body)
			if answer.StatusCode != test.code || !strings.HasPrefix(string(text), test.text) || err != nil ||
				answer.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("%v %q, %v", answer, text, err)
			}
			<-served
			c.counted(map[string]int{"rerouted 200 //": 2, fmt.Sprintf("rerouted %d batch/v1/jobs", test.counted): 1})
		})
	}
}

// What a peer says that it serves may be anything.
//
// SPEC: URI-12
func TestPeersThatSayNonsense(t *testing.T) {
	for _, answer := range []string{"", "nonsense", `{"kind":"APIGroupList"}`, `{"kind":"APIGroupDiscoveryList","items":[1,
{"metadata":{"name":7}},{"metadata":{"name":"a"},"versions":[{"version":[],"resources":{"a":1}},7]}]}`} {
		c := newCluster(t)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, answer)
		}))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{*c.leaf("peer", []string{serverName})}}
		s.StartTLS()
		t.Cleanup(s.Close)
		c.at("a", s.Listener.Addr().String())
		err := c.sync("a")
		if wrong := !strings.Contains(answer, "DiscoveryList"); wrong != (err != nil) {
			t.Errorf("%q: %v", answer, err)
		}
		if peers := c.proxy.Discovered(); peers != nil {
			discovery.EachResource(peers.By["a"], func(g, v, r string) { t.Errorf("%q serves %s/%s/%s", answer, g, v, r) })
		}
	}
}

// A version that objects define is not taken from a peer, and not for a while after it is gone; then it is asked again
// what the peers serve.
//
// SPEC: URI-12
func TestSharedVersions(t *testing.T) {
	c := newCluster(t)
	c.peer("a", func(http.ResponseWriter, *http.Request) {}, "batch/v1/jobs", "stable.example/v1/widgets")
	served := func() (all []string) {
		if peers := c.proxy.Discovered(); peers != nil {
			discovery.EachResource(peers.By["a"], func(g, v, r string) { all = append(all, g+"/"+v+"/"+r) })
		}
		return all
	}
	check := func(want ...string) {
		t.Helper()
		if got := served(); !slices.Equal(got, want) {
			t.Errorf("the peer serves %v, want %v", got, want)
		}
		if forwards := c.proxy.Forwards("stable.example", "v1", "widgets") != nil; forwards != (len(want) == 2) {
			t.Errorf("requests for widgets are forwarded: %v", forwards)
		}
	}
	if err := c.sync("a"); err != nil {
		t.Fatal(err)
	}
	check("batch/v1/jobs", "stable.example/v1/widgets")
	c.share([2]string{"stable.example", "v1"})
	check("batch/v1/jobs")
	c.share()
	check("batch/v1/jobs")
	select {
	case <-c.proxy.expire:
	default:
		t.Error("nothing is done when the grace is over")
	}
	now := time.Now()
	if next := c.proxy.expired(now.Add(time.Minute)); next <= 3*time.Minute || next > 4*time.Minute {
		t.Errorf("the grace ends in %s", next)
	}
	if err := c.sync("a"); err != nil {
		t.Fatal(err)
	}
	check("batch/v1/jobs")
	if next := c.proxy.expired(now.Add(6 * time.Minute)); next != 0 {
		t.Errorf("another grace ends in %s", next)
	}
	check("batch/v1/jobs") // until it is asked again
	if err := c.sync("a"); err != nil {
		t.Fatal(err)
	}
	check("batch/v1/jobs", "stable.example/v1/widgets")
}

// The objects of a namespace are deleted that are of types which a peer alone serves, each at one of those that serve
// it. What is left is counted, and a peer that does not answer is an error.
//
// SPEC: URI-12
func TestEmpty(t *testing.T) {
	c := newCluster(t)
	var mu sync.Mutex
	var asked []string
	answer := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		if r.Header.Get(Forwarded) != "true" || r.Header.Get("X-Remote-User") != "cleaner" {
			t.Errorf("sent %v", r.Header)
		}
		if strings.Contains(r.URL.Path, "/jobs") && r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"items":[{"metadata":{"name":"a","finalizers":["x/y"]}}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"items":[]}`)
	}
	gone := c.peer("a", answer, "batch/v1/jobs", "apps/v1/deployments", "stable.example/v1/widgets")
	c.peer("b", answer, "batch/v1/jobs", "later/v1/things")
	c.share([2]string{"stable.example", "v1"})
	if err := c.sync("a", "b"); err != nil {
		t.Fatal(err)
	}
	empty := func() aggregation.Contents {
		return c.proxy.Empty(t.Context(), "n", access.User{Name: "cleaner"}, func(group, _, name string) bool {
			return group == "apps" || name == "pods"
		})
	}
	left := empty()
	want := []string{"DELETE /apis/batch/v1/namespaces/n/jobs", "GET /apis/batch/v1/namespaces/n/jobs",
		"DELETE /apis/later/v1/namespaces/n/things", "GET /apis/later/v1/namespaces/n/things"}
	if !slices.Equal(asked, want) || len(left.Failed) > 0 ||
		!maps.Equal(left.Remaining, map[string]int{"jobs.batch": 1}) ||
		!maps.Equal(left.Finalizers, map[string]int{"x/y": 1}) {
		t.Errorf("asked %q, left %+v", asked, left)
	}
	gone.Close()
	if left := empty(); len(left.Failed) != 1 {
		t.Errorf("a server does not answer: %+v", left)
	}
}

// Run asks the peers again when one has come or gone, and for as long as one does not answer. Otherwise it does
// nothing.
//
// SPEC: URI-12
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		p := New(Config{
			AddressOf: func(_ context.Context, identity string) (string, error) {
				asked.Add(1)
				return "", errors.New("there is no such key")
			},
			Shared: func() *Versions { return nil },
			Logger: slog.New(slog.DiscardHandler), Metrics: Metrics{SyncFailed: func(string) {}},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var tell func([]string)
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx, "own", func(ctx context.Context, changed func([]string)) {
				tell = changed
				<-ctx.Done()
			})
		}()
		count := func(after time.Duration) int64 {
			time.Sleep(after)
			synctest.Wait()
			return asked.Load()
		}
		if n := count(time.Hour); n != 0 {
			t.Errorf("without peers, it asked %d times", n)
		}
		tell([]string{"a"})
		if n := count(0); n != 1 {
			t.Errorf("it asked %d times", n)
		}
		if n := count(3 * time.Second); n < 4 || n > 6 {
			t.Errorf("in three seconds it asked %d times", n)
		}
		if n := count(time.Hour); n < 300 || n > 400 {
			t.Errorf("in an hour it asked %d times", n)
		}
		tell(nil)
		if before := count(0); count(time.Hour) != before {
			t.Error("it asks a server that is gone")
		}
		cancel()
		<-done
	})
}

// BenchmarkServes is what a request costs that is served here, while there are peers.
func BenchmarkServes(b *testing.B) {
	p := New(Config{})
	var groups []string
	for i := range 100 {
		groups = append(groups, fmt.Sprintf("group-%d.example.org/v1/things", i))
	}
	list, err := object.ParseJSON(document(groups...))
	if err != nil {
		b.Fatal(err)
	}
	p.known.Store(index("own", map[string]documents{"a": {groups: discovery.GroupsOf(list.Value)}}))
	for b.Loop() {
		if p.Serves("", "v1", "configmaps") {
			b.Fatal("a peer serves it")
		}
	}
}

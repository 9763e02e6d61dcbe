package httpapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/audit"
	"plinth/internal/discovery"
	"plinth/internal/store"
	"plinth/object"
)

// forwarder is a backend: it forwards a group version, and the exec and proxy of Pods, to a server in this process.
type forwarder struct {
	transport http.RoundTripper
	remotes   []*discovery.Remote
}

// forwarded are the paths of the resources that a forwarder has.
const forwarded, connected = "/apis/metrics.example/v1/nodes", "/api/v1/namespaces/default/pods/a"

// newForwarder starts the server to which requests are forwarded.
func newForwarder(t *testing.T, remote http.HandlerFunc) *forwarder {
	t.Helper()
	at := &pipes{connections: make(chan net.Conn), closed: make(chan struct{})}
	server := &httptest.Server{Listener: at, Config: &http.Server{Handler: remote, ErrorLog: log.New(io.Discard, "", 0)}}
	server.Start()
	transport := &http.Transport{DialContext: at.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	text := object.StringOf
	return &forwarder{transport: transport, remotes: []*discovery.Remote{{
		Group: "metrics.example", Version: "v1",
		Discovery: object.Fields("version", text("v1"), "resources", object.ListOf(object.Fields("resource", text("nodes"),
			"responseKind", object.Fields("group", text(""), "version", text(""), "kind", text("NodeMetrics")),
			"scope", text("Cluster"), "singularResource", text(""), "verbs", object.Strings("get", "list"))),
			"freshness", text("Stale")),
		OpenAPI3: []byte(`{"openapi":"3.0.0","paths":{"/apis/metrics.example/v1/nodes":{}}}`),
		Paths:    []object.Member{{Key: "/apis/metrics.example/v1/nodes", Value: object.MapOf()}},
		Definitions: []object.Member{
			{Key: "example.metrics.v1.NodeMetrics", Value: object.Fields("type", text("object"))},
			{Key: "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", Value: object.Fields("type", text("object"))},
		},
	}}}
}

// find is Config.Backends.
func (f *forwarder) find(group, version, resource, subresource string) Backend {
	if group == "metrics.example" && version == "v1" ||
		group == "" && resource == "pods" && (subresource == "exec" || subresource == "proxy") {
		return f.forward
	}
	return nil
}

func (f *forwarder) forward(w http.ResponseWriter, r *http.Request, asked *access.Attributes) (failed error) {
	if r.URL.Path == forwarded+"/panics" {
		panic("the backend")
	}
	if _, ok := w.(http.Hijacker); !ok {
		return errors.New("no Hijacker")
	}
	proxy := &httputil.ReverseProxy{
		Transport: f.transport, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: "remote"})
			p.Out.Header["X-Remote-User"] = []string{asked.User.Name}
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if failed = err; !errors.Is(err, context.DeadlineExceeded) {
				failed = apierr.NewUnavailable("service unavailable")
			}
		},
	}
	proxy.ServeHTTP(w, r)
	return failed
}

// newForwardingServer starts a server in a bubble that forwards requests to remote. Channels that both use must be made
// in the bubble: a goroutine that waits for another one is not durably blocked in the sense of synctest.
func newForwardingServer(t *testing.T, remote http.HandlerFunc, change func(*Config)) *server {
	t.Helper()
	f := newForwarder(t, remote)
	return newServerInBubble(t, store.Config{}, func(c *Config) {
		c.Backends = f.find
		if change != nil {
			change(c)
		}
	})
}

// overBoth runs a test in a bubble over HTTP/1.1 and over HTTP/2.
func overBoth(t *testing.T, test func(t *testing.T, protocol func(*server))) {
	t.Helper()
	t.Run("HTTP/1.1", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, (*server).overHTTP1) })
	})
	t.Run("HTTP/2.0", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, func(*server) {}) })
	})
}

// overHTTP1 makes the client of a server use HTTP/1.1.
func (s *server) overHTTP1() {
	transport := s.transport().Clone()
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	transport.TLSClientConfig.NextProtos = nil
	s.client.Transport = transport
}

// A forwarded request passes the filters that all requests pass: authentication, authorization, impersonation, and the
// limit on requests under way.
//
// SPEC: AUTH-1
func TestForwardedRequestsPassTheFilters(t *testing.T) {
	synctest.Test(t, testForwardedRequestsPassTheFilters)
}

func testForwardedRequestsPassTheFilters(t *testing.T) {
	inside, leave := make(chan *http.Request, 10), make(chan bool)
	s := newForwardingServer(t, func(w http.ResponseWriter, r *http.Request) {
		inside <- r
		if strings.HasSuffix(r.URL.Path, "/waits") {
			<-leave
		}
		w.Header().Set("Content-Type", "text/remote")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "remote ", r.Method, " ", r.URL)
	}, func(c *Config) {
		c.Acquire = NewSlots(1, nil, nil).Acquire
		allowed := c.Authorizer
		c.Authorizer = access.AuthorizerFunc(func(ctx context.Context, a *access.Attributes) (access.Decision, string,
			error) {
			if a.User.Name == "john" || a.User.Name == "jane" && a.Name == "waits" {
				return access.Allow, "", nil
			}
			return allowed.Authorize(ctx, a)
		})
	})
	for path, code := range map[string]int{forwarded + "/a?x=y": 202, "/apis/metrics.example/v1": 202,
		"/apis/metrics.example/v1/": 202, "//apis/metrics.example/v1/nodes/a": 404, "/apis/metrics.example/v2": 404,
		"/apis/metrics.example/v2/nodes": 404} {
		got := s.do("GET", path, "")
		if got.code != code || code == 202 && (got.body != "remote GET "+path ||
			got.header.Get("Content-Type") != "text/remote" || got.header.Get("Audit-Id") == "") {
			t.Errorf("%s: %d %s %v", path, got.code, got.body, got.header)
		}
		if code == 202 {
			if r := <-inside; r.Header.Get("X-Remote-User") != "admin" {
				t.Errorf("%s: sent on with %v", path, r.Header)
			}
		}
	}
	for user, code := range map[string]int{"jane": 403, "wrong": 401} {
		if got := s.do("GET", forwarded+"/a", "", "Authorization", "Bearer "+user); got.code != code {
			t.Errorf("as %s: %d", user, got.code)
		}
	}
	if len(inside) > 0 {
		t.Errorf("a refused request was sent on: %v", (<-inside).URL)
	}
	if got := s.do("GET", forwarded, "", "Impersonate-User", "john"); got.code != 202 {
		t.Errorf("as another user: %d %s", got.code, got.body)
	}
	if r := <-inside; r.Header.Get("X-Remote-User") != "john" || r.Header.Get("Impersonate-User") != "" {
		t.Errorf("as another user: sent on with %v", r.Header)
	}
	synctest.Wait() // the slot is free when the request has ended
	waits := make(chan answer)
	go func() { waits <- s.do("GET", forwarded+"/waits", "", "Authorization", "Bearer jane") }()
	if r := <-inside; r.Header.Get("X-Remote-User") != "jane" || r.Header.Get("Authorization") != "" {
		t.Errorf("sent on with %v", r.Header)
	}
	if got := s.do("GET", forwarded+"/waits", "", "Authorization", "Bearer jane"); got.code != 429 {
		t.Errorf("beyond the limit: %d", got.code)
	}
	leave <- true
	if got := <-waits; got.code != 202 {
		t.Errorf("within the limit: %d", got.code)
	}
}

// A request for a resource that is not served here goes to a peer that serves it, after all filters, with its body. One
// that a peer has forwarded does not, and neither does one for a path that is no resource.
//
// SPEC: URI-12
func TestPeersAnswer(t *testing.T) { overBoth(t, testPeersAnswer) }

func testPeersAnswer(t *testing.T, protocol func(*server)) {
	f := newForwarder(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, r.Header.Get("X-Remote-User"), " ", r.Method, " ", r.URL, " ", string(body))
	})
	s := newServerInBubble(t, store.Config{}, func(c *Config) {
		c.Backends = f.find
		c.Peers = func(group, version, resource string) Backend {
			if group == "later.example" && version == "v1" && resource == "things" {
				return f.forward
			}
			return nil
		}
	})
	protocol(s)
	const path = "/apis/later.example/v1/namespaces/default/things"
	for _, test := range []struct {
		method, path, body string
		code               int
		header             []string
	}{
		{"GET", path, "", 202, nil},
		{"POST", path, strings.Repeat("x", 10<<20), 202, nil}, // longer than a body that is read here may be
		{"PATCH", path + "/a/status", "y", 202, []string{"Content-Type", "nonsense"}},
		{"DELETE", path + "/a", "", 202, []string{peerProxied, "false"}},
		{"GET", path, "", 404, []string{peerProxied, "true"}},
		{"GET", "/" + path, "", 404, nil},
		{"GET", path[:len("/apis/later.example/v1")], "", 404, nil},
		{"GET", path + "x", "", 404, nil},
		{"GET", path, "", 403, []string{"Authorization", "Bearer jane"}},
		{"GET", path, "", 401, []string{"Authorization", "Bearer wrong"}},
	} {
		got := s.do(test.method, test.path, test.body, test.header...)
		if want := "admin " + test.method + " " + test.path + " " + test.body; got.code != test.code ||
			test.code == 202 && got.body != want {
			t.Errorf("%s %s %v: %d %.100s", test.method, test.path, test.header, got.code, got.body)
		}
	}
}

// A forwarded request is recorded as every other. The test is not in a bubble, as the writer of the log starts a
// goroutine that does not end.
//
// SPEC: AUTH-4
func TestForwardedRequestsAreAudited(t *testing.T) {
	dir := t.TempDir()
	options := audit.Defaults()
	options.PolicyFile, options.Log.Path = filepath.Join(dir, "policy"), filepath.Join(dir, "log")
	if err := os.WriteFile(options.PolicyFile,
		[]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	auditor, err := audit.New(options, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool, 10)
	f := newForwarder(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	s := newServer(t, func(c *Config) {
		c.Backends, c.Auditor = f.find, auditor
		c.Metrics.Request = func(Observation) { ended <- true } // the record has been written
	})
	<-ended // the namespace
	if got := s.do("GET", forwarded+"/a?x=y", ""); got.code != 202 {
		t.Errorf("%d %s", got.code, got.body)
	}
	<-ended
	s.do("GET", forwarded, "", "Impersonate-User", "john")
	<-ended
	if err := auditor.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	recorded, err := os.ReadFile(options.Log.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"requestURI":"` + forwarded + `/a?x=y"`, `"apiGroup":"metrics.example"`, `"code":202`,
		`"impersonatedUser":{"username":"john"`} {
		if !strings.Contains(string(recorded), want) {
			t.Errorf("the audit log has no %s: %s", want, recorded)
		}
	}
}

// The body of a forwarded request is passed on while it arrives, whatever its length, and does not count as held
// memory.
func TestForwardedBodiesAreStreamed(t *testing.T) { overBoth(t, testForwardedBodiesAreStreamed) }

func testForwardedBodiesAreStreamed(t *testing.T, protocol func(*server)) {
	arrived := make(chan string)
	s := newForwardingServer(t, func(w http.ResponseWriter, r *http.Request) {
		in := bufio.NewScanner(r.Body)
		for in.Scan() {
			arrived <- in.Text()
		}
		fmt.Fprint(w, "all")
	}, func(c *Config) { c.BodyLimit, c.BodyMemory = 100, 1000 })
	protocol(s)
	for _, path := range []string{forwarded, connected + "/proxy/x"} {
		body, done := s.slowly("POST", path, "")
		for i := range 100 { // much more than the limits
			line := fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000))
			go fmt.Fprintln(body, line)
			if got := <-arrived; got != line {
				t.Fatalf("%q arrived", got)
			}
		}
		body.Close()
		if got := <-done; got.code != 200 || got.body != "all" {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
}

// A forwarded request has the deadline of all requests, unless it is long-running as in the reference: then it may go
// on, and ends when the server closes.
func TestForwardedRequestsKeepTheirDeadline(t *testing.T) {
	overBoth(t, testForwardedRequestsKeepTheirDeadline)
}

func testForwardedRequestsKeepTheirDeadline(t *testing.T, protocol func(*server)) {
	closing, shut := context.WithCancel(context.Background())
	defer shut()
	gone := make(chan bool, 10)
	s := newForwardingServer(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/silent") {
			fmt.Fprintln(w, "first")
			w.(http.Flusher).Flush()
			select {
			case <-time.After(time.Hour):
				fmt.Fprintln(w, "last")
				return
			case <-r.Context().Done():
			}
		}
		<-r.Context().Done()
		gone <- true
	}, func(c *Config) { c.Closing = closing })
	protocol(s)
	began := time.Now()
	if got := s.do("GET", forwarded+"/silent?timeout=5s", ""); got.code != 504 {
		t.Errorf("without an answer: %d %s", got.code, got.body)
	}
	if took := time.Since(began); took != 5*time.Second {
		t.Errorf("without an answer: after %v", took)
	}
	<-gone
	cut := s.openFor(2*time.Hour, "GET", forwarded+"/begun", "")
	if text, err := io.ReadAll(cut.Body); err == nil || string(text) != "first\n" {
		t.Errorf("an answer that had begun: %q, %v", text, err)
	}
	<-gone
	for _, path := range []string{forwarded + "?watch=1", forwarded + "/a/log", connected + "/exec",
		connected + "/proxy/x"} {
		long := s.openFor(2*time.Hour, "GET", path, "")
		if text, err := io.ReadAll(long.Body); err != nil || string(text) != "first\nlast\n" {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	watch := s.openFor(2*time.Hour, "GET", forwarded+"?watch=1", "")
	next := lines(t, watch.Body)
	if line, ok := next(); line != "first" || !ok {
		t.Errorf("%q", line)
	}
	shut()
	<-gone
	if line, ok := next(); ok {
		t.Errorf("after the server began to close: %q", line)
	}
}

// A body that stops arriving holds its request no longer than the deadline.
//
// SPEC: WRITE-6
func TestForwardedBodiesThatStop(t *testing.T) { synctest.Test(t, testForwardedBodiesThatStop) }

func testForwardedBodiesThatStop(t *testing.T) {
	s := newForwardingServer(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}, nil)
	socket := s.socket()
	defer socket.Close()
	began := time.Now()
	fmt.Fprintf(socket, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{", forwarded)
	answered, err := http.ReadResponse(bufio.NewReader(socket), nil)
	if err != nil || answered.StatusCode != 504 {
		t.Fatalf("%v, %v", answered, err)
	}
	if took := time.Since(began); took != time.Minute {
		t.Errorf("after %v", took)
	}
	if _, err := io.Copy(io.Discard, socket); err != nil {
		t.Errorf("the connection stays open: %v", err)
	}
}

// socket opens a connection for HTTP/1.1.
func (s *server) socket() net.Conn {
	s.t.Helper()
	connection, err := s.transport().DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		s.t.Fatal(err)
	}
	return tls.Client(connection, &tls.Config{InsecureSkipVerify: true})
}

// A client that does not read ends its forwarded request, which gives its slot back.
//
// SPEC: WATCH-6
func TestForwardedAnswersThatNobodyReads(t *testing.T) {
	overBoth(t, testForwardedAnswersThatNobodyReads)
}

func testForwardedAnswersThatNobodyReads(t *testing.T, protocol func(*server)) {
	ended := make(chan bool, 10)
	s := newForwardingServer(t, func(w http.ResponseWriter, r *http.Request) {
		// Of an answer without a length, ReverseProxy flushes the headers by a timer that waits for a mutex while a write
		// waits for the client. A goroutine that waits for a mutex stops the bubble's time.
		w.Header().Set("Content-Length", strconv.Itoa(1<<40))
		for r.Context().Err() == nil {
			fmt.Fprintln(w, strings.Repeat("x", 1000))
		}
		ended <- true
	}, func(c *Config) {
		c.Acquire, c.Authorizer, c.StallTimeout = NewSlots(1, nil, nil).Acquire, everybody, 10*time.Second
	})
	protocol(s)
	jane := []string{"Authorization", "Bearer jane"}
	began := time.Now()
	stalled := s.openFor(time.Hour, "GET", forwarded, "", jane...)
	defer stalled.Body.Close()
	if got := s.do("GET", configMaps, "", jane...); got.code != 429 {
		t.Errorf("while the answer waits for its client: %d", got.code)
	}
	<-ended
	if took := time.Since(began); took < s.config.StallTimeout || took > 2*s.config.StallTimeout {
		t.Errorf("ended after %v", took)
	}
	time.Sleep(5 * time.Second) // which crypto/tls may take to close an HTTP/1.1 connection
	synctest.Wait()
	if got := s.do("GET", configMaps, "", jane...); got.code != 200 {
		t.Errorf("afterwards: %d", got.code)
	}
}

// A backend may take over the connection. The request then holds no slot, and ends with its client or with the server.
//
// SPEC: URI-7
func TestForwardedUpgrades(t *testing.T) { synctest.Test(t, testForwardedUpgrades) }

func testForwardedUpgrades(t *testing.T) {
	ended := make(chan bool, 1)
	echo := func(w http.ResponseWriter, r *http.Request) {
		connection, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
			r.Header.Get("Upgrade"))
		_, _ = io.Copy(connection, buffered)
		ended <- true
	}
	closing, shut := context.WithCancel(context.Background())
	defer shut()
	observed := make(chan Observation, 10)
	s := newForwardingServer(t, echo, func(c *Config) {
		c.Acquire, c.Authorizer, c.Closing = NewSlots(1, nil, nil).Acquire, everybody, closing
		c.Metrics.Request = func(o Observation) { observed <- o }
	})
	<-observed // the namespace
	open := func(method, path string) (net.Conn, *bufio.Reader) {
		t.Helper()
		socket := s.socket()
		fmt.Fprintf(socket, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer jane\r\nConnection: Upgrade\r\n"+
			"Upgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n", method, path)
		in := bufio.NewReader(socket)
		answered, err := http.ReadResponse(in, nil)
		if err != nil || answered.StatusCode != 101 || answered.Header.Get("Upgrade") != "SPDY/3.1" ||
			answered.Header.Get("Audit-Id") == "" {
			t.Fatalf("%v, %v", answered, err)
		}
		return socket, in
	}
	talk := func(socket net.Conn, in *bufio.Reader, text string) {
		t.Helper()
		fmt.Fprintln(socket, text)
		if line, err := in.ReadString('\n'); err != nil || line != text+"\n" {
			t.Errorf("%q came back, %v", line, err)
		}
	}
	socket, in := open("POST", connected+"/exec?command=sh")
	talk(socket, in, "at once")
	if got := s.do("GET", configMaps, "", "Authorization", "Bearer jane"); got.code != 200 {
		t.Errorf("a request beside: %d", got.code)
	}
	<-observed
	time.Sleep(time.Hour)
	talk(socket, in, "after an hour")
	socket.Close()
	<-ended
	if o := <-observed; o.Code != 101 || o.Class != LongRunning || o.Verb != "CONNECT" {
		t.Errorf("%+v", o)
	}
	// One that is not long-running gives its slot back when it becomes a connection.
	plain, in := open("GET", forwarded+"/a/screen")
	talk(plain, in, "screen")
	if got := s.do("GET", configMaps, "", "Authorization", "Bearer jane"); got.code != 200 {
		t.Errorf("a request beside the upgraded one: %d", got.code)
	}
	plain.Close()
	<-ended
	socket, in = open("GET", connected+"/exec")
	talk(socket, in, "again")
	plain, screen := open("GET", forwarded+"/a/screen")
	talk(plain, screen, "after its deadline")
	shut()
	<-ended
	<-ended
	for _, left := range []*bufio.Reader{in, screen} {
		if _, err := left.ReadByte(); err == nil {
			t.Error("the connection outlives the server")
		}
	}
	socket.Close()
	plain.Close()
}

// A backend that fails, breaks off or panics fails its own request alone; half an answer does not look like a whole
// one.
//
// SPEC: URI-9
func TestForwardersThatFail(t *testing.T) { synctest.Test(t, testForwardersThatFail) }

func testForwardersThatFail(t *testing.T) {
	s := newForwardingServer(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "half") {
			fmt.Fprint(w, "half")
			w.(http.Flusher).Flush()
		}
		if !strings.HasSuffix(r.URL.Path, "whole") {
			panic(http.ErrAbortHandler)
		}
	}, nil)
	for _, c := range []struct {
		path    string
		code    int
		message string
	}{
		{forwarded + "/none", 503, "service unavailable"},
		{forwarded + "/panics", 500, "This request caused apiserver to panic. Look in the logs for details."},
		{forwarded + "/whole", 200, ""},
	} {
		if got := s.do("GET", c.path, ""); got.code != c.code || got.message() != c.message {
			t.Errorf("%s: %d %s", c.path, got.code, got.body)
		}
	}
	for _, path := range []string{forwarded + "/half", connected + "/proxy/half"} {
		if text, err := io.ReadAll(s.open("GET", path, "").Body); err == nil || string(text) != "half" {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if got := s.do("GET", forwarded+"/whole", ""); got.code != 200 {
		t.Errorf("afterwards: %d", got.code)
	}
}

// Discovery and OpenAPI have what backends serve beside what the engine serves.
//
// SPEC: URI-8
func TestDocumentsOfBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForwarder(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "remote ", r.URL) })
		s := newServerInBubble(t, store.Config{}, func(c *Config) {
			c.Backends = f.find
			c.Documents = discovery.New(discovery.Config{Registry: c.Registry,
				Remotes: func() []*discovery.Remote { return f.remotes }})
		})
		const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		for _, c := range []struct{ path, accept, want string }{
			{"/apis", "", `"groupVersion":"metrics.example/v1"`},
			{"/apis", "", `"groupVersion":"apps/v1"`},
			{"/apis", aggregated, `{"metadata":{"name":"metrics.example"},"versions":[{`},
			{"/apis", aggregated, `"freshness":"Stale"`},
			{"/apis/metrics.example", "", `"preferredVersion":{"groupVersion":"metrics.example/v1"`},
			{"/apis/metrics.example/v1", "", "remote /apis/metrics.example/v1"},
			{"/openapi/v3", "", `"apis/metrics.example/v1":{"serverRelativeURL":"/openapi/v3/apis/metrics.example/v1?hash=`},
			{"/openapi/v3/apis/metrics.example/v1", "", string(f.remotes[0].OpenAPI3)},
			{"/openapi/v2", "", `"example.metrics.v1.NodeMetrics":{"type":"object"}`},
			{"/", "", `"/apis/metrics.example/v1"`},
		} {
			if got := s.do("GET", c.path, "", "Accept", c.accept); got.code != 200 || !strings.Contains(got.body, c.want) {
				t.Errorf("%s: %d %.3000s", c.path, got.code, got.body)
			}
		}
	})
}

// What another server serves may have forms that types here have not: a body, its type and the answer's are passed on
// as they are. (Types of this server that are not built in have neither protobuf nor strategic merge patches.)
//
// SPEC: EXT-2, MED-3, MED-4, WRITE-2
func TestForwardedFormsAreNotRead(t *testing.T) { overBoth(t, testForwardedFormsAreNotRead) }

func testForwardedFormsAreNotRead(t *testing.T, protocol func(*server)) {
	s := newForwardingServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		fmt.Fprint(w, r.Header.Get("Content-Type"), " ", string(body))
	}, nil)
	protocol(s)
	for _, c := range []struct{ method, contentType, accept, body string }{
		{"POST", "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf", "k8s\x00\xff"},
		{"POST", "application/cbor", "application/cbor", "\xd9\xd9\xf7\xff"},
		{"PATCH", "application/strategic-merge-patch+json", "application/yaml", `{"$patch":"replace"}`},
		{"PATCH", "application/apply-patch+cbor", "application/cbor", "\xd9\xd9\xf7\xff"},
	} {
		got := s.do(c.method, forwarded+"/a", c.body, "Content-Type", c.contentType, "Accept", c.accept)
		if got.code != 200 || got.header.Get("Content-Type") != c.accept || got.body != c.contentType+" "+c.body {
			t.Errorf("%s %s: %d %q %v", c.method, c.contentType, got.code, got.body, got.header)
		}
	}
}

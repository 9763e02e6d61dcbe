package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
	"plinth/internal/admission"
	"plinth/internal/apierr"
	"plinth/internal/builtin"
	"plinth/internal/discovery"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// server is a whole API server in memory, behind HTTP/2.
type server struct {
	t       testing.TB
	url     string
	client  *http.Client
	engine  *engine.Engine
	config  Config
	handler *Handler
	types   *engine.Registry
	store   *store.Store
}

// newServer starts a server; change may alter its configuration.
func newServer(t testing.TB, change func(*Config)) *server {
	t.Helper()
	return newServerOn(t, store.Config{}, change)
}

// newServerOn is newServer with a configuration of the store.
func newServerOn(t testing.TB, settings store.Config, change func(*Config)) *server {
	t.Helper()
	return serveOn(t, nil, settings, change)
}

// inBubble runs a test in a synctest bubble, with a server whose store and clients share its clock. The clock advances
// only when all goroutines are blocked: a watch of a second takes no real time, and lasts exactly a second.
// synctest.Wait returns when all goroutines are blocked.
func inBubble(t *testing.T, change func(*Config), test func(t *testing.T, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newServerInBubble(t, store.Config{}, change)) })
}

// newServerInBubble is newServerOn for a test that is in a bubble already.
func newServerInBubble(t testing.TB, settings store.Config, change func(*Config)) *server {
	t.Helper()
	return serveOn(t, &pipes{connections: make(chan net.Conn), closed: make(chan struct{})}, settings, change)
}

// pipes is a listener without a network. A goroutine that reads from a pipe is durably blocked in the sense of
// synctest; one that reads from a socket is not.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.connections <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// httptest.Server makes its URL, and the client checks the certificate, by this address
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

// serveOn is newServerOn behind this listener. Nil: one on the loopback interface.
func serveOn(t testing.TB, at *pipes, settings store.Config, change func(*Config)) *server {
	t.Helper()
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	settings.Log, settings.Describe = memlog.New(), engine.Describe(registry)
	st, err := store.Open(settings)
	if err != nil {
		t.Fatal(err)
	}
	plugins, err := admission.New(admission.Config{
		Selection: admission.Selection{Only: []string{"NamespaceLifecycle"}}, Store: st, Registry: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, engine: engine.New(engine.Config{Store: st, Registry: registry, Admission: plugins.Admission}),
		types: registry, store: st}
	s.config = Config{
		Engine: s.engine, Registry: registry,
		Documents: discovery.New(discovery.Config{Registry: registry,
			Version: discovery.Version{Major: "1", Minor: "37", GitVersion: "v1.37.1"}, Models: builtin.Models}),
		Authenticate: func(_ context.Context, r *http.Request) (*access.Identity, error) {
			switch r.Header.Get("Authorization") {
			case "":
				return &access.Identity{User: access.User{Name: "admin", Groups: []string{access.Masters}}}, nil
			case "Bearer nobody":
				return &access.Identity{User: access.User{}}, nil
			case "Bearer jane":
				return &access.Identity{User: access.User{Name: "jane"}}, nil
			}
			return &access.Identity{User: access.User{}}, io.ErrUnexpectedEOF
		},
		Impersonate: func(_ context.Context, wanted access.User, asked *access.Attributes) (access.User, string, error) {
			if asked.User.Name != "admin" || asked.Verb != "list" {
				return wanted, "", apierr.NewForbidden(apierr.Type{}, "", asked.User.Name+" may not "+asked.Verb+" as "+wanted.Name)
			}
			return wanted, "impersonate:user-info", nil
		},
		Authorizer: access.AuthorizerFunc(func(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
			if a.User.Name == "admin" || a.Path == "/healthz" {
				return access.Allow, "", nil
			}
			return access.NoOpinion, "", nil
		}),
		Checks: []Check{{Name: "ping", Run: func(context.Context) error { return nil }}},
		Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&s.config)
	}
	h, err := New(s.config)
	if err != nil {
		t.Fatal(err)
	}
	s.handler = h
	var listener *httptest.Server
	if at == nil {
		listener = httptest.NewUnstartedServer(h)
	} else {
		listener = &httptest.Server{Listener: at, Config: &http.Server{Handler: h}}
	}
	listener.EnableHTTP2 = true
	listener.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	listener.StartTLS()
	s.url, s.client = listener.URL, listener.Client()
	s.transport().DisableCompression = true
	if at != nil {
		s.transport().DialContext = at.dial
	}
	t.Cleanup(func() {
		listener.CloseClientConnections()
		listener.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	s.create("/api/v1/namespaces", `{"metadata":{"name":"default"}}`)
	return s
}

func (s *server) transport() *http.Transport { return s.client.Transport.(*http.Transport) }

// answer is a response with its whole body.
type answer struct {
	code   int
	header http.Header
	body   string
}

// do sends a request. header has pairs of names and values.
func (s *server) do(method, path, body string, header ...string) answer {
	s.t.Helper()
	response := s.open(method, path, body, header...)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{code: response.StatusCode, header: response.Header, body: string(text)}
}

// open sends a request and leaves its response open, for at most 20 seconds.
func (s *server) open(method, path, body string, header ...string) *http.Response {
	s.t.Helper()
	return s.openFor(20*time.Second, method, path, body, header...)
}

// openFor is open with another limit.
func (s *server) openFor(most time.Duration, method, path, body string, header ...string) *http.Response {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	s.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("User-Agent", "test")
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := s.client.Do(request)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return response
}

// create makes an object and returns it.
func (s *server) create(path, body string) object.Value {
	s.t.Helper()
	a := s.do("POST", path, body)
	if a.code != http.StatusCreated {
		s.t.Fatalf("POST %s: %d %s", path, a.code, a.body)
	}
	return a.value(s.t)
}

// value parses the body.
func (a answer) value(t testing.TB) object.Value {
	t.Helper()
	parsed, err := object.ParseJSON([]byte(a.body))
	if err != nil {
		t.Fatalf("%v in %q", err, a.body)
	}
	return parsed.Value
}

// message is the message of a Status.
func (a answer) message() string {
	var status struct{ Message string }
	if json.Unmarshal([]byte(a.body), &status) != nil {
		return a.body
	}
	return status.Message
}

// lines reads a stream line by line.
func lines(t testing.TB, r io.Reader) func() (string, bool) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 16<<20)
	return func() (string, bool) {
		ok := scanner.Scan()
		return scanner.Text(), ok
	}
}

package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/pki"
)

// pipes is a listener without a network: each connection is a net.Pipe.
type pipes struct {
	accepts chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newPipes() *pipes { return &pipes{accepts: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepts:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return pipeAddress{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.accepts <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dialer opens connections to a server, which listens at a socket or at pipes.
func dialer(s *Server) func(ctx context.Context, network, address string) (net.Conn, error) {
	if listener, ok := s.config.Listener.(*pipes); ok {
		return listener.dial
	}
	return new(net.Dialer).DialContext
}

type pipeAddress struct{}

func (pipeAddress) Network() string { return "pipe" }
func (pipeAddress) String() string  { return "pipe" }

// closed ends a server and, before, the connections of its client, for which the server would wait.
func closed(t *testing.T, s *Server, client *http.Client) {
	t.Helper()
	client.CloseIdleConnections()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// inMemory starts a server of values alone, and returns it with its administrator's client.
func inMemory(t *testing.T, change func(*Config)) (*Server, *http.Client) {
	t.Helper()
	listener := newPipes()
	c := Defaults()
	c.DataDir, c.Storage, c.Listener, c.Logger = "", "memory", listener, slog.New(slog.DiscardHandler)
	if change != nil {
		change(&c)
	}
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	authority, admin := s.Administrator()
	certificate, err := tls.X509KeyPair(admin.Cert, admin.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return s, &http.Client{Transport: &http.Transport{
		DialContext: listener.dial, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}},
	}}
}

// ask sends a request and returns the response, which has the status want.
func ask(t *testing.T, s *Server, client *http.Client, method, path, body string, want int) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != want {
		text, _ := io.ReadAll(answer.Body)
		t.Fatalf("%s %s: %s, want %d: %s", method, path, answer.Status, want, text)
	}
	return answer
}

// told is the whole body of a response.
func told(t *testing.T, answer *http.Response) string {
	t.Helper()
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// watched is an event of a watch.
type watched struct {
	Type   string
	Object struct {
		Metadata struct{ Name string }
	}
}

// next reads an event of a watch.
func next(t *testing.T, events *bufio.Reader) (e watched) {
	t.Helper()
	line, err := events.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(line, &e); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	return e
}

// Two servers share a process: each has its listener, its store and its certificates as values, and neither opens a
// port or writes a file. After Close nothing of them runs.
//
// SPEC: RUN-5
func TestInOneProcess(t *testing.T) {
	home := t.TempDir()
	t.Chdir(home)
	t.Setenv("HOME", home)
	before := ours()
	one, client := inMemory(t, nil)
	two, other := inMemory(t, nil)
	watch := ask(t, one, client, http.MethodGet, configMaps+"?watch=true&fieldSelector=metadata.name%3Da", "", 200)
	told(t, ask(t, one, client, http.MethodPost, configMaps, `{"metadata": {"name": "a"}}`, 201))
	if e := next(t, bufio.NewReader(watch.Body)); e.Type != "ADDED" || e.Object.Metadata.Name != "a" {
		t.Errorf("the watch sends %+v", e)
	}
	if list := told(t, ask(t, one, client, http.MethodGet, configMaps, "", 200)); !strings.Contains(list, `"name":"a"`) {
		t.Errorf("the list is %s", list)
	}
	told(t, ask(t, two, other, http.MethodGet, configMaps+"/a", "", 404))
	watch.Body.Close()
	deadline := time.After(10 * time.Second)
	for _, c := range []*http.Client{client, other} {
		c.CloseIdleConnections()
	}
	for _, s := range []*Server{one, two} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for left := ours(); left > before; left = ours() { // the clients' ends of connections may outlive Close for a moment
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("%d goroutines more than before still run", left-before)
		}
	}
	err := filepath.WalkDir(home, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			t.Errorf("%s was written", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// ours is the number of goroutines that run code of this program, besides the caller's.
func ours() (n int) {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if bytes.Contains(stack, []byte(module)) && !bytes.Contains(stack, []byte("testing.tRunner")) {
			n++
		}
	}
	return n
}

// In a bubble of testing/synctest a server lives in virtual time: what it waits for comes when the bubble sleeps. The
// bubble ends only if no goroutine of the server is left.
//
// SPEC: RUN-5
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, client := inMemory(t, func(c *Config) { c.EventTTL = 10 * time.Minute })
		const events = "/api/v1/namespaces/default/events"
		const lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
		watch := ask(t, s, client, http.MethodGet, events+"?watch=true&allowWatchBookmarks=true", "", 200)
		stream := bufio.NewReader(watch.Body)
		if e := next(t, stream); e.Type != "BOOKMARK" { // the end of the initial events
			t.Errorf("the watch sends %+v", e)
		}
		told(t, ask(t, s, client, http.MethodPost, events,
			`{"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}`, 201))
		if e := next(t, stream); e.Type != "ADDED" || e.Object.Metadata.Name != "e" {
			t.Errorf("the watch sends %+v", e)
		}
		renewed := told(t, ask(t, s, client, http.MethodGet, lease, "", 200))
		began := time.Now()
		if e := next(t, stream); e.Type != "BOOKMARK" { // the test waits, so time passes
			t.Errorf("the watch sends %+v", e)
		}
		if took := time.Since(began); took < 30*time.Second || took > 2*time.Minute {
			t.Errorf("a bookmark comes after %s", took)
		}
		if again := told(t, ask(t, s, client, http.MethodGet, lease, "", 200)); again == renewed {
			t.Errorf("the identity Lease was not renewed: %s", again)
		}
		for e := next(t, stream); e.Type != "DELETED"; e = next(t, stream) {
			if e.Type != "BOOKMARK" {
				t.Errorf("the watch sends %+v", e)
			}
		}
		if took := time.Since(began); took < 9*time.Minute || took > 15*time.Minute {
			t.Errorf("the Event expires after %s", took)
		}
		told(t, ask(t, s, client, http.MethodGet, events+"/e", "", 404))
		watch.Body.Close()
		client.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A server signs with the authority that it is given, and with certificates that its clock dates.
//
// SPEC: RUN-5
func TestAuthorityAsAValue(t *testing.T) {
	at := time.Now().Add(40 * 24 * time.Hour)
	given, err := pki.New(ownAuthority, at)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := inMemory(t, func(c *Config) { c.Now = func() time.Time { return at } })
	defer first.Close()
	if !first.certificates.own.NotBefore.Equal(at.Add(-5 * time.Minute).UTC().Truncate(time.Second)) {
		t.Errorf("the certificate is from %s, not from %s", first.certificates.own.NotBefore, at)
	}
	for range 2 {
		s, _ := inMemory(t, func(c *Config) { c.Authority, c.Now = given, func() time.Time { return at } })
		if authority, _ := s.Administrator(); !bytes.Equal(authority, given.Cert) {
			t.Error("the server has another authority")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plinth/object"
)

// transportOf is the transport of the client that calls a configuration.
func transportOf(t *testing.T, c *Clients, config object.Value) *http.Transport {
	t.Helper()
	made, err := c.of(t.Context(), NewConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	return made.http.Transport.(counting).RoundTripper.(*http.Transport)
}

// A webhook on this machine that offers HTTP/2 is called with it, over one connection: also by calls at one time.
//
// SPEC: EXT-1
func TestHTTP2(t *testing.T) {
	const calls = 8
	var opened, waiting atomic.Int64
	together := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) == "wait" { // for all others
			if waiting.Add(1) == calls {
				close(together)
			}
			select {
			case <-together:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, r.Proto)
	}))
	s.EnableHTTP2 = true
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.StartTLS()
	defer s.Close()
	c, config := &Clients{}, at(s, "/")
	defer transportOf(t, c, config).CloseIdleConnections()
	call := func(body string) {
		if got, err := c.Call(t.Context(), config, []byte(body)); string(got) != "HTTP/2.0" || err != nil {
			t.Errorf("have %q, %v, want HTTP/2.0", got, err)
		}
	}
	call("first")
	var all sync.WaitGroup
	for range calls {
		all.Go(func() { call("wait") })
	}
	all.Wait()
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections were opened, want 1", n)
	}
}

// closing is a connection that says when the client closes it.
type closing struct {
	net.Conn
	closed chan<- struct{}
}

func (c closing) Close() error {
	c.closed <- struct{}{}
	return c.Conn.Close()
}

// A webhook may close connections that are idle, or end and be started again: the next call opens a new one. One that
// closes a connection without a response is not called again, be the connection a new one or not.
//
// SPEC: EXT-1
func TestClosedWhileIdle(t *testing.T) {
	var calls atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		body, _ := io.ReadAll(r.Body)
		if string(body) == "cut" {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(body)
	}))
	defer s.Close()
	c, config, closed := &Clients{}, at(s, "/"), make(chan struct{}, 100)
	transport := transportOf(t, c, config)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		made, err := dial(ctx, network, address)
		return closing{made, closed}, err
	}
	for i := range 3 {
		body := fmt.Sprint("call ", i)
		if got, err := c.Call(t.Context(), config, []byte(body)); string(got) != body || err != nil {
			t.Errorf("have %q, %v, want %s", got, err, body)
		}
		s.CloseClientConnections()
		<-closed // here, too
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("the webhook has seen %d calls, want 3", n)
	}
	for _, which := range []string{"new", "used"} {
		calls.Store(0)
		if _, err := c.Call(t.Context(), config, []byte("cut")); !errors.Is(err, io.EOF) || calls.Load() != 1 {
			t.Errorf("a webhook that hangs up on a %s connection: have %v after %d calls, want EOF after 1", which, err, calls.Load())
		}
		if _, err := c.Call(t.Context(), config, []byte("x")); err != nil {
			t.Error(err)
		}
	}
}

// rawServer answers each request whose headers it has read with a text, and hangs up.
func rawServer(t *testing.T, text func(w io.Writer)) *httptest.Server {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		text(conn)
		_ = conn.Close()
	}))
	t.Cleanup(s.Close)
	return s
}

// SPEC: EXT-1
func TestOddResponses(t *testing.T) {
	c := &Clients{}
	early := rawServer(t, func(w io.Writer) {
		_, _ = io.WriteString(w, "HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 0\r\n\r\n")
	})
	if _, err := c.Call(t.Context(), at(early, "/"), []byte("x")); err == nil || !strings.Contains(err.Error(), "413") {
		t.Errorf("an answer before the body: have %v, want that answer", err)
	}
	for want, server := range map[string]*httptest.Server{
		"malformed HTTP response": rawServer(t, func(w io.Writer) { _, _ = io.WriteString(w, "hello\r\n\r\n") }),
	} {
		if _, err := c.Call(t.Context(), at(server, "/"), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("have %v, want %s", err, want)
		}
	}
}

// A call through a proxy.
//
// SPEC: EXT-1
func TestThroughAProxy(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "here")
	}))
	defer s.Close()
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Method + " " + r.Host)
		to, err := net.Dial("tcp", r.Host)
		if err != nil {
			t.Error(err)
			return
		}
		w.WriteHeader(http.StatusOK)
		from, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() { _, _ = io.Copy(to, in) }()
		_, _ = io.Copy(from, to)
	}))
	defer proxy.Close()
	c := &Clients{}
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	tr := transportOf(t, c, at(s, "/"))
	tr.Proxy = http.ProxyURL(address)
	defer tr.CloseIdleConnections()
	got, err := c.Call(t.Context(), at(s, "/"), nil)
	if want := "CONNECT " + s.Listener.Addr().String(); string(got) != "here" || err != nil || asked.Load() != want {
		t.Errorf("have %q, %v by %v, want here by %s", got, err, asked.Load(), want)
	}
}

// BenchmarkCall measures a call.
func BenchmarkCall(b *testing.B) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, strings.Repeat("x", 100))
	})
	for _, http2 := range []bool{false, true} {
		b.Run(fmt.Sprintf("http2=%v", http2), func(b *testing.B) {
			s := httptest.NewUnstartedServer(answer)
			s.EnableHTTP2 = http2
			s.StartTLS()
			defer s.Close()
			c, config := &Clients{}, NewConfig(at(s, "/"))
			body := bytes.Repeat([]byte("x"), 1500)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.CallWithin(b.Context(), config, callTimeout, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

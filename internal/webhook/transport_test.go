package webhook

import (
	"bufio"
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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"plinth/object"
)

// transportOf is the transport of the client that calls a configuration.
func transportOf(t *testing.T, c *Clients, config object.Value) *transport {
	t.Helper()
	made, err := c.of(NewConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	return made.http.Transport.(*transport)
}

// A webhook on this machine that offers HTTP/2 is called with it; http.Transport does that.
//
// SPEC: EXT-1
func TestHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.Proto, body)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	c := &Clients{}
	for range 3 {
		if got, err := c.Call(t.Context(), at(s, "/"), []byte("x")); string(got) != "HTTP/2.0 x" || err != nil {
			t.Errorf("have %q, %v, want HTTP/2.0", got, err)
		}
	}
	if !transportOf(t, c, at(s, "/")).http2.Load() {
		t.Error("the transport has not noticed that the webhook speaks HTTP/2")
	}
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
		if r.URL.Path == "/cut" {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(body)
	}))
	defer s.Close()
	c := &Clients{}
	for i := range 3 {
		body := fmt.Sprint("call ", i)
		if got, err := c.Call(t.Context(), at(s, "/"), []byte(body)); string(got) != body || err != nil {
			t.Errorf("have %q, %v, want %s", got, err, body)
		}
		s.CloseClientConnections()
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("the webhook has seen %d calls, want 3", n)
	}
	calls.Store(0)
	if _, err := c.Call(t.Context(), at(s, "/cut"), []byte("x")); !errors.Is(err, io.EOF) || calls.Load() != 1 {
		t.Errorf("a webhook that hangs up: have %v after %d calls, want EOF after 1", err, calls.Load())
	}
	if _, err := c.Call(t.Context(), at(s, "/"), []byte("x")); err != nil {
		t.Error(err)
	}
	calls.Store(0)
	if _, err := c.Call(t.Context(), at(s, "/cut"), []byte("x")); !errors.Is(err, io.EOF) || calls.Load() != 1 {
		t.Errorf("a webhook that hangs up later: have %v after %d calls, want EOF after 1", err, calls.Load())
	}
}

// failing is a connection that is open and cannot be written to.
type failing struct {
	net.Conn
	after int // bytes that are written before
}

func (f failing) Write([]byte) (int, error) { return f.after, syscall.EPIPE }
func (f failing) Read([]byte) (int, error)  { return 0, io.EOF }

// A call is made again over another connection if nothing was written to the first one, and not otherwise.
//
// SPEC: EXT-1
func TestNothingWritten(t *testing.T) {
	var calls atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		_, _ = io.Copy(w, r.Body)
	}))
	defer s.Close()
	c := &Clients{}
	for after, again := range []bool{true, false} {
		calls.Store(0)
		tr := transportOf(t, c, at(s, "/"))
		tr.closeIdle()
		if _, err := c.Call(t.Context(), at(s, "/"), []byte("x")); err != nil {
			t.Fatal(err)
		}
		idle := tr.last()
		idle.Conn = failing{idle.Conn, after}
		idle.limit.R = idle.Conn
		tr.put(idle)
		got, err := c.Call(t.Context(), at(s, "/"), []byte("y"))
		if again && (string(got) != "y" || err != nil || calls.Load() != 2) {
			t.Errorf("nothing was written: have %q, %v after %d calls, want y after 2", got, err, calls.Load())
		}
		if !again && (!errors.Is(err, syscall.EPIPE) || calls.Load() != 1) {
			t.Errorf("something was written: have %q, %v after %d calls, want an error after 1", got, err, calls.Load())
		}
	}
}

// A connection is not kept when its call was interrupted, or when the webhook says that it closes it.
//
// SPEC: EXT-1
func TestWhichConnectionsAreKept(t *testing.T) {
	began := make(chan struct{})
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/hang":
			close(began)
			<-r.Context().Done()
		case "/close":
			w.Header().Set("Connection", "close")
		case "/interim":
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusProcessing)
			_, _ = io.WriteString(w, "done")
		}
	}))
	defer s.Close()
	c := &Clients{}
	kept := func(path string) int {
		tr := transportOf(t, c, at(s, path))
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return len(tr.idle)
	}
	got, err := c.Call(t.Context(), at(s, "/interim"), nil)
	if n := kept("/interim"); string(got) != "done" || err != nil || n != 1 {
		t.Errorf("after interim responses: have %q, %v and %d idle connections, want done and 1", got, err, n)
	}
	if _, err := c.Call(t.Context(), at(s, "/close"), nil); err != nil || kept("/close") != 0 {
		t.Errorf("a response that closes: have %v and %d idle connections, want 0", err, kept("/close"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	if _, err := c.Call(ctx, at(s, "/hang"), nil); !errors.Is(err, context.Canceled) || kept("/hang") != 0 {
		t.Errorf("a call that is canceled: have %v and %d idle connections, want Canceled and 0", err, kept("/hang"))
	}
	tr := transportOf(t, c, at(s, "/interim"))
	tr.expire(time.Now().Add(idleTime - time.Hour))
	if kept("/interim") != 1 {
		t.Error("a connection was closed before it was idle for idleTime")
	}
	tr.expire(time.Now().Add(idleTime))
	if kept("/interim") != 0 {
		t.Error("a connection that is idle for idleTime is kept")
	}
	for range maxIdle + 3 {
		here, _ := net.Pipe()
		tr.put(&connection{Conn: here})
	}
	if kept("/interim") != maxIdle {
		t.Errorf("%d idle connections, want at most %d", kept("/interim"), maxIdle)
	}
	tr.CloseIdleConnections()
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
		"unexpected EOF": rawServer(t, func(w io.Writer) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\n")
			for range maxHeader/1000 + 100 {
				_, _ = io.WriteString(w, "X: "+strings.Repeat("x", 1000)+"\r\n")
			}
			_, _ = io.WriteString(w, "\r\n")
		}),
		"too many 1xx": rawServer(t, func(w io.Writer) {
			_, _ = io.WriteString(w, strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", maxInterim+1)+"HTTP/1.1 200 OK\r\n\r\n")
		}),
		"malformed HTTP response": rawServer(t, func(w io.Writer) { _, _ = io.WriteString(w, "hello\r\n\r\n") }),
	} {
		if _, err := c.Call(t.Context(), at(server, "/"), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("have %v, want %s", err, want)
		}
	}
}

// A call through a proxy is left to http.Transport.
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
	tr.other.Proxy = http.ProxyURL(address)
	defer tr.CloseIdleConnections()
	got, err := c.Call(t.Context(), at(s, "/"), nil)
	if want := "CONNECT " + s.Listener.Addr().String(); string(got) != "here" || err != nil || asked.Load() != want {
		t.Errorf("have %q, %v by %v, want here by %s", got, err, asked.Load(), want)
	}
}

// BenchmarkCall measures a call, by the transport and by http.Transport alone.
func BenchmarkCall(b *testing.B) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, bufio.NewReader(r.Body))
		_, _ = io.WriteString(w, strings.Repeat("x", 100))
	}))
	defer s.Close()
	for _, by := range []string{"transport", "http.Transport"} {
		b.Run(by, func(b *testing.B) {
			c, config := &Clients{}, NewConfig(at(s, "/"))
			made, err := c.of(config)
			if err != nil {
				b.Fatal(err)
			}
			if by != "transport" {
				made.http.Transport = made.http.Transport.(*transport).other
			}
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

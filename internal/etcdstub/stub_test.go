package etcdstub

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// free is a URL at which no server listens at this moment.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// run starts a stub, and ends it with the test.
func run(t *testing.T, c Config) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, c) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// An API server that starts before its stub waits for it, and learns where the data are.
//
// SPEC: RUN-2
func TestFind(t *testing.T) {
	dir, at := filepath.Join(t.TempDir(), "new"), free(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	time.AfterFunc(50*time.Millisecond, func() { run(t, Config{DataDir: dir, NoSync: true, URLs: []string{at}}) })
	m, err := Find(ctx, at+"/", nil)
	if err != nil || m.DataDir != dir || !m.NoSync {
		t.Fatalf("found %+v, %v", m, err)
	}
	for path, want := range map[string]string{
		"/health": `"health":"true"`, "/version": `"etcdserver":"3.`, "/readyz": "ok", "/livez": "ok", "/v2/keys": "404",
	} {
		answer, err := http.Get(at + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if !strings.Contains(string(text), want) {
			t.Errorf("%s: %s", path, text)
		}
	}
	// The directory of another machine may bear the same name.
	if err := os.WriteFile(filepath.Join(dir, tokenFile), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(ctx, at, nil); err == nil || !strings.Contains(err.Error(), "not on this machine") {
		t.Errorf("a stub of another machine: %v", err)
	}
}

// A connection that is closed without an answer, as by a proxy whose server is not there yet, is opened again.
//
// SPEC: RUN-2
func TestFindsBehindClosedConnections(t *testing.T) {
	for name, turnDown := range map[string]func(net.Conn){
		"reset": func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) },
		"ended": func(c net.Conn) { _, _ = http.ReadRequest(bufio.NewReader(c)) },
		"cut short": func(c net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
		},
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		turnedDown := make(chan struct{})
		go func() {
			defer close(turnedDown)
			for range 3 {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				turnDown(c)
				c.Close()
			}
			_ = http.Serve(listener, http.NotFoundHandler())
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := Find(ctx, "http://"+listener.Addr().String(), nil); !errors.Is(err, ErrNoStub) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		listener.Close()
		<-turnedDown
	}
}

// No other server is taken for a stub, above all no real etcd.
//
// SPEC: RUN-2
func TestFindsNoOther(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"etcd":           http.NotFound,
		"something else": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"dataDir":"/"}`) },
		"a page":         func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
	} {
		server := httptest.NewServer(answer)
		if _, err := Find(t.Context(), server.URL, nil); !errors.Is(err, ErrNoStub) {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := Find(ctx, free(t), nil); err == nil {
		t.Error("nobody answers, and something was found")
	}
}

// A stub does not start in the data directory of a real etcd, nor with a URL at which no client could reach it.
//
// SPEC: RUN-2
func TestServeRefuses(t *testing.T) {
	real := t.TempDir()
	if err := os.Mkdir(filepath.Join(real, "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]Config{
		"real etcd":   {DataDir: real, URLs: []string{free(t)}},
		"certificate": {DataDir: t.TempDir(), URLs: []string{strings.Replace(free(t), "http", "https", 1)}},
		"client URL":  {DataDir: t.TempDir(), URLs: []string{"unix:///x"}},
	} {
		if err := Serve(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

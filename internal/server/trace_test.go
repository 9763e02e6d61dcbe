package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"plinth/internal/features"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
)

// The limits on the depth of the call path of a request (ARCHITECTURE, "The path of a request", describes the path).
const (
	maxFrames   = 14
	maxPackages = 12
)

// module is the path of this module and a slash.
var module = strings.TrimSuffix(reflect.TypeFor[Server]().PkgPath(), "internal/server")

// way is the call path of a request to where it was traced: the functions of this repository from the handler down.
type way []string

// trace reads the way from the stack. It is empty if the handler is not on the stack, as in another goroutine.
func trace() way {
	callers := make([]uintptr, 256)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	var found way
	for {
		frame, more := frames.Next()
		if strings.HasPrefix(frame.Function, module) && !strings.Contains(frame.File, "_test.go") {
			found = append(found, frame.Function)
			if strings.HasSuffix(frame.Function, "httpapi.(*Handler).ServeHTTP") {
				return found
			}
		}
		if !more {
			return nil
		}
	}
}

func (w way) check(t *testing.T, what string) {
	t.Helper()
	if len(w) == 0 {
		t.Errorf("%s: it did not happen on the goroutine of the handler", what)
		return
	}
	packages := map[string]bool{}
	for _, f := range w {
		slash := strings.LastIndexByte(f, '/')
		packages[f[:slash+1+strings.IndexByte(f[slash+1:], '.')]] = true
	}
	t.Logf("%s: %d frames in %d packages\n\t%s", what, len(w), len(packages), strings.Join(w, "\n\t"))
	if len(w) > maxFrames || len(packages) > maxPackages {
		t.Errorf("%s: %d frames in %d packages, the budget is %d and %d", what, len(w), len(packages), maxFrames, maxPackages)
	}
	// A package that appears twice on the stack, with another one in between, was called back.
	left, last := map[string]bool{}, ""
	for _, f := range w {
		slash := strings.LastIndexByte(f, '/')
		p := f[:slash+1+strings.IndexByte(f[slash+1:], '.')]
		if left[p] {
			t.Errorf("%s: %s is called back: %s", what, p, strings.Join(w, " < "))
		}
		if p != last && last != "" {
			left[last] = true
		}
		last = p
	}
}

// tracedLog records the way of the last append.
type tracedLog struct {
	store.Log
	last way
}

func (l *tracedLog) Append(commits []*store.Commit) error {
	l.last = trace()
	return l.Log.Append(commits)
}

// tracedWriter records the way of the first write of a response.
type tracedWriter struct {
	*httptest.ResponseRecorder
	first way
}

func (w *tracedWriter) Write(b []byte) (int, error) {
	if w.first == nil {
		w.first = trace()
	}
	return w.ResponseRecorder.Write(b)
}

// A request takes one straight path, on one goroutine, from the handler to the log or to the response.
// SPEC: STORE-1
func TestTheWayOfARequest(t *testing.T) {
	c := Defaults()
	c.DataDir, c.Storage, c.SecurePort = t.TempDir(), "memory", 0
	c.TokenAuthFile = tokenFile(t, c.DataDir)
	log := &tracedLog{Log: memlog.New()}
	// The server's own writes take another path, and would commit a concurrent write of a request along with them.
	c.Controllers = nil
	c.Log = log
	s := &Server{config: c, features: features.Set{}.With(features.APIServerIdentity, false)}
	if err := s.config.validate(); err != nil {
		t.Fatal(err)
	}
	if err := s.open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	send := func(method, path, body string, contentType ...string) *tracedWriter {
		t.Helper()
		log.last = nil
		r := asAdmin(httptest.NewRequest(method, path, strings.NewReader(body)))
		r.Header["Content-Type"] = contentType
		w := &tracedWriter{ResponseRecorder: httptest.NewRecorder()}
		s.http.Handler.ServeHTTP(w, r)
		if w.Code >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return w
	}
	const pods = "/api/v1/namespaces/default/pods"
	send(http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"default"}}`)
	send(http.MethodPost, pods, `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	log.last.check(t, "create, down to the log")
	send(http.MethodGet, pods+"/a", "").first.check(t, "get, down to the answer")
	send(http.MethodPut, "/api/v1/namespaces/default", `{"metadata":{"name":"default","labels":{"x":"y"}}}`)
	log.last.check(t, "update, down to the log")
	send(http.MethodPatch, pods+"/a?fieldManager=m",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"x":"y"}}}`,
		"application/apply-patch+yaml")
	log.last.check(t, "apply, down to the log")
	send(http.MethodPatch, pods+"/a", `{"metadata":{"labels":{"x":"z"}}}`, "application/merge-patch+json")
	log.last.check(t, "patch, down to the log")
	send(http.MethodDelete, pods+"/a", `{"gracePeriodSeconds":0}`, "application/json")
	log.last.check(t, "delete, down to the log")
}

// A server prints its address, serves authenticated clients, keeps its objects over a restart, and closes cleanly.
// SPEC: AUTH-1, STORE-1, URI-8
func TestServeAndRestart(t *testing.T) {
	c := Defaults()
	c.DataDir, c.SecurePort = filepath.Join(t.TempDir(), "data"), 0
	start := func() (*Server, *http.Client) {
		t.Helper()
		s, err := Start(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := tls.X509KeyPair(s.certificates.admin.Cert, s.certificates.admin.Key)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(s.certificates.pki.Certificate)
		return s, &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
			RootCAs: roots, Certificates: []tls.Certificate{certificate}}}}
	}
	do := func(s *Server, client *http.Client, method, path, body string, want int) string {
		t.Helper()
		r, err := http.NewRequest(method, s.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != want {
			t.Fatalf("%s %s: %d %s, %v", method, path, answer.StatusCode, text, err)
		}
		return string(text)
	}
	s, client := start()
	do(s, client, http.MethodPost, "/api/v1/namespaces/default/configmaps",
		`{"metadata":{"name":"kept"},"data":{"a":"b"}}`, 201)
	before := do(s, client, http.MethodGet, "/api/v1/namespaces/default/configmaps/kept", "", 200)
	if ready := do(s, client, http.MethodGet, "/readyz", "", 200); ready != "ok" {
		t.Errorf("/readyz says %s", ready)
	}
	figures := do(s, client, http.MethodGet, "/metrics", "", 200)
	for _, name := range []string{
		`apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_resource_objects{group="",resource="namespaces"} 4`, "apiserver_request_duration_seconds_bucket",
		"plinth_store_revision",
	} {
		if !strings.Contains(figures, name) {
			t.Errorf("/metrics has no %s", name)
		}
	}
	without := client.Transport.(*http.Transport).TLSClientConfig.Clone()
	without.Certificates = nil
	nobody := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: without}}
	do(s, nobody, http.MethodGet, "/api/v1/namespaces", "", 403)
	do(s, nobody, http.MethodGet, "/version", "", 200)
	client.CloseIdleConnections()
	nobody.CloseIdleConnections()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, client = start()
	defer s.Close()
	defer client.CloseIdleConnections()
	if after := do(s, client, http.MethodGet, "/api/v1/namespaces/default/configmaps/kept", "", 200); after != before {
		t.Errorf("before the restart %s\nafter it %s", before, after)
	}
}

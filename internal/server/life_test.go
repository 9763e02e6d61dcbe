package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func quiet(dir string) Config {
	c := Defaults()
	c.DataDir, c.SecurePort, c.Logger = dir, 0, slog.New(slog.DiscardHandler)
	// Without its identity Lease the server does not write on its own during a test.
	c.FeatureGates = []string{"APIServerIdentity=false", "UnknownVersionInteroperabilityProxy=false"}
	return c
}

// Two servers on one directory would corrupt each other's data; the second one fails with an error, and the first one
// continues.
// SPEC: STORE-1
func TestSecondServer(t *testing.T) {
	c := quiet(t.TempDir())
	first, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := Start(t.Context(), c)
	if err == nil {
		second.Close()
		t.Fatal("it started")
	}
	if !strings.Contains(err.Error(), c.DataDir) {
		t.Errorf("the error does not say where: %v", err)
	}
	client := clientOf(t, first)
	defer client.CloseIdleConnections()
	if _, _, err := client.do(t.Context(), http.MethodGet, "/api/v1/namespaces", "", nil, 200); err != nil {
		t.Error(err)
	}
}

// Events of both groups are deleted when they expire: watchers receive the deletions, and readers no longer find the
// Events. Other objects do not expire.
// SPEC: URI-10
func TestEventsExpire(t *testing.T) {
	c := quiet(t.TempDir())
	began := time.Now()
	var passed atomic.Int64 // since then: the server's clock moves only by this
	asked := make(chan struct{})
	c.Now = func() time.Time {
		select {
		case asked <- struct{}{}:
		default:
		}
		return began.Add(time.Duration(passed.Load()))
	}
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := clientOf(t, s)
	defer client.CloseIdleConnections() // otherwise the server waits for it
	const (
		core   = "/api/v1/namespaces/default/events"
		modern = "/apis/events.k8s.io/v1/namespaces/default/events"
		config = "/api/v1/namespaces/default/configmaps"
	)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	watch, err := client.send(ctx, http.MethodGet, modern+"?watch=1", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	regarding := map[string]any{"namespace": "default", "kind": "Pod", "name": "p"}
	for path, body := range map[string]jsonObject{
		core: {"metadata": map[string]any{"name": "old"}, "involvedObject": regarding},
		modern: {"metadata": map[string]any{"name": "new"}, "regarding": regarding,
			"eventTime":           "2026-01-01T00:00:00.000000Z",
			"reportingController": "example.com/c", "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal"},
		config: {"metadata": map[string]any{"name": "c"}},
	} {
		if _, _, err := client.do(ctx, http.MethodPost, path, "application/json", body, 201); err != nil {
			t.Fatal(err)
		}
	}
	events := json.NewDecoder(watch.Body)
	told := func(want string) {
		t.Helper()
		var names []string
		for range 2 {
			var event struct {
				Type   string
				Object jsonObject
			}
			if err := events.Decode(&event); err != nil {
				t.Fatalf("%v, after %v", err, names)
			}
			names = append(names, event.Type+" "+event.Object.text("metadata", "name"))
		}
		slices.Sort(names)
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("told was %s, want %s", got, want)
		}
	}
	told("ADDED new, ADDED old")
	passed.Store(int64(c.EventTTL - 5*time.Minute)) // they have some minutes left
	for range 5 {                                   // by then the store has found and deleted the expired ones
		<-asked
	}
	for _, path := range []string{core + "/old", modern + "/new"} {
		if _, _, err := client.do(ctx, http.MethodGet, path, "", nil, 200); err != nil {
			t.Error(err)
		}
	}
	passed.Store(int64(c.EventTTL + time.Second))
	told("DELETED new, DELETED old")
	for path, code := range map[string]int{core + "/old": 404, core + "/new": 404, modern + "/old": 404,
		config + "/c": 200} {
		if _, _, err := client.do(ctx, http.MethodGet, path, "", nil, code); err != nil {
			t.Error(err)
		}
	}
}

// Watches end when the server closes, and it does not wait for anything else.
// SPEC: WATCH-6
func TestCloseWithOpenWatches(t *testing.T) {
	c := quiet(t.TempDir())
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	client := clientOf(t, s)
	ended := make(chan error)
	for range 5 {
		answer, err := client.send(context.Background(), http.MethodGet, "/api/v1/pods?watch=1", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer answer.Body.Close()
			_, err := answer.Body.Read(make([]byte, 1))
			ended <- err
		}()
	}
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range 5 {
		if err := <-ended; err == nil || err.Error() != "EOF" {
			t.Errorf("a watch ended with %v", err)
		}
	}
	if took := time.Since(began); took > s.config.drainTime()/2 {
		t.Errorf("it took %s", took)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing it again: %v", err)
	}
}

// goroutines counts those that run code of this repository, tests aside.
func goroutines() (n int, stacks string) {
	buffer := make([]byte, 4<<20)
	buffer = buffer[:runtime.Stack(buffer, true)]
	for stack := range strings.SplitSeq(string(buffer), "\n\n") {
		if strings.Contains(stack, module) && !strings.Contains(stack, "testing.tRunner") {
			n, stacks = n+1, stacks+stack+"\n\n"
		}
	}
	return n, stacks
}

// A server that is closed at once leaves no goroutine, no port and no lock on its directory. Its start was complete
// nevertheless: with the files that it has written, clients of the next server reach the same objects.
// SPEC: STORE-1
func TestStartAndCloseAtOnce(t *testing.T) {
	c := quiet(t.TempDir())
	before, _ := goroutines()
	var authority []byte
	for i := range 5 {
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		address := strings.TrimPrefix(s.URL(), "https://")
		if during, _ := goroutines(); during <= before {
			t.Fatalf("%d goroutines before, %d with a server: they are not counted", before, during)
		}
		if connection, err := net.DialTimeout("tcp", address, 5*time.Second); err != nil {
			t.Errorf("while it runs: %v", err)
		} else {
			connection.Close()
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if connection, err := net.DialTimeout("tcp", address, 5*time.Second); err == nil {
			connection.Close()
			t.Errorf("closed server %d answers", i)
		}
		ca, err := os.ReadFile(filepath.Join(c.DataDir, "pki", "ca.crt"))
		if err != nil || authority != nil && !bytes.Equal(ca, authority) {
			t.Errorf("server %d has another authority than the one before (%v)", i, err)
		}
		authority = ca
	}
	left, stacks := goroutines()
	for range 100 { // they have been cancelled, and may need a moment
		if left <= before {
			break
		}
		time.Sleep(50 * time.Millisecond)
		left, stacks = goroutines()
	}
	if left > before {
		t.Errorf("%d goroutines before, %d after:\n%s", before, left, stacks)
	}
	file := filepath.Join(c.DataDir, "kubeconfig")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("kubeconfig: %v, %v", info, err)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "server: https://") {
		t.Errorf("kubeconfig: %s (%v)", text, err)
	}
}

// The certificate that the server has generated is checked by /livez, since a restart renews it, and not by /readyz. A
// certificate that the operator has configured is not checked.
//
// SPEC: RUN-3, URI-8
func TestOwnCertificateIsChecked(t *testing.T) {
	c := quiet(t.TempDir())
	c.Storage = "memory"
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := clientOf(t, s)
	defer client.CloseIdleConnections()
	for path, want := range map[string]bool{"/healthz": true, "/livez": true, "/readyz": false} {
		answer, err := client.send(t.Context(), "GET", path+"?verbose", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if is := strings.Contains(string(text), "[+]loopback-serving-certificate ok\n"); err != nil ||
			answer.StatusCode != 200 || is != want {
			t.Errorf("%s: %d %s (%v)", path, answer.StatusCode, text, err)
		}
	}
	if err := s.certificates.expired(s.certificates.own.NotAfter.Add(-time.Second)); err != nil {
		t.Error(err)
	}
	if err := s.certificates.expired(s.certificates.own.NotAfter); err == nil {
		t.Error("an expired certificate is healthy")
	}
	pair := filepath.Join(c.DataDir, "pki", "server")
	c.DataDir, c.TLSCertFile, c.TLSKeyFile = t.TempDir(), pair+".crt", pair+".key"
	given, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	if err := given.certificates.expired(time.Now().AddDate(100, 0, 0)); err != nil {
		t.Errorf("with a certificate of the operator: %v", err)
	}
}

package nodes

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
)

var idle = flag.Int("idle", 1000, "how many upgraded connections wait in TestIdleConnections")

// mostIdle is the memory of an upgraded connection that waits: a TLS connection on each side, three goroutines and
// their small buffers. With 9,500 connections it was 84 to 94 KiB here, and with 3,000 217 KiB in the reference.
const mostIdle = 100 << 10

// resident is the memory of a process.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// A connection that is upgraded and then waits takes little memory, and none that the next one cannot have when it has
// ended.
//
// SPEC: URI-7
func TestIdleConnections(t *testing.T) {
	t.Setenv("NO_PROXY", "*")
	kind := harness.Target()
	if harness.WantReference() {
		kind = harness.Reference
	}
	harness.Release = true
	server := harness.Run(t, harness.Options{Kind: kind})
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		fmt.Fprint(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_, _ = io.Copy(connection, connection) // it echoes
	}))
	defer kubelet.Close()
	create := func(path, body string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
		answer, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusCreated {
			text, _ := io.ReadAll(answer.Body)
			t.Fatalf("%s: %d %s", path, answer.StatusCode, text)
		}
	}
	node, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "node-a"}, "status": map[string]any{
		"addresses": []any{map[string]any{"type": "InternalIP", "address": "127.0.0.1"}},
		"daemonEndpoints": map[string]any{"kubeletEndpoint": map[string]any{
			"Port": kubelet.Listener.Addr().(*net.TCPAddr).Port}}}})
	if err != nil {
		t.Fatal(err)
	}
	create("/api/v1/nodes", string(node))
	create("/api/v1/namespaces/default/pods",
		`{"metadata":{"name":"p"},"spec":{"nodeName":"node-a","containers":[{"name":"c","image":"i"}]}}`)
	pid := server.Pids()[0]
	open(t, server).Close()
	before := resident(t, pid)
	// settled is the memory beyond that at the start for each of n connections, as soon as it is at most so much: what the
	// start of a connection needs, too, is collected and given back after a while.
	settled := func(n, most int) (each int) {
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
			if each = (resident(t, pid) - before) / n; each <= most || time.Now().After(end) {
				return each
			}
		}
	}
	most := mostIdle
	if kind == harness.Reference {
		most = 3 * mostIdle
	}
	for round := range 2 { // those of the first round take nothing any more
		all := make([]net.Conn, *idle)
		var opening sync.WaitGroup
		for part := range 8 {
			opening.Go(func() {
				for i := part; i < len(all); i += 8 {
					all[i] = open(t, server)
				}
			})
		}
		opening.Wait()
		if t.Failed() {
			return
		}
		each := settled(len(all), most)
		t.Logf("%s, round %d: %d MiB before, %d connections take %d KiB each", kind, round, before>>20, len(all), each>>10)
		if each > most {
			t.Errorf("a connection that waits takes %d bytes, more than %d", each, most)
		}
		for _, c := range all {
			c.Close()
		}
	}
}

// open opens an upgraded connection to the Pod, and sees that it echoes.
func open(t *testing.T, server *harness.Server) net.Conn {
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Error(err)
		return nil
	}
	connection, err := dialer.DialContext(ctx, "tcp", at.Host)
	if err != nil {
		t.Error(err)
		return nil
	}
	fmt.Fprintf(connection, "POST %s/api/v1/namespaces/default/pods/p/exec?command=x&stdout=1 HTTP/1.1\r\nHost: x\r\n"+
		"Authorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n",
		at.Path, harness.AdminToken)
	in := bufio.NewReader(connection)
	answer, err := http.ReadResponse(in, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("%v, %v", answer, err)
		return connection
	}
	fmt.Fprintln(connection, "x")
	if line, err := in.ReadString('\n'); line != "x\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	return connection
}

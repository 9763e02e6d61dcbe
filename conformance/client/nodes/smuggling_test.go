package nodes

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/conformance/internal/containers"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
)

// smuggled is the file with what the reference does.
const smuggled = "testdata/smuggling.txt"

// attempt is a request in its own bytes, and what the Pod answers. @ stands for the URL of the Pod's proxy.
type attempt struct{ name, request, answer string }

const (
	ok       = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
	switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\ntunnel"
	upgrade  = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	second   = "GET /smuggled HTTP/1.1\r\nHost: evil\r\n\r\n"
)

var attempts = []attempt{
	{"a plain request", "GET @/x HTTP/1.1\r\n\r\n", ok},
	{"a length and chunks", "POST @/x HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"0\r\n\r\n" + second, ok},
	{"two lengths", "POST @/x HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", ok},
	{"a length twice", "POST @/x HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd", ok},
	{"a length with a sign", "POST @/x HTTP/1.1\r\nContent-Length: +4\r\n\r\nabcd", ok},
	{"chunks of another name", "POST @/x HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", ok},
	{"two encodings", "POST @/x HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", ok},
	{"an encoding twice", "POST @/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"0\r\n\r\n", ok},
	{"chunks", "POST @/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n", ok},
	{"a body with GET", "GET @/x HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd", ok},
	{"a space before the colon", "GET @/x HTTP/1.1\r\nX-A : b\r\n\r\n", ok},
	{"a folded header", "GET @/x HTTP/1.1\r\nX-A: b\r\n c\r\n\r\n", ok},
	{"a carriage return in a header", "GET @/x HTTP/1.1\r\nX-A: b\rX-B: c\r\n\r\n", ok},
	{"lines without a carriage return", "GET @/x HTTP/1.1\nX-A: b\n\n", ok},
	{"a null byte in a header", "GET @/x HTTP/1.1\r\nX-A: b\x00c\r\n\r\n", ok},
	{"hop by hop", "GET @/x HTTP/1.1\r\nConnection: X-A, Te\r\nX-A: a\r\nTe: trailers\r\nKeep-Alive: 1\r\n" +
		"Proxy-Connection: a\r\nTrailer: X-B\r\nProxy-Authorization: a\r\nX-B: b\r\n\r\n", ok},
	{"who the user is", "GET @/x HTTP/1.1\r\nX-Remote-User: eve\r\nX-Remote-Group: system:masters\r\n" +
		"x-remote-extra-a: b\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: ftp\r\nForwarded: for=a\r\n\r\n", ok},
	{"the whole URL", "GET http://evil@/x HTTP/1.1\r\n\r\n", ok},
	{"another method", "TRACE @/x HTTP/1.1\r\n\r\n", ok},
	{"the path above", "GET @/../../../secrets HTTP/1.1\r\n\r\n", ok},
	{"the path above, escaped", "GET @/%2e%2e/%2e%2e/x HTTP/1.1\r\n\r\n", ok},
	{"escaped slashes", "GET @/..%2f..%2fx HTTP/1.1\r\n\r\n", ok},
	{"two slashes", "GET @//evil/x HTTP/1.1\r\n\r\n", ok},
	{"a dot", "GET @/a/./b/../c HTTP/1.1\r\n\r\n", ok},
	{"escaped lines in the path", "GET @/x%20HTTP/1.1%0d%0aX-A:%20b%0d%0a HTTP/1.1\r\n\r\n", ok},
	{"escaped lines in the query", "GET @/x?a=b%0d%0aX-A:%20b&;c=%zz HTTP/1.1\r\n\r\n", ok},
	{"a question mark, escaped", "GET @/x%3fa=b%23c HTTP/1.1\r\n\r\n", ok},
	{"a backslash", "GET @/..\\..\\x HTTP/1.1\r\n\r\n", ok},
	{"an upgrade", "GET @/x HTTP/1.1\r\n" + upgrade + "\r\n", switched},
	{"an upgrade with a length", "GET @/x HTTP/1.1\r\n" + upgrade + "Content-Length: 4\r\n\r\nabcd", switched},
	{"an upgrade with chunks", "POST @/x HTTP/1.1\r\n" + upgrade + "Transfer-Encoding: chunked\r\n\r\n" +
		"4\r\nabcd\r\n0\r\n\r\n", switched},
	{"an upgrade with hop by hop", "GET @/x HTTP/1.1\r\nConnection: Upgrade, X-A\r\nUpgrade: websocket\r\nX-A: a\r\n" +
		"X-Remote-User: eve\r\nTe: trailers\r\nKeep-Alive: 1\r\n\r\n", switched},
	{"an upgrade that is refused", "GET @/x HTTP/1.1\r\n" + upgrade + "\r\n", ok},
	{"an upgrade that is redirected", "GET @/x HTTP/1.1\r\n" + upgrade + "\r\n", "HTTP/1.1 302 Found\r\nLocation: " +
		"http://169.254.169.254/latest/meta-data\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
	{"an upgrade to something else", "GET @/x HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", switched},
	{"an upgrade without a header", "GET @/x HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", ok},
	{"a redirect", "GET @/x HTTP/1.1\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/\r\n" +
		"Content-Length: 0\r\nConnection: close\r\n\r\n"},
	{"an answer that is hop by hop", "GET @/x HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close, X-A\r\n" +
		"X-A: a\r\nKeep-Alive: 1\r\nProxy-Authenticate: a\r\nX-B: b\r\nContent-Length: 2\r\n\r\nok"},
	{"an answer behind the answer", "GET @/x HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" +
		"okHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"},
	{"an answer that switches unasked", "GET @/x HTTP/1.1\r\n\r\n", switched},
	{"no answer", "GET @/x HTTP/1.1\r\n\r\n", ""},
	{"an answer that is none", "GET @/x HTTP/1.1\r\n\r\n", "SSH-2.0-x\r\n\r\n"},
}

// stricter are the requests of which Plinth sends less: the reference passes on the headers for one connection of a
// request that upgrades it, and those that Connection names.
var stricter = []struct{ there, here string }{{
	"GET /x HTTP/1.1\nConnection: Upgrade, X-A\nHost: x\nKeep-Alive: 1\nTe: trailers\nUpgrade: websocket\n" +
		"User-Agent: Go-http-client/1.1\nX-A: a\n",
	"GET /x HTTP/1.1\nConnection: Upgrade\nHost: x\nUpgrade: websocket\nUser-Agent: Go-http-client/1.1\n",
}}

// What goes on to a Pod, and what comes back, is that of one request, however it is written: byte for byte what the
// reference sends.
//
// SPEC: URI-7
func TestSmuggling(t *testing.T) {
	t.Setenv("NO_PROXY", "*")
	if *rewrite {
		text := smuggle(t, harness.Run(t, harness.Options{Kind: harness.Reference}))
		if err := os.WriteFile(smuggled, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	recorded, err := os.ReadFile(smuggled)
	if err != nil {
		t.Fatal(err)
	}
	kind := harness.Target()
	if harness.WantReference() {
		kind = harness.Reference
	}
	want := string(recorded)
	for _, s := range stricter {
		if !strings.Contains(want, s.there) {
			t.Errorf("the reference does not send %q", s.there)
		}
		if kind == harness.Plinth {
			want = strings.Replace(want, s.there, s.here, 1)
		}
	}
	if got := smuggle(t, harness.Run(t, harness.Options{Kind: kind})); got != want {
		t.Errorf("--- wanted\n+++ here\n%s", linediff.Diff(want, got))
	}
}

// pod is the container of a Pod: it reads what it gets, byte for byte.
type pod struct {
	net.Listener
	mu     sync.Mutex
	answer string
	seen   []string // by connection
	served sync.WaitGroup
}

func (p *pod) serve() {
	for {
		connection, err := p.Accept()
		if err != nil {
			return
		}
		p.served.Add(1)
		go func() {
			defer p.served.Done()
			defer connection.Close()
			connection.SetDeadline(time.Now().Add(20 * time.Second))
			in := bufio.NewReader(connection)
			var all bytes.Buffer
			until := func(over func([]byte) bool) {
				for !over(all.Bytes()) {
					b, err := in.ReadByte()
					if err != nil {
						return
					}
					all.WriteByte(b)
				}
			}
			until(func(text []byte) bool { return bytes.HasSuffix(text, []byte("\r\n\r\n")) })
			until(hasBody(all.String()))
			p.mu.Lock()
			answer := p.answer
			p.mu.Unlock()
			io.WriteString(connection, answer)
			if answer != "" { // until the server closes the connection, or the sentinel has come through it
				until(func(text []byte) bool { return bytes.HasSuffix(text, []byte("Sentinel: 1\r\n\r\n")) })
			}
			p.mu.Lock()
			p.seen = append(p.seen, all.String())
			p.mu.Unlock()
		}()
	}
}

// hasBody says whether a text has the whole body of the request that begins with head. An answer before it could end
// the sending of the rest. The bodies of upgrades come after the answer.
func hasBody(head string) func(text []byte) bool {
	length, chunked := 0, false
	for line := range strings.SplitSeq(head, "\r\n") {
		switch name, value, _ := strings.Cut(line, ": "); name {
		case "Upgrade":
			return func([]byte) bool { return true }
		case "Content-Length":
			length, _ = strconv.Atoi(value)
		case "Transfer-Encoding":
			chunked = true
		}
	}
	return func(text []byte) bool {
		body := text[len(head):]
		return len(body) >= length && (!chunked || bytes.HasSuffix(body, []byte("0\r\n\r\n")))
	}
}

// smuggle makes all attempts, and returns what went on and what came back.
func smuggle(t *testing.T, server *harness.Server) string {
	t.Helper()
	address, err := containers.Address()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{Listener: listener}
	defer listener.Close()
	go p.serve()
	port := listener.Addr().(*net.TCPAddr).Port
	call := func(method, path, mediaType, body string) {
		t.Helper()
		request, err := http.NewRequest(method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", mediaType)
		request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
		answer, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if text, _ := io.ReadAll(answer.Body); answer.StatusCode >= 300 {
			t.Fatalf("%s: %d %s", path, answer.StatusCode, text)
		}
	}
	const pods = "/api/v1/namespaces/default/pods"
	call("POST", pods, "application/json", fmt.Sprintf(`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c",`+
		`"image":"i","ports":[{"containerPort":%d}]}]}}`, port))
	call("PATCH", pods+"/p/status", "application/merge-patch+json", fmt.Sprintf(
		`{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}]}}`, address, address))
	private := strings.NewReplacer(net.JoinHostPort(address, strconv.Itoa(port)), "POD", strings.TrimPrefix(server.URL,
		"https://"), "SERVER", harness.AdminToken, "TOKEN")
	var b strings.Builder
	for _, a := range attempts {
		p.mu.Lock()
		p.answer, p.seen = a.answer, nil
		p.mu.Unlock()
		came := exchange(t, server, strings.ReplaceAll(a.request, "@", pods+"/p/proxy"))
		p.served.Wait()
		fmt.Fprintf(&b, "=== %s\n", a.name)
		p.mu.Lock()
		for _, seen := range p.seen {
			fmt.Fprintf(&b, "the Pod gets:\n%s\n", headers(seen))
		}
		p.mu.Unlock()
		fmt.Fprintf(&b, "the client gets:\n%s\n", came)
	}
	return private.Replace(ports.ReplaceAllString(b.String(), "PORT->"))
}

// ports are those of the server's connections to the Pod.
var ports = regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+:\d+->`)

// headers are the lines of a request, those of its header sorted, and what is behind it. The reference asks Pods for
// compressed answers and decompresses them; Plinth passes them on as they come.
func headers(text string) string {
	head, rest, _ := strings.Cut(text, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "Accept-Encoding: gzip" })
	slices.Sort(lines[1:])
	for i, line := range lines {
		lines[i] = strings.Trim(strconv.Quote(line), `"`)
	}
	if rest != "" {
		lines = append(lines, "", strconv.Quote(rest))
	}
	return strings.Join(lines, "\n")
}

// exchange sends the bytes of a request, and behind it another one for /version: the sentinel. It returns all answers.
func exchange(t *testing.T, server *harness.Server, request string) string {
	t.Helper()
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	connection, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(server.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(20 * time.Second))
	first, rest, _ := strings.Cut(request, "\n")
	end := "\r\n"
	if !strings.HasSuffix(first, "\r") {
		end = "\n"
	}
	fmt.Fprintf(connection, "%s\nHost: x%sAuthorization: Bearer %s%s%s", first, end, harness.AdminToken, end, rest)
	in := bufio.NewReader(connection)
	if strings.Contains(request, "Upgrade: ") { // the servers lose what comes before they have switched
		if _, err := in.Peek(1); err != nil {
			return "nothing\n"
		}
	}
	io.WriteString(connection, "GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\nSentinel: 1\r\n\r\n")
	var b strings.Builder
	for {
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return b.String()
		}
		body, _ := io.ReadAll(answer.Body)
		if answer.StatusCode == http.StatusSwitchingProtocols {
			body, _ = io.ReadAll(in)
		}
		if strings.Contains(string(body), "gitVersion") {
			b.WriteString("the version\n")
			continue
		}
		b.WriteString(answer.Status + "\n")
		var status any
		if json.Unmarshal(body, &status) == nil { // its members may be in any order
			body, _ = json.Marshal(status)
			delete(answer.Header, "Content-Length")
		}
		for _, name := range slices.Sorted(maps.Keys(answer.Header)) {
			if name != "Date" && name != "Audit-Id" && !strings.HasPrefix(name, "X-Kubernetes-Pf-") {
				fmt.Fprintf(&b, "%s: %q\n", name, answer.Header[name])
			}
		}
		fmt.Fprintf(&b, "%q\n", body)
	}
}

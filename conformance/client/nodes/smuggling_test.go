package nodes

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
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

	"plinth/conformance/internal/authority"
	"plinth/conformance/internal/containers"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
)

// smuggled is the file with what the reference does.
const smuggled = "testdata/smuggling.txt"

// attempt is a request in its own bytes, and what the backend answers. @ stands for the URL that leads to the backend,
// and BACKEND for its address.
type attempt struct{ name, request, answer string }

const (
	ok        = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
	switched  = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\ntunnel"
	upgrade   = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	second    = "GET /smuggled HTTP/1.1\r\nHost: evil\r\n\r\n"
	forbidden = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"
	evil      = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
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
	{"bytes before the connection is upgraded", "GET @/x HTTP/1.1\r\n" + upgrade + "\r\n" + second, switched},
	{"a request behind an upgrade that is refused", "GET @/x HTTP/1.1\r\n" + upgrade + "\r\n" + second, ok},
	{"a request behind an upgrade that fails", "GET @/x HTTP/1.1\r\n" + upgrade + "\r\n" + second, forbidden},
	{"a request in the body of an upgrade that is refused", "POST @/x HTTP/1.1\r\n" + upgrade + fmt.Sprintf(
		"Content-Length: %d\r\n\r\n", len(second)) + second, ok},
	{"an upgrade with a length and chunks", "POST @/x HTTP/1.1\r\n" + upgrade + "Content-Length: 4\r\n" +
		"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second, switched},
	{"an upgrade that names headers of the user", "GET @/x HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\n" +
		"Connection: X-Remote-User, X-Remote-Group, X-Forwarded-For, Host\r\nUpgrade: websocket\r\n" +
		"X-Remote-User: eve\r\nX-Remote-Extra-A: b\r\nX-Remote-Uid: 1\r\n\r\n", switched},
	{"headers of the user that are hop by hop", "GET @/x HTTP/1.1\r\nConnection: X-Remote-User, X-Remote-Group\r\n" +
		"Connection: X-Remote-Extra-A, X-Remote-Uid, X-Forwarded-For, X-Forwarded-Uri, Host\r\n" +
		"X-Remote-User: eve\r\nX-Remote-Extra-A: b\r\n\r\n", ok},
	{"proxy headers", "GET @/x HTTP/1.1\r\nProxy-Authorization: a\r\nProxy-Authenticate: a\r\n" +
		"Proxy-Connection: keep-alive\r\n\r\n", ok},
	{"trailers", "POST @/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTrailer: X-Remote-User, X-A\r\n\r\n" +
		"4\r\nabcd\r\n0\r\nX-Remote-User: eve\r\nX-A: a\r\n\r\n", ok},
	{"an expectation", "POST @/x HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nabcd", ok},
	{"an upgrade that is answered, and a second answer", "GET @/x HTTP/1.1\r\n" + upgrade + "\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + evil},
	{"an upgrade that fails, and a second answer", "GET @/x HTTP/1.1\r\n" + upgrade + "\r\n", forbidden + evil},
	{"an upgrade that fails in chunks, and a second answer", "GET @/x HTTP/1.1\r\n" + upgrade + "\r\n",
		"HTTP/1.1 500 Error\r\nTransfer-Encoding: chunked\r\nConnection: X-A\r\nX-A: a\r\n\r\n" +
			"2\r\nno\r\n0\r\n\r\n" + evil},
	{"an upgrade that goes on first", "GET @/x HTTP/1.1\r\n" + upgrade + "\r\n",
		"HTTP/1.1 100 Continue\r\n\r\n" + switched},
	{"an upgrade to another protocol than was asked for", "GET @/x HTTP/1.1\r\n" + upgrade + "\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\ntunnel"},
	{"an upgrade without a protocol", "GET @/x HTTP/1.1\r\n" + upgrade + "\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nContent-Length: 6\r\n\r\ntunnel"},
	{"hints before the answer", "GET @/x HTTP/1.1\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok},
	{"an answer with a length and chunks", "GET @/x HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n" +
		"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + evil},
	{"an answer with two lengths", "GET @/x HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" +
		"Content-Length: 3\r\n\r\nok"},
	{"an answer with trailers", "GET @/x HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" +
		"Connection: close\r\nTrailer: X-A\r\n\r\n2\r\nok\r\n0\r\nX-A: a\r\n\r\n"},
	{"a redirect to itself", "GET @/x HTTP/1.1\r\n\r\n", "HTTP/1.1 307 Temporary Redirect\r\n" +
		"Location: http://BACKEND/y?a=b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
	{"a redirect to the same URL", "GET @/x HTTP/1.1\r\n\r\n", "HTTP/1.1 301 Moved Permanently\r\n" +
		"Location: /x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
	{"a redirect of a body", "POST @/x HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd", "HTTP/1.1 308 Permanent Redirect\r\n" +
		"Location: http://169.254.169.254/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
	{"no answer", "GET @/x HTTP/1.1\r\n\r\n", ""},
	{"no answer to an upgrade", "GET @/x HTTP/1.1\r\n" + upgrade + "\r\n", ""},
	{"an answer that is none", "GET @/x HTTP/1.1\r\n\r\n", "SSH-2.0-x\r\n\r\n"},
}

// stricter are the requests of which Plinth sends less: the reference passes on the headers for one connection of a
// request that upgrades it, and those that Connection names.
var stricter = []struct{ there, here string }{
	{"\nConnection: Upgrade, X-A\n", "\nConnection: Upgrade\n"},
	{"\nConnection: X-Remote-User, X-Remote-Group, X-Forwarded-For, Host\nConnection: keep-alive, Upgrade\n",
		"\nConnection: Upgrade\n"},
	{"\nKeep-Alive: 1\nTe: trailers\nUpgrade: websocket\n", "\nUpgrade: websocket\n"},
	{"\nUser-Agent: Go-http-client/1.1\nX-A: a\n", "\nUser-Agent: Go-http-client/1.1\n"},
	// httputil.ReverseProxy clears the headers after an informational answer. Behind the reference's aggregation, its
	// own header is another one than that of the answer, which gets those of the informational one once more.
	{"200 OK\nCache-Control: [\"no-cache, private\"]\n" + plainText + "Link: [\"</a>\"]\n", "200 OK\n" + plainText},
}

const plainText = "Content-Length: [\"2\"]\nContent-Type: [\"text/plain; charset=utf-8\"]\n"

// route is a URL that leads to a backend.
type route struct {
	name, url string
	query     string // of the attempts: the URL has no path behind it
	path      string // of the attempts at the backend; "": that behind the URL
}

var routes = []route{
	{name: "pods/proxy", url: "/api/v1/namespaces/default/pods/p:PLAIN/proxy"},
	{name: "services/proxy", url: "/api/v1/namespaces/default/services/s:web/proxy"},
	{name: "nodes/proxy, a port", url: "/api/v1/nodes/n:PLAIN/proxy"},
	{name: "nodes/proxy, the kubelet", url: "/api/v1/nodes/n/proxy"},
	{"pods/exec", "/api/v1/namespaces/default/pods/p/exec", "?command=x&stdout=1",
		"/exec/default/p/c?command=x&output=1"},
	{"pods/portforward", "/api/v1/namespaces/default/pods/p/portforward", "?ports=1", "/portForward/default/p?port=1"},
	{logs, "/api/v1/namespaces/default/pods/p/log", "?container=c", "/containerLogs/default/p/c"},
	{name: "an aggregated API", url: aggregated},
}

// aggregated is the URL of an aggregated API.
const aggregated = "/apis/attempts.example.com/v1"

// logs is the route that upgrades no connection: both servers wait for the end of a connection that is upgraded.
const logs = "pods/log"

// request is the text of an attempt with the URL of the route; "": the route is not for it.
func (r *route) request(a attempt) string {
	if r.name == logs && (strings.Contains(a.request, "Upgrade: ") || a.answer == switched) {
		return ""
	}
	if r.query == "" {
		return strings.ReplaceAll(a.request, "@", r.url)
	}
	if !strings.Contains(a.request, "@/x HTTP") {
		return ""
	}
	return strings.ReplaceAll(a.request, "@/x", r.url+r.query)
}

// What goes on to a node, a Pod, a Service or an aggregated API server, and what comes back, is that of one request,
// however it is written: byte for byte what the reference sends.
//
// SPEC: URI-7, EXT-2
func TestSmuggling(t *testing.T) {
	t.Setenv("NO_PROXY", "*")
	if *rewrite {
		text := printSmuggled(smuggle(t, forwarding(t, harness.Reference)))
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
	want := parseSmuggled(string(recorded))
	for _, s := range stricter {
		if !strings.Contains(string(recorded), s.there) {
			t.Errorf("the reference does not send %q", s.there)
		}
	}
	for _, got := range smuggle(t, forwarding(t, kind)) {
		recorded, ok := want[got.route][got.attempt]
		if !ok {
			recorded, ok = want[routes[0].name][got.attempt]
		}
		if !ok {
			t.Errorf("%s, %s: there is no record", got.route, got.attempt)
		}
		for _, s := range stricter {
			if kind == harness.Plinth {
				recorded = strings.ReplaceAll(recorded, s.there, s.here)
			}
		}
		if guessed(got.attempt) {
			got.text, recorded = strings.ReplaceAll(got.text, guess, ""), strings.ReplaceAll(recorded, guess, "")
		}
		if got.text != recorded {
			t.Errorf("%s, %s:\n--- wanted\n+++ here\n%s", got.route, got.attempt, linediff.Diff(recorded, got.text))
		}
	}
}

// guess is the media type that net/http guesses of the body if a handler gives none.
const guess = "Content-Type: [\"text/plain; charset=utf-8\"]\n"

// guessed says whether an answer may have a guess or not: httputil.ReverseProxy flushes the header of an answer of
// unknown length on another goroutine, at once, so it is sent with the beginning of the body or before it.
func guessed(name string) bool {
	return slices.ContainsFunc(attempts, func(a attempt) bool {
		return a.name == name && strings.Contains(a.answer, "Transfer-Encoding: chunked")
	})
}

// result is what the backend and the client get when an attempt is made by a route.
type result struct{ route, attempt, text string }

// printSmuggled is the file of results. By the second route on, it has only what differs from that by the first, and
// attempts of the same result are together.
func printSmuggled(results []result) string {
	first := map[string]string{}
	var b strings.Builder
	for i := 0; i < len(results); {
		route, texts, names := results[i].route, []string(nil), map[string][]string{}
		for ; i < len(results) && results[i].route == route; i++ {
			r := results[i]
			if route == routes[0].name {
				first[r.attempt] = r.text
			} else if first[r.attempt] == r.text {
				continue
			}
			if names[r.text] == nil {
				texts = append(texts, r.text)
			}
			names[r.text] = append(names[r.text], r.attempt)
		}
		fmt.Fprintf(&b, "##### %s\n", route)
		for _, text := range texts {
			fmt.Fprintf(&b, "=== %s\n%s\n", strings.Join(names[text], "\n=== "), text)
		}
	}
	return b.String()
}

// parseSmuggled returns the results of a file, by route and attempt.
func parseSmuggled(file string) map[string]map[string]string {
	all := map[string]map[string]string{}
	for section := range strings.SplitSeq(file, "##### ") {
		route, rest, _ := strings.Cut(section, "\n")
		results := map[string]string{}
		var names []string
		for part := range strings.SplitSeq(strings.TrimPrefix(rest, "=== "), "\n=== ") {
			name, text, several := strings.Cut(part, "\n")
			names = append(names, name)
			if several {
				for _, name := range names {
					results[name] = strings.TrimRight(text, "\n") + "\n"
				}
				names = nil
			}
		}
		all[route] = results
	}
	return all
}

// forwarding starts a server that forwards to aggregated API servers, too.
func forwarding(t *testing.T, kind harness.Kind) *harness.Server {
	t.Helper()
	flags, err := authority.FrontProxy(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return harness.Run(t, harness.Options{Kind: kind, Flags: append(flags, "--enable-aggregator-routing=true")})
}

// backend is what requests are forwarded to: it reads what it gets, byte for byte.
type backend struct {
	mu     sync.Mutex
	answer string
	seen   []string // by connection
	busy   int      // connections that have a request
	idle   sync.Cond
}

// served waits until all connections are idle: a connection without a request may stay open.
func (p *backend) served() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.busy > 0 {
		p.idle.Wait()
	}
}

// begin counts a connection that has a request, or, with -1, none any more.
func (p *backend) begin(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy += n
	p.idle.Broadcast()
}

// listen serves at one more address, and returns its port.
func (p *backend) listen(t *testing.T, address string, config *tls.Config) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	port = listener.Addr().(*net.TCPAddr).Port
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(connection)
		}
	}()
	return port
}

func (p *backend) serve(connection net.Conn) {
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(20 * time.Second))
	in := bufio.NewReader(connection)
	if _, err := in.Peek(1); err != nil {
		return
	}
	p.begin(1)
	defer p.begin(-1)
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
	if document, ok := described(all.String()); ok {
		io.WriteString(connection, document)
		return
	}
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
}

// described is the answer to a request of the server itself, which asks aggregated API servers what they serve.
func described(head string) (answer string, ok bool) {
	_, path, _ := strings.Cut(head, " ")
	path, _, _ = strings.Cut(path, " ")
	switch path, _, _ = strings.Cut(path, "?"); {
	case path == aggregated:
		const list = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"attempts.example.com/v1","resources":[]}`
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
			"Connection: close\r\n\r\n%s", len(list), list), true
	case path == "/api", path == "/apis", strings.HasPrefix(path, "/openapi/"):
		return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", true
	}
	return "", false
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
		last := bytes.HasPrefix(body, []byte("0\r\n")) || bytes.Contains(body, []byte("\r\n0\r\n"))
		return len(body) >= length && (!chunked || last && bytes.HasSuffix(body, []byte("\r\n\r\n")))
	}
}

// site is a server with all that the routes lead to.
type site struct {
	*testing.T
	server *harness.Server
	to     backend
	name   *strings.Replacer // of what differs between two runs
	plain  string            // the port without TLS
}

// smuggle makes all attempts by all routes.
func smuggle(t *testing.T, server *harness.Server) (results []result) {
	t.Helper()
	s := &site{T: t, server: server}
	s.to.idle.L = &s.to.mu
	s.create()
	for _, r := range routes {
		r.url = strings.ReplaceAll(r.url, "PLAIN", s.plain)
		s.wait(r)
		for _, a := range attempts {
			if request := r.request(a); request != "" {
				results = append(results, result{r.name, a.name, s.attempt(r, request, a.answer)})
			}
		}
	}
	return results
}

// attempt sends a request by a route, and returns what the backend and what the client gets.
func (s *site) attempt(r route, request, answer string) string {
	s.Helper()
	s.to.mu.Lock()
	s.to.answer = strings.ReplaceAll(answer, "BACKEND", net.JoinHostPort(address(s.T), s.plain))
	s.to.seen = nil
	s.to.mu.Unlock()
	came := exchange(s.T, s.server, request)
	s.to.served()
	var b strings.Builder
	s.to.mu.Lock()
	for _, seen := range s.to.seen {
		fmt.Fprintf(&b, "the backend gets:\n%s\n", headers(seen))
	}
	s.to.mu.Unlock()
	fmt.Fprintf(&b, "the client gets:\n%s", came)
	text := auditIDs.ReplaceAllString(ports.ReplaceAllString(b.String(), "PORT->"), "Audit-Id: ID")
	text = strings.ReplaceAll(text, r.url, "@")
	if r.path != "" {
		text = strings.ReplaceAll(text, r.path, "/x")
	}
	return s.name.Replace(text)
}

// address is one that nodes and Pods may have.
func address(t *testing.T) string {
	t.Helper()
	found, err := containers.Address()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// create creates a Node, a Pod and a Service, and an aggregated API, whose address is that of the backend.
func (s *site) create() {
	s.Helper()
	by, err := authority.New("serving", time.Hour)
	if err != nil {
		s.Fatal(err)
	}
	pair, err := by.Sign(pkix.Name{CommonName: "s.default.svc"}, nil)
	if err != nil {
		s.Fatal(err)
	}
	at := address(s.T)
	plain, secure := s.to.listen(s.T, at, nil), s.to.listen(s.T, at, &tls.Config{Certificates: []tls.Certificate{*pair}})
	s.plain = strconv.Itoa(plain)
	var pairs []string
	for _, port := range []int{plain, secure} {
		pairs = append(pairs, net.JoinHostPort(at, strconv.Itoa(port)), "BACKEND")
	}
	s.name = strings.NewReplacer(append(pairs, ":"+s.plain, ":PLAIN", strings.TrimPrefix(s.server.URL, "https://"),
		"SERVER", harness.AdminToken, "TOKEN")...)
	s.do("POST", "/api/v1/nodes", fmt.Sprintf(`{"metadata":{"name":"n"},"status":{"addresses":[{"type":"InternalIP",`+
		`"address":%q}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, at, secure))
	const namespace = "/api/v1/namespaces/default/"
	s.do("POST", namespace+"pods", `{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c",`+
		`"image":"i"}]}}`)
	s.do("PATCH", namespace+"pods/p/status", fmt.Sprintf(
		`{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%[1]q}]}}`, at))
	ports := fmt.Sprintf(`[{"name":"web","port":%d},{"name":"secure","port":%d}]`, plain, secure)
	s.do("POST", namespace+"services", `{"metadata":{"name":"s"},"spec":{"ports":`+ports+`}}`)
	s.do("POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", fmt.Sprintf(`{"metadata":{"name":"s",`+
		`"labels":{"kubernetes.io/service-name":"s"}},"addressType":"IPv4","ports":%s,"endpoints":[{"addresses":[%q],`+
		`"conditions":{"ready":true},"targetRef":{"kind":"Pod","namespace":"default","name":"p"}}]}`, ports, at))
	s.do("POST", "/apis/apiregistration.k8s.io/v1/apiservices", fmt.Sprintf(`{"metadata":{`+
		`"name":"v1.attempts.example.com"},"spec":{"group":"attempts.example.com","version":"v1",`+
		`"groupPriorityMinimum":1000,"versionPriority":15,"insecureSkipTLSVerify":true,`+
		`"service":{"namespace":"default","name":"s","port":%d}}}`, secure))
}

// do sends a request that has to be answered with success, and returns the answer.
func (s *site) do(method, path, body string) string {
	s.Helper()
	code, text := s.send(method, path, body)
	if code >= 300 {
		s.Fatalf("%s: %d %s", path, code, text)
	}
	return text
}

func (s *site) send(method, path, body string) (int, string) {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), method, s.server.URL+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	answer, err := s.server.Client().Do(request)
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// wait waits until a route leads to the backend: the reference learns of EndpointSlices and APIServices after a while.
func (s *site) wait(r route) {
	s.Helper()
	if r.query != "" {
		return
	}
	s.to.mu.Lock()
	s.to.answer = ok
	s.to.mu.Unlock()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		code, text := s.send("GET", r.url+"/x", "")
		if code == http.StatusOK {
			s.to.served()
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%s: %d %s", r.name, code, text)
		}
	}
}

// ports are those of the server's connections to the backend.
var ports = regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+:\d+->`)

// auditIDs are those that the server has chosen.
var auditIDs = regexp.MustCompile(`\bAudit-Id: [0-9a-f-]{36}`)

// headers are the lines of a request, those of its header sorted, and what is behind it. The reference asks for
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
	const sentinel = "GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\nSentinel: 1\r\n\r\n"
	// Servers lose what comes before they have switched, and the client loses answers if it sends what nobody reads.
	upgrades := strings.Contains(request, "Upgrade: ")
	if !upgrades {
		io.WriteString(connection, sentinel)
	}
	var b strings.Builder
	for first := true; ; first = false {
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			if first && upgrades {
				return "nothing\n"
			}
			return b.String()
		}
		switched := answer.StatusCode == http.StatusSwitchingProtocols
		var body []byte
		if !switched {
			body, _ = io.ReadAll(answer.Body)
		}
		if first && upgrades {
			io.WriteString(connection, sentinel)
		}
		if switched {
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

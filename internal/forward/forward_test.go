package forward

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/egress"
)

// alice is the user of the requests.
var alice = &access.User{Name: "alice", UID: "1", Groups: []string{"a", "b"},
	Extra: map[string][]string{"example.org/Sc%ope": {"x", "y"}}}

// proxied starts a server that forwards all requests to another one, which speaks TLS, and returns its address. target
// may change the Target; failed is called with the error of Forward.
func proxied(t *testing.T, other http.HandlerFunc, change func(*Target), failed func(error)) string {
	t.Helper()
	quiet := log.New(io.Discard, "", 0)
	backend := httptest.NewUnstartedServer(other)
	backend.EnableHTTP2, backend.Config.ErrorLog = true, quiet
	backend.StartTLS()
	t.Cleanup(backend.Close)
	roots := x509.NewCertPool()
	roots.AddCert(backend.Certificate())
	transport := NewTransport(&tls.Config{RootCAs: roots, ServerName: "example.com"}, nil, egress.Policy{})
	t.Cleanup(transport.CloseIdleConnections)
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		location := &url.URL{Scheme: "https", Host: backend.Listener.Addr().String(), Path: r.URL.Path}
		target := &Target{URL: location, Transport: transport, Rewrite: true, User: alice,
			Logger: slog.New(slog.DiscardHandler)}
		if change != nil {
			change(target)
		}
		if err := target.Forward(w, r); err != nil {
			if failed != nil {
				failed(err)
			}
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
	front.Config.ErrorLog = quiet
	front.Start()
	t.Cleanup(front.Close)
	return front.Listener.Addr().String()
}

// send sends the text of a request, and returns the answer and the connection.
func send(t *testing.T, address, request string) (*http.Response, net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return answer, conn, r
}

func read(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// attempts are headers with which a client tries to be someone else, or to have the headers of the user removed.
const attempts = `X-Remote-User: root
x-remote-uid: 0
X-Remote-Group: system:masters
X-Remote-Extra-Scope: all
X-REMOTE-EXTRA-example.org%2Fsc%25ope: all
X-Secret: for this connection
Keep-Alive: 5
Proxy-Authorization: secret
`

// The other server knows the user by what this one says, whatever the client sends, and whether or not the connection
// is upgraded.
//
// SPEC: EXT-2
func TestWhoTheUserIsCannotBeForged(t *testing.T) {
	for _, upgrade := range []bool{false, true} {
		got := make(chan http.Header, 1)
		address := proxied(t, func(w http.ResponseWriter, r *http.Request) {
			got <- r.Header
			if upgrade {
				w.WriteHeader(http.StatusForbidden)
			}
		}, nil, nil)
		connection := "Connection: X-Secret, X-Remote-User, x-remote-group\n"
		if upgrade {
			connection = "Upgrade: SPDY/3.1\nConnection: Upgrade, X-Secret, X-Remote-User\nConnection: x-remote-group\n"
		}
		send(t, address, "GET /a HTTP/1.1\nHost: x\n"+attempts+connection+"\n")
		header := <-got
		remote := http.Header{}
		for name, values := range header {
			if strings.HasPrefix(name, "X-Remote-") {
				remote[name] = values
			}
		}
		want := http.Header{"X-Remote-User": {"alice"}, "X-Remote-Uid": {"1"}, "X-Remote-Group": {"a", "b"},
			"X-Remote-Extra-Example.org%2fsc%25ope": {"x", "y"}}
		if !maps.EqualFunc(remote, want, slices.Equal) {
			t.Errorf("upgrade %v: the other server gets %v", upgrade, remote)
		}
		for _, name := range []string{"X-Secret", "Keep-Alive", "Proxy-Authorization"} {
			if header[name] != nil {
				t.Errorf("upgrade %v: %s is passed on", upgrade, name)
			}
		}
		if strings.ToLower(strings.Join(header["Connection"], ",")) != map[bool]string{true: "upgrade"}[upgrade] {
			t.Errorf("upgrade %v: Connection: %q", upgrade, header["Connection"])
		}
	}
}

// Without a user, none is named.
func TestNobodyIsNamed(t *testing.T) {
	got := make(chan http.Header, 1)
	address := proxied(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header },
		func(target *Target) { target.User = nil }, nil)
	send(t, address, "GET /a HTTP/1.1\nHost: x\n"+attempts+"\n")
	for name := range <-got {
		if strings.HasPrefix(name, "X-Remote-") {
			t.Errorf("%s is passed on", name)
		}
	}
}

// A part of an answer arrives while the rest is not written yet, and a part of a body while the rest is not sent.
func TestBodiesAreStreamed(t *testing.T) {
	next := make(chan bool)
	address := proxied(t, func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, 5)
		io.ReadFull(r.Body, b)
		w.Write(b)
		w.(http.Flusher).Flush()
		<-next
		io.Copy(w, r.Body)
	}, nil, nil)
	answer, conn, _ := send(t, address, "POST /a?b=c HTTP/1.1\nHost: x\nContent-Length: 10\n\nfirst")
	b := make([]byte, 5)
	if _, err := io.ReadFull(answer.Body, b); err != nil || string(b) != "first" {
		t.Fatalf("%q, %v", b, err)
	}
	next <- true
	io.WriteString(conn, "other")
	if rest := read(t, answer.Body); rest != "other" {
		t.Errorf("%q", rest)
	}
}

// The bytes of an upgraded connection are those of both sides, and when one side closes it, so does the other.
func TestUpgrades(t *testing.T) {
	closed := make(chan error, 1)
	address := proxied(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/a?b=c" || r.Header.Get("X-Remote-User") != "alice" {
			t.Errorf("%s by %s", r.URL, r.Header.Get("X-Remote-User"))
		}
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\nhello",
			r.Header.Get("Upgrade"))
		line, err := buffered.ReadString('\n')
		io.WriteString(conn, "got "+line)
		if err == nil {
			_, err = buffered.ReadByte()
		}
		closed <- err
	}, nil, nil)
	answer, conn, r := send(t, address, "POST /a?b=c HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: SPDY/3.1\n\n")
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != "SPDY/3.1" {
		t.Fatalf("%v", answer)
	}
	io.WriteString(conn, "line\n")
	b := make([]byte, len("hellogot line\n"))
	if _, err := io.ReadFull(r, b); err != nil || string(b) != "hellogot line\n" {
		t.Errorf("%q, %v", b, err)
	}
	conn.Close()
	if err := <-closed; err != io.EOF {
		t.Errorf("the other server does not see that the client has gone: %v", err)
	}
}

// An answer that breaks off does not look like a whole one.
func TestAnswersThatBreakOff(t *testing.T) {
	address := proxied(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "a part")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}, nil, nil)
	answer, _, _ := send(t, address, "GET /a HTTP/1.1\nHost: x\n\n")
	if text, err := io.ReadAll(answer.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", text, err)
	}
}

// Errors have the texts of the reference, and its Status if it has one.
func TestErrors(t *testing.T) {
	var failed error
	remember := func(err error) { failed = err }
	noServer := func(target *Target) {
		target.Transport = NewTransport(nil, func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no such server")
		}, egress.Policy{})
	}
	const upgrade = "GET /a HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: x\n\n"
	for _, c := range []struct {
		request string
		other   http.HandlerFunc
		change  func(*Target)
		text    string
		reason  apierr.Reason
	}{
		{"GET /a HTTP/1.1\nHost: x\n\n", nil, noServer, "error trying to reach service: no such server",
			apierr.ServiceUnavailable},
		{upgrade, nil, noServer, "error dialing backend: no such server", ""},
		{upgrade, func(http.ResponseWriter, *http.Request) {}, nil, "invalid upgrade response: status code 200", ""},
		{"GET /a HTTP/1.1\nHost: x\n\n", nil, func(target *Target) { target.UpgradeOnly = true }, "Upgrade request required",
			apierr.BadRequest},
		{"GET /a HTTP/1.1\nHost: x\n\n", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Write(make([]byte, maxHTML+1))
		}, nil, fmt.Sprintf("a page of more than %d bytes cannot be rewritten", maxHTML), ""},
	} {
		failed = nil
		address := proxied(t, c.other, c.change, remember)
		answer, _, _ := send(t, address, c.request)
		if text := strings.TrimSpace(read(t, answer.Body)); text != c.text {
			t.Errorf("%q, want %q", text, c.text)
		}
		var status *apierr.Error
		if errors.As(failed, &status) != (c.reason != "") || status != nil && status.Reason != c.reason {
			t.Errorf("%s: %#v", c.text, failed)
		}
	}
}

// A redirect within the other server is one within this server; to elsewhere it is passed on or refused, and never
// followed.
func TestRedirects(t *testing.T) {
	other := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://169.254.169.254/latest")
		w.WriteHeader(http.StatusFound)
	}
	answer, _, _ := send(t, proxied(t, other, nil, nil), "GET /a HTTP/1.1\nHost: x\n\n")
	if answer.StatusCode != http.StatusFound || answer.Header.Get("Location") != "http://169.254.169.254/latest" {
		t.Errorf("%v", answer)
	}
	answer, _, _ = send(t, proxied(t, other, func(target *Target) { target.RefuseRedirects = true }, nil),
		"GET /a HTTP/1.1\nHost: x\n\n")
	if text := read(t, answer.Body); answer.StatusCode != http.StatusBadGateway || answer.Header.Get("Location") != "" ||
		text != "the backend attempted to redirect this request, which is not permitted" {
		t.Errorf("%v %s", answer, text)
	}
}

// Another server that switches protocols although nobody has asked for it gets no connection that stays open.
func TestUnaskedUpgrades(t *testing.T) {
	closed := make(chan error, 1)
	address := proxied(t, func(w http.ResponseWriter, _ *http.Request) {
		connection, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			closed <- err
			return
		}
		defer connection.Close()
		io.WriteString(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, err = io.Copy(io.Discard, in)
		closed <- err
	}, func(target *Target) {
		plain := target.Transport.(*http.Transport).Clone()
		plain.ForceAttemptHTTP2, plain.TLSClientConfig.NextProtos = false, nil
		target.Transport = plain
	}, nil)
	answer, _, _ := send(t, address, "GET /a HTTP/1.1\nHost: x\n\n")
	if text := read(t, answer.Body); answer.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(text, "backend tried to switch protocol") {
		t.Errorf("%v %s", answer, text)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// The header of an answer to an upgrade is not read to its end if it has none, and that of an upgraded connection is no
// limit of what it carries.
func TestHeadersOfUpgradesAreLimited(t *testing.T) {
	const request = "GET /a HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: x\n\n"
	line := "X-A: " + strings.Repeat("a", 1000) + "\r\n"
	sent := make(chan error, 1)
	address := proxied(t, func(w http.ResponseWriter, r *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			sent <- err
			return
		}
		defer connection.Close()
		_, err = io.WriteString(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n")
		for i := 0; err == nil && r.URL.Path == "/a" && i < 64*maxHead/len(line); i++ { // so that it ends in any case
			_, err = io.WriteString(connection, line)
		}
		if err == nil {
			_, err = io.WriteString(connection, "\r\n"+strings.Repeat("b", 3*maxHead))
		}
		sent <- err
	}, nil, nil)
	answer, _, _ := send(t, address, request)
	if text := read(t, answer.Body); answer.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(text, "a header of more than 1048576 bytes") {
		t.Errorf("%s %.200s", answer.Status, text)
	}
	if err := <-sent; err == nil {
		t.Error("a header without an end was read")
	}
	answer, _, r := send(t, address, strings.Replace(request, "/a", "/b", 1))
	if answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(answer.Status)
	}
	if text := read(t, r); len(text) != 3*maxHead {
		t.Errorf("%d bytes come through", len(text))
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

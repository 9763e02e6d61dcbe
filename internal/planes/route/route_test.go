package route

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"plinth/internal/apierr"
)

const domain = "planes.example"

// read is the request that net/http makes of a request line, with a host and the server name of the connection; "-": it
// did not come over TLS. It is nil if net/http refuses it.
func read(method, target, host, sni string) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(
		method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n")))
	if err != nil {
		return nil
	}
	if sni != "-" {
		r.TLS = &tls.ConnectionState{ServerName: sni}
	}
	return r
}

// differs compares two requests as a handler sees them.
func differs(have, want *http.Request) string {
	print := func(r *http.Request) string {
		u := *r.URL
		return fmt.Sprintf("%s %q %q %+v %q %q %q %v", r.Method, r.RequestURI, r.Host, u, u.EscapedPath(), u.RequestURI(),
			u.String(), r.Header)
	}
	if h, w := print(have), print(want); h != w {
		return "have " + h + "\nwant " + w
	}
	return ""
}

// code is that of an error; 0 without one.
func code(err error) int {
	var refused *apierr.Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	if err != nil {
		return -1
	}
	return 0
}

// sent is the request URI of a request; package url may write the asterisk in another way than the client.
func sent(r *http.Request) string {
	return strings.Replace(r.URL.RequestURI(), folder+"/%2A", folder+"/*", 1)
}

// The request within a plane is the one that a lone server gets for what follows.
//
// SPEC: BEY-9
func TestWhatALoneServerGets(t *testing.T) {
	for _, rest := range []string{"", "/", "?a=b", "/?", "?", "/api", "/api/v1/namespaces/default/pods/a?watch=1&x=%2f",
		"/api/v1/namespaces/a%2Fb/pods/c", "/apis/g/v1/things/a%3Ab", "/apis/g/v1/things/a:b", "/apis/g/v1/things/%61",
		"/apis/g/v1/things/%e2%82%ac", "/apis/g/v1/things/€", "/apis/g/v1/things/a%20b;c=d,e", "/a//b", "//api", "///",
		"/..", "/../x", "/%2e%2e/clusters/other", "/./clusters/other", "//clusters/other/api", "/clustersx",
		"/Clusters/other",
		"/apis/g/v1/clusters/x", "/api/v1/nodes/n/proxy/clusters/x", "/*", "/a*b", "/a%00b", "/%", "/x#y", "/a'b(c)!",
		"/openapi/v3?hash=A%2BB", "/x?clusters/other"} {
		want := rest
		if !strings.HasPrefix(rest, "/") {
			want = "/" + rest
		}
		for _, plane := range []string{"a", "x-1", strings.Repeat("n", 63), "clusters", All} {
			for _, at := range []string{"", "https://h:1", "http://" + plane} {
				lone := read("GET", at+want, "h", "h")
				r := read("GET", at+folder+"/"+plane+rest, "h", "h")
				if lone == nil && r == nil {
					continue
				}
				got, inner, err := (&Router{Domain: domain}).Route(r)
				if err != nil || got != plane {
					t.Errorf("%s: plane %q, %v", r.RequestURI, got, err)
					continue
				}
				if diff := differs(inner, lone); diff != "" {
					t.Errorf("%s: %s", r.RequestURI, diff)
				}
				a := Of(inner.Context())
				if a.Plane != plane || a.Base != folder+"/"+plane || a.URI(inner.URL) != sent(r) {
					t.Errorf("%s: its address is %+v, of %s", r.RequestURI, a, a.URI(inner.URL))
				}
			}
		}
	}
}

// What is not exactly the address of a plane is for no plane, and not for the first one.
//
// SPEC: BEY-9
func TestPathsOfNoPlane(t *testing.T) {
	for _, path := range []string{"", "/", "//a", "//", "/A", "/a.b", "/-a", "/a-", "/a_b", "/..", "/.", "/../clusters/a",
		"/a/../b", "/%61", "/a%2fapi", "/a%2Fapi", "%2fa", "%2fa/api", "/%2e%2e", "/a%2e", "/a%00", "/a;b", "/a;b=c/api",
		"/;",
		"/a%3b", "/a,b", "/a:b", "/a@b", "/a%20", "/a%09", "/ä", "/%c3%a4", "/\u212a", "/**", "/%2a/api", "/*a",
		"/" + strings.Repeat("n", 64), "/" + strings.Repeat("n", 1<<16),
		"/a/clusters", "/a/clusters/", "/a/clusters/b", "/a/clusters/b/api", "/a/%63lusters/b", "/a/clusters%2fb",
		"/*/clusters/a", "/a/clusters/a"} {
		for _, escaped := range []string{"/clusters", "/cl%75sters", "/%63lusters"} {
			r := read("GET", escaped+path, "h", "h")
			if r == nil {
				t.Errorf("%q is no request", path)
				continue
			}
			plane, inner, err := new(Router).Route(r)
			if path == "/a/../b" && escaped == folder { // that path of the plane a is not cleaned
				if plane != "a" || inner.URL.Path != "/../b" {
					t.Errorf("%s: %q %v", r.RequestURI, plane, err)
				}
				continue
			}
			if code(err) != http.StatusNotFound || inner != nil || plane != "" {
				t.Errorf("%.100s: plane %q, %v", r.RequestURI, plane, err)
			}
		}
	}
	for _, path := range []string{"/cl%75sters/a", "/clusters%2fa/api"} {
		if _, _, err := new(Router).Route(read("GET", path, "h", "h")); code(err) != http.StatusNotFound {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, target := range []string{"/", "/api", "/clustersx/a", "/Clusters/a", "//clusters/a", "/./clusters/a",
		"/x/../clusters/a", "/api/v1/clusters/a", "*", "https://clusters/a/api", "http:clusters/a", "https://h"} {
		r := read("OPTIONS", target, "h", "h")
		if plane, inner, err := (&Router{Domain: domain}).Route(r); plane != "" || inner != r || err != nil {
			t.Errorf("%s, of the first plane: %q %v", target, plane, err)
		}
	}
}

// By host name, the host and the server name of the connection have to agree.
//
// SPEC: BEY-9
func TestHosts(t *testing.T) {
	const none = ""
	for _, c := range []struct {
		host, sni, plane string
		code             int
	}{
		{"a.planes.example", "a.planes.example", "a", 0},
		{"a.planes.example:6443", "a.planes.example", "a", 0},
		{"A.Planes.EXAMPLE.:443", "a.PLANES.example", "a", 0},
		{"a.planes.example", "-", "a", 0},
		{"x-1.planes.example:", "x-1.planes.example", "x-1", 0},

		{"planes.example", "planes.example", none, 0},
		{"planes.example", none, none, 0},
		{"10.0.0.1:6443", none, none, 0},
		{"[::1]:6443", none, none, 0},
		{"10.0.0.1", "planes.example", none, 0},
		{"localhost", "kubernetes", none, 0},
		{"aplanes.example", "bplanes.example", none, 0},
		{"a.planes.example.com", "a.planes.example.com", none, 0},
		{none, none, none, 0},

		{"b.planes.example", "a.planes.example", none, 421},
		{"a.planes.example", "planes.example", none, 421},
		{"planes.example", "a.planes.example", none, 421},
		{"a.planes.example", "localhost", none, 421},
		{"localhost", "a.planes.example", none, 421},
		{"10.0.0.1", "a.planes.example", none, 421},
		{none, "a.planes.example", none, 421},
		{"a.planes.example", none, none, 421},
		{"a.b.planes.example", "b.planes.example", none, 421},
		{"a.planes.example", "-.planes.example", none, 421},

		{"a.b.planes.example", "a.b.planes.example", none, 404},
		{".planes.example", ".planes.example", none, 404},
		{"-.planes.example", "-.planes.example", none, 404},
		{"*.planes.example", "*.planes.example", none, 404},
		{"a_b.planes.example", "a_b.planes.example", none, 404},
		{"a..planes.example", "a..planes.example", none, 404},
		{"a.planes.example..", "a.planes.example..", none, 0},
		{strings.Repeat("n", 64) + ".planes.example", "-", none, 404},
	} {
		r := read("GET", "/api?x=y", c.host, c.sni)
		if r == nil {
			t.Errorf("%s is no host", c.host)
			continue
		}
		for _, forwarded := range []string{"X-Forwarded-Host", "X-Forwarded-Server", "X-Original-Host"} {
			r.Header.Set(forwarded, "other.planes.example")
		}
		r.Header.Set("X-Forwarded-Prefix", "/clusters/other")
		r.Header.Set("X-Original-Url", "/clusters/other/api")
		r.Header.Set("Forwarded", "host=other.planes.example")
		plane, inner, err := (&Router{Domain: domain}).Route(r)
		if plane != c.plane || code(err) != c.code {
			t.Errorf("%q over %q: plane %q, %v, want %q, %d", c.host, c.sni, plane, err, c.plane, c.code)
			continue
		}
		if err != nil {
			continue
		}
		if diff := differs(inner, r); diff != "" {
			t.Errorf("%q: %s", c.host, diff)
		}
		if a := Of(inner.Context()); a.Plane != c.plane || a.Base != "" || a.URI(inner.URL) != "/api?x=y" {
			t.Errorf("%q: its address is %+v", c.host, a)
		}
		if plane, inner, err := new(Router).Route(r); plane != "" || inner != r || err != nil {
			t.Errorf("%q without a domain: %q, %v", c.host, plane, err)
		}
	}
}

// A request names a plane once: by host or by path. The host of a request URI in absolute form counts, as everywhere.
//
// SPEC: BEY-9
func TestHostAndPath(t *testing.T) {
	const a = "a." + domain
	for _, c := range []struct {
		method, target, host, sni, plane string
		code                             int
	}{
		{"GET", "/clusters/a/api", a, a, "", 404},
		{"GET", "/clusters/*/api", a, a, "", 404},
		{"GET", "/clusters", a, a, "", 404},
		{"GET", "/cl%75sters/a", a, a, "", 404},
		{"GET", "/clustersx", a, a, "a", 0},
		{"GET", "/clusters/b/api", domain, domain, "b", 0},
		{"GET", "/clusters/b/api", "10.0.0.1", "", "b", 0},
		{"GET", "/clusters/b/api", a, domain, "", 421},
		{"GET", "https://a.planes.example/api", "b.planes.example", a, "a", 0},
		{"GET", "https://a.planes.example/api", "a.planes.example", "b.planes.example", "", 421},
		{"GET", "https://h/api", a, a, "", 421},
		{"GET", "https://h/clusters/b/api", a, "", "b", 0},
		{"CONNECT", a + ":443", "h", a, "a", 0},
		{"CONNECT", a + ":443", "h", "h", "", 421},
		{"CONNECT", "/clusters/b/api", "h", "h", "b", 0},
		{"OPTIONS", "*", a, a, "a", 0},
		{"OPTIONS", "*", a, "h", "", 421},
		{"OPTIONS", "*", "h", "h", "", 0},
	} {
		plane, _, err := (&Router{Domain: domain}).Route(read(c.method, c.target, c.host, c.sni))
		if plane != c.plane || code(err) != c.code {
			t.Errorf("%s %s at %q over %q: %q, %v", c.method, c.target, c.host, c.sni, plane, err)
		}
	}
}

// Over the network, by HTTP/1.1 and by HTTP/2, a host is compared with the server name of its own connection.
//
// SPEC: BEY-9
func TestConnections(t *testing.T) {
	rt := &Router{Domain: domain}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		plane, inner, err := rt.Route(r)
		if err != nil {
			Refuse(w, err)
			return
		}
		fmt.Fprintf(w, "HTTP/%d %q %s", r.ProtoMajor, plane, inner.URL.RequestURI())
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for _, version := range []int{1, 2} {
		for _, c := range []struct{ sni, host, path, want string }{
			{"a.planes.example", "a.planes.example", "/api", `"a" /api`},
			{"a.planes.example", "A.planes.example:443", "/a%2fb?c", `"a" /a%2fb?c`},
			{"a.planes.example", "b.planes.example", "/api", "421"},
			{"a.planes.example", "h", "/api", "421"},
			{"h", "a.planes.example", "/api", "421"},
			{"", "a.planes.example", "/api", "421"},
			{"a.planes.example", "a.planes.example", "/clusters/b/api", "404"},
			{"", "h", "/clusters/b/a%2fb?c", `"b" /a%2fb?c`},
			{"h", "h", "/clusters/b%2fapi", "404"},
			{"h", "h", "/api", `"" /api`},
		} {
			// Without a name the client takes that of the URL, which is an address: it sends none.
			transport := &http.Transport{TLSClientConfig: &tls.Config{ServerName: c.sni, InsecureSkipVerify: true},
				Protocols: new(http.Protocols)}
			transport.Protocols.SetHTTP1(version == 1)
			transport.Protocols.SetHTTP2(version == 2)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = c.host
			answer, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			transport.CloseIdleConnections()
			if err != nil {
				t.Fatal(err)
			}
			got, want := string(body), fmt.Sprintf("HTTP/%d %s", version, c.want)
			if answer.StatusCode != 200 {
				got, want = fmt.Sprint(answer.StatusCode), c.want
			}
			if got != want {
				t.Errorf("HTTP/%d, %s at %q over %q: %s, want %s", version, c.path, c.host, c.sni, got, want)
			}
		}
	}
}

// A request of the first plane costs nothing.
func TestFirstPlaneWithoutAllocation(t *testing.T) {
	rt := &Router{Domain: domain}
	r := read("GET", "/api/v1/namespaces/default/pods/a", "localhost:6443", "localhost")
	if n := testing.AllocsPerRun(100, func() {
		if _, _, err := rt.Route(r); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}

// A refused request is answered with a Status.
func TestRefuse(t *testing.T) {
	_, _, err := new(Router).Route(read("GET", "/clusters/A", "h", "h"))
	w := httptest.NewRecorder()
	Refuse(w, err)
	var status struct {
		Kind, APIVersion, Status, Reason, Message string
		Code                                      int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
		t.Fatal(err)
	}
	if w.Code != 404 || status.Code != 404 || status.Kind != "Status" || status.APIVersion != "v1" ||
		status.Status != "Failure" || status.Reason != "NotFound" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// byText finds the plane in the text of a request URI, as the client has sent it.
var byText = regexp.MustCompile(`^(?:[a-zA-Z][a-zA-Z0-9+.-]*:(?://[^/?]*)?)?/clusters/([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?|\*)(/[^?]*)?(?:\?.*)?$`)

// FuzzRoute compares with a second reading of the text, and with what a lone server gets.
func FuzzRoute(f *testing.F) {
	f.Add("GET", "/clusters/a/api?x", "h", "h")
	f.Add("GET", "/clusters/a%2fb", "a.planes.example:1", "a.planes.example")
	f.Add("CONNECT", "a.planes.example:443", "h", "a.planes.example")
	f.Add("GET", "https://x/clusters/*/api/v1/%2a*", "h", "-")
	f.Fuzz(func(t *testing.T, method, target, host, sni string) {
		r := read(method, target, host, sni)
		if r == nil {
			return
		}
		plane, inner, err := (&Router{Domain: domain}).Route(r)
		if err != nil {
			if c := code(err); c != 404 && c != 421 || inner != nil || plane != "" {
				t.Fatalf("%q: %q, %v", target, plane, err)
			}
			return
		}
		inDomain := func(name string) bool {
			return strings.HasSuffix(lower(strings.TrimSuffix(name, ".")), "."+domain)
		}
		name, _, _ := strings.Cut(r.Host, ":")
		switch isHost, found := inDomain(name), byText.FindStringSubmatch(r.RequestURI); {
		case isHost:
			if found != nil || inner.URL != r.URL || lower(name) != plane+"."+domain && lower(name) != plane+"."+domain+"." ||
				r.TLS != nil && lower(r.TLS.ServerName) != plane+"."+domain &&
					lower(r.TLS.ServerName) != plane+"."+domain+"." {
				t.Fatalf("%q at %q over %v: plane %q", target, r.Host, r.TLS, plane)
			}
		case r.TLS != nil && inDomain(r.TLS.ServerName):
			t.Fatalf("%q at %q over %v: plane %q", target, r.Host, r.TLS, plane)
		case plane == "":
			path, err := url.PathUnescape(r.URL.EscapedPath())
			if found != nil || inner != r || err != nil || path == folder || strings.HasPrefix(path, folder+"/") {
				t.Fatalf("%q is for the first plane", target)
			}
		default:
			if found == nil || found[1] != plane {
				t.Fatalf("%q: plane %q, want %q", target, plane, found)
			}
			prefix, rest, _ := strings.Cut(r.RequestURI, "/clusters/"+plane)
			if strings.HasSuffix(prefix, "/") || strings.HasSuffix(prefix, ":") && plane == "clusters" {
				return // the host has the text, too
			}
			if !strings.HasPrefix(rest, "/") {
				rest = "/" + rest
			}
			lone := read(method, prefix+rest, host, sni)
			if lone == nil {
				t.Fatalf("a lone server does not get %q", prefix+rest)
			}
			if diff := differs(inner, lone); diff != "" {
				t.Fatalf("%q: %s", target, diff)
			}
			if uri := Of(inner.Context()).URI(inner.URL); uri != sent(r) {
				t.Fatalf("%q: it was %q", target, uri)
			}
		}
	})
}

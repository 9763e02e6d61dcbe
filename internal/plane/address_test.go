package plane

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"plinth/internal/access"
	"plinth/internal/audit"
	"plinth/internal/auth"
	"plinth/internal/planes/route"
)

// addressed is a plane that has two addresses: / and /clusters/a.
type addressed struct{ *served }

func serveAt(t *testing.T, change func(*Config)) *addressed {
	a := &addressed{serve(t, change)}
	masters := &access.Identity{User: access.User{Name: "admin", Groups: []string{access.Masters, access.Authenticated}}}
	a.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		plane, inner, err := new(route.Router).Route(r)
		if err == nil && plane != "" && plane != "a" {
			err = fmt.Errorf("there is no plane %s", plane)
		}
		if err != nil {
			route.Refuse(w, err)
			return
		}
		a.Handler().ServeHTTP(w, inner.WithContext(auth.As(inner.Context(), masters)))
	})
	return a
}

// ask sends a request without following redirects.
func (a *addressed) ask(method, path string, header ...string) (*http.Response, string) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.http.URL+path, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := a.http.Client().Transport.RoundTrip(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return answer, string(body)
}

// What is at the path of a plane is what is at / of a lone server, byte by byte: no answer has a path that is another
// one there. Where one leads elsewhere, it is in TestLinks.
//
// SPEC: BEY-9
func TestSameAtBothAddresses(t *testing.T) {
	a := serveAt(t, nil)
	a.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"things.example.com"},
		"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"things","kind":"Thing"},"versions":[
		{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	a.make("/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"a:b"}}`)
	for _, path := range []string{"/", "/api", "/api/", "/apis", "/api/v1", "/apis/apps/v1", "/apis/example.com",
		"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/openapi/v3/apis/example.com/v1", "/version", "/healthz",
		"/readyz?verbose", "/statusz", "/flagz", "/openid/v1/jwks", "/.well-known/openid-configuration",
		"/api/v1/namespaces", "/api/v1/namespaces?limit=1", "/api/v1/namespaces/default",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterroles/a:b",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab", "/apis/example.com/v1/things/a%2fb",
		"/api/v1/namespaces/none/pods/x", "/none", "/api/v2", "/apis/none.example.com/v1/x", "//api", "/api//v1", "/..",
		"/index.html", "/debug/pprof/", "/debug/api_priority_and_fairness/dump_priority_levels",
		"/api/v1/namespaces?resourceVersion=0&pretty=1", "/api/v1/namespaces?timeout=x", "/logs/", "/metrics"} {
		for _, accept := range []string{"application/json", "application/yaml",
			"application/json;as=Table;g=meta.k8s.io;v=v1",
			"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"} {
			var have [2]string
			for i, base := range []string{"", "/clusters/a"} {
				answer, body := a.ask(http.MethodGet, base+path, "Accept", accept, "Audit-Id", "x")
				answer.Header.Del("Date")
				have[i] = fmt.Sprint(answer.Status, answer.Header, body)
			}
			if have[0] != have[1] && !strings.HasPrefix(path, "/debug") {
				t.Errorf("%s as %s: at / it is %.300s\nand below the path of the plane %.300s", path, accept, have[0], have[1])
			}
			if strings.Contains(have[1], "clusters/a") {
				t.Errorf("%s has the path of the plane in it", path)
			}
		}
	}
}

// The URLs of the documents of OpenAPI v3 are relative to the address that a client has: client-go puts the path of its
// server before those that begin with /openapi/v3. (It takes that path off if the server has added it. Then a client
// of kubectl proxy, whose server has another path, would have the path twice.)
//
// SPEC: BEY-9
func TestURLsOfOpenAPI(t *testing.T) {
	a := serveAt(t, nil)
	_, body := a.ask(http.MethodGet, "/clusters/a/openapi/v3")
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal([]byte(body), &index); err != nil || len(index.Paths) < 10 {
		t.Fatalf("%d documents, %v", len(index.Paths), err)
	}
	for name, document := range index.Paths {
		answer, body := a.ask(http.MethodGet, "/clusters/a"+document.ServerRelativeURL)
		if !strings.HasPrefix(document.ServerRelativeURL, "/openapi/v3/") || answer.StatusCode != 200 || len(body) < 100 ||
			answer.Header.Get("Cache-Control") != "public, immutable" {
			t.Errorf("%s: %s is answered by %s %v", name, document.ServerRelativeURL, answer.Status, answer.Header)
		}
	}
}

// program answers as a Pod, an aggregated API server and a kubelet, and tells what it was asked for.
func program(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Upgrade") != "":
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "SPDY/3.1")
		w.WriteHeader(http.StatusSwitchingProtocols)
	case strings.HasSuffix(r.URL.Path, "/moved"):
		w.Header().Set("Location", strings.TrimSuffix(r.URL.Path, "moved")+"next?x=y")
		w.WriteHeader(http.StatusFound)
	default:
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="/link">%s %s</a>`, r.URL.Path, r.Header.Get("X-Forwarded-Uri"))
	}
}

// Paths in answers that lead to the plane have its address: redirects and links of what is behind the subresource proxy
// or an APIService, and those of the server itself.
//
// SPEC: BEY-9
func TestLinks(t *testing.T) {
	plain, secure := httptest.NewServer(http.HandlerFunc(program)), httptest.NewTLSServer(http.HandlerFunc(program))
	defer plain.Close()
	defer secure.Close()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		to := secure.Listener.Addr().String()
		if strings.HasSuffix(address, ":8080") {
			to = plain.Listener.Addr().String()
		}
		return new(net.Dialer).DialContext(ctx, network, to)
	}
	a := serveAt(t, func(c *Config) {
		c.Nodes.Dial, c.Aggregation.Dial, c.Aggregation.FollowRedirects = dial, dial, true
	})
	a.make("/api/v1/nodes", `{"metadata":{"name":"n"},"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`)
	a.make("/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[
		{"name":"c","image":"i","ports":[{"containerPort":8080}]}]}}`)
	const status = `{"status":{"podIP":"192.0.2.7","podIPs":[{"ip":"192.0.2.7"}]}}`
	if code, text := a.patch("/api/v1/namespaces/default/pods/p/status", status); code != 200 {
		t.Fatal(code, text)
	}
	a.make("/api/v1/namespaces/default/services", `{"metadata":{"name":"back"},"spec":{"type":"ExternalName",
		"externalName":"back.example","ports":[{"port":443}]}}`)
	const services = "/apis/apiregistration.k8s.io/v1/apiservices"
	a.make(services, `{"metadata":{"name":"v1.back.example.com"},"spec":{"group":"back.example.com","version":"v1",
		"groupPriorityMinimum":1,"versionPriority":1,"insecureSkipTLSVerify":true,
		"service":{"namespace":"default","name":"back","port":443}}}`)
	available := `{"status":{"conditions":[{"type":"Available","status":"True","reason":"x","message":"x",
		"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	if code, text := a.patch(services+"/v1.back.example.com/status", available); code != 200 {
		t.Fatal(code, text)
	}
	const pod = "/api/v1/namespaces/default/pods/p/proxy"
	const back = "/apis/back.example.com/v1/things"
	for _, base := range []string{"", "/clusters/a"} {
		for path, want := range map[string]string{
			pod: base + pod + "/", pod + "/x/moved": base + pod + "/x/next?x=y",
			// As with the reference, this one leads to the aggregated API server itself.
			back + "/moved": "https://back.example:443" + back + "/next?x=y"} {
			if answer, body := a.ask(http.MethodGet, base+path); answer.Header.Get("Location") != want {
				t.Errorf("%s leads to %q, want %q: %s %s", base+path, answer.Header.Get("Location"), want, answer.Status, body)
			}
		}
		want := `<a href="` + base + pod + `/link">/x/ ` + base + pod + `/x/</a>`
		if _, body := a.ask(http.MethodGet, base+pod+"/x/"); body != want {
			t.Errorf("%s is %s, want %s", base+pod+"/x/", body, want)
		}
		location := map[string]string{"": "/openapi/v3/apis/apps/v1?hash=", "/clusters/a": "?hash="}[base]
		answer, _ := a.ask(http.MethodGet, base+"/openapi/v3/apis/apps/v1?hash=OLD")
		if got := answer.Header.Get("Location"); !strings.HasPrefix(got, location) || answer.StatusCode != 301 {
			t.Errorf("below %q an old document leads to %s, %s", base, got, answer.Status)
		}
		if code, text := a.upgrade(base + "/api/v1/namespaces/default/pods/p/exec?command=x&stdout=true"); code != 101 {
			t.Errorf("a command below %q: %d %s", base, code, text)
		}
	}
}

// What is recorded of a request names its plane, at every stage and also when the request is refused, and has the URI
// that the client sent.
//
// SPEC: BEY-9 AUTH-4
func TestPlaneInRecords(t *testing.T) {
	dir := t.TempDir()
	policy, events := filepath.Join(dir, "policy"), filepath.Join(dir, "events")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	options := audit.Defaults()
	options.PolicyFile, options.Log.Path = policy, events
	auditor, err := audit.New(options, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a := serveAt(t, func(c *Config) { c.HTTP.Auditor = auditor })
	want := map[string]string{}
	for i, path := range []string{"/api/v1/namespaces/default?x=y", "/apis/x/v1/a%2Fb", "/", "", "?x", "/none"} {
		for _, base := range []string{"/clusters/a", ""} {
			uri := base + path
			if !strings.HasPrefix(uri, "/") {
				uri = "/" + uri
			}
			id := strconv.Itoa(i) + base
			want[id] = uri
			a.ask(http.MethodGet, base+path, "Audit-Id", id)
		}
	}
	for _, base := range []string{"/clusters/a", ""} {
		id := "refused" + base
		want[id] = base + "/api"
		a.ask(http.MethodGet, base+"/api", "Authorization", "Bearer none", "Audit-Id", id)
	}
	if err := auditor.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(events)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var e struct {
			AuditID, RequestURI, Stage string
			Annotations                map[string]string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		plane := ""
		if strings.HasSuffix(e.AuditID, "/clusters/a") {
			plane = "a"
		}
		seen[e.AuditID]++
		if name, has := e.Annotations[audit.PlaneAnnotation]; e.RequestURI != want[e.AuditID] || name != plane ||
			has != (plane != "") {
			t.Errorf("%s of %s: %s of plane %q, want %s", e.Stage, e.AuditID, e.RequestURI, name, want[e.AuditID])
		}
	}
	for id := range want {
		if n := seen[id]; n < 2 && !strings.HasPrefix(id, "refused") || n == 0 {
			t.Errorf("%d events are of %s", n, id)
		}
	}
}

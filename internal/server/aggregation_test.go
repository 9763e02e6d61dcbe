package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/aggregation"
)

const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"

// backend is an aggregated API server behind the service "back", which serves the group version back.example.com/v1.
// It verifies the client certificates of servers that forward to it by what they publish.
type backend struct {
	*httptest.Server
	bundle string
	port   int
	answer atomic.Pointer[http.HandlerFunc] // in place of what a good one answers; nil: that
	seen   atomic.Pointer[http.Request]     // the last request for things
}

func newBackend(t *testing.T, clients string) *backend {
	t.Helper()
	return newBackendAt(t, clients, nil)
}

// newBackendAt makes a backend with a listener; nil: at a socket.
func newBackendAt(t *testing.T, clients string, listener net.Listener) *backend {
	t.Helper()
	b := &backend{port: 443}
	var serving tls.Certificate
	serving, b.bundle = selfSigned(t, "back.default.svc")
	b.Server = httptest.NewUnstartedServer(b)
	b.EnableHTTP2, b.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	b.TLS = &tls.Config{Certificates: []tls.Certificate{serving}}
	if clients != "" {
		b.TLS.ClientAuth, b.TLS.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		b.TLS.ClientCAs.AppendCertsFromPEM([]byte(clients))
	}
	if listener != nil {
		b.Listener.Close()
		b.Listener = listener
	}
	b.StartTLS()
	t.Cleanup(b.Close)
	if listener != nil {
		return b
	}
	address, err := url.Parse(b.URL)
	if err == nil {
		b.port, err = strconv.Atoi(address.Port())
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if answer := b.answer.Load(); answer != nil {
		(*answer)(w, r)
		return
	}
	b.good(w, r)
}

// good is what a good backend answers.
func (b *backend) good(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/apis/back.example.com/v1":
		io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"back.example.com/v1","resources":[`+
			`{"name":"things/status","kind":"Thing","verbs":["get"],"namespaced":true},{"name":"things","singularName":"thing",`+
			`"namespaced":true,"kind":"Thing","verbs":["get","list","delete"],"shortNames":["th"]}]}`)
	case "/apis/back.example.com/v1/things":
		b.seen.Store(r)
		io.WriteString(w, `{"kind":"ThingList","apiVersion":"back.example.com/v1","metadata":{},"items":[]}`)
	default:
		http.NotFound(w, r)
	}
}

// behave changes what the backend answers.
func (b *backend) behave(answer http.HandlerFunc) { b.answer.Store(&answer) }

// service is the APIService of the backend.
func (b *backend) service() jsonObject {
	return jsonObject{"metadata": map[string]any{"name": "v1.back.example.com"}, "spec": map[string]any{
		"group": "back.example.com", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 20,
		"caBundle": b.bundle, "service": map[string]any{"namespace": "default", "name": "back", "port": b.port}}}
}

// waitFor calls check until it returns nil.
func (c *testClient) waitFor(what string, check func() error) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("%s: %v", what, err)
		}
	}
}

// eventually waits until a condition holds.
func (c *testClient) eventually(what string, holds func() bool) {
	c.t.Helper()
	c.waitFor(what, func() error {
		if !holds() {
			return errors.New("not seen")
		}
		return nil
	})
}

// available waits until the condition of the backend has a status and a reason.
func (c *testClient) available(want string) (message string) {
	c.t.Helper()
	c.eventually(want, func() bool {
		got := c.must(200, "GET", apiServices+"/v1.back.example.com", nil)
		list, _ := got.at("status", "conditions").([]any)
		if len(list) > 0 {
			message = jsonObject(list[0].(map[string]any)).text("message")
		}
		return conditionOf(got, "Available") == want
	})
	return message
}

// entry is aggregated discovery from the group version of the backend on.
func (c *testClient) entry() string {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.ctx, "GET", c.url+"/apis", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	answer, err := c.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	_, entry, _ := strings.Cut(string(text), `{"metadata":{"name":"back.example.com"},"versions":[`)
	return entry
}

// plain sends a request, and returns the code and the text of the answer.
func (c *testClient) plain(path string, header ...string) (int, string) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.ctx, "GET", c.url+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Add(header[i], header[i+1])
	}
	answer, err := c.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode, strings.TrimSpace(string(text))
}

const things = "/apis/back.example.com/v1/things"

// serveBackend starts a server and a backend that trusts it.
func serveBackend(t *testing.T) (*testClient, *Server, *backend) {
	t.Helper()
	c, s := serveDefinitions(t)
	trusted := c.must(200, "GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", nil)
	b := newBackend(t, trusted.text("data", "requestheader-client-ca-file"))
	return c, s, b
}

// pipeBackend does so in a bubble: connections are pipes.
func pipeBackend(t *testing.T) (*testClient, *backend) {
	t.Helper()
	config, listener := quiet(t.TempDir()), newPipes()
	config.Listener, config.Aggregation.Dial = newPipes(), listener.dial
	c, _ := serveFrom(t, config)
	trusted := c.must(200, "GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", nil)
	return c, newBackendAt(t, trusted.text("data", "requestheader-client-ca-file"), listener)
}

// reconfigure changes the APIService of the backend, again if the server has set its status meanwhile.
func (c *testClient) reconfigure(edit func(spec map[string]any)) {
	c.t.Helper()
	const path = apiServices + "/v1.back.example.com"
	c.waitFor("a change of the APIService", func() error {
		live := c.must(200, "GET", path, nil)
		edit(live["spec"].(map[string]any))
		_, _, err := c.do(c.ctx, "PUT", path, "application/json", live, 200)
		return err
	})
}

// register makes the Service and the APIService of a backend.
func (c *testClient) register(b *backend) {
	c.t.Helper()
	c.must(201, "POST", apiServices, b.service())
	if message := c.available("False ServiceNotFound"); message != `service/back in "default" is not present` {
		c.t.Error(message)
	}
	if code, text := c.plain(things); code != 503 || text != "service unavailable" {
		c.t.Errorf("without a Service: %d %s", code, text)
	}
	c.must(201, "POST", "/api/v1/namespaces/default/services", jsonObject{"metadata": map[string]any{"name": "back"},
		"spec": map[string]any{"type": "ExternalName", "externalName": "127.0.0.1"}})
	if message := c.available("True Passed"); message != "all checks passed" {
		c.t.Error(message)
	}
}

// Requests go to the backend, which knows who sends them: by the client certificate that the server has published, and
// by headers that clients cannot set. What it serves is in discovery.
//
// SPEC: EXT-2, URI-8
func TestAggregation(t *testing.T) {
	c, s, b := serveBackend(t)
	c.register(b)
	if list := c.must(200, "GET", things, nil); list.text("kind") != "ThingList" {
		t.Errorf("%v", list)
	}
	c.plain(things, "X-Remote-User", "eve", "X-Remote-Group", "system:nodes", "X-Remote-Extra-Scope", "all")
	seen := b.seen.Load()
	if user, groups := seen.Header["X-Remote-User"], seen.Header["X-Remote-Group"]; fmt.Sprint(user) != "[plinth-admin]" ||
		strings.Contains(fmt.Sprint(groups), "nodes") || !strings.Contains(fmt.Sprint(groups), "system:masters") ||
		seen.Header["X-Remote-Extra-Scope"] != nil {
		t.Errorf("the backend is told of %v %v", user, groups)
	}
	if address, id := seen.Context().Value(http.LocalAddrContextKey), seen.Header["Audit-Id"]; seen.Host !=
		fmt.Sprint(address) || len(id) != 1 || len(id[0]) != 36 {
		t.Errorf("the backend at %s is asked as %s, with the audit IDs %q", address, seen.Host, id)
	}
	if name := seen.TLS.PeerCertificates[0].Subject.CommonName; name != "front-proxy-client" {
		t.Errorf("the backend is asked by %s", name)
	}
	c.eventually("the backend's resources in discovery", func() bool {
		return strings.HasPrefix(c.entry(), `{"freshness":"Current","resources":[{"resource":"things","responseKind":`+
			`{"group":"","kind":"Thing","version":""},"scope":"Namespaced","shortNames":["th"],"singularResource":"thing",`+
			`"subresources":[{"responseKind":{"group":"","kind":"Thing","version":""},"subresource":"status","verbs":["get"]}],`+
			`"verbs":["get","list","delete"]}],"version":"v1"}`)
	})
	if group := c.must(200, "GET", "/apis/back.example.com", nil); group.text("preferredVersion", "version") != "v1" {
		t.Errorf("%v", group)
	}
	if code, text := c.plain("/apis/back.example.com/v2"); code != 404 {
		t.Errorf("another version: %d %s", code, text)
	}
	// What is deleted is gone.
	c.must(200, "DELETE", apiServices+"/v1.back.example.com", nil)
	if code, _ := c.plain(things); code != 404 {
		t.Errorf("without its APIService: %d", code)
	}
	c.eventually("no group in discovery", func() bool {
		code, _ := c.plain("/apis/back.example.com")
		return code == 404
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A backend that is not available is asked what it serves, too: a group may be in discovery whose requests are
// refused.
//
// SPEC: EXT-2, URI-8
func TestDiscoveryOfUnavailableBackends(t *testing.T) {
	c, _, b := serveBackend(t)
	c.register(b)
	list := `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":` +
		`"back.example.com"},"versions":[{"version":"v1","resources":[{"resource":"others","scope":"Cluster",` +
		`"responseKind":{"group":"","version":"","kind":"Other"},"verbs":["get"]}]}]}]}`
	b.behave(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis" {
			http.Error(w, "no", 500)
			return
		}
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		io.WriteString(w, list)
	})
	c.must(200, "PUT", "/api/v1/namespaces/default/services/back", jsonObject{"metadata": map[string]any{"name": "back",
		"annotations": map[string]any{"now": "bad"}}, "spec": map[string]any{"type": "ExternalName",
		"externalName": "127.0.0.1"}})
	c.available("False FailedDiscoveryCheck")
	c.eventually("its other resources", func() bool {
		entry := c.entry()
		return strings.HasPrefix(entry, `{"freshness":"Current"`) && strings.Contains(entry, `"resource":"others"`)
	})
	if code, _ := c.plain("/apis/back.example.com/v1/others"); code != 503 {
		t.Errorf("a request to it: %d", code)
	}
	// One that is available and does not say what it serves is asked for OpenAPI.
	b.behave(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"swagger":"2.0","info":{"title":"t","version":"1"},"paths":{"/apis/back.example.com/v1/odd/":{}}}`)
	})
	c.must(200, "PUT", "/api/v1/namespaces/default/services/back", jsonObject{"metadata": map[string]any{"name": "back",
		"annotations": map[string]any{"now": "odd"}}, "spec": map[string]any{"type": "ExternalName",
		"externalName": "127.0.0.1"}})
	c.available("True Passed")
	c.eventually("its paths in OpenAPI", func() bool {
		_, text := c.plain("/openapi/v2")
		return strings.Contains(text, `"/apis/back.example.com/v1/odd/"`)
	})
	// From one that has no OpenAPI v3, which is another thing than to be silent about it, a document of version 2 is
	// taken.
	if _, text := c.plain("/openapi/v3"); strings.Contains(text, "back.example.com/v1") {
		t.Errorf("OpenAPI v3 of a backend that answers something else: %s", text)
	}
	b.behave(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v3" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, `{"swagger":"2.0","info":{"title":"t","version":"1"},"paths":{"/apis/back.example.com/v1/odd/":{"get":`+
			`{"produces":["a/b"],"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/A"}}}}}},`+
			`"definitions":{"A":{"type":"object"}}}`)
	})
	again := c.must(200, "GET", apiServices+"/v1.back.example.com", nil) // after a change it is asked at once
	again["spec"].(map[string]any)["versionPriority"] = 21
	c.must(200, "PUT", apiServices+"/v1.back.example.com", again)
	c.eventually("it in OpenAPI v3", func() bool {
		_, text := c.plain("/openapi/v3")
		return strings.Contains(text, `"apis/back.example.com/v1"`)
	})
	if _, text := c.plain("/openapi/v3/apis/back.example.com/v1"); !strings.Contains(text,
		`"content":{"a/b":{"schema":{"$ref":"#/components/schemas/A"}}}`) {
		t.Errorf("OpenAPI v3: %s", text)
	}
}

// Whatever a backend does, requests of others are answered, and it is said what is wrong.
//
// SPEC: EXT-2
func TestBadBackends(t *testing.T) { synctest.Test(t, askBesideBadBackends) }

func askBesideBadBackends(t *testing.T) {
	c, b := pipeBackend(t)
	c.register(b)
	c.eventually("the backend's resources in discovery", func() bool { return strings.Contains(c.entry(), "things") })
	stop := make(chan bool)
	defer close(stop)
	for _, bad := range []struct {
		name   string
		answer http.HandlerFunc
		code   int // of a request before the server knows that it is bad
		text   string
		wrong  string // in the condition; "": it is not noticed there
	}{
		{"garbage", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{[") }, 200, "{[", ""},
		{"another form", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			io.WriteString(w, `{"items":[{"metadata":{"name":"back.example.com"},"versions":[1,{"version":"v1","resources":`+
				`[7,{"resource":{},"verbs":"get","scope":["x"],"subresources":{"a":1}},{"verbs":[{"a":[]}]}]}]}]}`)
		}, 200, "", ""},
		{"errors", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }, 500, "no", "bad status from"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		}, 502, "the backend attempted to redirect this request, which is not permitted", "bad status from"},
		{"no answer", func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-stop:
			}
		}, 504, "", "exceeded"}, // the deadline or the client's timer, which come at one instant
	} {
		// At first for these requests alone: so no check tells the server that the backend is bad.
		b.behave(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == things {
				bad.answer(w, r)
			} else {
				b.good(w, r)
			}
		})
		if code, text := c.plain(things + "?timeout=1s"); code != bad.code || !strings.Contains(text, bad.text) {
			t.Errorf("%s: %d %s", bad.name, code, text)
		}
		b.behave(bad.answer)
		// Any change makes the server look at the backend again.
		patch := jsonObject{"metadata": map[string]any{"name": "back"}, "spec": map[string]any{"type": "ExternalName",
			"externalName": "127.0.0.1", "sessionAffinity": "None"}}
		patch["metadata"].(map[string]any)["annotations"] = map[string]any{"now": bad.name}
		c.must(200, "PUT", "/api/v1/namespaces/default/services/back", patch)
		if bad.wrong != "" {
			if message := c.available("False FailedDiscoveryCheck"); !strings.Contains(message, bad.wrong) {
				t.Errorf("%s: %s", bad.name, message)
			}
			if code, text := c.plain(things); code != 503 || text != "service unavailable" {
				t.Errorf("%s, known: %d %s", bad.name, code, text)
			}
			c.eventually("stale", func() bool { return strings.HasPrefix(c.entry(), `{"freshness":"Stale","version":"v1"}`) })
		}
		began := time.Now()
		for _, path := range []string{"/apis", "/apis/apps/v1", "/openapi/v2", "/readyz", "/api/v1/namespaces"} {
			if code, text := c.plain(path); code != 200 {
				t.Errorf("%s: %s: %d %s", bad.name, path, code, text)
			}
		}
		for _, accept := range []string{"application/vnd.kubernetes.protobuf", "application/yaml"} {
			accept += ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
			if code, _ := c.plain("/apis", "Accept", accept); code != 200 {
				t.Errorf("%s: discovery as %s: %d", bad.name, accept, code)
			}
		}
		if took := time.Since(began); took > 20*time.Second { // it is milliseconds, unless something waits for the backend
			t.Errorf("%s: requests beside it took %v", bad.name, took)
		}
		b.answer.Store(nil)
		c.must(200, "PUT", "/api/v1/namespaces/default/services/back", patch)
		c.available("True Passed")
	}
}

// A backend with a certificate of another authority, or of another name, gets no requests.
//
// SPEC: EXT-2
func TestCertificatesOfBackends(t *testing.T) {
	c, _, b := serveBackend(t)
	c.register(b)
	other := newBackend(t, "")
	change := func(key string, value any) {
		t.Helper()
		c.reconfigure(func(spec map[string]any) {
			if spec[key] = value; value == nil {
				delete(spec, key)
			}
		})
	}
	change("caBundle", other.bundle)
	if message := c.available("False FailedDiscoveryCheck"); !strings.Contains(message, "x509: certificate signed by") {
		t.Error(message)
	}
	change("caBundle", nil)
	c.eventually("the authorities of the system", func() bool {
		return strings.Contains(c.available("False FailedDiscoveryCheck"), "x509")
	})
	change("insecureSkipTLSVerify", true)
	c.available("True Passed")
	if code, text := c.plain(things); code != 200 {
		t.Errorf("%d %s", code, text)
	}
}

// Each group version has an APIService. Those of definitions are kept as they should be, unless somebody has taken
// them over; those of built-in group versions are written when the server starts.
//
// SPEC: EXT-2
func TestLocalAPIServices(t *testing.T) {
	config := quiet(t.TempDir())
	c, s := serveFrom(t, config)
	at := func(name string) string { return apiServices + "/" + name }
	label := func(obj jsonObject) string { return obj.text("metadata", "labels", aggregation.Automanaged) }
	if apps := c.must(200, "GET", at("v1.apps"), nil); label(apps) != "onstart" ||
		conditionOf(apps, "Available") != "True Local" || fmt.Sprint(apps["spec"]) !=
		"map[group:apps groupPriorityMinimum:17800 version:v1 versionPriority:15]" {
		t.Errorf("%v", apps)
	}
	c.must(201, "POST", definitions, definitionOf("a.example.com", "widgets", "Widget"))
	const widgets = "v1.a.example.com"
	exists := func(name string) bool { code, _ := c.plain(at(name)); return code == 200 }
	c.eventually("an APIService of the definition", func() bool { return exists(widgets) })
	made := c.must(200, "GET", at(widgets), nil)
	const right = "map[group:a.example.com groupPriorityMinimum:1000 version:v1 versionPriority:100]"
	if label(made) != "true" || fmt.Sprint(made["spec"]) != right {
		t.Errorf("%v", made)
	}
	made["spec"].(map[string]any)["versionPriority"] = 7
	c.must(200, "PUT", at(widgets), made)
	c.eventually("the APIService is repaired", func() bool {
		return fmt.Sprint(c.must(200, "GET", at(widgets), nil)["spec"]) == right
	})
	c.must(200, "DELETE", at(widgets), nil)
	c.eventually("the APIService is made again", func() bool { return exists(widgets) })
	c.must(200, "DELETE", at("v1.batch"), nil)
	wrong := c.must(200, "GET", at("v1.apps"), nil)
	wrong["spec"].(map[string]any)["versionPriority"] = 7
	c.must(200, "PUT", at("v1.apps"), wrong)
	for name, managed := range map[string]string{"old": aggregation.ManagedOnStart,
		"false": aggregation.ManagedContinuous} {
		group := name + ".example.com"
		c.must(201, "POST", apiServices, jsonObject{"metadata": map[string]any{"name": "v1." + group,
			"labels": map[string]any{aggregation.Automanaged: managed}}, "spec": map[string]any{"group": group, "version": "v1",
			"groupPriorityMinimum": 1, "versionPriority": 1}})
	}
	c.eventually("what no definition serves is deleted", func() bool { return !exists("v1.false.example.com") })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	c, _ = serveFrom(t, config)
	if !exists("v1.batch") || exists("v1.old.example.com") {
		t.Error("the start does not make and delete APIServices")
	}
	if apps := c.must(200, "GET", at("v1.apps"), nil); apps.text("spec", "versionPriority") != "" &&
		fmt.Sprint(apps.at("spec", "versionPriority")) != "15" {
		t.Errorf("the start does not repair %v", apps)
	}
	mine := c.must(200, "GET", at(widgets), nil)
	delete(mine["metadata"].(map[string]any), "labels")
	mine["spec"].(map[string]any)["versionPriority"] = 7
	c.must(200, "PUT", at(widgets), mine)
	c.must(200, "DELETE", definitions+"/widgets.a.example.com", nil)
	c.eventually("the definition is gone", func() bool {
		code, _ := c.plain(definitions + "/widgets.a.example.com")
		return code == 404
	})
	c.must(201, "POST", definitions, definitionOf("b.example.com", "widgets", "Widget"))
	c.eventually("an APIService of the next definition", func() bool { return exists("v1.b.example.com") })
	if !exists(widgets) {
		t.Error("an APIService that somebody has taken over is deleted")
	}
	c.must(200, "DELETE", definitions+"/widgets.b.example.com", nil)
	c.eventually("the APIService is deleted with its definition", func() bool { return !exists("v1.b.example.com") })
}

// Metrics say which APIServices are unavailable, and how often they became so.
//
// SPEC: RUN-3, EXT-2
func TestMetricsOfBackends(t *testing.T) {
	c, _, b := serveBackend(t)
	c.register(b)
	const name = `{name="v1.back.example.com"`
	metrics := func() string { _, text := c.plain("/metrics"); return text }
	has := func(lines ...string) {
		t.Helper()
		text := metrics()
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("no line %s", line)
			}
		}
	}
	has("aggregator_unavailable_apiservice"+name+"} 0", `aggregator_unavailable_apiservice{name="v1."} 0`,
		"apiserver_kube_aggregator_x509_missing_san_total 0", "apiserver_kube_aggregator_x509_insecure_sha1_total 0")
	if text := metrics(); strings.Contains(text, "aggregator_unavailable_apiservice_total") {
		t.Error("one that has never been available is counted")
	}
	b.behave(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) })
	service := jsonObject{"metadata": map[string]any{"name": "back", "annotations": map[string]any{"look": "again"}},
		"spec": map[string]any{"type": "ExternalName", "externalName": "127.0.0.1"}}
	c.must(200, "PUT", "/api/v1/namespaces/default/services/back", service)
	c.available("False FailedDiscoveryCheck")
	c.eventually("it is counted", func() bool {
		return strings.Contains(metrics(), "aggregator_unavailable_apiservice_total"+name+`,reason="FailedDiscoveryCheck"} 1`)
	})
	has("aggregator_unavailable_apiservice" + name + "} 1")
	c.must(200, "DELETE", apiServices+"/v1.back.example.com", nil)
	if strings.Contains(metrics(), "aggregator_unavailable_apiservice"+name) {
		t.Error("an APIService that is deleted has a metric")
	}
	count := func() string {
		_, after, _ := strings.Cut(metrics(), "\naggregator_discovery_aggregation_count_total ")
		number, _, _ := strings.Cut(after, "\n")
		return number
	}
	c.plain("/apis")
	before := count()
	if c.plain("/apis"); before == "" || count() != before {
		t.Errorf("%s aggregations, and then %s", before, count())
	}
	c.must(201, "POST", definitions, definitionOf("m.example.com", "widgets", "Widget"))
	c.eventually("the discovery is put together again", func() bool { c.plain("/apis"); return count() != before })
}

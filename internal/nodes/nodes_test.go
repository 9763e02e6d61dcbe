package nodes

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/object"
)

// cluster is what a Nodes reads: objects by RESOURCE/NAMESPACE/NAME. All connections go to one server.
type cluster struct {
	*Nodes
	objects map[string]object.Value
	slices  []object.Value
	dialed  []string
}

// newCluster makes a cluster whose kubelet, Pods and Services are this handler.
func newCluster(t *testing.T, handler http.HandlerFunc, change func(*Config)) *cluster {
	t.Helper()
	secure, plain := httptest.NewUnstartedServer(handler), httptest.NewServer(handler)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that end early
	secure.StartTLS()
	t.Cleanup(secure.Close)
	t.Cleanup(plain.Close)
	x := &cluster{objects: map[string]object.Value{}}
	c := Config{
		Object: func(_ context.Context, resource, namespace, name string) (object.Value, error) {
			if obj, ok := x.objects[resource+"/"+namespace+"/"+name]; ok {
				return obj, nil
			}
			return object.Nil, apierr.NewNotFound(apierr.Type{Name: resource}, name)
		},
		EndpointSlices: func(context.Context, string, string) ([]object.Value, error) { return x.slices, nil },
		Kubelets:       Kubelets{AddressTypes: []string{"Hostname", "InternalIP"}, Port: 10250},
		Lookup: func(_ context.Context, host string) ([]net.IPAddr, error) {
			if ip := net.ParseIP(host); ip != nil {
				return []net.IPAddr{{IP: ip}}, nil
			}
			return nil, errors.New("no such host")
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			x.dialed = append(x.dialed, address)
			to := secure.Listener.Addr().String()
			if strings.HasSuffix(address, ":8080") || strings.HasSuffix(address, ":80") {
				to = plain.Listener.Addr().String()
			}
			return (&net.Dialer{}).DialContext(ctx, network, to)
		},
	}
	if change != nil {
		change(&c)
	}
	var err error
	if x.Nodes, err = New(c); err != nil {
		t.Fatal(err)
	}
	x.add("nodes//node-a", `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`)
	x.add("pods/default/p", `{"metadata":{"name":"p"},"spec":{"nodeName":"node-a","containers":[{"name":"c","ports":[
		{"containerPort":8080}]}]},"status":{"podIP":"192.0.2.7","podIPs":[{"ip":"192.0.2.7"}]}}`)
	return x
}

func (x *cluster) add(key, text string) {
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil {
		panic(err)
	}
	x.objects[key] = parsed.Value
}

// ask sends a request to a subresource, as httpapi does, and returns the answer or the error.
func (x *cluster) ask(t *testing.T, method, path string, header ...string) (*httptest.ResponseRecorder, error) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(""))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	asked := &access.Attributes{Path: r.URL.Path}
	if parts[0] == "namespaces" {
		asked.Namespace, parts = parts[1], parts[2:]
	}
	asked.Resource, asked.Name, asked.Subresource = parts[0], parts[1], parts[2]
	w := httptest.NewRecorder()
	return w, x.Backend(asked.Resource, asked.Subresource)(w, r, asked)
}

const pods = "/api/v1/namespaces/default/pods/"

// Where requests go, and with which paths and queries.
//
// SPEC: URI-7
func TestLocations(t *testing.T) {
	var got string
	x := newCluster(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Method + " " + r.URL.RequestURI()
		fmt.Fprint(w, "answer")
	}, nil)
	x.add("nodes//node-b", `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.2"},
		{"type":"Hostname","address":"192.0.2.3"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":999}}}}`)
	x.add("pods/default/q", `{"metadata":{"name":"q"},"spec":{"nodeName":"node-b","containers":[{"name":"c"},{"name":"d"}],
		"ephemeralContainers":[{"name":"e"}]},"status":{"podIP":"2001:db8::1"}}`)
	x.add("services/default/s", `{"spec":{"ports":[{"name":"web","port":80},{"name":"tls","port":443}]}}`)
	x.slices = []object.Value{object.Nil}
	for _, c := range []struct{ path, dialed, sent string }{
		{pods + "p/log", "192.0.2.1:10250", "GET /containerLogs/default/p/c"},
		{pods + "p/log?tailLines=5&follow=1&previous=true&timestamps=yes&limitBytes=9&sinceSeconds=3&x=y", "192.0.2.1:10250",
			"GET /containerLogs/default/p/c?follow=true&limitBytes=9&previous=true&sinceSeconds=3&tailLines=5&timestamps=true"},
		{pods + "q/log?container=e&sinceTime=2026-01-02T03:04:05Z", "192.0.2.3:999",
			"GET /containerLogs/default/q/e?sinceTime=2026-01-02T03%3A04%3A05Z"},
		{"/api/v1/nodes/node-a/proxy/pods?x=y", "192.0.2.1:10250", "GET /pods?x=y"},
		{"/api/v1/nodes/https:node-b:999/proxy/", "192.0.2.3:999", "GET /"},
		{"/api/v1/nodes/node-b:8080/proxy/a//b/../c/", "192.0.2.3:8080", "GET /a/c/"},
		{pods + "p/proxy/x/", "192.0.2.7:8080", "GET /x/"},
		{pods + "http:p:80/proxy/x", "192.0.2.7:80", "GET /x"},
		{pods + "https:q:444/proxy/x", "[2001:db8::1]:444", "GET /x"},
		{pods + "q/proxy/x", "[2001:db8::1]:80", "GET /x"},
	} {
		x.dialed = nil
		x.transports = transports{of: x.Nodes} // no connection is used again
		w, err := x.ask(t, http.MethodGet, c.path)
		if err != nil || w.Body.String() != "answer" || got != c.sent || !slices.Equal(x.dialed, []string{c.dialed}) {
			t.Errorf("%s: %q, %v; dialed %v, sent %s", c.path, w.Body, err, x.dialed, got)
		}
	}
}

// Endpoints of Services are Pods of their own namespace, and ready.
//
// SPEC: URI-7
func TestEndpointsOfServices(t *testing.T) {
	x := newCluster(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "answer") }, nil)
	x.add("services/default/s", `{"spec":{"ports":[{"name":"web","port":80}]}}`)
	slice := func(family, port, endpoint string) object.Value {
		x.add("", `{"addressType":"`+family+`","ports":[{"name":"web","port":`+port+`}],"endpoints":[`+endpoint+`]}`)
		return x.objects[""]
	}
	const services = "/api/v1/namespaces/default/services/"
	const none = `no endpoints available for service "s"`
	const pod = `"targetRef":{"kind":"Pod","namespace":"default","name":"p"}`
	for _, c := range []struct {
		name   string
		slices []object.Value
		want   string // a dialed address, or an error
	}{
		{"s:web", []object.Value{slice("IPv4", "8080", `{"addresses":["192.0.2.7"],`+pod+`}`)}, "192.0.2.7:8080"},
		{"s:80", []object.Value{slice("IPv4", "8080", `{"addresses":["192.0.2.7"],`+pod+`}`)}, "192.0.2.7:8080"},
		{"s:81", nil, `no service port 81 found for service "s"`},
		{"s", []object.Value{slice("IPv4", "8080", `{"addresses":["192.0.2.7"],`+pod+`}`)}, none}, // that port has a name
		{"s:web", nil, none},
		{"s:web", []object.Value{slice("IPv4", "8080", `{"addresses":["192.0.2.7"]}`)}, none},
		{"s:web", []object.Value{slice("IPv4", "8080", `{"addresses":["169.254.169.254"],`+pod+`}`)}, none},
		{"s:web", []object.Value{slice("IPv4", "8080",
			`{"addresses":["192.0.2.7"],"targetRef":{"kind":"Pod","namespace":"other","name":"p"}}`)}, none},
		{"s:web", []object.Value{slice("IPv4", "8080",
			`{"addresses":["192.0.2.7"],"conditions":{"ready":false},`+pod+`}`)}, none},
		{"s:web", []object.Value{slice("IPv6", "80", `{"addresses":["192.0.2.7"],`+pod+`}`),
			slice("IPv4", "8080", `{"addresses":["192.0.2.7"],`+pod+`}`)}, "192.0.2.7:8080"},
	} {
		x.slices, x.dialed = c.slices, nil
		x.transports = transports{of: x.Nodes}
		_, err := x.ask(t, http.MethodGet, services+c.name+"/proxy/x")
		if err == nil && !slices.Equal(x.dialed, []string{c.want}) || err != nil && err.Error() != c.want {
			t.Errorf("%s %v: dialed %v, %v", c.name, c.slices, x.dialed, err)
		}
	}
}

// What leads nowhere, or where no client may go, is refused before anything is dialed.
//
// SPEC: URI-7, URI-9
func TestRefused(t *testing.T) {
	x := newCluster(t, func(http.ResponseWriter, *http.Request) {}, nil)
	x.add("nodes//bare", `{"status":{"addresses":[{"type":"ExternalIP","address":"192.0.2.9"}]}}`)
	x.add("nodes//local", `{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}]}}`)
	x.add("nodes//metadata", `{"status":{"addresses":[{"type":"InternalIP","address":"169.254.169.254"}]}}`)
	x.add("pods/default/lone", `{"metadata":{"name":"lone"},"spec":{"containers":[{"name":"c"}]}}`)
	x.add("pods/default/two", `{"metadata":{"name":"two"},"spec":{"initContainers":[{"name":"i"}],"containers":[
		{"name":"c"},{"name":"d"}]}}`)
	x.add("pods/default/bare", `{"metadata":{"name":"bare"},"spec":{"nodeName":"bare","containers":[{"name":"c"}]}}`)
	x.add("pods/default/lost", `{"metadata":{"name":"lost"},"spec":{"nodeName":"lost","containers":[{"name":"c"}]}}`)
	x.add("pods/default/local", `{"metadata":{"name":"local"},"status":{"podIP":"127.0.0.1"}}`)
	x.add("pods/default/forged", `{"metadata":{"name":"forged"},"status":{"podIP":"169.254.169.254","podIPs":[
		{"ip":"192.0.2.1"}]}}`)
	for _, c := range []struct {
		path string
		code int
		want string
	}{
		{pods + "none/log", 404, `pods "none" not found`},
		{pods + "lost/log", 404, `pods "lost" not found`},
		{pods + "bare/log", 500, "no preferred addresses found; known addresses: [{ExternalIP 192.0.2.9}]"},
		{pods + "two/log", 400, "a container name must be specified for pod two, choose one of: [i c d]"},
		{pods + "two/exec?container=x", 400, "container x is not valid for pod two"},
		{pods + "local/attach", 400, "a container name must be specified for pod local"},
		{pods + "lone/exec", 400, "pod lone does not have a host assigned"},
		{pods + "lone/portforward", 400, "pod lone does not have a host assigned"},
		{pods + "p/exec", 400, "Upgrade request required"},
		{pods + "p/log?stream=All", 422, `PodLogOptions "p" is invalid: stream: Forbidden: may not be specified`},
		{pods + "p/log?tailLines=-1&limitBytes=0", 422, `PodLogOptions "p" is invalid: [tailLines: Invalid value: -1: must be ` +
			`greater than or equal to 0, limitBytes: Invalid value: 0: must be greater than 0]`},
		{pods + "local/proxy/x", 400, "address not allowed"},
		{pods + "forged/proxy/x", 400, "address not allowed"},
		{pods + "lone/proxy/x", 400, "address not allowed"},
		{pods + "ftp:p:1/proxy/x", 400, `invalid pod request "ftp:p:1"`},
		{"/api/v1/nodes/local/proxy/x", 400, "address not allowed"},
		{"/api/v1/nodes/metadata:80/proxy/x", 400, "address not allowed"},
		{"/api/v1/nodes/a:b:c:d/proxy/x", 400, `invalid node request "a:b:c:d"`},
		{"/api/v1/namespaces/default/services/x:s:1/proxy/x", 400, `invalid service request "x:s:1"`},
		{"/api/v1/namespaces/default/services/s:1/proxy/x", 404, `services "s" not found`},
	} {
		_, err := x.ask(t, http.MethodGet, c.path)
		var known *apierr.Error
		if !errors.As(err, &known) || known.Code != c.code || known.Message != c.want {
			t.Errorf("%s: %v", c.path, err)
		}
	}
	w, err := x.ask(t, http.MethodGet, pods+"lone/log")
	if err != nil || w.Code != http.StatusNoContent {
		t.Errorf("a log without a node: %d, %v", w.Code, err)
	}
	if len(x.dialed) > 0 {
		t.Errorf("dialed %v", x.dialed)
	}
	if x.transports.plain.made != nil {
		t.Error("a transport to Pods was made before its use")
	}
}

// A log that the kubelet does not send is an error, and a redirect is not followed.
//
// SPEC: URI-7
func TestLogsThatAreRefused(t *testing.T) {
	x := newCluster(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("limitBytes") {
		case "302":
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		case "400":
			http.Error(w, "why", 400)
		case "500":
			http.Error(w, "why", 500)
		default:
			http.Error(w, "why", http.StatusForbidden)
		}
	}, nil)
	for code, want := range map[string]string{
		"302": `Get "http://169.254.169.254/latest": redirects forbidden`,
		"400": "why\n",
		"500": "Internal error occurred: why\n",
		"403": "why\n ( pods/log p)",
	} {
		_, err := x.ask(t, http.MethodGet, pods+"p/log?limitBytes="+code)
		var known *apierr.Error
		if !errors.As(err, &known) || strings.TrimSpace(known.Message) != strings.TrimSpace(want) {
			t.Errorf("%s: %v", code, err)
		}
	}
	if want := []string{"192.0.2.1:10250"}; slices.Compact(x.dialed)[0] != want[0] || len(slices.Compact(x.dialed)) != 1 {
		t.Errorf("dialed %v", x.dialed)
	}
}

// Kubelets are verified by --kubelet-certificate-authority, unless the reader of a log does not want it, and get the
// client certificate, which may be renewed.
//
// SPEC: URI-7
func TestCertificatesOfKubelets(t *testing.T) {
	dir := t.TempDir()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	write := func(name string, block *pem.Block) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	known := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	ca := write("ca", known)
	for _, c := range []Kubelets{{CAFile: filepath.Join(dir, "none")}, {CertFile: ca, KeyFile: ca}, {CertFile: ca},
		{CAFile: write("empty", &pem.Block{Type: "OTHER"})}} {
		if _, err := New(Config{Kubelets: c}); err == nil || !strings.Contains(err.Error(), "--kubelet-") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	var counted []string
	x := newCluster(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "log") },
		func(c *Config) {
			c.Kubelets.CAFile = ca
			c.Metrics.Log = func(insecure bool) { counted = append(counted, fmt.Sprint(insecure)) }
			c.Metrics.LogUnverified = func() { counted = append(counted, "unverified") }
		})
	if _, err := x.ask(t, http.MethodGet, pods+"p/log"); err == nil || !strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("a certificate for another name: %v", err)
	}
	w, err := x.ask(t, http.MethodGet, pods+"p/log?insecureSkipTLSVerifyBackend=true")
	if err != nil || w.Body.String() != "log" {
		t.Errorf("without verification: %q, %v", w.Body, err)
	}
	if want := []string{"false", "unverified", "true"}; !slices.Equal(counted, want) {
		t.Errorf("%v is counted, want %v", counted, want)
	}
	config := x.transports.config(nil)
	if config.GetClientCertificate != nil || !config.InsecureSkipVerify {
		t.Error("there is no client certificate")
	}
}

// A client certificate that is in no file is asked for with each connection, so that it may be renewed.
//
// SPEC: URI-7, BEY-9
func TestClientCertificateInNoFile(t *testing.T) {
	made := 0
	x := newCluster(t, nil, func(c *Config) {
		c.Kubelets.Certificate = func() (*tls.Certificate, error) {
			made++
			return &tls.Certificate{Certificate: [][]byte{{byte(made)}}}, nil
		}
	})
	for want := byte(1); want < 3; want++ {
		c, err := x.transports.config(nil).GetClientCertificate(nil)
		if err != nil || c.Certificate[0][0] != want {
			t.Errorf("%v, %v", c, err)
		}
	}
}

// Headers for one connection alone, and those of users, are not sent on.
//
// SPEC: URI-7
func TestHeadersThatAreNotSentOn(t *testing.T) {
	var got http.Header
	x := newCluster(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Location", "/next?a=b")
		w.WriteHeader(http.StatusFound)
	}, nil)
	w, err := x.ask(t, http.MethodGet, pods+"p/proxy/x", "Connection", "X-Secret, X-Forwarded-Uri", "X-Secret", "s",
		"Keep-Alive", "1", "Proxy-Authorization", "p", "X-Remote-User", "root", "X-Remote-Extra-A", "b", "X-Kept", "yes")
	if err != nil || w.Code != http.StatusFound || w.Header().Get("Location") != pods+"p/proxy/next?a=b" ||
		w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%d %v, %v", w.Code, w.Header(), err)
	}
	for _, name := range []string{"X-Secret", "Keep-Alive", "Proxy-Authorization", "X-Remote-User", "X-Remote-Extra-A"} {
		if got.Get(name) != "" {
			t.Errorf("%s: %s", name, got.Get(name))
		}
	}
	if got.Get("X-Kept") != "yes" || got.Get("X-Forwarded-Uri") != pods+"p/proxy/x" {
		t.Errorf("%v", got)
	}
}

// A tunnel asks a kubelet for SPDY, with the protocols that the WebSocket names, and nothing that is for the WebSocket.
//
// SPEC: URI-7
func TestTunnelRequest(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, pods+"p/portforward", strings.NewReader("smuggled"))
	r.Header = http.Header{"Connection": {"Upgrade, X-Secret"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"k"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Protocol": {"SPDY/3.1+portforward.k8s.io, other, SPDY/3.1+x"},
		"X-Remote-User": {"root"}, "Transfer-Encoding": {"chunked"}, "X-Kept": {"yes"}}
	inner := innerProtocols(r)
	if !slices.Equal(inner, []string{"portforward.k8s.io"}) {
		t.Errorf("protocols %v", inner)
	}
	var sent bytes.Buffer
	if err := tunnelRequest(r, (&kubelet{host: "h", port: "1"}).urlOf("/portForward/default/p", nil),
		inner).Write(&sent); err != nil {
		t.Fatal(err)
	}
	out, err := http.ReadRequest(bufio.NewReader(&sent))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(out.Body)
	if err != nil || len(body) > 0 || out.Method != http.MethodPost || out.Header.Get("X-Kept") != "yes" ||
		out.Header.Get("Upgrade") != "SPDY/3.1" || out.Header.Get("Connection") != "Upgrade" {
		t.Errorf("%s %v %q, %v", out.Method, out.Header, body, err)
	}
	for name := range out.Header {
		if strings.HasPrefix(name, "Sec-") || strings.HasPrefix(name, "X-Remote-") || name == "Transfer-Encoding" {
			t.Errorf("%s is sent on", name)
		}
	}
}

// The Status for a client is made of what the kubelet sends, as in the reference.
//
// SPEC: URI-7
func TestStatusOfACommand(t *testing.T) {
	for sent, want := range map[string]string{
		"":                     "Success ",
		`{"status":"Success"}`: "Success ",
		`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"x"},{"reason":"ExitCode","message":"7"}]}}`: "Failure command terminated with non-zero exit code: command terminated with exit code 7",
		`{"status":"Failure","reason":"NonZeroExitCode"}`:                                                              "Failure Internal error occurred: error stream protocol error: details must be set",
		`{"status":"Failure","reason":"NonZeroExitCode","details":{}}`:                                                 "Failure Internal error occurred: error stream protocol error: no ExitCode cause given",
		`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"777"}]}}`: `Failure Internal error occurred: error stream protocol error: invalid exit code value "777"`,

		`{"status":"Failure","message":"why"}`: "Failure Internal error occurred: why",
		`{"status":"?"}`:                       "Failure Internal error occurred: error stream protocol error: unknown error",
		`{`:                                    `Failure Internal error occurred: error stream protocol error: unexpected end of JSON input in "{"`,
	} {
		if got := statusOf([]byte(sent)); got.Status+" "+got.Message != want {
			t.Errorf("%s: %s %s", sent, got.Status, got.Message)
		}
	}
}

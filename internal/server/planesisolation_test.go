package server

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/object"
)

// The tests of isolation attack one server over TLS, with genuine credentials of three planes: the first one, a and b.
// Each plane has the same names everywhere, and marks in its objects that nobody else has:
//
//	a response from plane x has no mark of another plane, whoever asks, and whatever is written in the request
//	a credential of plane x is nobody in another plane
//
// So that neither holds because all fails, each table is used within the own plane, too, and has a floor.

// isolated are the planes that attack each other.
var isolated = []string{"", "a", "b"}

const isolationDomain = "planes.test"

// someone is a credential.
type someone struct {
	name    string
	of      string // the plane that has issued it
	process bool   // it is the process's, for all planes
	token   string
	cert    *tls.Certificate
	user    string
}

// isolation is a server with three planes.
type isolation struct {
	*planesServer
	roots *x509.CertPool
	admin someone   // the process's administrator
	all   []someone // that planes have issued
	// marks are texts that only objects of a plane have, by plane.
	marks map[string][]string
	log   *lockedBuffer
	audit string // file
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startIsolation starts the server. change may be nil.
func startIsolation(t *testing.T, change func(*Config)) *isolation {
	t.Helper()
	w := &isolation{marks: map[string][]string{}, roots: x509.NewCertPool(), log: &lockedBuffer{}}
	dir := t.TempDir()
	tokens, policy := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "policy.yaml")
	w.audit = filepath.Join(dir, "audit.log")
	for file, text := range map[string]string{
		tokens: "admintoken,root,root-uid,system:masters\nusertoken,somebody,somebody-uid,team\n",
		policy: "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.planesServer = startPlanes(t, func(c *Config) {
		c.PlanesDomain, c.TokenAuthFile, c.Profiling, c.Console = isolationDomain, tokens, true, true
		c.BootstrapTokens = true
		c.Audit.PolicyFile, c.Audit.Log.Path = policy, w.audit
		c.Logger = slog.New(slog.NewTextHandler(w.log, nil))
		if change != nil {
			change(c)
		}
	})
	authority, pair := w.Administrator()
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	w.roots.AppendCertsFromPEM(authority)
	w.admin = someone{name: "the administrator", process: true, cert: &certificate}
	for _, plane := range isolated {
		if plane != "" {
			w.mark(plane, w.create(plane, "").At("metadata", "uid").Str())
		}
		w.furnish(plane)
	}
	return w
}

func (w *isolation) mark(plane string, texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		if len(text) < 8 {
			w.t.Fatalf("the mark %q is too short", text)
		}
		w.marks[plane] = append(w.marks[plane], text)
	}
}

// markOf is a text of a plane that is in its objects.
func markOf(plane string) string {
	return "mark-of-" + map[string]string{"": "first"}[plane] + plane + "-x"
}

// furnish makes the same objects in a plane, with marks, and credentials of the plane.
func (w *isolation) furnish(plane string) {
	w.t.Helper()
	mark := markOf(plane)
	w.mark(plane, mark)
	w.mark(plane, w.want(200, plane, "GET", "/api/v1/namespaces/kube-system", "").At("metadata", "uid").Str())
	for path, body := range map[string]string{
		planeMaps: mapOf("one", mark),
		"/api/v1/namespaces/default/secrets": fmt.Sprintf(
			"{apiVersion: v1, kind: Secret, metadata: {name: one, labels: {mark: %q}}, stringData: {value: %[1]q}}", mark),
		"/api/v1/namespaces/default/serviceaccounts": "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}",
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": "{metadata: {name: owners}, " +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [" +
			"{kind: ServiceAccount, namespace: default, name: robot}, " +
			"{apiGroup: rbac.authorization.k8s.io, kind: User, name: owner}, " +
			"{apiGroup: rbac.authorization.k8s.io, kind: User, name: 'system:bootstrap:abcdef'}]}",
		"/api/v1/namespaces/kube-system/secrets": fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: "+
			"bootstrap-token-abcdef}, type: bootstrap.kubernetes.io/token, stringData: {token-id: abcdef, token-secret: %q, "+
			"usage-bootstrap-authentication: 'true'}}", bootstrapOf(plane)),
	} {
		made := w.want(201, plane, "POST", path, body)
		w.mark(plane, made.At("metadata", "uid").Str())
	}
	w.want(201, plane, "POST", "/api/v1/namespaces/default/secrets", "{apiVersion: v1, kind: Secret, metadata: {name: "+
		"legacy, annotations: {kubernetes.io/service-account.name: robot}}, type: kubernetes.io/service-account-token}")
	w.want(201, plane, "POST", "/api/v1/namespaces/default/events", fmt.Sprintf("{apiVersion: v1, kind: Event, metadata: "+
		"{name: e}, involvedObject: {namespace: default, name: one}, message: %q}", mark))
	w.issue(plane)
}

// bootstrapOf is the secret of a bootstrap token.
func bootstrapOf(plane string) string { return (plane + "0123456789abcdef")[:16] }

const robotUser = "system:serviceaccount:default:robot"

// issue makes credentials in a plane.
func (w *isolation) issue(plane string) {
	w.t.Helper()
	const tokens = "/api/v1/namespaces/default/serviceaccounts/robot/token"
	own := w.planeURL(plane)
	audience := object.AppendJSON(nil, object.Strings(w.planeURL("b"), w.planeURL("a"),
		"https://kubernetes.default.svc.cluster.local", "https://kubernetes.default.svc", w.URL()))
	for name, spec := range map[string]string{"a token": "{}",
		"a token for all": "{audiences: " + string(audience) + "}"} {
		token := w.want(201, plane, "POST", tokens, "{spec: "+spec+"}").At("status", "token").Str()
		w.all = append(w.all, someone{name: name, of: plane, token: token, user: robotUser})
	}
	var legacy string
	within(w.t.(*testing.T), "the token in a Secret of "+own, func() bool {
		data := w.want(200, plane, "GET", "/api/v1/namespaces/default/secrets/legacy", "").At("data", "token").Str()
		text, err := base64.StdEncoding.DecodeString(data)
		legacy = string(text)
		return err == nil && legacy != ""
	})
	w.all = append(w.all, someone{name: "a token of a Secret", of: plane, token: legacy, user: robotUser},
		someone{name: "a bootstrap token", of: plane, token: "abcdef." + bootstrapOf(plane), user: "system:bootstrap:abcdef"})
	for name, subject := range map[string]pkix.Name{
		"a certificate":              {CommonName: "owner"},
		"a certificate of a manager": {CommonName: "system:kube-controller-manager"},
	} {
		w.all = append(w.all, someone{name: name, of: plane, cert: w.sign(plane, subject), user: subject.CommonName})
	}
}

// sign has a plane sign a client certificate.
func (w *isolation) sign(plane string, subject pkix.Name) *tls.Certificate {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		w.t.Fatal(err)
	}
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	text := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}))
	made := w.want(201, plane, "POST", path, fmt.Sprintf("{metadata: {generateName: r-}, spec: {request: %q, signerName: "+
		"kubernetes.io/kube-apiserver-client, usages: [client auth]}}", text))
	at := path + "/" + made.At("metadata", "name").Str()
	approved := made.With("status", object.Fields("conditions", object.ListOf(object.Fields(
		"type", object.StringOf("Approved"), "status", object.StringOf("True"), "reason", object.StringOf("Test")))))
	w.want(200, plane, "PUT", at+"/approval", string(object.AppendJSON(nil, approved)))
	var signed []byte
	within(w.t.(*testing.T), "a signed certificate", func() bool {
		signed, err = base64.StdEncoding.DecodeString(w.want(200, plane, "GET", at, "").At("status", "certificate").Str())
		return err == nil && len(signed) > 0
	})
	block, _ := pem.Decode(signed)
	return &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
}

// attempt is a request as it is written on the connection.
type attempt struct {
	by      someone
	method  string
	target  string // of the request line
	sni     string // "": that of the server
	host    string // "": the server's address
	headers []string
	body    string
}

func (a attempt) String() string {
	return fmt.Sprintf("%s of %q: %s %s (SNI %q, Host %q, %q)", a.by.name, a.by.of, a.method, a.target, a.sni, a.host,
		a.headers)
}

// response is what came.
type response struct {
	code   int
	header http.Header
	text   string
}

func (r response) value() object.Value {
	parsed, err := object.ParseJSON([]byte(r.text))
	if err != nil {
		return object.Nil
	}
	return parsed.Value
}

// send writes a request to the server as it is, and reads the response, or the first of it if it is a watch.
func (w *isolation) send(a attempt) response {
	w.t.Helper()
	address := strings.TrimPrefix(w.URL(), "https://")
	sni := a.sni
	if sni == "" {
		sni = "localhost"
	}
	config := &tls.Config{RootCAs: w.roots, ServerName: sni}
	if a.by.cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return a.by.cert, nil }
	}
	connection, err := tls.Dial("tcp", address, config)
	if err != nil {
		w.t.Fatalf("%s: %v", a, err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		w.t.Fatal(err)
	}
	host := a.host
	if host == "" {
		host = address
	}
	method := a.method
	if method == "" {
		method = "GET"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, a.target, host)
	if a.by.token != "" {
		fmt.Fprintf(&text, "Authorization: Bearer %s\r\n", a.by.token)
	}
	if a.body != "" {
		fmt.Fprintf(&text, "Content-Type: application/yaml\r\nContent-Length: %d\r\n", len(a.body))
	}
	closes := true
	for i := 0; i+1 < len(a.headers); i += 2 {
		fmt.Fprintf(&text, "%s: %s\r\n", a.headers[i], a.headers[i+1])
		closes = closes && a.headers[i] != "Connection"
	}
	if closes {
		text.WriteString("Connection: close\r\n")
	}
	text.WriteString("\r\n" + a.body)
	if _, err := io.WriteString(connection, text.String()); err != nil {
		w.t.Fatalf("%s: %v", a, err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: method})
	if err != nil {
		w.t.Fatalf("%s: %v", a, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatalf("%s: %v", a, err)
	}
	return response{answer.StatusCode, answer.Header, string(body)}
}

// crossed is a mark of other planes than the given one in a response; "": there is none.
func (w *isolation) crossed(plane string, r response) string {
	text := r.text + fmt.Sprint(r.header)
	for of, marks := range w.marks {
		for _, mark := range marks {
			if of != plane && (strings.Contains(text, mark) ||
				strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(mark)))) {
				return mark
			}
		}
	}
	return ""
}

// base is where a plane is.
func base(plane string) string {
	if plane == "" {
		return ""
	}
	return "/clusters/" + plane
}

// others are the planes besides one.
func others(plane string) []string {
	return slices.DeleteFunc(slices.Clone(isolated), func(of string) bool { return of == plane })
}

// reading are paths whose answers have marks.
var reading = []string{planeMaps, planeMaps + "/one", "/api/v1/namespaces/default/secrets/one", "/api/v1/events",
	"/api/v1/namespaces/kube-system"}

// A credential that a plane has issued is nobody in another one, by path and by host name, and somebody at home.
//
// SPEC: BEY-9
func TestCredentialsStayInTheirPlane(t *testing.T) {
	w := startIsolation(t, nil)
	tried, worked := 0, 0
	const whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	for _, by := range w.all {
		for _, plane := range isolated {
			for _, host := range []bool{false, true} {
				if plane == "" && host {
					continue
				}
				at, name := base(plane), ""
				if host {
					at, name = "", plane+"."+isolationDomain
				}
				for _, path := range append([]string{whoami, "/metrics", "/debug/pprof/cmdline", "/api", "/openapi/v2"},
					reading...) {
					a := attempt{by: by, target: at + path, sni: name, host: name}
					if path == whoami {
						a.method, a.body = "POST", "{}"
					}
					r := w.send(a)
					tried++
					if mark := w.crossed(plane, r); mark != "" {
						t.Errorf("%s: the response has %q", a, mark)
					}
					who := r.value().At("status", "userInfo", "username").Str()
					switch {
					case plane != by.of && r.code != http.StatusUnauthorized:
						t.Errorf("%s: %d %s", a, r.code, r.text)
					case plane == by.of && path == whoami:
						if who != by.user {
							t.Errorf("%s: it is %q: %d %s", a, who, r.code, r.text)
						}
						worked++
					}
				}
			}
		}
	}
	if tried < 800 || worked < 30 {
		t.Errorf("%d were tried, of which %d were at home", tried, worked)
	}
}

// traversals are ways to write a request line whose reader might find plane Y, with the path P, behind plane X. {x} and
// {y} are /clusters/NAME, or nothing for the first plane.
var traversals = []string{
	"{x}/..{y}{p}", "{x}/../..{y}{p}", "{x}/../../..{y}{p}", "{x}/%2e%2e{y}{p}", "{x}/%2e%2e/%2e%2e{y}{p}",
	"{x}/%2E.{y}{p}", "{x}/.%2e/..{y}{p}", "{x}/..%2f..{y}{p}", "{x}%2f..%2f..{y}{p}", "{x}%2f%2e%2e%2f%2e%2e{y}{p}",
	"{x}/..;/..{y}{p}", "{x};/..{y}{p}", "{x};a=b/..{y}{p}", "{x}/.;/..{y}{p}", "{x}//..//..{y}{p}", "{x}/./..{y}{p}",
	"{x}/%252e%252e{y}{p}", "{x}/%252e%252e/%252e%252e{y}{p}", "{x}/..%5c..{y}{p}", `{x}/..\..{y}{p}`, "{x}{y}{p}",
	"{x}/{y}{p}", "{x}//{y}{p}", "{x}%00{y}{p}", "{x}/%00/..{y}{p}", "{x}?/..{y}{p}", "{x}/?url={y}{p}", "{x}%3f/..{y}{p}",
	"{x}/api/../../..{y}{p}", "{x}/api/v1/../../../..{y}{p}", "{x}/api/v1/namespaces/default/../../../../../..{y}{p}",
	"{x}/api/v1/namespaces/..%2f..%2f..%2f..%2f..{y}{p}", "{x}/apis/%2e%2e/%2e%2e/%2e%2e{y}{p}",
	"{x}/api/v1/nodes/x/proxy/../../../../../..{y}{p}", "{x}/api/v1/namespaces/default/services/https:x:443/proxy/..{y}{p}",
	"{x}/openapi/v3/../../../..{y}{p}", "{x}/healthz/../..{y}{p}", "{x}/healthz/..%2f..%2f..{y}{p}",
	"{x}/.well-known/../../..{y}{p}", "{x}/console/../../..{y}{p}", "{x}/metrics/../../..{y}{p}",
	"{x}/version/%2e%2e/%2e%2e/%2e%2e{y}{p}", "{x}/clusters{y}{p}", "{x}/clusters/..{y}{p}", "{x}/clusters/.{y}{p}",
	"{x}/clusters/*{p}", "{x}/%63lusters/{n}{p}", "{x}/CLUSTERS/{n}{p}", "{x}/clusters%2f{n}{p}", "{x}/clusters//{n}{p}",
	"//x@{n}{p}", "https://{h}{x}/..{y}{p}", "https://{h}{x}{y}{p}", "http://{h}{x}/%2e%2e{y}{p}",
}

// What is behind the address of a plane is that plane's, whatever is written there; also for those who may read all.
//
// SPEC: BEY-9
func TestPathsStayInTheirPlane(t *testing.T) {
	w := startIsolation(t, nil)
	tried := 0
	for _, x := range []string{"a", "b"} {
		robot := w.all[slices.IndexFunc(w.all, func(s someone) bool { return s.of == x && s.name == "a token" })]
		for _, y := range others(x) {
			for _, form := range traversals {
				for _, path := range []string{planeMaps + "/one", "/api/v1/namespaces/default/secrets",
					"/apis/plinth/v1alpha1/planes"} {
					for _, by := range []someone{robot, w.admin} {
						name := y
						if name == "" {
							name = "first"
						}
						target := strings.NewReplacer("{x}", base(x), "{y}", base(y), "{p}", path, "{n}", name, "{h}",
							strings.TrimPrefix(w.URL(), "https://")).Replace(form)
						if target == base(x)+path || !strings.Contains(target, base(x)) && !strings.HasPrefix(target, "//") {
							continue // it is what x has there
						}
						a := attempt{by: by, target: target}
						r := w.send(a)
						tried++
						if mark := w.crossed(x, r); mark != "" {
							t.Errorf("%s: %d, and the response has %q", a, r.code, mark)
						}
						if r.code >= 500 && r.code != http.StatusServiceUnavailable {
							t.Errorf("%s: %d %s", a, r.code, r.text)
						}
					}
				}
			}
		}
		for _, path := range reading {
			r := w.send(attempt{by: robot, target: base(x) + path})
			if r.code != 200 || w.crossed("", r) == "" { // its marks are found
				t.Errorf("%s of %s: %d %s", path, x, r.code, r.text)
			}
		}
	}
	if tried < 1000 {
		t.Errorf("%d were tried", tried)
	}
}

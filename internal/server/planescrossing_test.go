package server

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"plinth/internal/egress"
	"plinth/object"
)

// of is a credential of a plane.
func (w *isolation) of(plane, name string) someone {
	w.t.Helper()
	i := slices.IndexFunc(w.all, func(s someone) bool { return s.of == plane && s.name == name })
	if i < 0 {
		w.t.Fatalf("plane %q has not issued %s", plane, name)
	}
	return w.all[i]
}

// tell fails the test if the response of a plane has marks of another one, or its code is none of those wanted.
func (w *isolation) tell(plane string, a attempt, codes ...int) response {
	w.t.Helper()
	r := w.send(a)
	if mark := w.crossed(plane, r); mark != "" {
		w.t.Errorf("%s: %d, and the response has %q", a, r.code, mark)
	}
	if !slices.Contains(codes, r.code) {
		w.t.Errorf("%s: %d, want %d: %.300s", a, r.code, codes, r.text)
	}
	return r
}

// A connection to the host name of one plane is for that one alone.
//
// SPEC: BEY-9
func TestHostsStayInTheirPlane(t *testing.T) {
	w := startIsolation(t, nil)
	tried, worked := 0, 0
	names := map[string]string{"a": "a." + isolationDomain, "b": "b." + isolationDomain}
	host := strings.TrimPrefix(w.URL(), "https://")
	forms := func(name string) []string {
		return []string{name, strings.ToUpper(name), name + ":6443", name + ".", name + ".:1", "x." + name, name + ":"}
	}
	for sni, server := range map[string]string{"a": names["a"], "b": names["b"], "": ""} {
		for plane, name := range names {
			for _, text := range forms(name) {
				for _, target := range []string{planeMaps + "/one", base("a") + planeMaps + "/one", base("b") + planeMaps + "/one",
					"https://" + name + planeMaps + "/one", "https://" + host + planeMaps + "/one", "/apis/plinth/v1alpha1/planes"} {
					a := attempt{by: w.admin, sni: server, host: text, target: target}
					tried++
					r := w.send(a)
					in := plane
					if strings.HasPrefix(target, "https://"+host) { // the host of the target counts, and no header
						in = ""
					}
					absolute := strings.HasPrefix(target, "https://")
					if sni != in {
						if r.code != http.StatusMisdirectedRequest && r.code != http.StatusNotFound {
							t.Errorf("%s: %d %.200s", a, r.code, r.text)
						}
						in = "nowhere"
					}
					if mark := w.crossed(in, r); mark != "" {
						t.Errorf("%s: %d, and the response has %q", a, r.code, mark)
					}
					if r.code == http.StatusOK {
						worked++
					} else if absolute && in != "nowhere" {
						t.Errorf("%s: %d %.200s", a, r.code, r.text)
					}
				}
			}
		}
	}
	if tried < 200 || worked < 20 {
		t.Errorf("%d were tried, %d worked", tried, worked)
	}
}

// Headers of proxies, of impersonation and of upgrades do not lead into another plane, and make nobody somebody there.
//
// SPEC: BEY-9
func TestHeadersStayInTheirPlane(t *testing.T) {
	w := startIsolation(t, nil)
	tried := 0
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
		"Sec-WebSocket-Key", "MDEyMzQ1Njc4OWFiY2RlZg=="}
	for _, x := range []string{"a", "b"} {
		for _, y := range others(x) {
			at := base(y) + planeMaps + "/one"
			absolute := w.URL() + at
			tricks := [][]string{
				{"X-Forwarded-Host", y + "." + isolationDomain}, {"X-Forwarded-Prefix", base(y)}, {"X-Forwarded-Uri", at},
				{"Forwarded", "host=" + y + "." + isolationDomain}, {"X-Original-Url", at}, {"X-Rewrite-Url", at},
				{"X-Forwarded-Server", y}, {"Referer", absolute}, {"Origin", "https://" + y + "." + isolationDomain},
				{"X-Plane", y}, {"X-Kubernetes-Cluster", y}, {"X-Kcp-Shard", y}, {"Destination", absolute},
				{"Content-Location", at}, {"X-Http-Method-Override", "PUT"}, {"X-Forwarded-Path", at},
				{"X-Envoy-Original-Path", at}, {"Cookie", "plane=" + y},
			}
			identities := [][]string{
				{"X-Remote-User", "root", "X-Remote-Group", "system:masters"},
				{"X-Remote-User", robotUser}, {"X-Remote-User", "owner", "X-Remote-Extra-Plane", y},
				{"Impersonate-User", "root", "Impersonate-Group", "system:masters"}, {"Impersonate-User", "owner"},
				{"Impersonate-User", robotUser}, {"Impersonate-User", "system:kube-controller-manager"},
				{"Impersonate-User", "plinth-admin", "Impersonate-Group", "system:masters"},
			}
			robot := w.of(x, "a token")
			socket := slices.Concat(upgrade, []string{"Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io." +
				base64.RawURLEncoding.EncodeToString([]byte(robot.token)) + ", v4.channel.k8s.io"})
			for _, headers := range append(append(tricks, identities...), upgrade,
				[]string{"Connection", "Upgrade", "Upgrade", "SPDY/3.1"},
				[]string{"Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA"}) {
				// To the own plane it is the own plane, as which user ever.
				w.tell(x, attempt{by: robot, target: base(x) + planeMaps, headers: headers}, 200, 400, 403)
				w.tell(x, attempt{by: robot, target: base(x) + "/apis/plinth/v1alpha1/planes", headers: headers}, 400, 403, 404)
				tried += 2
			}
			for _, headers := range identities {
				for _, by := range []someone{robot, w.of(x, "a certificate"), w.of(x, "a certificate of a manager")} {
					w.tell(y, attempt{by: by, target: at, headers: headers}, 401)
					tried++
				}
				// Without credentials they are headers only.
				w.tell(y, attempt{target: at, headers: headers}, 401, 403)
				tried++
			}
			for _, target := range []string{at, at + "?watch=1", base(y) + "/api/v1/namespaces/default/pods/x/exec?command=sh",
				base(y) + "/api/v1/namespaces/default/pods/x/portforward", base(y) + "/api/v1/nodes/x/proxy/"} {
				w.tell(y, attempt{target: target, headers: socket}, 401)
				tried++
			}
		}
	}
	if tried < 300 {
		t.Errorf("%d were tried", tried)
	}
}

// What lists and watches of one plane hand out is of no use in another one: resourceVersions, continue tokens, entity
// tags.
//
// SPEC: BEY-9
func TestPositionsStayInTheirPlane(t *testing.T) {
	w := startIsolation(t, nil)
	tried, found := 0, 0
	position := func(plane string) (revision, next string) {
		list := w.want(200, plane, "GET", "/api/v1/secrets?limit=1", "")
		return list.At("metadata", "resourceVersion").Str(), list.At("metadata", "continue").Str()
	}
	for _, x := range isolated {
		for _, y := range isolated {
			by := w.of(x, "a token")
			// Each has more than the other has at the revision, in turn.
			for range 2 {
				w.want(200, x, "PATCH", planeMaps+"/one", fmt.Sprintf(`{"data":{"n":"%d"}}`, tried))
				revision, next := position(y)
				if next == "" {
					t.Fatal("there is no continue token")
				}
				for _, query := range []string{"continue=" + next, "limit=1&continue=" + next, "resourceVersion=" + revision,
					"resourceVersion=" + revision + "&resourceVersionMatch=Exact",
					"resourceVersion=" + revision + "&resourceVersionMatch=NotOlderThan",
					"watch=1&timeoutSeconds=1&resourceVersion=" + revision} {
					for _, path := range []string{"/api/v1/secrets", planeMaps} {
						if strings.HasPrefix(query, "watch") && (x == y || path == planeMaps) {
							continue // it takes a second
						}
						a := attempt{by: by, target: base(x) + path + "?" + query}
						// 504: the plane has not come so far, 410: it does not reach so far back.
						r := w.tell(x, a, 200, 400, 410, 504)
						if tried++; r.code == 200 && strings.Contains(r.text, markOf(x)) {
							found++
						}
					}
				}
				w.want(200, y, "PATCH", planeMaps+"/one", fmt.Sprintf(`{"data":{"n":"%d"}}`, tried))
			}
			for _, path := range []string{"/openapi/v2", "/openapi/v3", "/apis", "/api/v1", "/openid/v1/jwks"} {
				tag := w.send(attempt{by: w.admin, target: base(y) + path}).header.Get("ETag")
				r := w.tell(x, attempt{by: by, target: base(x) + path, headers: []string{"If-None-Match", tag}}, 200, 304)
				own := w.send(attempt{by: by, target: base(x) + path}).header.Get("ETag")
				if tried++; r.code == 304 && own != tag {
					t.Errorf("%s of %q: %q is not its entity tag, which is %q", path, x, tag, own)
				}
			}
		}
	}
	if tried < 200 || found < 20 {
		t.Errorf("%d were tried, %d found something", tried, found)
	}
}

func thingsIn(group, field string) string {
	return fmt.Sprintf("{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.%s}, "+
		"spec: {group: %[1]s, scope: Namespaced, names: {plural: things, singular: thing, kind: Thing}, versions: [{name: v1, "+
		"served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {%s: {type: string, "+
		"description: %[2]s-is-described}}}}}]}}", group, field)
}

// Types that one plane defines are not in another one, and may be others there.
//
// SPEC: BEY-9
func TestTypesStayInTheirPlane(t *testing.T) {
	w := startIsolation(t, nil)
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for plane, field := range map[string]string{"": "fieldOfFirst", "a": "fieldOfPlaneA", "b": "fieldOfPlaneB"} {
		own := "only" + plane + "here.example.com"
		w.want(201, plane, "POST", definitions, thingsIn("shared.example.com", field))
		w.want(201, plane, "POST", definitions, thingsIn(own, field))
		w.mark(plane, field, own)
	}
	seen := 0
	for _, x := range isolated {
		by := w.of(x, "a token")
		const things = "/apis/shared.example.com/v1/namespaces/default/things"
		within(t, "the type is served", func() bool {
			return w.send(attempt{by: by, target: base(x) + things}).code == 200
		})
		for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/shared.example.com/v1", "/apis", "/api",
			"/apis/shared.example.com", "/apis/shared.example.com/v1", definitions, definitions + "/things.shared.example.com",
			"/apis/apiregistration.k8s.io/v1/apiservices"} {
			for _, accept := range []string{"application/json", "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList",
				"application/com.github.proto-openapi.spec.v2@v1.0+protobuf,application/json",
				"application/com.github.proto-openapi.spec.v3@v1.0+protobuf,application/json"} {
				r := w.tell(x, attempt{by: by, target: base(x) + path, headers: []string{"Accept", accept}}, 200, 406)
				if w.crossed("nowhere", r) != "" {
					seen++
				}
			}
		}
		w.want(201, x, "POST", things, "{apiVersion: shared.example.com/v1, kind: Thing, metadata: {name: one}, "+
			"fieldOfFirst: t, fieldOfPlaneA: t, fieldOfPlaneB: t}")
		if got := w.want(200, x, "GET", things+"/one", ""); got.Len() != 4 {
			t.Errorf("the schema of %q has kept %s", x, object.AppendObject(nil, got))
		}
		for _, y := range others(x) {
			w.tell(x, attempt{by: by, target: base(x) + "/apis/only" + y + "here.example.com/v1/things"}, 404)
		}
	}
	if seen < 40 {
		t.Errorf("only %d documents have something of the own plane", seen)
	}
}

// Webhooks and aggregated servers of a plane that are at this machine, or are another plane, are not called.
//
// SPEC: BEY-9, BEY-12
func TestPlanesCallNoPlanes(t *testing.T) {
	var calls, connections atomic.Int32
	local := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		rw.WriteHeader(http.StatusTeapot)
	}))
	local.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	local.StartTLS()
	defer local.Close()
	w := startIsolation(t, nil)
	port := w.port()
	_, localPort, _ := strings.Cut(strings.TrimPrefix(local.URL, "https://"), ":")
	urls := []string{local.URL + "/x"}
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "127.1.2.3", "0.0.0.0", "[::]",
		"169.254.169.254", "[fe80::1]"} {
		for _, path := range []string{"/clusters/b/api/v1/namespaces/default/secrets/one", "/api/v1/secrets"} {
			urls = append(urls, fmt.Sprintf("https://%s:%d%s", host, port, path))
		}
		urls = append(urls, fmt.Sprintf("https://%s:%s/", host, localPort))
	}
	before := w.planes.Figures()
	by := w.of("a", "a token")
	for i, at := range urls {
		const path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
		w.want(201, "a", "POST", path, fmt.Sprintf("{metadata: {name: w}, webhooks: [{name: w.example.com, clientConfig: "+
			"{url: %q}, rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}], "+
			"failurePolicy: Fail, sideEffects: None, admissionReviewVersions: [v1], timeoutSeconds: 2}]}", at))
		r := w.tell("a", attempt{by: by, method: "POST", target: base("a") + planeMaps, body: mapOf(fmt.Sprint("w", i), "1")},
			500)
		if !strings.Contains(r.text, egress.ErrRefused.Error()) {
			t.Errorf("%s: %s", at, r.text)
		}
		w.want(200, "a", "DELETE", path+"/w", "")
	}
	for i, external := range []string{"127.0.0.1", "localhost"} {
		group := fmt.Sprintf("g%d.example.com", i)
		w.want(201, "a", "POST", "/api/v1/namespaces/default/services", fmt.Sprintf("{metadata: {name: s%d}, spec: "+
			"{type: ExternalName, externalName: %q, ports: [{port: %d}]}}", i, external, port))
		w.want(201, "a", "POST", "/apis/apiregistration.k8s.io/v1/apiservices", fmt.Sprintf("{metadata: {name: v1.%s}, "+
			"spec: {group: %[1]s, version: v1, insecureSkipTLSVerify: true, groupPriorityMinimum: 1, versionPriority: 1, service: "+
			"{namespace: default, name: s%d, port: %d}}}", group, i, port))
		for _, path := range []string{"/apis/" + group + "/v1", "/apis/" + group + "/v1/../../../clusters/b/api/v1/secrets"} {
			w.tell("a", attempt{by: by, target: base("a") + path}, 404, 503)
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("there were %d connections", n)
	}
	if now := w.planes.Figures(); now.Planes != before.Planes {
		t.Errorf("there are %d planes", now.Planes)
	}
	// The first plane is a lone server: the same webhook is called. A plane calls it if the process allows that.
	webhook := fmt.Sprintf("{metadata: {name: w}, webhooks: [{name: w.example.com, clientConfig: {url: %q, caBundle: %q}, "+
		"rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}], failurePolicy: Fail, "+
		"sideEffects: None, admissionReviewVersions: [v1], timeoutSeconds: 2}]}", local.URL,
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: local.Certificate().Raw})))
	const path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	w.want(201, "", "POST", path, webhook)
	w.tell("", attempt{by: w.of("", "a token"), method: "POST", target: planeMaps, body: mapOf("w", "1")}, 500)
	first := calls.Load()
	allowing := startPlanes(t, func(c *Config) { c.PlanesEgress = []string{"127.0.0.0/8"} })
	allowing.create("a", "")
	allowing.want(201, "a", "POST", path, webhook)
	allowing.want(500, "a", "POST", planeMaps, mapOf("w", "1"))
	if now := calls.Load(); first == 0 || now == first {
		t.Errorf("the first plane has called it %d times, the one that may %d times", first, now-first)
	}
}

// Reviews in one plane know no token and no role of another one.
//
// SPEC: BEY-9
func TestReviewsStayInTheirPlane(t *testing.T) {
	w := startIsolation(t, nil)
	tried, known := 0, 0
	for _, x := range isolated {
		by := w.of(x, "a token")
		for _, of := range w.all {
			if of.token == "" {
				continue
			}
			for _, audiences := range []string{"", ", audiences: [" + w.planeURL("a") + "]",
				", audiences: [" + w.planeURL("b") + "]", ", audiences: ['https://kubernetes.default.svc']"} {
				a := attempt{by: by, method: "POST", target: base(x) + "/apis/authentication.k8s.io/v1/tokenreviews",
					body: "{spec: {token: " + of.token + audiences + "}}"}
				r := w.send(a)
				status := r.value().At("status")
				// The response has the token that was sent, in its spec.
				if mark := w.crossed(x, response{text: string(object.AppendJSON(nil, status))}); mark != "" || r.code != 201 {
					t.Errorf("%s: %d, and the status has %q", a, r.code, mark)
				}
				in := status.At("authenticated").Bool()
				if tried++; in && of.of != x {
					t.Errorf("%q knows %s of %q: %s", x, of.name, of.of, r.text)
				}
				if in {
					known++
				}
			}
		}
		w.want(201, x, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", fmt.Sprintf("{metadata: {name: p}, "+
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: "+
			"[{apiGroup: rbac.authorization.k8s.io, kind: User, name: of-%s}]}", x))
	}
	for _, x := range isolated {
		for _, y := range isolated {
			r := w.tell(x, attempt{by: w.of(x, "a token"), method: "POST",
				target: base(x) + "/apis/authorization.k8s.io/v1/subjectaccessreviews",
				body:   "{spec: {user: of-" + y + ", resourceAttributes: {verb: get, resource: secrets}}}"}, 201)
			if tried++; r.value().At("status", "allowed").Bool() != (x == y) {
				t.Errorf("in %q the user of %q: %s", x, y, r.text)
			}
		}
	}
	if tried < 120 || known < 12 {
		t.Errorf("%d were tried, %d were known", tried, known)
	}
}

// Pages of the process are not in planes, and neither are planes; what the process shows has no marks of planes, and
// audit records say of which plane they are.
//
// SPEC: BEY-9, BEY-11
func TestPagesStayInTheirPlane(t *testing.T) {
	w := startIsolation(t, nil)
	for _, x := range []string{"a", "b"} {
		robot := w.of(x, "a token")
		for _, path := range []string{"/metrics", "/metrics/slis", "/debug/pprof/", "/debug/pprof/heap",
			"/debug/pprof/cmdline", "/debug/planes", "/debug/flags/v", "/debug/api_priority_and_fairness/dump_requests",
			"/console/", "/console",
			"/console/session", "/console/login", "/console/callback", "/clusters", "/clusters/", "/clusters/*",
			"/clusters/*/api/v1/secrets", "/clusters/" + x, "/clusters/b", "/apis/plinth", "/apis/plinth/v1alpha1",
			"/apis/plinth/v1alpha1/planes", "/apis/plinth/v1alpha1/planes/a", "/statusz", "/flagz", "/logs"} {
			for _, by := range []someone{robot, w.admin} {
				r := w.tell(x, attempt{by: by, target: base(x) + path}, 404, 403, 200, 301, 302, 307)
				for _, y := range []string{"clusters/a/", "clusters/b/"} {
					if strings.Contains(r.text, y) && !strings.Contains(y, x) {
						t.Errorf("%s below %q speaks of another plane: %.300s", path, x, r.text)
					}
				}
				if r.code == 200 && (strings.HasPrefix(path, "/metrics") || strings.HasPrefix(path, "/debug/p") ||
					strings.HasPrefix(path, "/apis/plinth") || strings.HasPrefix(path, "/clusters")) {
					t.Errorf("%q has %s: %.200s", x, path, r.text)
				}
			}
		}
		for _, all := range []string{"/clusters/*/api/v1/secrets", "/clusters/*/api/v1/configmaps?watch=1",
			"/clusters/%2a/api/v1/secrets"} {
			for _, by := range []someone{robot, w.of(x, "a certificate"), {}, {name: "somebody", token: "usertoken"}} {
				w.tell("nowhere", attempt{by: by, target: all}, 401, 403, 404)
			}
		}
		if keys := w.send(attempt{by: robot, target: base(x) + "/openid/v1/jwks"}); keys.code != 200 {
			t.Errorf("the keys of %q: %d", x, keys.code)
		} else {
			for _, key := range keys.value().At("keys").Items() {
				w.mark(x, key.At("x").Str())
			}
		}
		document := w.send(attempt{by: robot, target: base(x) + "/.well-known/openid-configuration"}).value()
		if issuer := document.At("issuer").Str(); issuer != w.planeURL(x) {
			t.Errorf("the issuer of %q is %q", x, issuer)
		}
		if at := document.At("jwks_uri").Str(); at != w.planeURL(x)+"/openid/v1/jwks" {
			t.Errorf("the keys of %q are at %q", x, at)
		}
		w.want(200, "", "GET", "/apis/plinth/v1alpha1/planes/"+x, "")
	}
	for _, x := range isolated { // the keys are marks now
		w.tell(x, attempt{by: w.of(x, "a token"), target: base(x) + "/openid/v1/jwks"}, 200)
	}
	metrics := w.send(attempt{by: w.admin, target: "/metrics"})
	if metrics.code != 200 || strings.Contains(metrics.text, `plane="a"`) ||
		strings.Contains(metrics.text, "/clusters/a") {
		t.Errorf("the metrics name planes: %d", metrics.code)
	}
	for _, page := range []string{metrics.text, w.log.String()} {
		if mark := w.crossed("nowhere", response{text: page}); mark != "" {
			t.Errorf("a page of the process, or its log, has %q", mark)
		}
	}
	w.auditRecords(t)
}

// auditRecords reads the records so far.
func (w *isolation) auditRecords(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(w.audit)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var event struct {
			RequestURI  string
			Annotations map[string]string
			ObjectRef   struct{ Resource string }
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		at, err := url.Parse(event.RequestURI)
		if err != nil {
			t.Fatal(err)
		}
		plane := event.Annotations["plinth/plane"]
		if rest, below := strings.CutPrefix(at.Path, "/clusters/"); below {
			name, _, _ := strings.Cut(rest, "/")
			if name != plane {
				t.Errorf("the record of %s is of the plane %q", event.RequestURI, plane)
			}
		}
		if plane == "" && event.ObjectRef.Resource == "planes" {
			continue // its answers have the UID of the plane
		}
		seen[plane]++
		if mark := w.crossed(plane, response{text: line}); mark != "" {
			t.Errorf("a record of the plane %q has %q: %.300s", plane, mark, line)
		}
	}
	for _, plane := range isolated {
		if seen[plane] < 10 {
			t.Errorf("there are %d records of the plane %q", seen[plane], plane)
		}
	}
}

// A user of the process without rights gets the same from every plane, and it has nothing of what is in it.
//
// SPEC: BEY-9
func TestErrorsStayInTheirPlane(t *testing.T) {
	w := startIsolation(t, nil)
	somebody := someone{name: "somebody", token: "usertoken"}
	texts := map[string]string{}
	for _, by := range []someone{somebody, {name: "nobody"}, {name: "a stranger", token: "x"}} {
		for _, x := range isolated {
			for _, path := range append([]string{"/apis/plinth/v1alpha1/planes/b", "/api/v1/namespaces/nowhere/secrets/x",
				"/metrics"}, reading...) {
				for _, method := range []string{"GET", "PUT", "DELETE", "PATCH"} {
					r := w.tell("nowhere", attempt{by: by, method: method, target: base(x) + path}, 401, 403, 404, 415)
					key := by.name + method + path
					if text, ok := texts[key]; ok && x != "" && text != r.text && path != "/apis/plinth/v1alpha1/planes/b" {
						t.Errorf("%s %s for %s: %s, and elsewhere %s", method, path, by.name, r.text, text)
					}
					texts[key] = r.text
				}
			}
		}
		w.tell("nowhere", attempt{by: by, target: "/clusters/unknown" + planeMaps}, 401, 403, 404)
	}
}

// A plane that is made anew by the name of another, and one that begins with another, are others: no credential of the
// first one counts.
//
// SPEC: BEY-9, BEY-10
func TestCredentialsOfPlanesThatWere(t *testing.T) {
	w := startIsolation(t, nil)
	old := w.all
	w.create("fork", "from: {name: a}")
	if v := w.want(200, "fork", "GET", planeMaps+"/one", ""); v.At("data", "value").Str() != markOf("a") {
		t.Errorf("the fork has %s", object.AppendObject(nil, v))
	}
	const whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	refused := func(plane string, all []someone) {
		t.Helper()
		for _, by := range all {
			for _, path := range []string{whoami, planeMaps, "/api"} {
				a := attempt{by: by, target: base(plane) + path}
				if path == whoami {
					a.method, a.body = "POST", "{}"
				}
				if r := w.send(a); r.code != http.StatusUnauthorized {
					t.Errorf("%s: %d %s", a, r.code, r.text)
				}
			}
		}
	}
	refused("fork", old)
	w.all = nil
	w.issue("fork")
	// Whoever may begin with a plane may read its Secrets: what is copied is of a, and is refused in the fork (above).
	w.all = slices.DeleteFunc(w.all, func(s someone) bool { return s.name == "a token of a Secret" })
	refused("a", w.all)
	w.want(200, "", "DELETE", planesPath+"/a", "")
	for _, by := range old {
		w.tell("", attempt{by: by, target: base("a") + planeMaps}, 404)
	}
	w.create("a", "")
	refused("a", old)
	refused("a", w.all)
	w.want(404, "a", "GET", planeMaps+"/one", "")
	w.all = nil
	delete(w.marks, "a")
	w.furnish("a")
	for _, by := range w.all {
		if r := w.send(attempt{by: by, method: "POST", target: base("a") + whoami, body: "{}"}); r.code != 201 {
			t.Errorf("%s of the new plane: %d %s", by.name, r.code, r.text)
		}
	}
}

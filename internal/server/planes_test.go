package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/planes"
	"plinth/internal/store"
	"plinth/object"
)

// planesServer is a server with planes, whose handler is called directly.
type planesServer struct {
	*Server
	t testing.TB
}

func startPlanes(t testing.TB, change func(*Config)) *planesServer {
	t.Helper()
	c := quiet(t.TempDir())
	c.Storage, c.Planes = "embedded", true
	if change != nil {
		change(&c)
	}
	s, err := Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &planesServer{s, t}
}

// do sends a request as an administrator of the process, to the path of a plane; "": of the first one.
func (s *planesServer) do(plane, method, path, body string) (int, object.Value) {
	s.t.Helper()
	if plane != "" {
		path = "/clusters/" + plane + path
	}
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1"
	if body != "" {
		r.Header.Set("Content-Type", "application/yaml")
		if method == http.MethodPatch {
			r.Header.Set("Content-Type", "application/merge-patch+json")
		}
	}
	r = r.WithContext(auth.As(r.Context(), &access.Identity{User: access.User{Name: "admin",
		Groups: []string{access.Masters, "system:authenticated"}}}))
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r)
	text, err := io.ReadAll(w.Result().Body)
	if err != nil {
		s.t.Fatal(err)
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		return w.Code, object.StringOf(string(text))
	}
	return w.Code, parsed.Value
}

func (s *planesServer) want(code int, plane, method, path, body string) object.Value {
	s.t.Helper()
	got, answer := s.do(plane, method, path, body)
	if got != code {
		s.t.Fatalf("%q: %s %s: %d, want %d: %s", plane, method, path, got, code, object.AppendObject(nil, answer))
	}
	return answer
}

const planesPath = "/apis/plinth/v1alpha1/planes"

func planeOf(name, spec string) string {
	return fmt.Sprintf("{apiVersion: plinth/v1alpha1, kind: Plane, metadata: {name: %q}, spec: {%s}}", name, spec)
}

func (s *planesServer) create(name, spec string) object.Value {
	s.t.Helper()
	return s.want(http.StatusCreated, "", http.MethodPost, planesPath, planeOf(name, spec))
}

func mapOf(name, value string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %q}, data: {value: %q}}", name, value)
}

const planeMaps = "/api/v1/namespaces/default/configmaps"

// open is how many planes are open.
func (s *planesServer) open() int { return s.planes.Figures().Open }

// restarted is the server after a restart in the same directory, with a changed configuration.
func (s *planesServer) restarted(changes ...func(*Config)) *planesServer {
	s.t.Helper()
	c := s.config
	for _, change := range changes { // of a copy: the server still reads its own
		change(&c)
	}
	if err := s.Close(); err != nil {
		s.t.Fatal(err)
	}
	if c.Listener != nil {
		c.Listener = newPipes()
	}
	again, err := Start(context.Background(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { again.Close() })
	return &planesServer{again, s.t}
}

// A plane is served when its create is answered, has objects of its own, and what a new server has; it is there after a
// restart, and gone with its object.
//
// SPEC: BEY-9, BEY-12
func TestPlanes(t *testing.T) {
	s := startPlanes(t, nil)
	s.want(404, "a", http.MethodGet, "/api/v1/namespaces", "")
	made := s.create("a", "")
	if url := made.At("status", "url").Str(); !strings.HasSuffix(url, "/clusters/a") {
		t.Errorf("the URL of the plane is %q", url)
	}
	s.create("b", "")
	s.want(201, "a", http.MethodPost, planeMaps, mapOf("own", "1"))
	s.want(404, "b", http.MethodGet, planeMaps+"/own", "")
	s.want(404, "", http.MethodGet, planeMaps+"/own", "")
	system := map[string]bool{}
	for _, plane := range []string{"", "a", "b"} {
		ns := s.want(200, plane, http.MethodGet, "/api/v1/namespaces/kube-system", "")
		system[ns.At("metadata", "uid").Str()] = true
		roles := s.want(200, plane, http.MethodGet, "/apis/rbac.authorization.k8s.io/v1/clusterroles/admin", "")
		if plane != "" && len(roles.At("rules").Items()) < 10 { // those of the first one are made at this moment
			t.Errorf("in plane %q the role admin has %d rules", plane, len(roles.At("rules").Items()))
		}
	}
	if len(system) != 3 {
		t.Errorf("three planes have %d kube-systems", len(system))
	}
	s = s.restarted()
	if v := s.want(200, "a", http.MethodGet, planeMaps+"/own", ""); v.At("data", "value").Str() != "1" {
		t.Errorf("after a restart there is %s", object.AppendObject(nil, v))
	}
	s.want(200, "", http.MethodDelete, planesPath+"/a", "")
	s.want(404, "a", http.MethodGet, planeMaps+"/own", "")
	s.create("a", "")
	s.want(404, "a", http.MethodGet, planeMaps+"/own", "")
	s = s.restarted()
	s.want(404, "a", http.MethodGet, planeMaps+"/own", "")
	s.want(200, "b", http.MethodGet, "/api/v1/namespaces/default", "")
}

// A plane begins with what another one has, or had.
//
// SPEC: BEY-10
func TestPlaneFromAnother(t *testing.T) {
	s := startPlanes(t, nil)
	s.create("origin", "")
	s.want(201, "origin", http.MethodPost, planeMaps, mapOf("one", "1"))
	at := s.want(200, "origin", http.MethodGet, planeMaps, "").At("metadata", "resourceVersion").Str()
	s.want(200, "origin", http.MethodPut, planeMaps+"/one", mapOf("one", "2"))
	s.want(201, "origin", http.MethodPost, planeMaps, mapOf("two", "2"))
	s.create("now", "from: {name: origin}")
	s.create("then", fmt.Sprintf("from: {name: origin, resourceVersion: %q}", at))
	s.want(200, "origin", http.MethodPut, planeMaps+"/one", mapOf("one", "3"))
	for range 2 {
		for plane, want := range map[string]string{"origin": "3", "now": "2", "then": "1"} {
			one := s.want(200, plane, http.MethodGet, planeMaps+"/one", "")
			if got := one.At("data", "value").Str(); got != want {
				t.Errorf("the plane %s has %q, want %q", plane, got, want)
			}
		}
		s.want(200, "now", http.MethodGet, planeMaps+"/two", "")
		s.want(404, "then", http.MethodGet, planeMaps+"/two", "")
		s = s.restarted()
	}
	s.want(404, "", http.MethodPost, planesPath, planeOf("x", "from: {name: nobody}"))
	s.want(410, "", http.MethodPost, planesPath, planeOf("x", `from: {name: origin, resourceVersion: "1"}`))
	s.want(400, "", http.MethodPost, planesPath, planeOf("x", `from: {name: origin, resourceVersion: "999999"}`))
	s.want(200, "", http.MethodDelete, planesPath+"/origin", "")
	s.want(200, "now", http.MethodGet, planeMaps+"/two", "")
	s = s.restarted()
	s.want(200, "then", http.MethodGet, planeMaps+"/one", "")
}

// Limits of a plane hold, and can be changed.
//
// SPEC: BEY-10
func TestPlaneLimits(t *testing.T) {
	s := startPlanes(t, func(c *Config) { c.Controllers = nil }) // so that nobody else writes
	made := s.create("a", "")
	uid := made.At("metadata", "uid").Str()
	s.want(200, "a", http.MethodGet, planeMaps, "") // which makes what the plane says of itself
	of, err := s.plane.Store.Plane(uid)
	if err != nil {
		t.Fatal(err)
	}
	limit := func(spec string) {
		t.Helper()
		s.want(200, "", http.MethodPatch, planesPath+"/a", `{"spec":{`+spec+`}}`)
	}
	limit(fmt.Sprintf(`"limits":{"objects":%d}`, of.Usage().Objects+1))
	s.want(201, "a", http.MethodPost, planeMaps, mapOf("one", "1"))
	refused := s.want(403, "a", http.MethodPost, planeMaps, mapOf("two", "1"))
	// A dry run answers as the write does.
	if dry := s.want(403, "a", http.MethodPost, planeMaps+"?dryRun=All", mapOf("two", "1")); !object.Equal(dry, refused) {
		t.Errorf("a dry run is refused by %s", object.AppendObject(nil, dry))
	}
	s.want(200, "a", http.MethodDelete, planeMaps+"/one?dryRun=All", "")
	s.want(200, "a", http.MethodPatch, planeMaps+"/one?dryRun=All", `{"data":{"value":"2"}}`)
	if message := refused.At("message").Str(); !strings.Contains(message, "above its limit of") ||
		!strings.HasPrefix(message, `configmaps "two" is forbidden: `) {
		t.Errorf("the error is %q", message)
	}
	limit(`"limits":{"objects":null},"readOnly":true`)
	s.want(403, "a", http.MethodDelete, planeMaps+"/one", "")
	s.want(403, "a", http.MethodDelete, planeMaps+"/one?dryRun=All", "")
	s.want(200, "a", http.MethodGet, planeMaps+"/one", "")
	limit(`"readOnly":false`)
	s.want(200, "a", http.MethodDelete, planeMaps+"/one", "")
}

// A plane with a time to live is deleted when it is over.
//
// SPEC: BEY-10
func TestPlaneTimeToLive(t *testing.T) {
	s := startPlanes(t, nil)
	s.create("short", "ttlSeconds: 1")
	s.create("long", "ttlSeconds: 3600")
	within(t, "the plane is deleted", func() bool {
		code, _ := s.do("", http.MethodGet, planesPath+"/short", "")
		return code == http.StatusNotFound
	})
	s.want(404, "short", http.MethodGet, planeMaps, "")
	s.want(200, "long", http.MethodGet, planeMaps, "")
}

// A plane that nobody uses is let go: its goroutines end. The next request opens it again.
//
// SPEC: BEY-11
func TestIdlePlanes(t *testing.T) {
	s := startPlanes(t, func(c *Config) { c.planeIdle = 50 * time.Millisecond })
	use := func(i int) {
		name := fmt.Sprint("p", i)
		s.create(name, "")
		s.want(201, name, http.MethodPost, planeMaps, mapOf("own", name))
	}
	closed := func() {
		t.Helper()
		within(t, "all planes are closed", func() bool { return s.open() == 0 })
	}
	use(0)
	closed() // by now those of the process run
	before := runtime.NumGoroutine()
	for i := range 19 {
		use(i + 1)
	}
	closed()
	within(t, "their goroutines have ended", func() bool { return runtime.NumGoroutine() <= before+2 })
	for i := range 20 {
		name := fmt.Sprint("p", i)
		if v := s.want(200, name, http.MethodGet, planeMaps+"/own", ""); v.At("data", "value").Str() != name {
			t.Errorf("%s has %s", name, object.AppendObject(nil, v))
		}
	}
}

// A line of the log about a request names its plane, once; none names the first one.
//
// SPEC: BEY-9
func TestPlaneInLog(t *testing.T) {
	var log lines
	s := startPlanes(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	s.create("a", "")
	for _, path := range []string{"/clusters/a/api", "/api"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "127.0.0.1"
		r.Header.Set("Authorization", "Bearer none")
		s.handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	var named []int
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "authentication has failed") {
			named = append(named, strings.Count(line, "plane=a"))
		}
	}
	if !slices.Equal(named, []int{1, 0}) {
		t.Errorf("the lines name the plane %v times:\n%s", named, log.String())
	}
}

// The log has no line about the controllers of a plane that was deleted while it was open.
//
// SPEC: BEY-11
func TestDeletedPlanesAreQuiet(t *testing.T) {
	var log lines
	s := startPlanes(t, func(c *Config) { c.Logger = log.logger() })
	for i := range 5 {
		name := fmt.Sprint("p", i)
		s.create(name, "")
		s.want(201, name, http.MethodPost, planeMaps, mapOf("own", name))
		s.want(200, "", http.MethodDelete, planesPath+"/"+name, "")
	}
	within(t, "all planes are closed", func() bool { return s.open() == 0 })
	if text := log.String(); strings.Contains(text, "store: closed") {
		t.Errorf("the log has %s", text)
	}
}

// A plane to which nobody may write can be read, also after a restart; and written to when that is allowed.
//
// SPEC: BEY-10
func TestReadOnlyPlane(t *testing.T) {
	s := startPlanes(t, nil)
	s.create("origin", "")
	s.want(201, "origin", http.MethodPost, planeMaps, mapOf("one", "1"))
	// Something is missing that a plane has when it begins, as after an upgrade.
	s.want(200, "origin", http.MethodDelete, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:basic-user", "")
	s.create("copy", "from: {name: origin}, readOnly: true")
	for range 2 {
		s.want(200, "copy", http.MethodGet, planeMaps+"/one", "")
		s.want(403, "copy", http.MethodPost, planeMaps, mapOf("two", "1"))
		s.want(403, "copy", http.MethodDelete, planeMaps+"/one", "")
		s = s.restarted()
	}
	s.want(200, "", http.MethodPatch, planesPath+"/copy", `{"spec":{"readOnly":false}}`)
	s.want(201, "copy", http.MethodPost, planeMaps, mapOf("two", "1"))
}

// What planes begin with does not change with each start of the server. Otherwise all objects that every server has
// would be looked at again in each plane.
//
// SPEC: BEY-11
func TestTemplateStays(t *testing.T) {
	s := startPlanes(t, func(c *Config) { c.Listener = newPipes() }) // whose port is the same after a restart
	revision := func() int64 {
		of, err := s.plane.Store.Plane(planes.Template)
		if err != nil {
			t.Fatal(err)
		}
		return of.Revision()
	}
	s = s.restarted() // by now it has all
	before := revision()
	s = s.restarted()
	if now := revision(); now != before {
		t.Errorf("after a restart the template is at %d, before it was at %d", now, before)
	}
}

// What was copied with a plane connects to nobody until its owner turns it on.
//
// SPEC: BEY-10
func TestCopiesConnectToNobody(t *testing.T) {
	s := startPlanes(t, nil)
	s.create("origin", "")
	hooks := `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: w},
webhooks: [{name: w.example.com, sideEffects: None, admissionReviewVersions: [v1], failurePolicy: Fail,
clientConfig: {url: "https://127.0.0.1:1/"},
rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]}]}`
	const hooksPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	s.want(201, "origin", http.MethodPost, hooksPath, hooks)
	s.want(201, "origin", http.MethodPost, "/apis/apiregistration.k8s.io/v1/apiservices",
		`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.other.example.com},
spec: {group: other.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 10, insecureSkipTLSVerify: true,
service: {namespace: default, name: backend}}}`)
	s.want(201, "origin", http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com},
spec: {group: example.com, scope: Cluster, names: {plural: widgets, kind: Widget}, conversion: {strategy: Webhook,
webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:1/"}}}, versions: [
{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}},
{name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}]}}`)
	const secrets = "/api/v1/namespaces/default/secrets"
	s.want(201, "origin", http.MethodPost, secrets, `{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token,
metadata: {name: token, annotations: {kubernetes.io/service-account.name: default}}, data: {token: b3JpZ2lu}}`)
	s.want(201, "origin", http.MethodPost, secrets, `{apiVersion: v1, kind: Secret, metadata: {name: other}, data: {token: b3JpZ2lu}}`)
	at := s.want(200, "origin", http.MethodGet, hooksPath, "").At("metadata", "resourceVersion").Str()
	s.create("now", "from: {name: origin}")
	s.create("then", fmt.Sprintf("from: {name: origin, resourceVersion: %q}", at))
	s.want(500, "origin", http.MethodPost, planeMaps, mapOf("asked", "1"))
	for _, plane := range []string{"now", "then"} {
		s.want(201, plane, http.MethodPost, planeMaps, mapOf("not-asked", "1"))
		for path, left := range map[string][]string{
			hooksPath + "/w": {"webhooks"},
			"/apis/apiregistration.k8s.io/v1/apiservices/v1.other.example.com": {"spec", "service", "name"},
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com": {"spec", "conversion", "webhook",
				"clientConfig"},
		} {
			obj := s.want(200, plane, http.MethodGet, path, "")
			was := obj.At("metadata", "annotations", "plinth/off").Str()
			if was == "" || strings.Contains(string(object.AppendJSON(nil, obj.At(left...))), was) {
				t.Errorf("in plane %s, %s has %s, and was %s", plane, path, object.AppendJSON(nil, obj.At(left...)), was)
			}
		}
		if token := s.want(200, plane, http.MethodGet, secrets+"/token", "").At("data", "token").Str(); token == "b3JpZ2lu" {
			t.Errorf("the plane %s has a token of its origin", plane)
		}
		if s.want(200, plane, http.MethodGet, secrets+"/other", "").At("data", "token").Str() != "b3JpZ2lu" {
			t.Errorf("in plane %s a Secret is not as it was", plane)
		}
		// Its owner writes what it was once more.
		was := s.want(200, plane, http.MethodGet, hooksPath+"/w", "").At("metadata", "annotations", "plinth/off").Str()
		s.want(200, plane, http.MethodPatch, hooksPath+"/w", `{"webhooks":`+was+`}`)
		s.want(500, plane, http.MethodPost, planeMaps, mapOf("asked", "1"))
	}
}

// The object of a plane says what the plane has, and the page of the process which ones are the largest.
//
// SPEC: BEY-12
func TestUsageOfPlanes(t *testing.T) {
	s := startPlanes(t, nil)
	uid := s.create("a", "").At("metadata", "uid").Str()
	s.create("b", "")
	for i := range 3 {
		s.want(201, "a", http.MethodPost, planeMaps, mapOf(fmt.Sprint("m", i), "1"))
	}
	of, err := s.plane.Store.Plane(uid)
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the status has all objects", func() bool {
		status := s.want(200, "", http.MethodGet, planesPath+"/a", "").At("status")
		u := of.Usage()
		return status.At("objects").Int() == int64(u.Objects) && status.At("bytes").Int() > u.Bytes/2 &&
			status.At("requests").Int() >= 3
	})
	page := s.want(200, "", http.MethodGet, "/debug/planes", "").Str()
	if !strings.HasPrefix(page, "planes 2\n") || !strings.Contains(page, " a\n") {
		t.Errorf("the page has\n%s", page)
	}
	s.want(404, "a", http.MethodGet, "/debug/planes", "")
	if page := s.want(200, "", http.MethodGet, "/metrics", "").Str(); !strings.Contains(page, "\nplinth_planes 2\n") {
		t.Error("/metrics does not have the number of planes")
	}
}

// What the controllers of a plane had to do when the process ended is done after its start, although nobody asks for
// the plane.
//
// SPEC: BEY-9, BEY-11
func TestWorkAfterRestart(t *testing.T) {
	s := startPlanes(t, func(c *Config) {
		c.Controllers = []string{"*", "-namespace-controller"}
		c.planeIdle = time.Hour // a plane that is let go has nothing to do
	})
	uid := s.create("a", "").At("metadata", "uid").Str()
	s.want(201, "a", http.MethodPost, "/api/v1/namespaces", `{apiVersion: v1, kind: Namespace, metadata: {name: ends}}`)
	s.want(200, "a", http.MethodDelete, "/api/v1/namespaces/ends", "")
	ends := store.Key{Resource: "/namespaces", Name: "ends"}
	has := func() bool {
		of, err := s.plane.Store.Plane(uid)
		if err != nil {
			t.Fatal(err)
		}
		_, found := of.Get(ends)
		return found
	}
	if !has() {
		t.Fatal("the namespace is gone although nothing deletes it")
	}
	s = s.restarted(func(c *Config) { c.Controllers = []string{"*"} })
	within(t, "the namespace is deleted", func() bool { return !has() })
}

// checkpoint waits for a checkpoint, which has what rests. It is written after enough of the first plane has changed.
func (s *planesServer) checkpoint() {
	s.t.Helper()
	bases := func() []string {
		files, err := filepath.Glob(filepath.Join(s.config.DataDir, "store", "*.base"))
		if err != nil {
			s.t.Fatal(err)
		}
		return files
	}
	before := bases()
	large := strings.Repeat("x", 900_000)
	for i := 0; slices.Equal(bases(), before); i++ {
		s.want(201, "", http.MethodPost, planeMaps, mapOf(fmt.Sprint("large-", i), large))
		s.want(200, "", http.MethodDelete, planeMaps+fmt.Sprint("/large-", i), "")
		if i > 200 {
			s.t.Fatal("there is no checkpoint")
		}
	}
}

// What rests has nothing to do for the controllers that ran then. If others run later, they look at it.
//
// SPEC: BEY-11
func TestWorkOfOtherControllers(t *testing.T) {
	s := startPlanes(t, func(c *Config) {
		c.Controllers = []string{"*", "-namespace-controller"}
		c.planeIdle = 50 * time.Millisecond
	})
	noted := func() bool {
		v, found := s.plane.Store.Get(store.Key{Resource: planes.Templates, Name: planes.Template})
		return found && strings.Contains(string(v.Data()), strings.Join(s.config.Controllers.Selected(), ","))
	}
	within(t, "the controllers are noted", noted)
	uid := s.create("a", "").At("metadata", "uid").Str()
	s.want(201, "a", http.MethodPost, "/api/v1/namespaces", `{apiVersion: v1, kind: Namespace, metadata: {name: ends}}`)
	s.want(200, "a", http.MethodDelete, "/api/v1/namespaces/ends", "")
	within(t, "the plane is closed", func() bool { return s.open() == 0 })
	has := func() bool {
		of, err := s.plane.Store.Plane(uid)
		if err != nil {
			t.Fatal(err)
		}
		_, found := of.Get(store.Key{Resource: "/namespaces", Name: "ends"})
		return found
	}
	if !has() {
		t.Fatal("the namespace is gone although nothing deletes it")
	}
	s.checkpoint()
	s = s.restarted(func(c *Config) { c.Controllers = []string{"*"} })
	within(t, "the namespace is deleted", func() bool { return !has() })
	within(t, "the controllers are noted", noted)
}

// A server without planes on a directory that has some says so, in its log and its metrics, and keeps them.
//
// SPEC: BEY-12
func TestPlanesThatAreNotServed(t *testing.T) {
	s := startPlanes(t, nil)
	s.create("a", "")
	s.create("b", "")
	s.want(201, "a", http.MethodPost, planeMaps, mapOf("own", "1"))
	shows := func(s *planesServer) bool {
		_, page := s.do("", http.MethodGet, "/metrics", "")
		return strings.Contains(page.Str(), "\nplinth_planes_unserved 2\n")
	}
	if shows(s) {
		t.Error("planes that are served are said not to be")
	}
	var log lockedBuffer
	s = s.restarted(func(c *Config) { c.Planes, c.Logger = false, slog.New(slog.NewTextHandler(&log, nil)) })
	if text := log.String(); !strings.Contains(text, "not served without --planes") ||
		!strings.Contains(text, "planes=2") {
		t.Errorf("the log is\n%s", text)
	}
	if !shows(s) {
		t.Error("the metrics do not show the planes that are not served")
	}
	s = s.restarted(func(c *Config) { c.Planes, c.Logger = true, slog.New(slog.DiscardHandler) })
	s.want(200, "a", http.MethodGet, planeMaps+"/own", "")
}

// Planes are not served with another secret than before, although its two files fit together: with those of another
// directory all that planes have issued would be invalid.
//
// SPEC: BEY-9
func TestSecretOfAnotherDirectory(t *testing.T) {
	other := startPlanes(t, nil).config.DataDir
	s := startPlanes(t, nil)
	s.create("a", "")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"planes.key", "planes.id"} {
		text, err := os.ReadFile(filepath.Join(other, "pki", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(s.config.DataDir, "pki", name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	again, err := Start(t.Context(), s.config)
	if err == nil {
		again.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "planes.key is another one") {
		t.Fatalf("the planes are served with another secret: %v", err)
	}
	// Who wants that says so, once.
	if err := os.Remove(filepath.Join(s.config.DataDir, "pki", "planes.id")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		again, err := Start(t.Context(), s.config)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkPlaneCreate(b *testing.B) {
	s := startPlanes(b, func(c *Config) { c.planeIdle = time.Hour })
	n := 0
	for b.Loop() {
		n++
		s.create(fmt.Sprint("p", n), "")
	}
}

// BenchmarkPlaneOpen is the first request to a plane that is not open.
func BenchmarkPlaneOpen(b *testing.B) {
	s := startPlanes(b, func(c *Config) { c.planeIdle = time.Millisecond })
	s.create("a", "")
	s.want(201, "a", http.MethodPost, planeMaps, mapOf("own", "1"))
	for b.Loop() {
		b.StopTimer()
		for s.open() > 0 {
			time.Sleep(100 * time.Microsecond)
		}
		b.StartTimer()
		s.want(200, "a", http.MethodGet, planeMaps+"/own", "")
	}
}

func BenchmarkPlaneGet(b *testing.B) {
	s := startPlanes(b, func(c *Config) { c.planeIdle = time.Hour })
	s.create("a", "")
	for _, plane := range []string{"", "a"} {
		b.Run("at="+plane, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.want(200, plane, http.MethodGet, "/api/v1/namespaces/default", "")
			}
		})
	}
}

// Planes that are open have no goroutines while nobody uses them and their controllers have nothing to do. What is to
// be done is done all the same: a namespace is emptied, garbage is collected, quota is counted, in each of them.
//
// SPEC: BEY-11
func TestOpenPlanesHaveNoGoroutines(t *testing.T) {
	const planes = 30
	s := startPlanes(t, func(c *Config) { c.planeIdle = time.Hour })
	goroutines := func(most int) {
		t.Helper()
		what := fmt.Sprint("there are at most ", most, " goroutines")
		within(t, what, func() bool { return runtime.NumGoroutine() <= most })
	}
	s.create("first", "")
	s.want(200, "first", http.MethodGet, planeMaps, "")
	before := runtime.NumGoroutine()
	for i := range planes {
		name := fmt.Sprint("p", i)
		s.create(name, "")
		s.want(201, name, http.MethodPost, "/api/v1/namespaces",
			`{apiVersion: v1, kind: Namespace, metadata: {name: ends}}`)
		s.want(201, name, http.MethodPost, "/api/v1/namespaces/ends/configmaps", mapOf("own", "1"))
		owner := s.want(201, name, http.MethodPost, planeMaps, mapOf("owner", "1")).At("metadata", "uid").Str()
		s.want(201, name, http.MethodPost, planeMaps, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: owned,
ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: %q}]}}`, owner))
		s.want(201, name, http.MethodPost, "/api/v1/namespaces/default/resourcequotas",
			`{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {count/secrets: "3"}}}`)
		s.want(201, name, http.MethodPost, "/api/v1/namespaces/default/secrets",
			`{apiVersion: v1, kind: Secret, metadata: {name: s}}`)
	}
	goroutines(before + planes/3)
	for i := range planes {
		name := fmt.Sprint("p", i)
		s.want(200, name, http.MethodDelete, "/api/v1/namespaces/ends", "")
		s.want(200, name, http.MethodDelete, planeMaps+"/owner", "")
	}
	for i := range planes {
		of, err := s.plane.Store.Plane(s.want(200, "", http.MethodGet, fmt.Sprint(planesPath, "/p", i), "").
			At("metadata", "uid").Str())
		if err != nil {
			t.Fatal(err)
		}
		has := func(resource, name string) bool {
			_, found := of.Get(store.Key{Resource: resource, Name: name})
			return found
		}
		within(t, "the namespace and the garbage are gone", func() bool {
			return !has("/namespaces", "ends") && !has("/configmaps", "default/owned")
		})
		within(t, "the quota is counted", func() bool {
			v, _ := of.Get(store.Key{Resource: "/resourcequotas", Name: "default/q"})
			return strings.Contains(string(v.Data()), `"used":{"count/secrets":"1"}`)
		})
	}
	if n := s.open(); n != planes+1 {
		t.Errorf("%d planes are open", n)
	}
	goroutines(before + planes/3)
}

// requestCertificate makes a CertificateSigningRequest r in a plane, which a controller deletes after a day.
func (s *planesServer) requestCertificate(plane string) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		s.t.Fatal(err)
	}
	s.want(201, plane, http.MethodPost, "/apis/certificates.k8s.io/v1/certificatesigningrequests", fmt.Sprintf(
		"{metadata: {name: r}, spec: {request: %q, signerName: example.com/s, usages: [client auth]}}",
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}))))
}

// ofPlane is the store of a plane.
func (s *planesServer) ofPlane(uid string) *store.Store {
	s.t.Helper()
	of, err := s.plane.Store.Plane(uid)
	if err != nil {
		s.t.Fatal(err)
	}
	return of
}

func (s *planesServer) hasRequest(uid string) bool {
	s.t.Helper()
	_, found := s.ofPlane(uid).Get(store.Key{Resource: "certificates.k8s.io/certificatesigningrequests", Name: "r"})
	return found
}

// A plane that is closed is opened when one of its controllers has something to do that waits for a moment.
//
// SPEC: BEY-9, BEY-11
func TestAlarmOfClosedPlane(t *testing.T) {
	var ahead atomic.Int64
	s := startPlanes(t, func(c *Config) {
		c.planeIdle = 50 * time.Millisecond
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	uid := s.create("a", "").At("metadata", "uid").Str()
	s.requestCertificate("a")
	has := func() bool { return s.hasRequest(uid) }
	within(t, "the plane is closed", func() bool { return s.open() == 0 })
	if !has() {
		t.Fatal("the request is gone before its time")
	}
	ahead.Store(int64(25 * time.Hour))
	within(t, "the request is deleted", func() bool { return !has() })
	within(t, "the plane is closed again", func() bool { return s.open() == 0 })
	within(t, "the plane rests", func() bool { u := s.ofPlane(uid).Usage(); return u.Resting == u.Revision })
}

// The same after a restart of the process, of which the store says what rests.
//
// SPEC: BEY-9, BEY-11
func TestAlarmAfterRestart(t *testing.T) {
	var ahead atomic.Int64
	s := startPlanes(t, func(c *Config) {
		c.planeIdle = 50 * time.Millisecond
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	uid, other := s.create("a", "").At("metadata", "uid").Str(), s.create("b", "").At("metadata", "uid").Str()
	s.requestCertificate("a")
	s.want(201, "b", http.MethodPost, planeMaps, mapOf("own", "1"))
	within(t, "the planes are closed", func() bool { return s.open() == 0 })
	rests := func(uid string) bool { u := s.ofPlane(uid).Usage(); return u.Resting == u.Revision }
	within(t, "a plane without an alarm rests", func() bool { return rests(other) })
	if rests(uid) {
		t.Error("a plane that waits for a moment rests")
	}
	s.checkpoint()
	ahead.Store(int64(25 * time.Hour))
	s = s.restarted(func(*Config) {})
	within(t, "the request is deleted", func() bool { return !s.hasRequest(uid) })
}

package outside

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

const settings = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: default}
data: {color: red}
`

var settingsRef = Ref{Version: "v1", Resource: "configmaps", Namespace: "default", Name: "settings"}

const maps = "/api/v1/namespaces/default/configmaps"

// ask sends a request, and returns the status and the body.
func ask(t *testing.T, p *Plane, as http.RoundTripper, method, path, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(method, p.Host()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	request.Header.Set("User-Agent", "painter/1")
	response, err := (&http.Client{Transport: as}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func paint(color string) string { return fmt.Sprintf(`{"data":{"color":%q}}`, color) }

// Planes that begin with one image do not share what is written afterwards, and Reset goes back to it.
func TestImages(t *testing.T) {
	image := New(t, Objects([]byte(settings))).Snapshot()
	one, two := New(t, From(image)), New(t, From(image))
	if code, text := ask(t, one, one.Transport(), http.MethodDelete, maps+"/settings", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	if code, _ := ask(t, two, two.Transport(), http.MethodGet, maps+"/settings", ""); code != http.StatusOK {
		t.Errorf("the other plane answers %d", code)
	}
	one.Reset(t, image)
	if code, _ := ask(t, one, one.Transport(), http.MethodGet, maps+"/settings", ""); code != http.StatusOK {
		t.Errorf("after a reset it answers %d", code)
	}
}

// A fault happens to the requests that it names, the record has them, and those of the driver are in neither.
func TestFaultsAndRecord(t *testing.T) {
	p := New(t, Objects([]byte(settings)))
	conflict := p.Fault(On{Verb: "patch", Resource: "configmaps", Nth: 1}, Conflict)
	lost := p.Fault(On{Verb: "patch", User: "painter", Nth: 2}, CommitThenTimeout)
	if code, text := ask(t, p, p.Driver(), http.MethodPatch, maps+"/settings", paint("blue")); code != http.StatusOK {
		t.Fatalf("the driver: %d %s", code, text)
	}
	var codes []int
	for range make([]int, 3) {
		code, _ := ask(t, p, p.Transport(), http.MethodPatch, maps+"/settings", paint("green"))
		codes = append(codes, code)
	}
	if fmt.Sprint(codes) != "[409 504 200]" || conflict.Hits() != 1 || lost.Hits() != 1 {
		t.Errorf("%v, %d and %d hits", codes, conflict.Hits(), lost.Hits())
	}
	log := p.Requests()
	if log.String() == "" || len(log) != 3 || len(log.By("painter").Verb("patch").On("configmaps").Writes()) != 3 ||
		log[0].String() != "patch configmaps default/settings 409" || log[0].User != "admin" {
		t.Errorf("the record:\n%s", log)
	}
	if history := p.History(settingsRef); len(history) != 3 || !strings.Contains(string(history[1].Object), "blue") {
		t.Errorf("the history has %d revisions", len(history))
	}
	p.Owns(t, settingsRef, "painter", "data.color")
	p.NoFights(t)
	if wrong := recorded(func(t testing.TB) { p.Owns(t, settingsRef, "somebody", "data.color") }); len(wrong) != 1 ||
		!strings.Contains(wrong[0], "owned by painter") {
		t.Errorf("Owns says %q", wrong)
	}
	conflict.Remove()
	p.Fault(On{Verb: "get"}, Status(503, "ServiceUnavailable", "not now"), Latency(time.Millisecond))
	if code, text := ask(t, p, p.Transport(), http.MethodGet, maps, ""); code != http.StatusOK || text == "" {
		t.Errorf("a list is no get: %d", code)
	}
	if code, text := ask(t, p, p.Transport(), http.MethodGet, maps+"/settings", ""); code != 503 ||
		!strings.Contains(text, "not now") {
		t.Errorf("%d %s", code, text)
	}
}

// recorder is a testing.TB that records errors.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, a ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, a...))
}

func recorded(f func(testing.TB)) []string {
	r := &recorder{}
	f(r)
	return r.errors
}

// Users have the rights that RBAC gives them; whoever has no token is anonymous.
func TestUsers(t *testing.T) {
	p := New(t)
	if code, text := ask(t, p, p.Transport(User{Name: "jane"}), http.MethodGet, maps, ""); code != http.StatusForbidden ||
		!strings.Contains(text, `User \"jane\"`) {
		t.Errorf("jane: %d %s", code, text)
	}
	if code, _ := ask(t, p, p.Transport(User{Name: "root", Groups: []string{"system:masters"}}), http.MethodGet, maps,
		""); code != http.StatusOK {
		t.Errorf("root: %d", code)
	}
	access := p.Access()
	if file, err := os.ReadFile(p.Kubeconfig()); err != nil || string(file) != string(access.Kubeconfig) ||
		!strings.Contains(string(file), access.URL) || access.URL != p.Host() {
		t.Errorf("%v: %s", err, file)
	}
}

// Settle returns when a client has read the events of its watch, and not before.
func TestSettle(t *testing.T) {
	p := New(t, Objects([]byte(settings)))
	request, err := http.NewRequest(http.MethodGet, p.Host()+maps+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := p.Transport().RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "ADDED") {
		t.Fatalf("%v: %s", err, line)
	}
	const unread = "a client has not read the events of its watch" // nobody waits for the next one
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for busy := ""; busy != unread; {
		if busy, _, err = p.look(ctx); err == nil {
			err = pause(ctx, settlePause)
		}
		if err != nil {
			t.Fatalf("before its client waits for an event: %q, %v", busy, err)
		}
	}
	seen := make(chan string, 100)
	go func() {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				close(seen)
				return
			}
			seen <- line
		}
	}()
	const changes = 50
	for i := 0; i < changes; i++ {
		if code, text := ask(t, p, p.Driver(), http.MethodPatch, maps+"/settings", paint(fmt.Sprint(i))); code != 200 {
			t.Fatalf("%d %s", code, text)
		}
	}
	if err := p.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(seen) != changes {
		t.Errorf("the client has %d events of %d", len(seen), changes)
	}
	p.Wait(t, settingsRef, func(object []byte) bool { return strings.Contains(string(object), `"49"`) })
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}}
`

const hook = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: sizes}
webhooks:
- name: sizes.example.com
  clientConfig: {service: {name: sizes, namespace: default, path: /validate}}
  rules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`

// Definitions are read from files, webhooks are called in the process of the test, and controllers run.
func TestOptions(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.URL.Path != "/validate" {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,
			"status":{"message":"too large"}}}`, review.Request.UID)
	})
	p := New(t, CRDs(fstest.MapFS{"crd/widgets.yaml": {Data: []byte(widgets)}}, "crd/*.yaml"),
		Webhooks(handler, []byte(hook)), Controllers("namespace-controller"))
	code, text := ask(t, p, p.Transport(), http.MethodPost, "/apis/example.com/v1/namespaces/default/widgets",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"size":3}`)
	if code < 400 || !strings.Contains(text, "too large") {
		t.Errorf("%d %s", code, text)
	}
	ns := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"gone"}}`
	if code, text := ask(t, p, p.Transport(), http.MethodPost, "/api/v1/namespaces", ns); code != http.StatusCreated {
		t.Fatalf("%d %s", code, text)
	}
	if code, text := ask(t, p, p.Transport(), http.MethodDelete, "/api/v1/namespaces/gone", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	p.Wait(t, Ref{Version: "v1", Resource: "namespaces", Name: "gone"}, func(object []byte) bool { return object == nil })
}

// All planes of a test binary are at one port, by path, and each request reaches the one that its path names: what one
// has, and whom it knows, the others do not. After the end of the test the path is none.
func TestClusters(t *testing.T) {
	image := New(t, Objects([]byte(settings))).Snapshot()
	var one, two *Plane
	var token string
	t.Run("two planes", func(t *testing.T) {
		one, two = New(t, From(image)), New(t, From(image))
		base, name, ok := strings.Cut(one.Host(), "/clusters/")
		if other, _, _ := strings.Cut(two.Host(), "/clusters/"); !ok || name == "" || base != other ||
			one.Host() == two.Host() {
			t.Fatalf("the planes are at %s and %s", one.Host(), two.Host())
		}
		if code, text := ask(t, one, one.Driver(), http.MethodDelete, maps+"/settings", ""); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
		if code, text := ask(t, two, two.Driver(), http.MethodGet, maps+"/settings", ""); code != http.StatusOK ||
			!strings.Contains(text, "red") {
			t.Errorf("the other one: %d %s", code, text)
		}
		token = one.Access().Token
		if code, _ := ask(t, two, one.Transport(), http.MethodGet, maps, ""); code != http.StatusUnauthorized {
			t.Errorf("a token of one plane in the other one: %d", code)
		}
		for _, path := range []string{"/v1/planes", "/clusters/" + name + "/api", "/..%2f" + name + "/api"} {
			if code, text := ask(t, two, two.Driver(), http.MethodGet, path, ""); code != http.StatusNotFound {
				t.Errorf("%s: %d %s", path, code, text)
			}
		}
		// The newest version of the document is at another URL, to which the client is led.
		code, text := ask(t, two, two.Driver(), http.MethodGet, "/openapi/v3/api/v1?hash=old", "")
		if code != http.StatusOK || !strings.Contains(text, "configmaps") {
			t.Errorf("a document that has changed: %d %.300s", code, text)
		}
	})
	if code, _ := ask(t, one, &transport{one, token}, http.MethodGet, maps, ""); code != http.StatusNotFound {
		t.Errorf("after its end: %d", code)
	}
}

// The end of a plane ends the requests to it that are under way, however long they would take.
func TestEndsUnderWay(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	t.Run("plane", func(t *testing.T) {
		p := New(t)
		p.Fault(On{Verb: "list", Resource: "configmaps"}, Latency(24*time.Hour))
		request, err := http.NewRequest(http.MethodGet, p.Host()+maps, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			response, err := p.Transport().RoundTrip(request)
			if err == nil {
				err = response.Body.Close()
			}
			ended <- err
		}()
		go func() {
			defer close(began)
			for len(p.Requests()) == 0 {
				time.Sleep(time.Millisecond)
			}
		}()
		select {
		case <-began:
		case <-time.After(time.Minute):
			t.Fatal("the request has not come")
		}
	})
	select {
	case <-ended: // with an error, or with an answer that says so
	case <-time.After(time.Minute):
		t.Error("the request is under way still")
	}
}

// BenchmarkNew is what a plane costs that begins with an image, with one request to it, and its end.
func BenchmarkNew(b *testing.B) {
	image := New(b, Objects([]byte(settings))).Snapshot()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		p, err := newPlane(b, []Option{From(image)})
		if err != nil {
			b.Fatal(err)
		}
		request, err := http.NewRequest(http.MethodGet, p.Host()+maps+"/settings", nil)
		if err != nil {
			b.Fatal(err)
		}
		response, err := p.Driver().RoundTrip(request)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
			b.Fatal(err, response.Status)
		}
		_ = response.Body.Close()
		if err := p.close(); err != nil {
			b.Fatal(err)
		}
		p.service = nil // the cleanup has nothing left to do
	}
}

// What is wrong is said by New.
func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		option Option
		want   string
	}{
		"gate":   {FeatureGates("NoSuchGate"), "NoSuchGate"},
		"object": {Objects([]byte("apiVersion: v1\nkind: Nothing\n")), "there is no kind Nothing"},
		"files":  {CRDs(fstest.MapFS{}, "*.yaml"), "no file matches"},
	} {
		if _, err := newPlane(t, []Option{c.option}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Setenv("PLINTH_BINARY", "/no/such/plinth")
	if _, err := start(); err == nil || !strings.Contains(err.Error(), "PLINTH_BINARY") {
		t.Errorf("without a program: %v", err)
	}
}

// childVariable makes this test binary a process that has a plane, prints its URL, and waits to be killed.
const childVariable = "OUTSIDE_TEST_CHILD"

// The process with the planes ends with that of the tests, also if that is killed.
func TestKilled(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		fmt.Println("host", New(t).Host())
		select {}
	}
	child := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	child.Env = append(os.Environ(), childVariable+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Process.Kill()
	host := ""
	for lines := bufio.NewScanner(out); host == "" && lines.Scan(); {
		_, host, _ = strings.Cut(lines.Text(), "host ")
	}
	if host == "" {
		t.Fatal("there is no plane")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := client.Get(host + "/livez")
		if err != nil && strings.Contains(err.Error(), "refused") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the plane answers still: %v", err)
		}
	}
}

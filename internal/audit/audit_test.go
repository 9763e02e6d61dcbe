package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/access"
)

const everything = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: RequestResponse\n"

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// options are those of a log file to which every request is recorded, with its bodies.
func options(t *testing.T) Options {
	t.Helper()
	o := Defaults()
	o.PolicyFile = write(t, "policy.yaml", everything)
	o.Log.Path = filepath.Join(t.TempDir(), "logs", "audit.log")
	return o
}

func auditor(t *testing.T, o Options) *Auditor {
	t.Helper()
	a, err := New(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func closed(t *testing.T, a *Auditor) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := a.Close(ctx); err != nil {
		t.Error(err)
	}
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 345678901, time.UTC)

func asked(id string) *Asked {
	return &Asked{
		ID: id, URI: "/api/v1/namespaces/a/secrets/s?x=<&>", Known: true, SourceIPs: []string{"10.0.0.1", "::1"},
		UserAgent: `a "b"`, At: noon,
		Attributes: access.Attributes{
			User: access.User{Name: "jane", UID: "u", Groups: []string{"g", "h"},
				Extra: map[string][]string{"b": {"2"}, "a": {"1", "3"}}},
			Verb: "get", IsResource: true, Version: "v1", Resource: "secrets", Namespace: "a", Name: "s",
		},
	}
}

// SPEC: AUTH-4
func TestEvents(t *testing.T) {
	o := options(t)
	a := auditor(t, o)
	a.now = func() time.Time { return noon.Add(time.Second) }
	r, ok := a.Begin(asked("i"))
	if !ok {
		t.Fatal("refused")
	}
	r.Impersonates(access.User{Name: "joe"}, "impersonate:user-info")
	r.Annotate("z", "1")
	r.Annotate("b", "2")
	r.Annotate("z", "not the first")
	r.Object("other", "other", "uid", "7")
	r.Request([]byte(`{"a":1}`))
	r.Response([]byte(`{"b":2}`))
	r.Ends(Status{Status: "Failure", Message: "m", Reason: "NotFound", Details: []byte(`{"name":"s"}`), Code: 404})
	r.Answers(404)
	r.End()
	closed(t, a)
	got := lines(t, o.Log.Path)
	const head = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"i","stage":%q,` +
		`"requestURI":"/api/v1/namespaces/a/secrets/s?x=\u003c\u0026\u003e","verb":"get",` +
		`"user":{"username":"jane","uid":"u","groups":["g","h"],"extra":{"a":["1","3"],"b":["2"]}},`
	const from = `"sourceIPs":["10.0.0.1","::1"],"userAgent":"a \"b\"",`
	want := []string{
		fmt.Sprintf(head, "RequestReceived") + from +
			`"objectRef":{"resource":"secrets","namespace":"a","name":"s","apiVersion":"v1"},` +
			`"requestReceivedTimestamp":"2026-01-02T12:00:00.345678Z","stageTimestamp":"2026-01-02T12:00:00.345678Z"}`,
		fmt.Sprintf(head, "ResponseComplete") +
			`"impersonatedUser":{"username":"joe"},"authenticationMetadata":{"impersonationConstraint":"impersonate:user-info"},` + from +
			`"objectRef":{"resource":"secrets","namespace":"a","name":"s","uid":"uid","apiVersion":"v1","resourceVersion":"7"},` +
			`"responseStatus":{"metadata":{},"status":"Failure","message":"m","reason":"NotFound","details":{"name":"s"},"code":404},` +
			`"requestObject":{"a":1},"responseObject":{"b":2},"requestReceivedTimestamp":"2026-01-02T12:00:00.345678Z",` +
			`"stageTimestamp":"2026-01-02T12:00:01.345678Z","annotations":{"apiserver.latency.k8s.io/total":"1s","b":"2","z":"1"}}`,
	}
	for i, line := range want {
		if i >= len(got) || got[i] != line {
			t.Errorf("line %d:\n got %s\nwant %s", i, got[min(i, len(got)-1)], line)
		}
		if !json.Valid([]byte(line)) {
			t.Errorf("line %d is no JSON", i)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d lines", len(got))
	}
	if info, err := os.Stat(o.Log.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the log is %v, %v", info.Mode(), err)
	}
}

// stagesOf serves a request and returns the stages of its events.
func stagesOf(t *testing.T, policy string, long bool, serve func(*Record)) (stages []string) {
	t.Helper()
	o := options(t)
	o.PolicyFile = write(t, "policy.yaml", policy)
	a := auditor(t, o)
	q := asked("i")
	q.Long = long
	r, _ := a.Begin(q)
	serve(r)
	closed(t, a)
	for _, line := range lines(t, o.Log.Path) {
		var e struct {
			Stage          string
			ResponseStatus struct {
				Code    int
				Message string
			}
		}
		if line == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		stages = append(stages, strings.TrimSpace(fmt.Sprint(e.Stage, " ", e.ResponseStatus.Code, " ",
			e.ResponseStatus.Message)))
	}
	return stages
}

// SPEC: AUTH-4
func TestStages(t *testing.T) {
	answered := func(r *Record) { r.Answers(200); r.Answers(500); r.End() }
	for name, c := range map[string]struct {
		policy string
		long   bool
		serve  func(*Record)
		want   string
	}{
		"answered": {everything, false, answered, "RequestReceived 0,ResponseComplete 200"},
		"a watch":  {everything, true, answered, "RequestReceived 0,ResponseStarted 200,ResponseComplete 200"},
		"no answer": {everything, false, (*Record).End,
			"RequestReceived 0,ResponseComplete 200 Connection closed early"},
		"a watch without": {everything, true, (*Record).End,
			"RequestReceived 0,ResponseStarted 200 Connection closed early,ResponseComplete 200 Connection closed early"},
		"panicked": {everything, false, func(r *Record) { r.Panicked("oh"); r.Answers(500); r.End() },
			"RequestReceived 0,Panic 500 oh"},
		"a watch panicked": {everything, true, func(r *Record) { r.Panicked("oh"); r.Answers(500); r.End() },
			"RequestReceived 0,Panic 500 oh"},
		"without one": {everything + "omitStages: [RequestReceived]\n", false, answered, "ResponseComplete 200"},
		"without two": {"omitStages: [RequestReceived]\n" + everything + "  omitStages: [ResponseStarted]\n", true,
			answered, "ResponseComplete 200"},
		"none": {"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: None}\n", false, answered, ""},
	} {
		if got := strings.Join(stagesOf(t, c.policy, c.long, c.serve), ","); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// A request that is refused before it is authenticated has one event, and rules for users do not match it.
//
// SPEC: AUTH-4
func TestRefusals(t *testing.T) {
	o := options(t)
	o.PolicyFile = write(t, "policy.yaml", strings.Replace(everything, "rules:",
		"rules:\n- {level: None, users: [jane]}\n- {level: None, userGroups: [g]}", 1))
	a := auditor(t, o)
	q := asked("i")
	q.Known = false
	r := a.Refuse(q, "why")
	r.Answers(401)
	r.End()
	closed(t, a)
	got := lines(t, o.Log.Path)
	if len(got) != 1 || !strings.Contains(got[0], `"stage":"ResponseStarted"`) ||
		!strings.Contains(got[0], `"user":{},`) ||
		!strings.Contains(got[0], `"responseStatus":{"metadata":{},"message":"why","code":401}`) {
		t.Errorf("got %s", got)
	}
}

func TestLegacyFormat(t *testing.T) {
	o := options(t)
	o.Log.Format = legacy
	a := auditor(t, o)
	r, _ := a.Begin(asked("i"))
	r.Impersonates(access.User{Name: "joe", Groups: []string{"k"}}, "")
	r.Answers(200)
	r.End()
	closed(t, a)
	const want = `2026-01-02T12:00:00.345678901Z AUDIT: id="i" stage="ResponseComplete" ip="10.0.0.1" method="get" user="jane" groups="\"g\",\"h\"" ` +
		`as="joe" asgroups="\"k\"" user-agent="a \"b\"" namespace="a" uri="/api/v1/namespaces/a/secrets/s?x=<&>" response="200"`
	if got := lines(t, o.Log.Path); len(got) != 2 || got[1] != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The first rule all of whose lists match the request decides.
//
// SPEC: AUTH-4
func TestPolicyRules(t *testing.T) {
	for _, c := range []struct {
		rule                                string // its level is Metadata
		namespace, resource, sub, name, url string
		matches                             bool
	}{
		{`resources: [{group: "", resources: [pods]}]`, "a", "pods", "", "p", "", true},
		{`resources: [{group: "", resources: [pods]}]`, "a", "pods", "log", "p", "", false},
		{`resources: [{group: "", resources: [pods/log]}]`, "a", "pods", "log", "p", "", true},
		{`resources: [{group: "", resources: [pods/log]}]`, "a", "pods", "", "p", "", false},
		{`resources: [{group: "", resources: [pods/*]}]`, "a", "pods", "log", "p", "", true},
		{`resources: [{group: "", resources: ["*/log"]}]`, "a", "pods", "log", "p", "", true},
		{`resources: [{group: "", resources: ["*/log"]}]`, "a", "pods", "", "p", "", false},
		{`resources: [{group: "", resources: [pods], resourceNames: [p]}]`, "a", "pods", "", "p", "", true},
		{`resources: [{group: "", resources: [pods], resourceNames: [p]}]`, "a", "pods", "", "q", "", false},
		{`resources: [{group: apps, resources: [pods]}]`, "a", "pods", "", "p", "", false},
		{`resources: [{group: ""}]`, "a", "pods", "log", "p", "", true},
		{`namespaces: [a]`, "a", "pods", "", "p", "", true},
		{`namespaces: [b]`, "a", "pods", "", "p", "", false},
		{`namespaces: [""]`, "", "nodes", "", "n", "", true},
		{`namespaces: [""]`, "", "", "", "", "/healthz", false},
		{`nonResourceURLs: [/healthz*]`, "", "", "", "", "/healthz/ping", true},
		{`nonResourceURLs: [/healthz]`, "", "", "", "", "/healthz/ping", false},
		{`nonResourceURLs: ["*"]`, "a", "pods", "", "p", "", false},
	} {
		p, _, err := parsePolicy([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: Metadata, " + c.rule +
			"}\n- {level: Request}\n"))
		if err != nil {
			t.Fatal(err)
		}
		v := p.evaluate(&access.Attributes{Verb: "get", IsResource: c.url == "", Version: "v1", Namespace: c.namespace,
			Resource: c.resource, Subresource: c.sub, Name: c.name, Path: c.url}, true)
		if (v.level == Metadata) != c.matches || v.level == None {
			t.Errorf("%s: %+v is written down at level %s", c.rule, c, v.level)
		}
	}
	for text, want := range map[string]bool{
		"rules: [{level: Request}]":                                                    false,
		"omitManagedFields: true\nrules: [{level: Request}]":                           true,
		"omitManagedFields: true\nrules: [{level: Request, omitManagedFields: false}]": false,
		"rules: [{level: Request, omitManagedFields: true}]":                           true,
	} {
		p, _, err := parsePolicy([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n" + text))
		if err != nil {
			t.Fatal(err)
		}
		if got := p.evaluate(&access.Attributes{}, true).omitManaged; got != want {
			t.Errorf("%s: managed fields are omitted: %v", text, got)
		}
	}
}

func TestLongUserAgent(t *testing.T) {
	o := options(t)
	a := auditor(t, o)
	q := asked("i")
	q.UserAgent = strings.Repeat("x", 1025)
	a.Begin(q)
	closed(t, a)
	if got := lines(t, o.Log.Path)[0]; !strings.Contains(got, `"`+strings.Repeat("x", 1024)+`...TRUNCATED"`) {
		t.Errorf("got %s", got)
	}
}

// broken is a sink that fails.
func broken(t *testing.T, mode string) *Auditor {
	t.Helper()
	o := options(t)
	o.Log.Mode = mode
	a := auditor(t, o)
	a.sinks[0].write = func(context.Context, [][]byte) error { return errors.New("the disk is full") }
	return a
}

// SPEC: AUTH-4
func TestModesWhereTheLogCannotBeWritten(t *testing.T) {
	for mode, want := range map[string]bool{blocking: true, blockingStrict: false, batch: true} {
		a := broken(t, mode)
		_, ok := a.Begin(asked("i"))
		closed(t, a)
		if ok != want {
			t.Errorf("%s: Begin allows the request: %v", mode, ok)
		}
		counted := map[string]int64{}
		for plugin, n := range a.Counters.Errors {
			counted[plugin] = n
		}
		rejected := a.Counters.Rejected.Load()
		if counted["log"] != 1 || len(counted) != 1 || (rejected == 1) == want || a.Counters.Events.Load() != 1 {
			t.Errorf("%s: lost %v, rejected %d", mode, counted, rejected)
		}
	}
}

// Requests do not wait for a full queue: further events are dropped and counted. Queued events are delivered
// when the server closes.
//
// SPEC: AUTH-4
func TestQueue(t *testing.T) {
	o := options(t)
	o.Log.Mode, o.Log.BufferSize = batch, 10
	a := auditor(t, o)
	var mu sync.Mutex
	mu.Lock()
	written := 0
	first := make(chan bool, 100)
	a.sinks[0].write = func(_ context.Context, events [][]byte) error {
		first <- true
		mu.Lock()
		defer mu.Unlock()
		written += len(events)
		return nil
	}
	a.Begin(asked("first"))
	<-first // it is being written; the queue is empty
	for range 25 {
		if _, ok := a.Begin(asked("i")); !ok {
			t.Error("refused")
		}
	}
	mu.Unlock()
	closed(t, a)
	lost := int64(0)
	for plugin, n := range a.Counters.Errors {
		if plugin == "buffered" {
			lost = n
		}
	}
	if written != 11 || lost != 15 {
		t.Errorf("%d are written, %d are lost", written, lost)
	}
	if _, ok := a.Begin(asked("late")); !ok {
		t.Error("refused")
	}
	if got := a.sinks[0].queue.bytes.Load(); got != 0 {
		t.Errorf("%d bytes are taken to be in the queue", got)
	}
}

// SPEC: AUTH-4
func TestQueueIsBoundedInBytes(t *testing.T) {
	o := options(t)
	o.Log.Mode = batch
	a := auditor(t, o)
	hold := make(chan bool)
	a.sinks[0].write = func(context.Context, [][]byte) error { <-hold; return nil }
	q := a.sinks[0].queue
	body := append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, 16<<20)...), '"')
	for range 20 {
		r, _ := a.Begin(asked("i"))
		r.Response(body)
		r.End()
	}
	if n := q.bytes.Load(); n > maxQueued || n < maxQueued/2 {
		t.Errorf("%d bytes are in the queue", n)
	}
	close(hold)
	closed(t, a)
}

// SPEC: AUTH-4
func TestTruncation(t *testing.T) {
	o := options(t)
	o.Log.Truncate, o.Log.MaxEventBytes = true, 1000
	a := auditor(t, o)
	r, _ := a.Begin(asked("fits"))
	r.Request([]byte(`"` + strings.Repeat("x", 2000) + `"`))
	r.Answers(200)
	r.End()
	q := asked("never fits")
	q.UserAgent = strings.Repeat("y", 1000)
	if r, ok := a.Begin(q); !ok {
		t.Error("refused")
	} else {
		r.End()
	}
	closed(t, a)
	got := lines(t, o.Log.Path)
	if len(got) != 2 || strings.Contains(got[1], "xxx") ||
		!strings.Contains(got[1], `"annotations":{"apiserver.latency.k8s.io/total"`) ||
		!strings.Contains(got[1], `,"audit.k8s.io/truncated":"true"}`) {
		t.Errorf("got %s", got)
	}
	for plugin, n := range a.Counters.Errors {
		if plugin != "truncate" || n != 2 {
			t.Errorf("%s has lost %d", plugin, n)
		}
	}
}

// SPEC: AUTH-4
func TestRotation(t *testing.T) {
	o := options(t)
	o.Log.MaxSize, o.Log.MaxBackup, o.Log.Compress = 1, 2, true
	a := auditor(t, o)
	for range 5 {
		r, _ := a.Begin(asked("i"))
		r.Response([]byte(`"` + strings.Repeat("x", 700<<10) + `"`))
		r.Answers(200)
		r.End()
	}
	closed(t, a)
	var old []string
	// the library compresses in another goroutine
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		old, _ = filepath.Glob(filepath.Join(filepath.Dir(o.Log.Path), "audit-*.log.gz"))
		if all, _ := filepath.Glob(filepath.Join(filepath.Dir(o.Log.Path), "*")); len(old) == 2 && len(all) == 3 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the directory has %v", all)
		}
	}
	file, err := os.Open(old[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(unpacked); err != nil || !bytes.HasPrefix(text, []byte(typeHead)) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// hook is a webhook that keeps the events that it receives. It fails fail times first.
type hook struct {
	mu     sync.Mutex
	fail   int
	calls  int
	events int
	bodies []string
	header http.Header
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	if h.fail > 0 {
		h.fail--
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	text, _ := io.ReadAll(r.Body)
	var list struct {
		Kind, APIVersion string
		Items            []json.RawMessage
	}
	if err := json.Unmarshal(text, &list); err != nil || list.Kind != "EventList" || list.APIVersion != "audit.k8s.io/v1" {
		http.Error(w, "no list", http.StatusBadRequest)
		return
	}
	h.events += len(list.Items)
	h.bodies, h.header = append(h.bodies, string(text)), r.Header
}

func (h *hook) options(t *testing.T) Options {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	o := options(t)
	o.Log.Path = ""
	o.Webhook.ConfigFile = write(t, "kubeconfig", fmt.Sprintf(`
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: sesame}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server.URL+"/events"))
	o.Webhook.InitialBackoff = time.Millisecond
	return o
}

// SPEC: AUTH-4
func TestWebhook(t *testing.T) {
	h := &hook{}
	o := h.options(t)
	o.Webhook.BatchSize = 10
	a := auditor(t, o)
	for range 25 {
		a.Begin(asked("i"))
	}
	closed(t, a)
	if h.events != 25 || h.calls != 3 {
		t.Errorf("%d events in %d calls", h.events, h.calls)
	}
	if strings.Contains(h.bodies[0], `"items":[{"kind"`) || h.header.Get("Authorization") != "Bearer sesame" ||
		h.header.Get("Content-Type") != "application/json" {
		t.Errorf("the webhook is sent %s with %v", h.bodies[0][:200], h.header)
	}
}

// SPEC: AUTH-4
func TestWebhookThatFails(t *testing.T) {
	for _, c := range []struct {
		mode                string
		fail, calls, events int
		ok                  bool
	}{
		{blocking, 4, 5, 1, true},
		{blocking, 5, 5, 0, true},
		{blockingStrict, 4, 5, 1, true},
		{blockingStrict, 5, 5, 0, false},
		{batch, 4, 5, 1, true},
	} {
		h := &hook{fail: c.fail}
		o := h.options(t)
		o.Webhook.Mode = c.mode
		a := auditor(t, o)
		_, ok := a.Begin(asked("i"))
		closed(t, a)
		if ok != c.ok || h.calls != c.calls || h.events != c.events {
			t.Errorf("%+v: %v, %d calls, %d events", c, ok, h.calls, h.events)
		}
	}
}

// A server that closes does not wait for a webhook for ever.
func TestCloseGivesUp(t *testing.T) {
	h := &hook{fail: 100}
	o := h.options(t)
	o.Webhook.InitialBackoff, o.Webhook.BatchWait = time.Hour, time.Millisecond
	a := auditor(t, o)
	a.Begin(asked("i"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.Close(ctx); err != nil {
		t.Error(err)
	}
	if a.Counters.errors[1].Load() != 1 {
		t.Error("the event that was given up is not counted")
	}
}

func TestThrottling(t *testing.T) {
	h := &hook{}
	o := h.options(t)
	o.Webhook.BatchSize, o.Webhook.QPS, o.Webhook.Burst = 1, 20, 1
	a := auditor(t, o)
	began := time.Now()
	for range 5 {
		a.Begin(asked("i"))
	}
	closed(t, a)
	if took := time.Since(began); took < 190*time.Millisecond || h.calls != 5 {
		t.Errorf("%d calls in %v", h.calls, took)
	}
}

func TestOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`invalid audit log mode x, allowed modes are "batch,blocking,blocking-strict"`:                  func(o *Options) { o.Log.Mode = "x" },
		`invalid audit batch log buffer size 0, must be a positive number`:                              func(o *Options) { o.Log.Mode, o.Log.BufferSize = batch, 0 },
		`invalid audit batch webhook max batch size -1, must be a positive number`:                      func(o *Options) { o.Webhook.BatchSize = -1 },
		`invalid audit batch webhook throttle QPS 0, must be a positive number`:                         func(o *Options) { o.Webhook.QPS = 0 },
		`invalid audit batch webhook throttle burst 0, must be a positive number`:                       func(o *Options) { o.Webhook.Burst = 0 },
		`invalid audit truncate log max event size 0, must be a positive number`:                        func(o *Options) { o.Log.MaxEventBytes = 0 },
		`invalid audit truncate webhook max batch size 1, must be greater than max event size (102400)`: func(o *Options) { o.Webhook.MaxBatchBytes = 1 },
		`invalid group version, allowed versions are ["audit.k8s.io/v1"]`:                               func(o *Options) { o.Log.Version = "audit.k8s.io/v1beta1" },

		`unexpected GroupVersion string: a/b/c`: func(o *Options) { o.Webhook.Version = "a/b/c" },

		`invalid audit log format x, allowed formats are "legacy,json"`:                                       func(o *Options) { o.Log.Format = "x" },
		"--audit-log-maxage -1 can't be a negative number\n--audit-log-maxsize -2 can't be a negative number": func(o *Options) { o.Log.MaxAge, o.Log.MaxSize = -1, -2 },
	} {
		o := Defaults()
		o.Log.Path, o.Webhook.ConfigFile = "x", "x"
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if err := o.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if _, err := New(o, slog.New(slog.DiscardHandler)); err == nil || err.Error() != want {
			t.Errorf("New: got %v, want %s", err, want)
		}
		o.Log.Path, o.Webhook.ConfigFile = "", ""
		if err := o.Validate(); err != nil {
			t.Errorf("without a log file and a webhook: %v", err)
		}
	}
}

// Without a policy or a sink, auditing does not allocate.
//
// SPEC: AUTH-4
func TestNothingIsWrittenDown(t *testing.T) {
	o := options(t)
	o.PolicyFile = ""
	if a := auditor(t, o); a != nil {
		t.Error("New returns an auditor without a policy")
	}
	o = options(t)
	o.Log.Path = ""
	if a := auditor(t, o); a != nil {
		t.Error("New returns an auditor without a sink")
	}
	var a *Auditor
	if allocated := testing.AllocsPerRun(100, func() {
		r, ok := a.Begin(nil)
		r.Annotate("a", "b")
		r.Answers(200)
		r.Ends(Status{})
		r.End()
		if r.Wants(Metadata) || !ok {
			t.Error("a nil record wants its request, or Begin refuses")
		}
	}); allocated != 0 {
		t.Errorf("a nil record takes %g allocations", allocated)
	}
}

// A record is for one request, but the sinks are for all.
func TestManyRequestsAtOnce(t *testing.T) {
	o := options(t)
	a := auditor(t, o)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				r, _ := a.Begin(asked(fmt.Sprint(i)))
				r.Answers(200)
				r.End()
			}
		})
	}
	all.Wait()
	closed(t, a)
	got := lines(t, o.Log.Path)
	for _, line := range got {
		if !json.Valid([]byte(line)) {
			t.Fatalf("half a line: %s", line)
		}
	}
	if len(got) != 1600 {
		t.Errorf("%d lines", len(got))
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte(`{"kind":"Policy","apiVersion":"audit.k8s.io/v1","rules":[{"level":"None","nonResourceURLs":["/a*"]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, _, err := parsePolicy(text)
		if (p == nil) != (err != nil) {
			t.Errorf("%v, %v", p, err)
		}
		if p != nil {
			p.evaluate(&asked("i").Attributes, true)
			p.evaluate(&access.Attributes{Verb: "get", Path: "/a"}, false)
		}
	})
}

// Whatever clients and authenticators say, an event is one line of JSON.
func FuzzEvent(f *testing.F) {
	f.Add("id", "/uri", "agent", "user", "\x00", "\n")
	f.Fuzz(func(t *testing.T, id, uri, agent, user, key, value string) {
		e := event{id: id, uri: uri, userAgent: agent, user: access.User{Name: user,
			Extra: map[string][]string{key: {value}}},
			annotations: []annotation{{key, value}}, sourceIPs: []string{value}, status: &Status{Message: value}}
		for _, line := range [][]byte{e.appendLine(nil), append(e.appendItem(nil), '\n')} {
			if !json.Valid(line) || bytes.IndexByte(line, '\n') != len(line)-1 {
				t.Errorf("%q", line)
			}
		}
		if line := e.appendLegacy(nil); bytes.IndexByte(line, '\n') != len(line)-1 {
			t.Errorf("%q", line)
		}
	})
}

// After the log file was moved away, as logrotate does, and opened again, events are in the new one. None is lost, and
// one that cannot be opened leaves the old one in use.
//
// SPEC: AUTH-4
func TestReopen(t *testing.T) {
	for _, size := range []int{0, 100} {
		o := options(t)
		o.Log.MaxSize = size
		a := auditor(t, o)
		event := func() {
			r, _ := a.Begin(asked("i"))
			r.Answers(200)
			r.End()
		}
		lines := func(file string) int {
			t.Helper()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			return bytes.Count(text, []byte("\n"))
		}
		moved := o.Log.Path + ".old"
		event()
		each := lines(o.Log.Path)
		if err := os.Rename(o.Log.Path, moved); err != nil {
			t.Fatal(err)
		}
		event()
		if err := os.Mkdir(o.Log.Path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := a.Reopen(); err == nil {
			t.Error("a directory is opened as a log")
		}
		event()
		if err := os.Remove(o.Log.Path); err != nil {
			t.Fatal(err)
		}
		if err := a.Reopen(); err != nil {
			t.Fatal(err)
		}
		event()
		closed(t, a)
		if old, now := lines(moved), lines(o.Log.Path); each == 0 || old != 3*each || now != each {
			t.Errorf("of %d lines of each event %d are in the old file, %d in the new one", each, old, now)
		}
	}
	if err := (*Auditor)(nil).Reopen(); err != nil {
		t.Error(err)
	}
}

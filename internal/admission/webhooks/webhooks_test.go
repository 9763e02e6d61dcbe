package webhooks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
	"plinth/internal/admission/hooks"
	"plinth/internal/apierr"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/internal/webhook"
	"plinth/object"
)

// bench is a plugin whose webhooks are a function of the path and the UID of the question.
type bench struct {
	*Plugin
	*engine.Engine
	types  *engine.Types
	store  *store.Store
	mu     sync.Mutex
	asked  []string
	notes  noted // audit annotations
	told   []string
	answer func(path, uid string) string
	// failure is an error of the transport.
	failure error
	// log is what was logged. It is read when nobody is asked.
	log bytes.Buffer
}

type noted map[string]string

func (n noted) Annotate(key, value string)        { n[key] = value }
func (n noted) AnnotateRequest(key, value string) { n[key] = value }

// RoundTrip answers questions. Bodies end with the UID, before the userInfo.
func (b *bench) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_, uid, _ := strings.Cut(string(text), `"uid":"`)
	uid, _, _ = strings.Cut(uid, `"`)
	b.mu.Lock()
	b.asked = append(b.asked, strings.TrimPrefix(r.URL.Path, "/"))
	b.mu.Unlock()
	answer := b.answer(strings.TrimPrefix(r.URL.Path, "/"), uid)
	if err := cmp.Or(b.failure, r.Context().Err()); err != nil {
		return nil, err
	}
	recorder := httptest.NewRecorder()
	_, _ = recorder.WriteString(answer)
	return recorder.Result(), nil
}

const path = hooks.Group + "/validatingwebhookconfigurations"

func newBench(t *testing.T, mutating bool) *bench {
	t.Helper()
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	opened, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(registry)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	b := &bench{Engine: engine.New(engine.Config{Store: opened, Registry: registry}), types: registry.Now(),
		store: opened, answer: func(_, uid string) string { return allowed(uid) }}
	note := func(format string, args ...any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.told = append(b.told, fmt.Sprintf(format, args...))
	}
	b.Plugin = New(Config{Mutating: mutating, Configurations: opened.Collection(path), Types: registry.Now,
		Namespace: func(context.Context, string) (object.Value, error) { return object.Nil, nil },
		Clients:   &webhook.Clients{InProcess: func(string) http.RoundTripper { return b }}, Metrics: Metrics{
			Called: func(name string, mutating bool, _ engine.Operation, rejected bool, code int, _ time.Duration) {
				note("called %s %t %t %d", name, mutating, rejected, code)
			},
			Rejected: func(name string, mutating bool, _ engine.Operation, kind string, code int) {
				note("rejected %s %t %s %d", name, mutating, kind, code)
			},
			FailedOpen: func(name string, mutating bool) { note("failed open %s %t", name, mutating) },
		}, Logger: slog.New(slog.NewTextHandler(&b.log, nil))})
	return b
}

func allowed(uid string) string {
	return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`,
		uid)
}

func refused(uid string) string { return strings.Replace(allowed(uid), "true", "false", 1) }

// put stores a configuration as it is; "" deletes it.
func (b *bench) put(t *testing.T, name, text string) {
	t.Helper()
	change := store.Change{Key: store.Key{Resource: path, Name: name}, Data: []byte(text)}
	if text == "" {
		change.Data = nil
	}
	if _, err := b.store.Commit(t.Context(), nil, []store.Change{change}); err != nil {
		t.Fatal(err)
	}
}

// configurationOf is one with hooks for all Pods, each with more members. Their paths are their names.
func configurationOf(name string, all ...string) string {
	var list []string
	for _, hook := range all {
		of, more, _ := strings.Cut(hook, " ")
		list = append(list, fmt.Sprintf(`{"name":%q,"clientConfig":{"url":"https://h/%s"},"rules":[{"apiGroups":["*"],`+
			`"apiVersions":["v1"],"operations":["*"],"resources":["pods"]}],"admissionReviewVersions":["v1"],`+
			`"sideEffects":"None"%s}`, of, of, more))
	}
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",`+
		`"metadata":{"name":%q,"uid":"u","creationTimestamp":"2024-01-01T00:00:00Z"},"webhooks":[%s]}`, name,
		strings.Join(list, ","))
}

// ask asks the webhooks about a Pod.
func (b *bench) ask(ctx context.Context, change func(*engine.Request)) error {
	a := b.create(change)
	if b.mutating {
		return b.Admit(ctx, a, &hooks.Passes{})
	}
	return b.Validate(ctx, a)
}

// create is a request that creates a Pod.
func (b *bench) create(change func(*engine.Request)) *engine.Attributes {
	b.asked, b.told, b.notes = nil, nil, noted{}
	rq := &engine.Request{Resource: b.types.Find("", "v1", "pods"), Namespace: "ns", Name: "p",
		User: access.User{Name: "jane"}, Annotations: b.notes}
	if change != nil {
		change(rq)
	}
	obj := object.Fields("apiVersion", object.StringOf("v1"), "kind", object.StringOf("Pod"), "metadata",
		object.Fields("name", object.StringOf("p")))
	return b.Attributes(rq, engine.OperationCreate, obj, object.Nil)
}

// Configurations hold from the request after their write on, in the order of their names.
//
// SPEC: AUTH-3
func TestConfigurationsChange(t *testing.T) {
	b := newBench(t, true)
	for _, step := range []struct{ name, text, want string }{
		{"b", configurationOf("b", "b1", "b2", "b1"), "b1 b2 b1"}, {"c", configurationOf("c", "c1"), "b1 b2 b1 c1"},
		{"a", configurationOf("a", "a1"), "a1 b1 b2 b1 c1"}, {"b", configurationOf("b", "b3"), "a1 b3 c1"},
		{"c", "", "a1 b3"}, {"a", configurationOf("a", "a2"), "a2 b3"}, {"b", "", "a2"}, {"a", "", ""},
	} {
		b.put(t, step.name, step.text)
		for range 2 {
			if err := b.ask(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if have := strings.Join(b.asked, " "); have != step.want {
				t.Errorf("after %s %.20s: asked %q, want %q", step.name, step.text, have, step.want)
			}
		}
	}
	b.put(t, "a", configurationOf("a", "a1"))
	if err := b.ask(t.Context(), func(rq *engine.Request) { rq.OwnStart = true }); err != nil || len(b.asked) > 0 {
		t.Errorf("as the server starts: %v, asked %v", err, b.asked)
	}
}

// As long as a configuration cannot be read, nobody knows what its hooks forbid: requests wait for ten seconds, and are
// refused then. Requests for configurations are not, so that it can be removed.
//
// SPEC: AUTH-3
func TestUnreadableConfigurations(t *testing.T) {
	for _, mutating := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, mutating)
			b.put(t, "b", configurationOf("b", "b1"))
			b.put(t, "a", "{")
			began := time.Now()
			err := b.ask(t.Context(), nil)
			if want := `pods "p" is forbidden: not yet ready to handle request: ` +
				`validatingwebhookconfigurations.admissionregistration.k8s.io "a" cannot be read`; err == nil || err.Error() != want ||
				!apierr.Is(err, apierr.Forbidden) || time.Since(began) != 10*time.Second || len(b.asked) > 0 {
				t.Errorf("after %v: %v, asked %v, want %s", time.Since(began), err, b.asked, want)
			}
			if err := b.Ready(); err == nil {
				t.Error("the plugin is ready")
			}
			if err := b.ask(t.Context(), func(rq *engine.Request) {
				rq.Resource, rq.Namespace = b.types.Find(hooks.Group, "v1", "validatingwebhookconfigurations"), ""
			}); err != nil || len(b.asked) > 0 {
				t.Errorf("a request for a configuration: %v, asked %v", err, b.asked)
			}
			b.put(t, "a", "")
			if err := b.ask(t.Context(), nil); err != nil || strings.Join(b.asked, " ") != "b1" || b.Ready() != nil {
				t.Errorf("once all can be read: %v, asked %v", err, b.asked)
			}
		})
	}
}

// A configuration in a file is another one than that of the same name in the API: only the webhook of the file is asked
// again after a change by that of the API.
//
// SPEC: AUTH-3
func TestStaticOfTheSameName(t *testing.T) {
	b := newBench(t, true)
	text := configurationOf("a", `one ,"reinvocationPolicy":"IfNeeded"`)
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	b.SetStatic([]object.Value{parsed.Value})
	b.put(t, "a", text)
	b.answer = func(_, uid string) string {
		if len(b.asked) != 2 {
			return allowed(uid)
		}
		patch := base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
		return strings.Replace(allowed(uid), "true", `true,"patchType":"JSONPatch","patch":"`+patch+`"`, 1)
	}
	a, passes := b.create(nil), &hooks.Passes{}
	if err := b.Admit(t.Context(), a, passes); err != nil || !passes.Wanted || len(b.asked) != 2 {
		t.Errorf("the first pass: %v, wants a second: %t, asked %v", err, passes.Wanted, b.asked)
	}
	passes.Second = true
	if err := b.Admit(t.Context(), a, passes); err != nil || len(b.asked) != 3 {
		t.Errorf("the second pass: %v, asked %v", err, b.asked)
	}
}

// Of several refusals the first one, in the order of names, is the answer; a panic is an error of the request.
//
// SPEC: AUTH-3
func TestRefusals(t *testing.T) {
	b := newBench(t, false)
	b.put(t, "a", configurationOf("a", "one", "two", "three"))
	b.answer = func(path, uid string) string {
		if path == "one" {
			return allowed(uid)
		}
		return refused(uid)
	}
	for range 20 {
		err := b.ask(t.Context(), nil)
		if err == nil || err.Error() != `admission webhook "two" denied the request without explanation` {
			t.Errorf("refused: %v", err)
		}
	}
	b.answer = func(path, uid string) string {
		if path == "two" {
			panic("it is broken")
		}
		return allowed(uid)
	}
	if err := b.ask(t.Context(), nil); err == nil || err.Error() !=
		"Internal error occurred: ValidatingAdmissionWebhook/two has panicked: it is broken" {
		t.Errorf("refused: %v", err)
	}
}

// A client that goes away is no failure of a webhook. A request whose time is over is not admitted, whatever the
// failure policy says.
//
// SPEC: AUTH-3
func TestCanceledRequests(t *testing.T) {
	const over = "request did not complete within requested timeout"
	for _, c := range []struct {
		mutating     bool
		ignore, want string
		told         string
		notes        int
	}{
		{true, "Ignore", over, "called one true false 503", 1},
		{true, "Fail", "context canceled", "called one true true 503", 1},
		{false, "Ignore", over, "called one false false 503", 0},
		{false, "Fail", "context canceled", "called one false true 503", 0},
	} {
		b := newBench(t, c.mutating)
		b.put(t, "a", configurationOf("a", `one ,"failurePolicy":"`+c.ignore+`"`))
		ctx, cancel := context.WithCancel(t.Context())
		b.answer = func(_, uid string) string { cancel(); return allowed(uid) }
		err := b.ask(ctx, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%t %s: %v, want %q", c.mutating, c.ignore, err, c.want)
		}
		if told := strings.Join(b.told, ", "); told != c.told || len(b.notes) != c.notes {
			t.Errorf("%t %s: told %q, want %q; %v", c.mutating, c.ignore, told, c.told, b.notes)
		}
		if err := b.ask(ctx, nil); !c.mutating && (err == nil || err.Error() != "Timeout: "+over || len(b.asked) > 0) {
			t.Errorf("%s: a request that is over is judged: %v, asked %v", c.ignore, err, b.asked)
		}
	}
	// A webhook that fails while the client waits.
	for _, mutating := range []bool{true, false} {
		b := newBench(t, mutating)
		b.put(t, "a", configurationOf("a", `one ,"failurePolicy":"Ignore"`))
		b.answer = func(string, string) string { return "" }
		if err := b.ask(t.Context(), nil); err != nil {
			t.Error(err)
		}
		want := fmt.Sprintf("called one %t false 503, failed open one %t", mutating, mutating)
		if told := strings.Join(b.told, ", "); told != want {
			t.Errorf("told %q, want %q", told, want)
		}
	}
}

// The log says which hooks refuse requests, and which could not be asked and what came of it.
//
// SPEC: AUTH-3
func TestLogOfHooks(t *testing.T) {
	for _, mutating := range []bool{true, false} {
		for _, c := range []struct{ policy, answer, want string }{
			{"Fail", "", `level=WARN msg="calling a webhook has failed, failing closed" webhook=one operation=CREATE ` +
				`resource=pods namespace=ns name=p error="failed calling webhook \"one\": `},
			{"Ignore", "", `level=WARN msg="calling a webhook has failed, failing open" webhook=one operation=CREATE `},
			{"Ignore", `"allowed":false,"status":{"message":"never"}`, `level=INFO msg="rejected by a webhook" webhook=one ` +
				`operation=CREATE resource=pods namespace=ns name=p error="admission webhook \"one\" denied the ` +
				`request: never"`},
			{"Fail", `"allowed":true`, ""},
		} {
			b := newBench(t, mutating)
			b.put(t, "a", configurationOf("a", `one ,"failurePolicy":"`+c.policy+`"`))
			b.answer = func(_, uid string) string {
				if c.answer == "" {
					return ""
				}
				return strings.Replace(allowed(uid), `"allowed":true`, c.answer, 1)
			}
			_ = b.ask(t.Context(), nil) // the other tests look at it
			if text := b.log.String(); !strings.Contains(text, c.want) || c.want == "" && text != "" ||
				strings.Count(text, "\n") > 1 {
				t.Errorf("%t %s %q: the log has\n%s\nwant\n%s", mutating, c.policy, c.answer, text, c.want)
			}
		}
	}
}

// An error of a call is an internal one, also if it is one of the API, as that of a Service that is not there.
//
// SPEC: AUTH-3
func TestErrorsOfTheAPIInCalls(t *testing.T) {
	for _, mutating := range []bool{true, false} {
		b := newBench(t, mutating)
		b.put(t, "a", configurationOf("a", "one"))
		b.failure = apierr.NewNotFound(apierr.Type{Name: "services"}, "s")
		err := b.ask(t.Context(), nil)
		if apierr.From(err).Code != http.StatusInternalServerError || !strings.HasSuffix(err.Error(), "not found") {
			t.Errorf("%v", err)
		}
	}
}

// A selector that cannot be read is an internal error, and so is an object that cannot be converted.
//
// SPEC: AUTH-3
func TestErrorsBeforeCalls(t *testing.T) {
	for _, mutating := range []bool{true, false} {
		b := newBench(t, mutating)
		b.put(t, "a", configurationOf("a", `one ,"objectSelector":{"matchExpressions":[{"key":"a","operator":"Bad"}]}`))
		err := b.ask(t.Context(), nil)
		if err == nil || err.Error() != `Internal error occurred: "Bad" is not a valid label selector operator` ||
			len(b.asked) > 0 {
			t.Errorf("%v, asked %v", err, b.asked)
		}
		b.put(t, "a", configurationOf("a", `one ,"namespaceSelector":{"matchLabels":{"a":"b"}}`))
		if err := b.ask(t.Context(), nil); apierr.From(err).Code != http.StatusNotFound || len(b.asked) > 0 {
			t.Errorf("%v, asked %v", err, b.asked)
		}
		scaler := b.types.Find("autoscaling", "v2", "horizontalpodautoscalers")
		scaler.Stored.Convert = func(context.Context, []object.Value, *engine.Version) ([]object.Value, error) {
			return nil, fmt.Errorf("it is broken")
		}
		b.put(t, "a", strings.NewReplacer(`"pods"`, `"horizontalpodautoscalers"`, `["v1"],"operations"`,
			`["v2"],"operations"`,
			`"sideEffects"`, `"matchPolicy":"Equivalent","sideEffects"`).Replace(configurationOf("a", "one")))
		err = b.ask(t.Context(), func(rq *engine.Request) {
			rq.Resource = b.types.Find("autoscaling", "v1", "horizontalpodautoscalers")
		})
		if err == nil || err.Error() != "Internal error occurred: it is broken" || len(b.asked) > 0 {
			t.Errorf("%v, asked %v", err, b.asked)
		}
	}
}

// What is no JSON, and what is not of the version that was asked for.
//
// SPEC: AUTH-3
func TestUnreadableReviews(t *testing.T) {
	for text, want := range map[string]string{
		"":  "0-length response with status code: 200 and content type: application/json",
		"{": "couldn't get version/kind; json parse error: unexpected end of JSON input",
		`{"apiVersion":"v1","kind":"AdmissionReview"}`: `no kind "AdmissionReview" is registered for version "v1"`,
		`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}`: "converting (v1beta1.AdmissionReview) to " +
			"(v1.AdmissionReview): unknown conversion",
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`: "<nil>", `{}`: "<nil>",
	} {
		if _, err := readReview([]byte(text), "v1"); fmt.Sprint(err) != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Metrics that are nil are not called.
func TestNoMetrics(t *testing.T) {
	m := Metrics{}.complete()
	m.Called("", false, 0, false, 0, 0)
	m.Rejected("", false, 0, "", 0)
	m.FailedOpen("", false)
	m.ConditionsRun("", false, 0, 0, 0)
	m.ConditionsExcluded("", false, 0)
}

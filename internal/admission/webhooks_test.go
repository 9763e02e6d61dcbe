package admission

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// hookServer is a server of webhooks: respond makes the answer of the one at a path to a request.
type hookServer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // paths, in order
	last  map[string]any
}

func newHooks(t testing.TB, respond func(path string, review map[string]any) string) *hookServer {
	h := &hookServer{}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		var review map[string]any
		if err := json.Unmarshal(text, &review); err != nil {
			t.Errorf("the hook is asked %q", text)
			return
		}
		request := review["request"].(map[string]any)
		h.mu.Lock()
		h.asked, h.last = append(h.asked, r.URL.Path), request
		h.mu.Unlock()
		answer := respond(r.URL.Path, request)
		if !strings.HasPrefix(answer, "{") {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, answer)
			return
		}
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":%s}`,
			strings.Replace(answer, "{", fmt.Sprintf(`{"uid":%q,`, request["uid"]), 1))
	}))
	t.Cleanup(h.Close)
	return h
}

// configuration is one of a kind with one hook; more are members of the hook.
func (h *hookServer) configuration(kind, name, path, more string) string {
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: h.Certificate().Raw}))
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"%sWebhookConfiguration",
		"metadata":{"name":%q},"webhooks":[{"name":"%s.example.com","clientConfig":{"url":"%s/%s","caBundle":"%s"},
		"admissionReviewVersions":["v1"],"sideEffects":"None","rules":[{"apiGroups":["*"],"apiVersions":["*"],
		"resources":["configmaps"],"operations":["*"]}]%s}]}`, kind, name, name, h.URL, path, bundle, more)
}

func (h *hookServer) paths() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := strings.Join(h.asked, " ")
	h.asked = nil
	return text
}

// patchOf is the answer with a JSON Patch.
func patchOf(patch string) string {
	return fmt.Sprintf(`{"allowed":true,"patchType":"JSONPatch","patch":%q}`,
		base64.StdEncoding.EncodeToString([]byte(patch)))
}

type bench struct {
	testing.TB
	*engine.Engine
	registry *engine.Registry
}

func newBench(t *testing.T) *bench {
	e, registry := newEngine(t, Selection{})
	return &bench{t, e, registry}
}

func (b *bench) configure(resource, body string) {
	b.Helper()
	if err := b.createIn("admissionregistration.k8s.io", resource, "", body, false); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) createIn(group, resource, namespace, body string, dry bool) error {
	b.Helper()
	parsed, err := object.ParseJSON([]byte(body))
	if err != nil {
		b.Fatal(err)
	}
	_, err = b.Create(b.Context(), &engine.Request{
		Resource: b.registry.Now().Find(group, "v1", resource), Namespace: namespace, DryRun: dry}, parsed)
	return err
}

func (b *bench) get(name string) object.Value {
	b.Helper()
	result, err := b.Get(b.Context(), &engine.Request{
		Resource: b.registry.Now().Find("", "v1", "configmaps"), Namespace: "ns", Name: name}, "")
	if err != nil {
		b.Fatal(err)
	}
	obj, err := engine.ObjectOf(result.Object)
	if err != nil {
		b.Fatal(err)
	}
	return obj
}

// Mutating hooks are asked in the order of their configurations; a change causes a second pass, of those alone that
// want one and were asked before the change.
//
// SPEC: AUTH-3
func TestMutatingWebhooks(t *testing.T) {
	b := newBench(t)
	h := newHooks(t, func(path string, r map[string]any) string {
		labels, _ := r["object"].(map[string]any)["metadata"].(map[string]any)["labels"].(map[string]any)
		switch {
		case path == "/first" && labels["third"] == nil:
			return `{"allowed":true}`
		case path == "/first":
			return patchOf(`[{"op":"add","path":"/metadata/labels/first","value":"saw-third"}]`)
		case path == "/third" && labels["third"] == nil:
			return patchOf(`[{"op":"add","path":"/metadata/labels","value":{"third":"x"}}]`)
		}
		return `{"allowed":true}`
	})
	b.configure("mutatingwebhookconfigurations", h.configuration("Mutating", "c-third", "third", ""))
	b.configure("mutatingwebhookconfigurations", h.configuration("Mutating", "b-second", "second", ""))
	b.configure("mutatingwebhookconfigurations", h.configuration("Mutating", "a-first", "first",
		`,"reinvocationPolicy":"IfNeeded"`))
	if err := b.createIn("", "configmaps", "ns", `{"metadata":{"name":"a"}}`, false); err != nil {
		t.Fatal(err)
	}
	if got := h.paths(); got != "/first /second /third /first" {
		t.Errorf("asked: %s", got)
	}
	if got := b.get("a").At("metadata",
		"labels"); got.At("first").Str() != "saw-third" || got.At("third").Str() != "x" {
		t.Errorf("labels %s", object.AppendJSON(nil, got))
	}
	if err := b.createIn("", "configmaps", "ns", `{"metadata":{"name":"c","labels":{"third":"z"}}}`,
		false); err != nil {
		t.Fatal(err)
	}
	if got := h.paths(); got != "/first /second /third" { // the first one itself has changed the object
		t.Errorf("asked: %s", got)
	}
}

// What a hook may answer, and what comes of it by its failure policy.
//
// SPEC: AUTH-3, DRY-2
func TestWebhookAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer  string
		allowed bool // with failurePolicy Ignore
		err     string
	}{
		"allowed": {`{"allowed":true}`, true, ""},
		"denied": {`{"allowed":false,"status":{"message":"no","code":418,"reason":"Teapot"}}`, false,
			`admission webhook "w.example.com" denied the request: no`},
		"no status": {`{"allowed":false}`, false,
			`admission webhook "w.example.com" denied the request without explanation`},
		"reason": {`{"allowed":false,"status":{"reason":"Forbidden"}}`, false,
			`admission webhook "w.example.com" denied the request: Forbidden`},
		"garbage": {`it broke`, true,
			`failed calling webhook "w.example.com": failed to call webhook: an error on the server ("it broke") has prevented the request from succeeding`},
		"other uid": {`{"uid":"x","allowed":true}`, true, `received invalid webhook response: expected response.uid=`},
		"no type": {`{"allowed":true,"patch":"W10="}`, true,
			`webhook returned response.patch but not response.patchType`},
		"no patch": {`{"allowed":true,"patchType":"JSONPatch"}`, true,
			`webhook returned response.patchType but not response.patch`},
		"bad patch": {patchOf(`{`), true, `received undecodable patch in webhook response`},
		"test op": {patchOf(`[{"op":"test","path":"/metadata/name","value":"z"}]`), false,
			`Internal error occurred: `},
		"wrong type": {patchOf(`[{"op":"add","path":"/data","value":"z"}]`), false, `Internal error occurred: `},
		"of another kind": {patchOf(`[{"op":"replace","path":"/kind","value":"Secret"}]`), false,
			`Internal error occurred: `},
		"patch": {patchOf(`[{"op":"add","path":"/data","value":{"k":"v"}},{"op":"add","path":"/nobody","value":1}]`),
			true, ""},
	} {
		for _, policy := range []string{"Fail", "Ignore"} {
			t.Run(name+"/"+policy, func(t *testing.T) {
				b := newBench(t)
				h := newHooks(t, func(string, map[string]any) string { return c.answer })
				b.configure("mutatingwebhookconfigurations", h.configuration("Mutating", "w", "w",
					fmt.Sprintf(`,"failurePolicy":%q`, policy)))
				err := b.createIn("", "configmaps", "ns", `{"metadata":{"name":"a"}}`, false)
				if want := policy == "Ignore" && c.allowed || c.err == ""; want != (err == nil) {
					t.Fatalf("the create ends with %v", err)
				}
				if err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("the create ends with %v, want %s", err, c.err)
				}
				if name == "denied" && (apierr.From(err).Code != 418 || apierr.From(err).Reason != "Teapot") {
					t.Errorf("%+v", apierr.From(err))
				}
				if name == "patch" && b.get("a").At("data", "k").Str() != "v" {
					t.Errorf("%s", object.AppendJSON(nil, b.get("a")))
				}
			})
		}
	}
}

// Which hooks are asked: rules, selectors, conditions, dry runs.
//
// SPEC: AUTH-3, DRY-2
func TestWhichWebhooks(t *testing.T) {
	for name, c := range map[string]struct {
		more  string
		dry   bool
		asked bool
		err   string
	}{
		"all":                    {"", false, true, ""},
		"dry run":                {"", true, true, ""},
		"object selector":        {`,"objectSelector":{"matchLabels":{"a":"b"}}`, false, true, ""},
		"object selector, other": {`,"objectSelector":{"matchLabels":{"a":"c"}}`, false, false, ""},
		"namespace selector": {`,"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"ns"}}`,
			false, true, ""},
		"another namespace": {`,"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"default"}}`, false, false, ""},
		"condition": {`,"matchConditions":[{"name":"x","expression":"object.metadata.name == 'a'"}]`,
			false, true, ""},
		"condition, false": {`,"matchConditions":[{"name":"x","expression":"object.metadata.name == 'b'"}]`,
			false, false, ""},
		"condition, error": {`,"matchConditions":[{"name":"x","expression":"object.none == 'b'"}]`, false,
			false, "no such key: none"},
		"error and false":          {`,"matchConditions":[{"name":"x","expression":"object.none == 'b'"},{"name":"y","expression":"false"}]`, false, false, ""},
		"condition, error, Ignore": {`,"failurePolicy":"Ignore","matchConditions":[{"name":"x","expression":"object.none == 'b'"}]`, false, false, ""},
		"other operation":          {`,"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["DELETE"]}]`, false, false, ""},
		"other resource":           {`,"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps/status","pods"],"operations":["CREATE"]}]`, false, false, ""},
		"cluster scope":            {`,"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"],"scope":"Cluster"}]`, false, false, ""},
		"wildcards":                {`,"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["*/*"],"operations":["CREATE"],"scope":"Namespaced"}]`, false, true, ""},
	} {
		for _, kind := range []string{"Mutating", "Validating"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				b := newBench(t)
				h := newHooks(t, func(string, map[string]any) string { return `{"allowed":true}` })
				body := h.configuration(kind, "w", "w", "")
				var merged map[string]any
				if err := json.Unmarshal([]byte(body), &merged); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal([]byte("{"+strings.TrimPrefix(c.more, ",")+"}"),
					new(map[string]any)); err != nil {
					t.Fatal(err)
				}
				hook := merged["webhooks"].([]any)[0].(map[string]any)
				if err := json.Unmarshal([]byte("{"+strings.TrimPrefix(c.more, ",")+"}"), &hook); err != nil {
					t.Fatal(err)
				}
				text, _ := json.Marshal(merged)
				b.configure(strings.ToLower(kind)+"webhookconfigurations", string(text))
				err := b.createIn("", "configmaps", "ns", `{"metadata":{"name":"a","labels":{"a":"b"}}}`, c.dry)
				if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
					t.Errorf("the create ends with %v, want %q", err, c.err)
				}
				if asked := h.paths() != ""; asked != c.asked {
					t.Errorf("asked: %v", asked)
				}
			})
		}
	}
}

// What a hook is told.
//
// SPEC: AUTH-3
func TestWhatWebhooksSee(t *testing.T) {
	b := newBench(t)
	h := newHooks(t, func(string, map[string]any) string { return `{"allowed":true}` })
	b.configure("validatingwebhookconfigurations", h.configuration("Validating", "w", "w", ""))
	if err := b.createIn("", "configmaps", "ns", `{"metadata":{"name":"a"},"data":{"k":"v"}}`, false); err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(h.last)
	for _, want := range []string{
		`"kind":{"group":"","kind":"ConfigMap","version":"v1"}`, `"name":"a"`, `"namespace":"ns"`,
		`"operation":"CREATE"`,
		`"oldObject":null`, `"dryRun":false`, `"options":{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}`,
		`"requestResource":{"group":"","resource":"configmaps","version":"v1"}`, `"apiVersion":"v1","data":{"k":"v"}`,
		`"userInfo":{}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the hook is told %s, want %s", text, want)
		}
	}
	rq := &engine.Request{Resource: b.registry.Now().Find("", "v1", "configmaps"), Namespace: "ns", Name: "a"}
	if _, err := b.Delete(t.Context(), rq, engine.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if h.last["object"] != nil || h.last["oldObject"] == nil || h.last["operation"] != "DELETE" {
		t.Errorf("a delete is told as %v", h.last)
	}
}

// A hook that takes too long fails by its own time limit; the request goes on if the failure policy allows it.
//
// SPEC: AUTH-3
func TestSlowWebhook(t *testing.T) {
	b := newBench(t)
	release := make(chan struct{})
	h := newHooks(t, func(string, map[string]any) string { <-release; return `{"allowed":true}` })
	defer close(release)
	b.configure("validatingwebhookconfigurations", h.configuration("Validating", "w", "w", `,"timeoutSeconds":1`))
	began := time.Now()
	err := b.createIn("", "configmaps", "ns", `{"metadata":{"name":"a"}}`, false)
	if err == nil || !strings.Contains(err.Error(), `?timeout=1s": context deadline exceeded`) ||
		apierr.From(err).Code != 500 {
		t.Errorf("a slow hook: %v", err)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("it took %s", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	parsed, _ := object.ParseJSON([]byte(`{"metadata":{"name":"b"}}`))
	if _, err := b.Create(ctx, &engine.Request{Resource: b.registry.Now().Find("", "v1", "configmaps"),
		Namespace: "ns"},
		parsed); err == nil {
		t.Error("a request whose own time is over succeeds")
	}
}

// Hooks are not asked about what configures them.
//
// SPEC: AUTH-3
func TestWebhooksAreNotAskedAboutThemselves(t *testing.T) {
	b := newBench(t)
	h := newHooks(t, func(string, map[string]any) string { return `{"allowed":false}` })
	all := strings.Replace(h.configuration("Validating", "w", "w", ""), `["configmaps"]`, `["*"]`, 1)
	b.configure("validatingwebhookconfigurations", all)
	b.configure("validatingwebhookconfigurations", strings.Replace(all, `"w"`, `"x"`, 1))
	if got := h.paths(); got != "" {
		t.Errorf("asked: %s", got)
	}
	if err := b.createIn("", "configmaps", "ns", `{"metadata":{"name":"a"}}`, false); err == nil {
		t.Error("a create that a hook refuses succeeds")
	}
}

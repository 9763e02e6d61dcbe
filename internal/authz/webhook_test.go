package authz

import (
	"encoding/json"
	"encoding/pem"
	"errors"
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
	"sync"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/object"
)

// decider is a webhook that sends the responses that a test has set, and records its requests.
type decider struct {
	*httptest.Server
	kubeconfig string

	mu      sync.Mutex
	answers []func(w http.ResponseWriter) // the last one stays
	asked   []string
}

func newDecider(t *testing.T) *decider {
	t.Helper()
	d := &decider{}
	d.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.asked = append(d.asked, string(body))
		answer := d.answers[0]
		if len(d.answers) > 1 {
			d.answers = d.answers[1:]
		}
		answer(w)
	}))
	t.Cleanup(d.Close)
	dir := t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.Certificate().Raw})
	d.kubeconfig = filepath.Join(dir, "kubeconfig")
	for name, text := range map[string]string{
		"ca.pem": string(authority),
		"kubeconfig": fmt.Sprintf("clusters: [{name: c, cluster: {server: %q, certificate-authority: ca.pem}}]\n"+
			"users: [{name: u, user: {token: sesame}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", d.URL),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// says sets the responses: a status as JSON, or a code. The last one is used for all further requests.
func (d *decider) says(answers ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers, d.asked = nil, nil
	for _, a := range answers {
		d.answers = append(d.answers, func(w http.ResponseWriter) {
			if code, ok := a.(int); ok {
				http.Error(w, "not now", code)
				return
			}
			fmt.Fprintf(w, `{"status":%s}`, a)
		})
	}
}

func (d *decider) questions() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

// config returns a configuration whose webhook is the decider. more is JSON of further members of the webhook.
func (d *decider) config(more string) string {
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthorizationConfiguration","authorizers":[
{"type":"Webhook","name":"decider","webhook":{"timeout":"3s","subjectAccessReviewVersion":"v1","failurePolicy":"NoOpinion",
"connectionInfo":{"type":"KubeConfigFile","kubeConfigFile":%q}%s}},{"type":"RBAC","name":"rbac"}]}`, d.kubeconfig, more)
}

func (d *decider) authority(t *testing.T, text string, m Metrics) *Authority {
	t.Helper()
	c, err := ParseConfig([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	y, err := New(c, Options{Metrics: m, Logger: slog.New(slog.DiscardHandler), RetryDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	y.Open(newStore(t).Store)
	return y
}

// SPEC: AUTH-2
func TestWebhookDecides(t *testing.T) {
	d := newDecider(t)
	counts := map[string]int{}
	m := Metrics{
		Evaluated:  func(name, result string, _ time.Duration) { counts[name+" "+result]++ },
		FailedOpen: func(name, result string) { counts[name+" open "+result]++ },
		Decisions: func(mode, name string) (allowed, denied func()) {
			return func() { counts[mode+" "+name+" allowed"]++ }, func() { counts[mode+" "+name+" denied"]++ }
		},
	}
	open := d.authority(t, d.config(""), m)
	closed := d.authority(t, strings.Replace(d.config(""), "NoOpinion", "Deny", 1), m)
	for i, c := range []struct {
		y       *Authority
		answers []any
		want    access.Decision
		reason  string
		err     string
		asked   int
	}{
		{open, []any{`{"allowed":true,"reason":"why not"}`}, access.Allow, "why not", "", 1},
		{open, []any{`{"allowed":false,"denied":true,"reason":"no"}`}, access.Deny, "no", "", 1},
		{open, []any{`{"allowed":false,"reason":"hm"}`}, access.NoOpinion, "decider: hm", "", 1},
		{open, []any{`{"allowed":true,"denied":true,"reason":"both"}`}, access.Deny, "both", errBoth.Error(), 1},
		{open, []any{403}, access.NoOpinion, "", "not now", 1},
		{closed, []any{403}, access.Deny, "", "not now", 1},
		{open, []any{500, 429, `{"allowed":true}`}, access.Allow, "", "", 3},
		{open, []any{500}, access.NoOpinion, "", "an error on the server", 5},
		{closed, []any{500}, access.Deny, "", "an error on the server", 5},
		{open, []any{`{"allowed":"yes"}`}, access.NoOpinion, "", "cannot unmarshal string", 1},
		{open, []any{`[]`}, access.NoOpinion, "", "cannot unmarshal array", 1},
	} {
		d.says(c.answers...)
		a := asked(fmt.Sprintf("alice get a.io/things ns1 x%d", i))
		decision, reason, err := c.y.Authorize(t.Context(), a)
		if decision != c.want || reason != c.reason || (err == nil) != (c.err == "") || err != nil &&
			!strings.Contains(err.Error(), c.err) {
			t.Errorf("responses %v: have %v %q, %v, want %v %q, %q", c.answers, decision, reason, err, c.want, c.reason, c.err)
		}
		if n := len(d.questions()); n != c.asked {
			t.Errorf("responses %v: the webhook was called %d times, want %d (case %d)", c.answers, n, c.asked, i)
		}
	}
	for what, want := range map[string]int{
		"decider success": 5, "decider error": 16, "decider open error": 4, "Webhook decider allowed": 2,
		"Webhook decider denied": 4,
	} {
		if counts[what] != want {
			t.Errorf("the metric %s: have %d, want %d", what, counts[what], want)
		}
	}
	// Members of system:masters may do everything without a webhook.
	d.says(500)
	if decision, _,
		_ := closed.Authorize(t.Context(), asked("root,system:masters get a.io/things ns1 x")); decision != access.Allow ||
		len(d.questions()) > 0 {
		t.Error("the webhook was called for a member of system:masters")
	}
	rules, incomplete, err := open.RulesFor(t.Context(), &access.User{Name: "alice"}, "ns1")
	if len(rules) != 0 || !incomplete || err == nil || !errors.Is(err, errHookRules) {
		t.Errorf("RulesFor: have %v, incomplete: %v, %v, want no rules, incomplete, %v", rules, incomplete, err, errHookRules)
	}
}

// SPEC: AUTH-2
func TestWebhookDecisionsAreCached(t *testing.T) {
	d := newDecider(t)
	ask := func(y *Authority, request string) {
		t.Helper()
		if _, _, err := y.Authorize(t.Context(), asked(request)); err != nil {
			t.Fatal(err)
		}
	}
	y := d.authority(t, d.config(""), Metrics{})
	d.says(`{"allowed":true}`)
	for range 3 {
		ask(y, "alice get a.io/things ns1 x")
	}
	ask(y, "bob get a.io/things ns1 x")
	if n := len(d.questions()); n != 2 {
		t.Errorf("the webhook was called %d times, want 2", n)
	}
	for more, want := range map[string]int{
		`"cacheAuthorizedRequests":false`: 3, `"authorizedTTL":"1ns"`: 3, `"cacheUnauthorizedRequests":false`: 1,
		`"unauthorizedTTL":"1ns"`: 1,
	} {
		y := d.authority(t, d.config(more), Metrics{})
		d.says(`{"allowed":true}`)
		for range 3 {
			ask(y, "alice get a.io/things ns1 x")
			time.Sleep(time.Microsecond)
		}
		if n := len(d.questions()); n != want {
			t.Errorf("%s: called %d times for an allowed request, want %d", more, n, want)
		}
		d.says(`{"allowed":false}`)
		for range 3 {
			ask(y, "bob get a.io/things ns1 x")
			time.Sleep(time.Microsecond)
		}
		if n := len(d.questions()); n != 4-want {
			t.Errorf("%s: called %d times for a request that is not allowed, want %d", more, n, 4-want)
		}
	}
}

// The size of the cache does not depend on the length of what users request.
//
// SPEC: AUTH-2
func TestWebhookCacheIsBounded(t *testing.T) {
	const requests, length = 50, 1 << 20
	d := newDecider(t)
	y := d.authority(t, d.config(""), Metrics{})
	heap := func() int {
		d.says(`{"allowed":true}`) // drops the recorded requests
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int(stats.HeapAlloc)
	}
	before := heap()
	for range 2 {
		for i := range requests {
			a := asked(fmt.Sprintf("alice get a.io/things ns1 x%d", i))
			a.FieldSelector = "a=" + strings.Repeat("x", length)
			if _, _, err := y.Authorize(t.Context(), a); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(d.questions()); n != requests {
		t.Errorf("the webhook was called %d times for %d requests, each made twice", n, requests)
	}
	if grown := heap() - before; grown > requests*length/10 {
		t.Errorf("the cache has grown by %d bytes for %d decisions", grown, requests)
	}
	runtime.KeepAlive(y)
}

// A review has the attributes of the request; requirements that reviews cannot express are omitted.
//
// SPEC: AUTH-2
func TestReviews(t *testing.T) {
	user := access.User{Name: "alice", UID: "7", Groups: []string{"a", "b"}, Extra: map[string][]string{"k": {"v", "w"}}}
	list := &access.Attributes{
		User: user, Verb: "list", Path: "/ignored", IsResource: true, Group: "apps", Version: "v1", Resource: "deployments",
		Namespace: "ns1", FieldSelector: "metadata.name!=x,spec.a=b", LabelSelector: "a in (b,c),!d,e,f!=g,h>3",
	}
	const selectors = `"fieldSelector":{"requirements":[{"key":"metadata.name","operator":"NotIn","values":["x"]},{"key":"spec.a","operator":"In","values":["b"]}]},` +
		`"group":"apps","labelSelector":{"requirements":[{"key":"a","operator":"In","values":["b","c"]},{"key":"d","operator":"DoesNotExist"},` +
		`{"key":"e","operator":"Exists"},{"key":"f","operator":"NotIn","values":["g"]}]}`
	for _, c := range []struct {
		a             *access.Attributes
		version, spec string
	}{
		{list, reviewV1, `"extra":{"k":["v","w"]},"groups":["a","b"],"resourceAttributes":{` + selectors +
			`,"namespace":"ns1","resource":"deployments","verb":"list","version":"v1"},"uid":"7","user":"alice"`},
		{list, reviewV1beta1, `"extra":{"k":["v","w"]},"group":["a","b"],"resourceAttributes":{` + selectors +
			`,"namespace":"ns1","resource":"deployments","verb":"list","version":"v1"},"uid":"7","user":"alice"`},
		{&access.Attributes{User: access.User{Name: "bob"}, Verb: "get", Path: "/healthz"}, reviewV1,
			`"nonResourceAttributes":{"path":"/healthz","verb":"get"},"user":"bob"`},
		{&access.Attributes{Verb: "list", IsResource: true, LabelSelector: "a==,,", FieldSelector: "=="}, reviewV1,
			`"resourceAttributes":{"verb":"list"}`},
	} {
		got := string(review(c.version, specOf(c.a).value(c.version)))
		want := `{"apiVersion":"authorization.k8s.io/` + c.version + `","kind":"SubjectAccessReview","metadata":{},"spec":{` +
			c.spec + `},"status":{"allowed":false}}`
		if !json.Valid([]byte(got)) || got != want {
			t.Errorf("have %s\nwant %s", got, want)
		}
	}
	if _, err := object.ParseJSON(review(reviewV1, specOf(list).value(reviewV1))); err != nil {
		t.Errorf("a review is not valid JSON: %v", err)
	}
}

// SPEC: AUTH-2
func TestMatchConditions(t *testing.T) {
	d := newDecider(t)
	for _, c := range []struct {
		conditions []string
		want       access.Decision // with the policy Deny
		err        string
		asked      int
	}{
		{[]string{`request.user == 'alice'`, `has(request.resourceAttributes)`}, access.Allow, "", 1},
		{[]string{`request.user != 'alice'`}, access.NoOpinion, "", 0},
		{[]string{`request.nonResourceAttributes.path == '/'`}, access.Deny, "no such key: nonResourceAttributes", 0},
		{[]string{`request.nonResourceAttributes.path == '/'`, `request.user != 'alice'`}, access.NoOpinion, "", 0},
		{[]string{`request.groups.exists(g, g == 'devs') && request.uid == '' && request.extra.size() == 0`},
			access.Allow, "", 1},
		{[]string{`request.resourceAttributes.namespace == 'ns1' && request.resourceAttributes.subresource == ''`},
			access.Allow, "", 1},
		{[]string{`!has(request.resourceAttributes.labelSelector)`}, access.Allow, "", 1},
	} {
		list, err := json.Marshal(c.conditions)
		if err != nil {
			t.Fatal(err)
		}
		var items []string
		for _, text := range c.conditions {
			item, _ := json.Marshal(map[string]string{"expression": text})
			items = append(items, string(item))
		}
		excluded, failed := 0, 0
		y := d.authority(t, strings.Replace(d.config(`"matchConditionSubjectAccessReviewVersion":"v1","matchConditions":[`+
			strings.Join(items, ",")+`]`),
			`"NoOpinion"`, `"Deny"`, 1), Metrics{Matched: func(_, _ string, _ time.Duration, fail, exclude bool) {
			if fail {
				failed++
			}
			if exclude {
				excluded++
			}
		}})
		d.says(`{"allowed":true}`)
		decision, _, err := y.Authorize(t.Context(), asked("alice,devs get a.io/things ns1 x"))
		if decision != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: have %v, %v, want %v, %q", list, decision, err, c.want, c.err)
		}
		if n := len(d.questions()); n != c.asked {
			t.Errorf("%s: the webhook was called %d times, want %d", list, n, c.asked)
		}
		if excluded > 0 != (c.want == access.NoOpinion) || c.err != "" && failed == 0 {
			t.Errorf("%s: the metrics count %d as excluded and %d as failed", list, excluded, failed)
		}
	}
}

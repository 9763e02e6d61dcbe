package authz

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/internal/access"
)

const configHead = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n"

// conformance/oracle/authorization has many more texts, and compares their errors with the reference's.
//
// SPEC: AUTH-2
func TestConfigsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"": "authorizers: Required value: at least one authorization mode must be defined",
		configHead +
			"authorizers: [{type: RBAC, name: x}]": "expected name rbac for authorizer RBAC instead of x",
		configHead +
			"authorizers: [{type: RBAC, name: rbac}, {type: RBAC, name: b}]": `authorizers[1].type: Duplicate value: "RBAC"`,
		configHead +
			"authorizers: [{type: Nope, name: rbac}]": `supported values: "ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"`,
		configHead +
			"authorizers: [{type: RBAC, name: rbac, size: 3}]": `strict decoding error: unknown field "authorizers[0].size"`,
		configHead +
			"authorizers: [{type: Webhook, name: x}]": "authorizers[0].webhook: Required value: required when type=Webhook",
		configHead +
			"authorizers: [{type: Webhook, name: x, webhook: {timeout: 40s}}]": `authorizers[0].timeout: Invalid value: "40s": must be > 0s and <= 30s`,
		configHead +
			"authorizers: [{type: RBAC, name: rbac, webhook: {}}]": "may only be specified when type=Webhook",
		strings.Replace(configHead, "/v1", "/v2", 1) +
			"authorizers: []": `no kind "AuthorizationConfiguration" is registered for version "apiserver.config.k8s.io/v2"`,
		configHead +
			"authorizers: [{type: Webhook, name: x, webhook: {timeout: eternal}}]": "failed to load AuthorizationConfiguration from file",
		configHead +
			"authorizers: {type: Webhook}": "cannot unmarshal object into Go struct field AuthorizationConfiguration.authorizers",
	} {
		if _, err := ParseConfig([]byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: have %v, want %s", text, err, want)
		}
	}
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		text := strings.Replace(configHead, "/v1", "/"+version, 1) +
			"authorizers: [{type: RBAC, name: rbac}, {type: AlwaysDeny, name: alwaysdeny}]"
		c, err := ParseConfig([]byte(text), []Mode{RBAC})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(c, Options{}); err != nil {
			t.Error(err)
		}
		if _, err := ParseConfig([]byte(text), []Mode{Node, RBAC, AlwaysAllow}); err == nil ||
			err.Error() != "missing required types: [AlwaysAllow Node]" {
			t.Error(err)
		}
	}
	for text, want := range map[string]string{
		"authorizers: [{type: ABAC, name: abac}]": "open : no such file",
		"authorizers: [{type: Webhook, name: x, webhook: {timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: Deny, connectionInfo: {type: InClusterConfig}}}]": errInCluster.Error(),
	} {
		c, err := ParseConfig([]byte(configHead+text), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(c, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: have %v, want %s", text, err, want)
		}
	}
}

// A new configuration is used if it is valid and has the authorizers, other than webhooks, of the first one; otherwise
// the previous one stays in use.
//
// SPEC: AUTH-2
func TestReload(t *testing.T) {
	d := newDecider(t)
	d.says(`{"allowed":true}`)
	text := configHead + "authorizers: [{type: RBAC, name: rbac}, {type: AlwaysDeny, name: alwaysdeny}]\n"
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+"~", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+"~", file); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	c, read, err := LoadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	reloaded := make(chan bool)
	configured := ""
	y, err := New(c, Options{Logger: slog.New(slog.DiscardHandler), Metrics: Metrics{
		Reloaded: func(ok bool) { reloaded <- ok }, Configured: func(text []byte) { configured = string(text) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	y.Open(newStore(t).Store)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		y.Watch(ctx, file, read, time.Millisecond)
	}()
	decide := func() access.Decision {
		decision, _, _ := y.Authorize(t.Context(), asked("alice get a.io/things ns1 x"))
		return decision
	}
	withHook := `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthorizationConfiguration","authorizers":[{"type":"AlwaysDeny","name":"alwaysdeny"},` +
		d.config("")[strings.Index(d.config(""), `{"type":"Webhook"`):]
	for _, step := range []struct {
		text string
		ok   bool
		want access.Decision
	}{
		{"nonsense", false, access.NoOpinion},
		{configHead + "authorizers: [{type: AlwaysAllow, name: alwaysallow}]\n", false, access.NoOpinion}, // RBAC is missing
		{text + "# the same\n# again\n" + "", true, access.NoOpinion},
		{withHook, true, access.Allow},
		{strings.Replace(withHook, d.kubeconfig, "/nowhere", 1), false, access.Allow},
		// AlwaysDeny is missing
		{strings.Replace(text, "AlwaysDeny, name: alwaysdeny", "AlwaysAllow, name: alwaysallow", 1), false, access.Allow},
		{strings.Replace(withHook, `"AlwaysDeny","name":"alwaysdeny"}`,
			`"AlwaysDeny","name":"alwaysdeny"},{"type":"Node","name":"node"}`, 1), false, access.Allow},
		{text, true, access.NoOpinion},
	} {
		write(step.text)
		if strings.HasSuffix(step.text, "again\n") { // a text that means the same is not reported
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if ok := <-reloaded; ok != step.ok {
			t.Fatalf("reloaded: have %v, want %v, for %s", ok, step.ok, step.text)
		}
		if got := decide(); got != step.want {
			t.Errorf("a decision: have %v, want %v, after %s", got, step.want, step.text)
		}
	}
	stop()
	<-ended
	if configured != text {
		t.Errorf("Configured reported %s, want %s", configured, text)
	}
}

// A configuration is refused, or it is unchanged after it is encoded and parsed again, and New accepts it.
func FuzzConfig(f *testing.F) {
	for _, authorizers := range []string{
		"[{type: RBAC, name: rbac}, {type: Node, name: node}]",
		"[{type: Webhook, name: x.y, webhook: {timeout: 3s, authorizedTTL: 1m, subjectAccessReviewVersion: v1, " +
			"matchConditionSubjectAccessReviewVersion: v1, failurePolicy: Deny, connectionInfo: {type: InClusterConfig}, " +
			"matchConditions: [{expression: \"has(request.resourceAttributes) && request.user == 'a'\"}]}}]",
	} {
		f.Add([]byte(configHead + "authorizers: " + authorizers))
	}
	f.Add([]byte(`{"apiVersion":"apiserver.config.k8s.io/v1beta1","kind":"AuthorizationConfiguration","authorizers":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig(text, nil)
		if err != nil {
			return
		}
		written, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseConfig(written, nil)
		if err != nil {
			t.Fatalf("%s is refused when it is read again: %v", written, err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(written) {
			t.Errorf("%s becomes %s (%v) when it is read again", written, twice, err)
		}
		if slices.ContainsFunc(c.Authorizers, func(a AuthorizerConfiguration) bool {
			return a.Type == Webhook || a.Type == ABAC
		}) {
			return // needs another file
		}
		if _, err := New(c, Options{}); err != nil {
			t.Errorf("%s: %v", written, err)
		}
	})
}

// Requests of kubelets are decided while the configuration is replaced, and each by one configuration: with the race
// detector this test fails if a reload writes what requests read.
//
// SPEC: AUTH-2
func TestDecisionsDuringReload(t *testing.T) {
	texts := [2]string{}
	for i, after := range []string{"", ", {type: AlwaysDeny, name: alwaysdeny}"} {
		texts[i] = configHead + "authorizers: [{type: Node, name: node}, {type: RBAC, name: rbac}" + after + "]\n"
	}
	c, err := ParseConfig([]byte(texts[0]), nil)
	if err != nil {
		t.Fatal(err)
	}
	y, err := New(c, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	y.Open(newStore(t).Store)
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		for range 1000 {
			decision, reason, err := y.Authorize(t.Context(), asked("system:node:one,system:nodes list -/services - -"))
			if decision != access.Allow || err != nil {
				t.Errorf("have %v %q, %v, want Allow", decision, reason, err)
				return
			}
		}
	}()
	reloads := 0
	for done := false; !done; reloads++ {
		if changed, err := y.reconfigure([]byte(texts[(reloads+1)%2])); !changed || err != nil {
			t.Fatalf("reload %d: changed %v, %v", reloads, changed, err)
		}
		select {
		case <-decided:
			done = reloads > 100
		default:
		}
	}
}

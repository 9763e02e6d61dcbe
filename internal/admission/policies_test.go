package admission

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"plinth/internal/engine"
	"plinth/internal/features"
)

// policyText is a policy for all ConfigMaps in namespaces, with these members of its spec.
func policyText(kind, name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":%q},"spec":{
		"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],
		"resources":["configmaps"]}]},%s}}`, kind, name, more)
}

func bindingText(kind, name, policy, more string) string {
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"%sBinding","metadata":{"name":%q},
		"spec":{"policyName":%q%s}}`, kind, name, policy, more)
}

const (
	validating = "ValidatingAdmissionPolicy"
	mutating   = "MutatingAdmissionPolicy"
	deny       = `,"validationActions":["Deny"]`
)

func (b *bench) remove(group, resource, namespace, name string) {
	b.Helper()
	rq := &engine.Request{Resource: b.registry.Now().Find(group, "v1", resource), Namespace: namespace, Name: name}
	if _, err := b.Delete(b.Context(), rq, engine.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
}

// wants creates a ConfigMap, and demands that it is refused with this text, or not if that is "".
func (b *bench) wants(body, text string) {
	b.Helper()
	err := b.createIn("", "configmaps", "ns", body, false)
	if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
		b.Errorf("%s: %v, want %q", body, err, text)
	}
}

// A policy, a binding and a param hold from the request after their write, and so does their end.
//
// SPEC: AUTH-3, AUTH-7
func TestPoliciesHoldAtOnce(t *testing.T) {
	b := newBench(t)
	const group = "admissionregistration.k8s.io"
	any := func() string { return `{"metadata":{"generateName":"a"},"data":{"k":"12345"}}` }
	b.configure("validatingadmissionpolicies", policyText(validating, "short", `"paramKind":{"apiVersion":"v1",
		"kind":"ConfigMap"},"validations":[{"expression":"object.data.k.size() <= int(params.data.max)"}],
		"matchConditions":[{"name":"c","expression":"!has(object.metadata.labels)"}]`))
	b.wants(any(), "")
	b.configure("validatingadmissionpolicybindings", bindingText(validating, "short", "short",
		`,"paramRef":{"name":"limit","parameterNotFoundAction":"Deny"}`+deny))
	b.wants(any(), "no params found for policy binding with `Deny` parameterNotFoundAction")
	limit := func(max string) string {
		return `{"metadata":{"name":"limit","labels":{"a":"b"}},"data":{"max":"` + max + `"}}`
	}
	b.wants(limit("3"), "no params found") // no exception for params: as there
	b.remove(group, "validatingadmissionpolicybindings", "", "short")
	b.wants(limit("3"), "")
	b.configure("validatingadmissionpolicybindings", bindingText(validating, "short", "short",
		`,"paramRef":{"name":"limit","parameterNotFoundAction":"Deny"}`+deny))
	b.wants(any(), "ValidatingAdmissionPolicy 'short' with binding 'short' denied request: failed expression: "+
		"object.data.k.size() <= int(params.data.max)")
	b.remove("", "configmaps", "ns", "limit")
	b.wants(any(), "no params found")
	b.remove(group, "validatingadmissionpolicies", "", "short")
	b.wants(any(), "")
}

// A kind of params that was never there is an error of the policy, which no parameterNotFoundAction allows.
//
// SPEC: AUTH-3
func TestKindsOfParamsThatWereNeverThere(t *testing.T) {
	b := newBench(t)
	b.configure("validatingadmissionpolicies", policyText(validating, "p", `"paramKind":{"apiVersion":"example.com/v1",
		"kind":"None"},"validations":[{"expression":"true"}]`))
	b.configure("validatingadmissionpolicybindings", bindingText(validating, "b", "p",
		`,"paramRef":{"name":"x","parameterNotFoundAction":"Allow"}`+deny))
	b.wants(`{"metadata":{"name":"a"}}`, "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: "+
		"failed to find resource referenced by paramKind: 'example.com/v1, Kind=None'")
}

// Policies change objects in the order of their names, whoever is written first; a change causes a second pass, of the
// policies that want one. Webhooks run after them, and policies see what webhooks have changed.
//
// SPEC: AUTH-3, SSA-19
func TestMutatingPolicies(t *testing.T) {
	b := newBench(t)
	apply := func(reinvoke, expression string) string {
		return fmt.Sprintf(`"reinvocationPolicy":%q,"mutations":[{"patchType":"ApplyConfiguration",
			"applyConfiguration":{"expression":%q}}]`, reinvoke, expression)
	}
	put := func(name, text string) {
		b.configure("mutatingadmissionpolicies", policyText(mutating, name, text))
		b.configure("mutatingadmissionpolicybindings", bindingText(mutating, name, name, ""))
	}
	put("b", apply("Never", `Object{data: {'order': (has(object.data) && 'order' in object.data ? object.data.order : '') + 'b'}}`))
	put("a", apply("IfNeeded", `Object{data: {'order': (has(object.data) && 'order' in object.data ? object.data.order : '') + 'a'}}`))
	h := newHooks(t, func(string, map[string]any) string {
		return patchOf(`[{"op":"add","path":"/data/hook","value":"was here"}]`)
	})
	b.configure("mutatingwebhookconfigurations", h.configuration("Mutating", "h", "h", ""))
	b.wants(`{"metadata":{"name":"x"}}`, "")
	obj := b.get("x")
	if got := obj.At("data", "order").Str(); got != "aba" {
		t.Errorf("the order is %q, want aba: b is not called again", got)
	}
	if got := obj.At("data", "hook").Str(); got != "was here" {
		t.Errorf("the hook has made %q", got)
	}
	if managed := obj.At("metadata", "managedFields"); managed.Len() != 0 {
		t.Errorf("fields that policies add are owned: %v", managed.Native())
	}
}

// Policies in files come first, see requests about policies, and are refused with params.
//
// SPEC: AUTH-3
func TestStaticPolicies(t *testing.T) {
	dir := t.TempDir()
	settings, _ := json.Marshal(map[string]string{"apiVersion": "apiserver.config.k8s.io/v1",
		"kind": "ValidatingAdmissionPolicyConfiguration", "staticManifestsDir": dir})
	any := strings.NewReplacer(`[""]`, `["*"]`, `["configmaps"]`, `["*"]`)
	text := any.Replace(policyText(validating, "z.static.k8s.io",
		`"validations":[{"expression":"!object.metadata.name.startsWith('bad')","message":"no"}]`)) + "\n---\n" +
		bindingText(validating, "z.static.k8s.io", "z.static.k8s.io", deny)
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, registry := newEngineWith(t, Config{Configurations: map[string][]byte{validating: settings}})
	b := &bench{t, e, registry}
	b.configure("validatingadmissionpolicies", any.Replace(policyText(validating, "a",
		`"validations":[{"expression":"false","message":"of the API"}]`)))
	b.configure("validatingadmissionpolicybindings", bindingText(validating, "a", "a", deny))
	b.wants(`{"metadata":{"name":"bad"}}`, "'z.static.k8s.io' with binding 'z.static.k8s.io' denied request: no")
	b.wants(`{"metadata":{"name":"good"}}`, "of the API")
	// Those of the API are not asked about policies, those in files are.
	for name, want := range map[string]bool{"bad": true, "good": false} {
		err := b.createIn("admissionregistration.k8s.io", "validatingadmissionpolicies", "",
			policyText(validating, name, `"validations":[{"expression":"true"}]`), false)
		if (err != nil) != want {
			t.Errorf("the policy %s: %v", name, err)
		}
	}
}

// The plugins have nothing to do without their types, and mutating policies without their gate.
//
// SPEC: AUTH-3
func TestPluginsWithoutTypes(t *testing.T) {
	const group = "admissionregistration.k8s.io/"
	for _, c := range []struct {
		plugin, off string
		gate        bool // MutatingAdmissionPolicy
		on          bool
	}{
		{validating, "", true, true}, {validating, "", false, true}, {mutating, "", true, true}, {mutating, "", false, false},
		{validating, "validatingadmissionpolicies", true, false},
		{validating, "validatingadmissionpolicybindings", true, false},
		{mutating, "mutatingadmissionpolicies", true, false}, {mutating, "mutatingadmissionpolicybindings", true, false},
		{"ValidatingAdmissionWebhook", "validatingwebhookconfigurations", true, false},
		{"ValidatingAdmissionWebhook", "mutatingwebhookconfigurations", true, true},
		{"MutatingAdmissionWebhook", "mutatingwebhookconfigurations", true, false},
		{"MutatingAdmissionWebhook", "validatingwebhookconfigurations", true, true},
	} {
		s := newStageOf(t, Config{Selection: Selection{Only: []string{c.plugin}},
			Features: features.Set{}.With(features.MutatingAdmissionPolicy, c.gate)}, group+c.off)
		mutates := strings.HasPrefix(c.plugin, "Mutating")
		if (s.chain.Admit != nil) != (c.on && mutates) || (s.chain.Validate != nil) != (c.on && !mutates) {
			t.Errorf("%+v: mutates %t, validates %t", c, s.chain.Admit != nil, s.chain.Validate != nil)
		}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStageOf(t, Config{Selection: Selection{Only: []string{"ValidatingAdmissionWebhook"}},
		Configurations: map[string][]byte{"ValidatingAdmissionWebhook": []byte("apiVersion: apiserver.config.k8s.io/v1\n" +
			"kind: WebhookAdmissionConfiguration\nkubeConfigFile: " + file)}})
	if s.chain.Validate == nil {
		t.Error("with credentials, the plugin does nothing")
	}
}

// Webhooks and policies select namespaces by their labels, and policies see them.
//
// SPEC: AUTH-3
func TestNamespacesOfHooksAndPolicies(t *testing.T) {
	b := newBench(t)
	if err := b.createIn("", "namespaces", "", `{"metadata":{"name":"team","labels":{"a":"b"}}}`, false); err != nil {
		t.Fatal(err)
	}
	h := newHooks(t, func(string, map[string]any) string { return `{"allowed":true}` })
	const selector = `,"namespaceSelector":{"matchLabels":{"a":"b"}}`
	b.configure("mutatingwebhookconfigurations", h.configuration("Mutating", "m", "m", selector))
	b.configure("validatingwebhookconfigurations", h.configuration("Validating", "v", "v", selector))
	b.configure("validatingadmissionpolicies", policyText(validating, "p",
		`"validations":[{"expression":"object.metadata.name != 'bad'",
		"messageExpression":"'of ' + namespaceObject.metadata.labels['a']"}]`))
	b.configure("validatingadmissionpolicybindings", bindingText(validating, "b", "p",
		strings.Replace(selector, `,"`, `,"matchResources":{"`, 1)+"}"+deny))
	for at, want := range map[string]string{"team/good": "/m /v", "team/bad": "/m", "ns/good": "", "ns/bad": ""} {
		namespace, name, _ := strings.Cut(at, "/")
		err := b.createIn("", "configmaps", namespace, `{"metadata":{"name":"`+name+`"}}`, false)
		if (at == "team/bad") != (err != nil) || err != nil && !strings.Contains(err.Error(), "denied request: of b") {
			t.Errorf("%s: %v", at, err)
		}
		if asked := h.paths(); asked != want {
			t.Errorf("%s: asked %q", at, asked)
		}
	}
}

// Policies are written and deleted while requests are evaluated: each request is decided by one state or the other.
//
// SPEC: AUTH-3
func TestPoliciesChangeMeanwhile(t *testing.T) {
	b := newBench(t)
	const group = "admissionregistration.k8s.io"
	stop := make(chan struct{})
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := b.createIn("", "configmaps", "ns", `{"metadata":{"name":"a"},"data":{"k":"v"}}`, true)
				if err != nil && !strings.Contains(err.Error(), "denied request: failed expression: variables.v == 'w'") {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		b.configure("validatingadmissionpolicies", policyText(validating, "p", `"variables":[{"name":"v",
			"expression":"object.data.k"}],"validations":[{"expression":"variables.v == 'w'"}]`))
		b.configure("validatingadmissionpolicybindings", bindingText(validating, "b", "p", deny))
		b.wants(`{"metadata":{"name":"x"},"data":{"k":"v"}}`, "denied request")
		b.remove(group, "validatingadmissionpolicybindings", "", "b")
		b.remove(group, "validatingadmissionpolicies", "", "p")
		b.wants(`{"metadata":{"generateName":"x"},"data":{"k":"v"}}`, "")
	}
	close(stop)
	work.Wait()
}

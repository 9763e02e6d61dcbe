package admission

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	policies "k8s.io/apiserver/pkg/admission/plugin/policy/config"
	webhooks "k8s.io/apiserver/pkg/admission/plugin/webhook/config"
	gates "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	ours "plinth/internal/admission"
	"plinth/internal/features"
)

// Configurations are refused for the same reasons on both sides.
//
// SPEC: AUTH-3
func TestConfigurations(t *testing.T) {
	security := func(text string) string {
		return "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n" + text + "\n"
	}
	tolerations := func(kind, text string) string {
		return fmt.Sprintf("apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: %s\n%s\n", kind, text)
	}
	quota := func(apiVersion, kind, text string) string {
		return fmt.Sprintf("apiVersion: %s\nkind: %s\n%s\n", apiVersion, kind, text)
	}
	const limited = "limitedResources: [{resource: pods}]"
	events := func(limits string) string {
		return "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits: [" + limits + "]\n"
	}
	images := func(text string) string {
		return fmt.Sprintf("imagePolicy: {kubeConfigFile: %s, %s}\n", newImageHook(t).client, text)
	}
	refused, accepted := 0, 0
	for _, c := range []struct{ plugin, text string }{
		{"PodSecurity", ""},
		{"PodSecurity", security("defaults: {enforce: baseline, enforce-version: v1.30}")},
		{"PodSecurity", security("defaults: {enforce: none}")},
		{"PodSecurity", security("defaults: {enforce: none, enforce-version: x, audit: some, audit-version: v1, " +
			"warn: all, warn-version: '1.30'}")},
		{"PodSecurity", security("exemptions: {usernames: ['', a, b, a], namespaces: [A, b, b], runtimeClasses: [a.b, A_, a.b]}")},
		{"PodSecurity", security("defaults: {enforce: none}\nexemptions: {usernames: ['']}")},
		{"PodSecurity", security("exemptions: {namespaces: [a.b, a.b]}")},
		{"PodSecurity", security("exemptions: {usernames: ['', '']}")},
		{"PodSecurity", strings.Replace(security(""), "PodSecurityConfiguration", "Other", 1)},
		{"PodSecurity", security("exemptions: {namespaces: [" + strings.Repeat("A", 64) + "]}")},
		{"PodSecurity", strings.Replace(security("defaults: {enforce: baseline}"), "/v1", "/v1beta1", 1)},
		{"PodSecurity", strings.Replace(security("defaults: {enforce: baseline}"), "/v1", "/v1alpha1", 1)},
		{"PodTolerationRestriction", tolerations("Configuration", "default: [{key: a, operator: Exists}]")},
		{"PodTolerationRestriction", tolerations("Other", "")},
		{"PodTolerationRestriction", tolerations("Configuration", "default: {}")},
		{"PodTolerationRestriction", strings.Replace(tolerations("Configuration", ""), "v1alpha1", "v1", 1)},
		{"ResourceQuota", quota("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration", limited)},
		{"ResourceQuota", quota("resourcequota.admission.k8s.io/v1beta1", "Configuration", limited)},
		{"ResourceQuota", quota("resourcequota.admission.k8s.io/v1alpha1", "Configuration", limited)},
		{"ResourceQuota", quota("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration",
			"limitedResources: [{}, {resource: pods}, {}]")},
		{"ResourceQuota", ""},
		{"ResourceQuota", quota("apiserver.config.k8s.io/v1", "Configuration", limited)},
		{"ResourceQuota", quota("resourcequota.admission.k8s.io/v1", "Configuration", limited)},
		{"ResourceQuota", quota("resourcequota.admission.k8s.io/v1beta1", "ResourceQuotaConfiguration", limited)},
		{"ResourceQuota", quota("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration", "limitedResources: {}")},
		{"ResourceQuota", quota("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration", limited+"\nunknown: 1")},
		{"ResourceQuota", quota("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration",
			"limitedResources: [{resource: pods, matchContains: [resourcequota.admission.k8s.io/]}]")},
		{"ResourceQuota", quota("resourcequota.admission.k8s.io/v1beta1", "Configuration", limited+"\nunknown: 1")},
		{"EventRateLimit", ""},
		{"EventRateLimit", events("")},
		{"EventRateLimit", events("{type: Server, qps: 1, burst: 1}")},
		{"EventRateLimit", events("{type: Namespace, qps: 1, burst: 1}, {type: User, qps: 1, burst: 1, cacheSize: 1}, " +
			"{type: SourceAndObject, qps: 2, burst: 2, cacheSize: 9}")},
		{"EventRateLimit", events("{type: Server, qps: 1, burst: 0}")},
		{"EventRateLimit", events("{type: Server, qps: 1, burst: -1}, {type: User, qps: -2, burst: 0}")},
		{"EventRateLimit", events("{type: Server, qps: 0, burst: 1}")},
		{"EventRateLimit", events("{type: Server, qps: 1, burst: 1, cacheSize: -1}")},
		{"EventRateLimit", events("{type: Server, qps: 1, burst: 1}, {type: User, qps: 1, burst: 1, cacheSize: -1}")},
		{"EventRateLimit", events("{type: Other, qps: 1, burst: 1}")},
		{"EventRateLimit", events("{qps: 1, burst: 1}, {type: server, qps: 1, burst: 1}")},
		{"EventRateLimit", strings.Replace(events("{type: Server, qps: 1, burst: 1}"), "v1alpha1", "v1", 1)},
		{"EventRateLimit", strings.Replace(events("{type: Server, qps: 1, burst: 1}"), "Configuration", "Other", 1)},
		{"EventRateLimit", events("{type: Server, qps: 1, burst: 1}") + "other: 1\n"},
		{"EventRateLimit", events("{type: Server, qps: [], burst: 1}")},
		{"ImagePolicyWebhook", ""},
		{"ImagePolicyWebhook", images("allowTTL: 1, denyTTL: 1800, retryBackoff: 1, defaultAllow: true, other: 1")},
		{"ImagePolicyWebhook", images("allowTTL: 1800, denyTTL: 1, retryBackoff: 300000")},
		{"ImagePolicyWebhook", images("allowTTL: -1, denyTTL: -1, retryBackoff: -1")},
		{"ImagePolicyWebhook", images("allowTTL: 0, denyTTL: 0, retryBackoff: 0")},
		{"ImagePolicyWebhook", images("allowTTL: -2")},
		{"ImagePolicyWebhook", images("allowTTL: 1801")},
		{"ImagePolicyWebhook", images("denyTTL: -2")},
		{"ImagePolicyWebhook", images("denyTTL: 1801")},
		{"ImagePolicyWebhook", images("retryBackoff: -2")},
		{"ImagePolicyWebhook", images("retryBackoff: 300001")},
		{"ImagePolicyWebhook", images("retryBackoff: 300001, allowTTL: -2, denyTTL: -2")},
		{"ImagePolicyWebhook", images("allowTTL: -2, denyTTL: 1801")},
		{"ImagePolicyWebhook", images("allowTTL: 9223372036854775807")},
		{"ImagePolicyWebhook", images("allowTTL: 20000000000")},
		{"ImagePolicyWebhook", images("allowTTL: 18446744075")}, // more than 64 bits of nanoseconds: a second
		{"ImagePolicyWebhook", "[\n"},
	} {
		theirs, mine := configured(t, c.plugin, c.text)
		if theirs == nil {
			accepted++
		} else {
			refused++
		}
		if textOf(theirs) != textOf(mine) {
			t.Errorf("%s of %s\nreference: %v\nours:      %v", c.text, c.plugin, theirs, mine)
		}
	}
	if refused < 4 || accepted < 4 {
		t.Errorf("%d are refused, %d accepted", refused, accepted)
	}
	// What cannot be read is refused by both, in other words.
	for _, text := range []string{"imagePolicy: {}\n", "imagePolicy: {kubeConfigFile: /none}\n",
		images("allowTTL: 1.5")} {
		if theirs, mine := configured(t, "ImagePolicyWebhook", text); theirs == nil || mine == nil {
			t.Errorf("%s\nreference: %v\nours:      %v", text, theirs, mine)
		}
	}
}

// configured makes a plugin with a configuration, "" for none, on both sides.
func configured(t *testing.T, plugin, text string) (theirs, mine error) {
	t.Helper()
	w := (&world{plugin: "AlwaysAdmit"}).build(t)
	var reader io.Reader // nil: none
	if text != "" {
		reader = strings.NewReader(text)
	}
	registered := plugin
	if registered == "ResourceQuota" {
		registered = quotaReferenceName
	}
	_, theirs = register.InitPlugin(registered, reader, w.initializer(w.client,
		informers.NewSharedInformerFactory(w.client, 0), utilfeature.DefaultFeatureGate, nil))
	_, mine = ours.New(ours.Config{Selection: ours.Selection{Only: []string{plugin}}, Store: w.stored,
		Registry: w.registry, Configurations: map[string][]byte{plugin: []byte(text)}})
	return theirs, mine
}

// loadHooks reads a configuration of a plugin for webhooks as the reference's plugins do.
func loadHooks(text io.Reader) error {
	c, err := webhooks.LoadConfig(text)
	if err == nil {
		_, err = webhookutil.NewDefaultAuthenticationInfoResolver(c.KubeConfigFile)
	}
	return err
}

// The configurations of the plugins for webhooks and policies are refused for the same reasons on both sides.
//
// SPEC: AUTH-3
func TestConfigurationsOfHooksAndPolicies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{}")
	for _, c := range []struct {
		plugin, kind string
		load         func(text io.Reader) error
	}{
		{"MutatingAdmissionWebhook", "WebhookAdmissionConfiguration", loadHooks},
		{"ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration", loadHooks},
		{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyConfiguration", func(text io.Reader) error {
			_, err := policies.LoadMutatingConfig(text)
			return err
		}},
		{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyConfiguration", func(text io.Reader) error {
			_, err := policies.LoadValidatingConfig(text)
			return err
		}},
	} {
		compare := func(text string, gate bool) (refused bool) {
			theirs := c.load(strings.NewReader(text))
			w := (&world{plugin: "AlwaysAdmit"}).build(t)
			_, mine := ours.New(ours.Config{Selection: ours.Selection{Only: []string{c.plugin}}, Store: w.stored,
				Registry: w.registry, Configurations: map[string][]byte{c.plugin: []byte(text)},
				Features: features.Set{}.With(features.ManifestBasedAdmissionControlConfig, gate)})
			if theirs != nil {
				theirs = fmt.Errorf("admission plugin %s: %w", c.plugin, theirs)
			}
			// The reference looks at a kubeconfig before it opens it.
			if strings.Replace(textOf(theirs), "stat /", "open /", 1) != strings.Replace(textOf(mine), "stat /", "open /", 1) {
				t.Errorf("%s of %s, %t\nreference: %v\nours:      %v", text, c.plugin, gate, theirs, mine)
			}
			return theirs != nil
		}
		head := "apiVersion: apiserver.config.k8s.io/v1\nkind: " + c.kind + "\n"
		hooks := c.kind == "WebhookAdmissionConfiguration"
		for _, text := range []string{
			head, head + "staticManifestsDir: " + t.TempDir() + "\n", head + "staticManifestsDir: ''\n",
		} {
			if compare(text, true) {
				t.Errorf("%s of %s is refused", text, c.plugin)
			}
		}
		for _, text := range []string{
			head + "staticManifestsDir: relative\n", head + "staticManifestsDir: /does/not/exist\n",
			head + "staticManifestsDir: /dev/null\n", head + "unknown: 1\n", head + "staticManifestsDir: [a]\n",
			strings.Replace(head, "/v1", "/v1beta1", 1), strings.Replace(head, c.kind, "Other", 1),
			"kind: " + c.kind, "apiVersion: apiserver.config.k8s.io/v1", "staticManifestsDir: 1: 2\n",
		} {
			if !compare(text, true) {
				t.Errorf("%s of %s is accepted", text, c.plugin)
			}
		}
		if compare(head+"kubeConfigFile: "+file, true) == hooks {
			t.Errorf("%s with a kubeconfig: refused is %t", c.plugin, hooks)
		}
		for _, name := range []string{"relative", "/does/not/exist"} {
			if !compare(head+"kubeConfigFile: "+name, true) {
				t.Errorf("%s with a kubeconfig %s is accepted", c.plugin, name)
			}
		}
		t.Run("without the gate", func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate,
				gates.ManifestBasedAdmissionControlConfig, false)
			if on := head + "staticManifestsDir: " + t.TempDir(); !compare(on, false) || compare(head, false) {
				t.Errorf("the directory of %s is accepted", c.plugin)
			}
		})
	}
}

// onlyGo is what errors of configurations say of the reference's source, or of Go types.
var onlyGo = regexp.MustCompile(` in scheme "[^"]*"$|Go struct field \w*| of type \S+$`)

// supported are the values that an error lists. The reference lists those of EventRateLimit in an order by chance.
var supported = regexp.MustCompile(`supported values: "\w+"(, "\w+")*`)

// textOf is the text of an error behind the name of the plugin; "" for nil.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	_, text, _ := strings.Cut(err.Error(), ": ")
	return supported.ReplaceAllStringFunc(onlyGo.ReplaceAllString(text, ""), func(list string) string {
		values := strings.Split(strings.TrimPrefix(list, "supported values: "), ", ")
		slices.Sort(values)
		return strings.Join(values, ", ")
	})
}

// The reference ignores a configuration of PodNodeSelector that it cannot read, and lets the Pods of all namespaces run
// everywhere. Ours does not start.
//
// SPEC: AUTH-3
func TestUnreadableNodeSelectors(t *testing.T) {
	const text = "podNodeSelectorPluginConfig: [a]"
	w := (&world{plugin: "PodNodeSelector"}).build(t)
	_, theirs := register.InitPlugin("PodNodeSelector", strings.NewReader(text), w.initializer(w.client,
		informers.NewSharedInformerFactory(w.client, 0), utilfeature.DefaultFeatureGate, nil))
	_, mine := ours.New(ours.Config{Selection: ours.Selection{Only: []string{"PodNodeSelector"}}, Store: w.stored,
		Registry: w.registry, Configurations: map[string][]byte{"PodNodeSelector": []byte(text)}})
	if theirs != nil || mine == nil {
		t.Errorf("the difference is not there any more: %v, %v", theirs, mine)
	}
}

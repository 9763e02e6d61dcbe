package admission

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"

	ours "plinth/internal/admission"
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
	} {
		w := (&world{plugin: "AlwaysAdmit"}).build(t)
		var text io.Reader // nil: none
		if c.text != "" {
			text = strings.NewReader(c.text)
		}
		registered := c.plugin
		if registered == "ResourceQuota" {
			registered = quotaReferenceName
		}
		_, theirs := register.InitPlugin(registered, text, w.initializer(w.client,
			informers.NewSharedInformerFactory(w.client, 0), utilfeature.DefaultFeatureGate, nil))
		_, mine := ours.New(ours.Config{Selection: ours.Selection{Only: []string{c.plugin}}, Store: w.stored,
			Registry: w.registry, Configurations: map[string][]byte{c.plugin: []byte(c.text)}})
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
}

// onlyGo is what errors of configurations say of the reference's source, or of Go types.
var onlyGo = regexp.MustCompile(` in scheme "[^"]*"$|Go struct field \w*`)

// textOf is the text of an error behind the name of the plugin; "" for nil.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	_, text, _ := strings.Cut(err.Error(), ": ")
	return onlyGo.ReplaceAllString(text, "")
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

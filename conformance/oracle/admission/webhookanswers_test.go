package admission

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"
)

// labeledHook is a webhook that is asked about objects with the label hook=NAME.
func labeledHook(h *hookServer, name, way string, more ...string) string {
	return fields(append([]string{"name", name + ".example.com", "clientConfig", h.client(way),
		"rules", `[{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]`,
		"objectSelector", "{matchLabels: {hook: " + name + "}}"}, more...)...)
}

// labeled is an attempt on a Pod or a ConfigMap with this label.
func labeled(operation admission.Operation, name string, config bool) attempt {
	a := hookAttempts()[0]
	a.operation, a.options = operation, optionsOf(operation)
	a.object = pod([]string{"labels", "{hook: " + name + "}"})
	if config {
		a.resource, a.name = "configmaps", "long"
		a.object = strings.Replace(longConfigMap("ns"), "name: long", "name: long, labels: {hook: "+name+"}", 1)
	}
	switch operation {
	case admission.Delete:
		a.object, a.old = "", a.object
	case admission.Update:
		a.old = a.object
	}
	return a
}

func hookConfiguration(kind, name string, hooks ...string) string {
	return doc("admissionregistration.k8s.io/v1", kind+"WebhookConfiguration", "", name, nil, "webhooks",
		"["+strings.Join(hooks, ", ")+"]")
}

// answering is a world with a webhook for each way to answer, version of reviews and failure policy, and their names.
func answering(t *testing.T, h *hookServer, kind string, f *figures) (w *world, names []string) {
	var hooks []string
	for _, way := range slices.Concat(keys(hookWays), keys(hookPatches), keys(hookRefusals)) {
		for _, version := range []string{"v1", "v1beta1", "v2"} { // v2: it is not asked
			for _, policy := range []string{"Fail", "Ignore"} {
				name := strings.ToLower(way + "-" + version + "-" + policy)
				names = append(names, name)
				hooks = append(hooks, labeledHook(h, name, way, "failurePolicy", policy, "sideEffects", "None",
					"admissionReviewVersions", "["+version+"]"))
			}
		}
	}
	return webhookWorld(t, h, kind, f, hookConfiguration(kind, "all", hooks...)), names
}

// compareAnswers compares each way to answer a create and a delete.
func (w *world) compareAnswers(t *testing.T, names []string, count *tally) {
	t.Helper()
	for _, name := range names {
		w.compare(t, labeled(admission.Create, name, false), count)
		w.compare(t, labeled(admission.Delete, name, false), count)
	}
}

// All ways to answer, in each version, by each failure policy.
//
// SPEC: AUTH-3
func TestAnswersOfWebhooks(t *testing.T) {
	h := newHookServer(t)
	for _, kind := range []string{"Validating", "Mutating"} {
		count := tally{}
		w, names := answering(t, h, kind, nil)
		w.compareAnswers(t, names, &count)
		count.atLeast(t, map[string]int{"Mutating": 20}[kind], 100, 100)
	}
}

// hookConditions are match conditions, of which some are errors, and some cost more than they may.
var hookConditions = [][]string{
	{"true"}, {"false"}, {"object.nothing"}, {"object.nothing", "false"}, {"false", "object.nothing"},
	{"object.nothing", "true", "object.other"}, {"params == null"}, {"variables.x == 1"}, {"1"}, {"1 +"}, {dear(6)},
	{"object.data.text.matches(object.data.pattern)"}, {"false", "object.data.text.matches(object.data.pattern)"},
	{"object.nothing", "object.data.text.matches(object.data.pattern)"}, {"request.name == 'long'", "has(request.uid)"},
	{"authorizer.requestResource.check('delete').allowed()"}, {"namespaceObject == null"},
	{"[1].includes(1)"}, {"[1].includes(2)"}, // a function that only expressions have that are stored
}

// conditional is a world with a webhook for each list of conditions and failure policy, and their names.
func conditional(t *testing.T, h *hookServer, kind string, f *figures) (w *world, names []string) {
	var hooks []string
	for i, conditions := range hookConditions {
		var items []string
		for k, expression := range conditions {
			items = append(items, fields("name", fmt.Sprint("c", k), "expression", quoted(expression)))
		}
		for _, policy := range []string{"Fail", "Ignore"} {
			name := strings.ToLower(fmt.Sprint("h", i, "-", policy))
			names = append(names, name)
			hooks = append(hooks, labeledHook(h, name, "allow", "failurePolicy", policy, "sideEffects", "None",
				"admissionReviewVersions", "[v1]", "matchConditions", "["+strings.Join(items, ", ")+"]"))
		}
	}
	return webhookWorld(t, h, kind, f, hookConfiguration(kind, "all", hooks...)), names
}

// compareConditions compares each list of conditions.
func (w *world) compareConditions(t *testing.T, names []string, count *tally) {
	t.Helper()
	for _, name := range names {
		w.compare(t, labeled(admission.Create, name, true), count)
	}
}

// Match conditions that are false, errors, or too dear, by each failure policy.
//
// SPEC: AUTH-3
func TestConditionsOfWebhooks(t *testing.T) {
	h := newHookServer(t)
	for _, kind := range []string{"Validating", "Mutating"} {
		count := tally{}
		w, names := conditional(t, h, kind, nil)
		w.compareConditions(t, names, &count)
		count.atLeast(t, 0, 10, 8)
	}
}

// A webhook that was not asked in the first pass is not asked in the second, though it would be about the object now.
// The one that was asked, is: after each change by a webhook behind it, but not after a change of its own. One that
// has failed was asked, and two of the same name are two.
//
// SPEC: AUTH-3
func TestReinvocationOfWebhooks(t *testing.T) {
	h, count, reached := newHookServer(t), tally{}, reach{}
	hook := func(name, way, selector, policy string, more ...string) string {
		return fields(append([]string{"name", name + ".example.com", "clientConfig", h.client(way), "rules",
			`[{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]`, "objectSelector", selector,
			"sideEffects", "None", "admissionReviewVersions", "[v1]", "reinvocationPolicy", policy}, more...)...)
	}
	const ofWeb = `[{name: c, expression: "object.?metadata.?labels.?app.orValue('') == 'web'"}]`
	const web = "{matchLabels: {app: web}}"
	for _, hooks := range [][]string{
		{hook("a", "warn", web, "IfNeeded"), hook("b", "label-app", "", "Never")},
		{hook("a", "warn", "", "IfNeeded"), hook("b", "label-app", "", "Never")},
		{hook("a", "label-app", "", "IfNeeded")}, {hook("a", "label-app", "", "IfNeeded"), hook("b", "set", "", "IfNeeded")},
		{hook("a", "label-app", "", "IfNeeded"), hook("b", "warn", web, "IfNeeded")},
		{hook("a", "warn", "", "IfNeeded"), hook("b", "same", "", "IfNeeded")},
		{hook("a", "warn", "", "IfNeeded"), hook("b", "unlabel", web, "IfNeeded"), hook("c", "label-app", "", "IfNeeded")},
		{hook("a", "container", "", "IfNeeded"), hook("b", "container", "", "IfNeeded"), hook("c", "warn", "", "IfNeeded")},
		{hook("a", "warn", "", "IfNeeded", "matchConditions", ofWeb), hook("b", "label-app", "", "Never")},
		{hook("a", "status-500", "", "IfNeeded", "failurePolicy", "Ignore"), hook("b", "label-app", "", "Never")},
		{hook("a", "warn", "", "IfNeeded"), hook("a", "label-app", "", "IfNeeded")},
	} {
		w := webhookWorld(t, h, "Mutating", nil, hookConfiguration("Mutating", "all", hooks...))
		for _, labels := range []string{"", "{app: web}", "{app: other}"} {
			a := hookAttempts()[0]
			a.object = pod([]string{"labels", labels})
			reached.add(w.compare(t, a, &count))
		}
	}
	count.atLeast(t, 20, 2, 0)
	reached.atLeast(t, map[string]int{"round_1": 15})
}

// Without the gate, webhooks are asked about reviews of access, too.
//
// SPEC: AUTH-3
func TestReviewsAndWebhooks(t *testing.T) {
	h := newHookServer(t)
	for _, on := range []bool{true, false} {
		for _, kind := range []string{"Validating", "Mutating"} {
			count := tally{}
			w := (&world{plugin: kind + "AdmissionWebhook", hooks: h,
				gates: map[string]bool{"ExcludeAdmissionWebhookVirtualResources": on},
				objects: []string{hookConfiguration(kind, "all", fields("name", "a.example.com", "clientConfig",
					h.client("deny"), "rules", `[{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]`,
					"sideEffects", "None", "admissionReviewVersions", "[v1]"))}}).build(t)
			for _, a := range hookAttempts() {
				if strings.HasSuffix(a.resource, "reviews") {
					w.compare(t, a, &count)
				}
			}
			count.atLeast(t, 0, map[bool]int{true: 2}[on], map[bool]int{false: 2}[on])
		}
	}
}

// Configurations in files precede those of the API, and are asked about what configures admission, too.
//
// SPEC: AUTH-3
func TestWebhooksInFiles(t *testing.T) {
	h := newHookServer(t)
	for _, kind := range []string{"Validating", "Mutating"} {
		hook := func(name, way string) string {
			return fields("name", name+".example.com", "clientConfig", h.client(way), "rules", `[{apiGroups: ["*"], `+
				`apiVersions: ["*"], operations: ["*"], resources: ["*"]}]`, "sideEffects", "None",
				"admissionReviewVersions", "[v1]", "failurePolicy", "Ignore", "objectSelector",
				"{matchLabels: {app: web}}")
		}
		dir, count := t.TempDir(), tally{}
		for i, text := range []string{
			hookConfiguration(kind, "z.static.k8s.io", hook("a", "warn"), hook("b", "status-500")),
			hookConfiguration(kind, "y.static.k8s.io", hook("c", "label-app")),
		} {
			asJSON := compact(text)
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".json")), []byte(asJSON), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		settings, _ := json.Marshal(map[string]string{"apiVersion": "apiserver.config.k8s.io/v1",
			"kind": "WebhookAdmissionConfiguration", "staticManifestsDir": dir})
		w := (&world{plugin: kind + "AdmissionWebhook", hooks: h, configuration: string(settings),
			objects: append(policyObjects(), hookConfiguration(kind, "a", hook("d", "status-404"), hook("e", "warn")))}).build(t)
		for _, a := range hookAttempts() {
			w.compare(t, a, &count)
		}
		count.atLeast(t, 0, 10, 0)
	}
}

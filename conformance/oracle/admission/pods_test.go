package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

func (r random) container(name string, images bool) string {
	policy := ""
	if images {
		policy = r.one("Always", "Never", "IfNotPresent")
	}
	return fields("name", name, "image", r.one("a", "b", "c"), "imagePullPolicy", policy)
}

// SPEC: AUTH-3
func TestAlwaysPullImages(t *testing.T) {
	w := (&world{plugin: "AlwaysPullImages"}).build(t)
	r, count := seeded(1), tally{}
	random := func() string {
		return pod(nil, "containers", "["+r.container("c", true)+"]",
			"initContainers", r.list(2, func() string { return r.container("i", true) }),
			"ephemeralContainers", r.list(1, func() string { return r.container("e", true) }),
			"volumes", r.list(2, func() string {
				return fields("name", "v", r.one("image", "emptyDir"), "{}")
			}))
	}
	for range 150 {
		w.compare(t, ofPod(admission.Create, random(), ""), &count)
		w.compare(t, ofPod(admission.Update, random(), random()), &count)
	}
	a := ofPod(admission.Update, random(), random())
	a.subresource = "status"
	w.compare(t, a, &count)
	count.atLeast(t, 150, 10, 0)
	// Validation alone finds what a webhook has changed afterwards.
	w.validateOnly = true
	for range 150 {
		w.compare(t, ofPod(admission.Create, random(), ""), &count)
		w.compare(t, ofPod(admission.Update, random(), random()), &count)
	}
	count.atLeast(t, 150, 20, 100)
}

// SPEC: AUTH-3
func TestLimitPodHardAntiAffinityTopology(t *testing.T) {
	w := (&world{plugin: "LimitPodHardAntiAffinityTopology"}).build(t)
	count := tally{}
	for _, key := range []string{"kubernetes.io/hostname", "zone", ""} {
		for _, at := range []string{"requiredDuringSchedulingIgnoredDuringExecution",
			"preferredDuringSchedulingIgnoredDuringExecution"} {
			term := fmt.Sprintf(`{labelSelector: {}, topologyKey: %q}`, key)
			if at[0] == 'p' {
				term = fmt.Sprintf(`{weight: 1, podAffinityTerm: %s}`, term)
			}
			text := pod(nil, "affinity", fmt.Sprintf(`{podAntiAffinity: {%s: [%s]}}`, at, term))
			for _, a := range []attempt{ofPod(admission.Create, text, ""), ofPod(admission.Update, text, text)} {
				w.compare(t, a, &count)
				a.subresource = "status"
				w.compare(t, a, &count)
			}
		}
	}
	w.compare(t, ofPod(admission.Create, pod(nil), ""), &count)
	count.atLeast(t, 0, 10, 4)
}

// SPEC: AUTH-3
func TestExtendedResourceToleration(t *testing.T) {
	w := (&world{plugin: "ExtendedResourceToleration"}).build(t)
	r, count := seeded(2), tally{}
	names := []string{"cpu", "example.com/gpu", "example.com/nic", "kubernetes.io/x", "requests.example.com/y",
		"hugepages-2Mi"}
	container := func() string {
		var requests []string
		for _, name := range r.some(names...) {
			requests = append(requests, quoted(name), "1")
		}
		return fields("name", "c", "image", "i", "resources", fields("requests", fields(requests...)))
	}
	for range 300 {
		text := pod(nil, "containers", "["+container()+"]", "initContainers", r.list(1, container),
			"tolerations", r.list(3, r.anyToleration))
		w.compare(t, ofPod(admission.Create, text, ""), &count)
		w.compare(t, ofPod(admission.Update, text, text), &count)
	}
	a := ofPod(admission.Create, pod(nil, "containers", "["+container()+"]"), "")
	a.subresource = "binding"
	w.compare(t, a, &count)
	count.atLeast(t, 200, 50, 0)
}

// anyToleration may be one that validation refuses, which is later, or has an operator that only some versions know.
func (r random) anyToleration() string {
	if r.IntN(8) == 0 {
		return r.one("{key: example.com/gpu, operator: Exists, effect: NoSchedule, tolerationSeconds: 10}",
			"{key: example.com/gpu, operator: Exists, effect: NoSchedule, value: x1}", "{operator: Equal, value: x1}",
			"{key: zone, operator: Gt, value: x1}")
	}
	return r.toleration()
}

func (r random) toleration() string {
	key := r.one("", "example.com/gpu", "example.com/nic", "zone")
	operator := r.one("Exists", "Equal", "")
	if key == "" {
		operator = "Exists"
	}
	value := ""
	if operator != "Exists" {
		value = r.one("", "x1", "x2")
	}
	effect, seconds := r.one("", "NoSchedule", "NoExecute"), ""
	if effect == "NoExecute" {
		seconds = r.one("", "10", "20")
	}
	return fields("key", key, "operator", operator, "value", value, "effect", effect, "tolerationSeconds", seconds)
}

// SPEC: AUTH-3
func TestPriority(t *testing.T) {
	class := func(name, value, global, policy string) string {
		return doc("scheduling.k8s.io/v1", "PriorityClass", "", name, nil, "value", value, "globalDefault", global,
			"preemptionPolicy", policy)
	}
	count := tally{}
	for _, objects := range [][]string{
		{class("high", "100", "", ""), class("never", "50", "", "Never")},
		{class("high", "100", "", ""), class("never", "50", "", "Never"), class("d", "7", "true", "")},
		{class("high", "100", "true", ""), class("never", "50", "true", "Never")},
	} {
		w := (&world{plugin: "Priority", objects: objects}).build(t)
		for _, global := range []string{"", "true"} {
			for _, name := range []string{"d", "high", "new"} {
				text := class(name, "1", global, "")
				a := attempt{operation: admission.Create, group: "scheduling.k8s.io", version: "v1",
					resource: "priorityclasses", name: name, object: text}
				w.compare(t, a, &count)
				w.elsewhere(t, a)
				a.operation, a.old = admission.Update, class(name, "1", "", "")
				w.compare(t, a, &count)
			}
		}
		for _, name := range []string{"", "high", "never", "none"} {
			for _, priority := range []string{"", "0", "7", "50", "100"} {
				for _, policy := range []string{"", "Never", "PreemptLowerPriority"} {
					text := pod(nil, "priorityClassName", name, "priority", priority, "preemptionPolicy", policy)
					w.compare(t, ofPod(admission.Create, text, ""), &count)
					w.compare(t, ofPod(admission.Update, text, pod(nil, "priority", "3", "preemptionPolicy",
						"Never")), &count)
					w.compare(t, ofPod(admission.Update, text, pod(nil)), &count)
				}
			}
		}
		a := ofPod(admission.Create, pod(nil), "")
		a.subresource = "eviction"
		a.object = doc("policy/v1", "Eviction", "ns", "p", nil)
		w.compare(t, a, &count)
		w.compare(t, attempt{operation: admission.Delete, group: "scheduling.k8s.io", version: "v1",
			resource: "priorityclasses", name: "high", old: class("high", "100", "", "")}, &count)
	}
	count.atLeast(t, 100, 100, 50)
}

// The priorities of PodGroups and CompositePodGroups.
//
// SPEC: AUTH-3
func TestPriorityOfGroups(t *testing.T) {
	class := func(name, value, global, policy string) string {
		return doc("scheduling.k8s.io/v1", "PriorityClass", "", name, nil, "value", value, "globalDefault", global,
			"preemptionPolicy", policy)
	}
	classes := []string{class("high", "100", "", ""), class("never", "50", "", "Never")}
	count := tally{}
	for _, gates := range []map[string]bool{
		{"GenericWorkload": true},
		{"GenericWorkload": true, "PodGroupPreemptionPolicy": true},
		{"GenericWorkload": true, "PodGroupPreemptionPolicy": true, "TopologyAwareWorkloadScheduling": true,
			"CompositePodGroup": true},
	} {
		restore := globalGates(t, gates)
		for _, objects := range [][]string{classes, append(slices.Clone(classes), class("d", "7", "true", ""))} {
			w := (&world{plugin: "Priority", objects: slices.Clone(objects), gates: gates}).build(t)
			for _, of := range [][2]string{{"PodGroup", "v1beta1"}, {"PodGroup", "v1alpha3"},
				{"CompositePodGroup", "v1alpha3"}} {
				kind, version := of[0], of[1]
				if kind == "CompositePodGroup" && !gates[kind] {
					continue // not served
				}
				group := func(name, priority, policy string) string {
					return podGroup(kind, version, nil, "priorityClassName", name, "priority", priority,
						"preemptionPolicy", policy, "schedulingPolicy", "{basic: {}}")
				}
				for _, name := range []string{"", "high", "never", "none"} {
					for _, priority := range []string{"", "0", "7", "50", "100"} {
						for _, policy := range []string{"", "Never", "PreemptLowerPriority"} {
							text := group(name, priority, policy)
							a := attempt{operation: admission.Create, group: "scheduling.k8s.io", version: version,
								resource: strings.ToLower(kind) + "s", namespace: "ns", name: "x", object: text}
							w.compare(t, a, &count)
							w.elsewhere(t, a)
							a.operation, a.old = admission.Update, group("high", "3", "Never")
							w.compare(t, a, &count)
						}
					}
				}
			}
		}
		restore()
	}
	count.atLeast(t, 100, 100, 50)
}

// globalGates turns gates of the reference on for code that does not ask the ones of its plugin.
func globalGates(t *testing.T, gates map[string]bool) (restore func()) {
	t.Helper()
	before := map[string]bool{}
	for name := range gates {
		before[name] = utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(name))
	}
	set := func(to map[string]bool) {
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(to); err != nil {
			t.Fatal(err)
		}
	}
	set(gates)
	return func() { set(before) }
}

// SPEC: AUTH-3
func TestRuntimeClass(t *testing.T) {
	class := func(name string, rest ...string) string {
		return doc("node.k8s.io/v1", "RuntimeClass", "", name, nil, append([]string{"handler", "h"}, rest...)...)
	}
	const overhead = "{podFixed: {cpu: 250m, memory: 10Mi}}"
	w := (&world{plugin: "RuntimeClass", objects: []string{
		class("plain"), class("heavy", "overhead", overhead), class("light", "overhead", "{}"),
		class("pinned", "overhead", overhead, "scheduling", `{nodeSelector: {disk: ssd, zone: a}, tolerations: [
			{key: zone, operator: Exists}, {key: example.com/nic, value: x1},
			{key: example.com/nic, operator: Exists, effect: NoExecute, tolerationSeconds: 10}, {key: example.com/gpu, operator: Equal, value: x1, effect: NoExecute, tolerationSeconds: 15}]}`),
		class("free", "scheduling", "{}"), class("zero", "overhead", `{podFixed: {cpu: "0"}}`),
	}}).build(t)
	r, count := seeded(3), tally{}
	for range 2 {
		for range 500 {
			text := pod(nil, "runtimeClassName", r.one("", "plain", "heavy", "light", "pinned", "pinned", "free",
				"zero", "none"),
				"overhead", r.one("", "", "{cpu: 250m, memory: 10Mi}", `{cpu: "0.25", memory: "10485760"}`, "{cpu: 1}",
					"{cpu: 1, memory: 10Mi}", `{memory: "0"}`,
					"{cpu: 250m, example.com/x: 1}"),
				"nodeSelector", r.one("", "{disk: ssd}", "{disk: hdd}", "{other: x}"), "tolerations", r.list(3,
					r.anyToleration))
			w.compare(t, ofPod(admission.Create, text, ""), &count)
		}
		w.compare(t, ofPod(admission.Update, pod(nil, "runtimeClassName", "heavy"), pod(nil)), &count)
		count.atLeast(t, 50, 50, 50)
		// An empty map is absent for ours, as it is for the reference if the Pod comes as protobuf or is read again.
		w.differs(t, ofPod(admission.Create, pod(nil, "runtimeClassName", "plain", "overhead", "{}"), ""),
			"pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
		w.validateOnly = true
	}
}

// SPEC: AUTH-3
func TestPodTopologyLabels(t *testing.T) {
	node := func(name, labels string) string { return doc("v1", "Node", "", name, []string{"labels", labels}) }
	objects := []string{
		node("both", "{topology.kubernetes.io/zone: z, topology.kubernetes.io/region: r, other: x}"),
		node("zone", "{topology.kubernetes.io/zone: z2}"), node("none", "{other: x}"),
	}
	for _, on := range []bool{true, false} {
		w := (&world{plugin: "PodTopologyLabels", objects: objects,
			gates: map[string]bool{"PodTopologyLabelsAdmission": on}}).build(t)
		count := tally{}
		for _, name := range []string{"", "both", "zone", "none", "missing"} {
			for _, labels := range []string{"", "{a: b}", "{topology.kubernetes.io/zone: mine}"} {
				text := pod([]string{"labels", labels}, "nodeName", name)
				w.compare(t, ofPod(admission.Create, text, ""), &count)
				w.compare(t, ofPod(admission.Update, text, text), &count)
				for _, kind := range []string{"Node", "Pod", ""} {
					a := ofPod(admission.Create, doc("v1", "Binding", "ns", "p", []string{"labels", labels}, "target",
						fields("kind", kind, "name", quoted(name))), "")
					a.subresource = "binding"
					w.compare(t, a, &count)
					a.subresource, a.resource = "", "bindings" // an older way to bind a Pod
					w.compare(t, a, &count)
				}
				a := ofPod(admission.Create, text, "")
				a.subresource = "status"
				w.compare(t, a, &count)
			}
		}
		if on {
			count.atLeast(t, 8, 20, 0)
		}
	}
}

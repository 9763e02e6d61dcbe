package admission

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// SPEC: AUTH-3
func TestPodNodeSelector(t *testing.T) {
	r, count := seeded(8), tally{}
	selectors := []string{"", "a=b", "a=c", "zone=x", "zone=x,a=b", "zone", "a=b,,"}
	for range 60 {
		annotation := ""
		if r.IntN(2) == 0 {
			annotation = fields("scheduler.alpha.kubernetes.io/node-selector", quoted(r.one(selectors...)))
		}
		configuration := ""
		if r.IntN(3) > 0 {
			configuration = "podNodeSelectorPluginConfig: " + fields("clusterDefaultNodeSelector",
				quoted(r.one(selectors...)),
				"ns", quoted(r.one(selectors...)))
		}
		w := (&world{plugin: "PodNodeSelector", configuration: configuration,
			objects: []string{namespaceDoc("ns", annotation, "")}}).build(t)
		for range 6 {
			text := pod(nil, "nodeSelector", r.one("", "{}", "{a: b}", "{a: c}", "{zone: x1}", "{zone: x, a: b}",
				"{other: x}", `{other: ""}`))
			a := ofPod(admission.Create, text, "")
			a.namespace = r.one("ns", "ns", "ns", "missing")
			w.compare(t, a, &count)
			w.compare(t, ofPod(admission.Update, text, text), &count)
		}
		w.validateOnly = true
		w.compare(t, ofPod(admission.Create, pod(nil, "nodeSelector", r.one("", "{a: b}", "{other: x}")), ""), &count)
	}
	count.atLeast(t, 30, 100, 60)
}

// classed is a Pod with a class, as a stored one has it, or without.
func (r random) classed(pod string) string {
	return strings.TrimSuffix(pod, "}") + r.one("", "", ", status: {qosClass: BestEffort}",
		", status: {qosClass: Burstable}") + "}"
}

// SPEC: AUTH-3
func TestPodTolerationRestriction(t *testing.T) {
	r, count := seeded(9), tally{}
	asJSON := func() string {
		return r.one("", "[]", "x", `[{"key":"example.com/gpu","operator":"Exists"}]`,
			`[{"key":"zone","operator":"Equal","value":"x1","effect":"NoSchedule"},{"operator":"Exists","effect":"NoExecute"}]`,
			`[{"operator":"Exists"}]`)
	}
	for range 60 {
		const group = "scheduler.alpha.kubernetes.io/"
		annotations := ""
		switch r.IntN(4) {
		case 0:
			annotations = fields(group+"defaultTolerations", quoted(asJSON()))
		case 1:
			annotations = fields(group+"tolerationsWhitelist", quoted(asJSON()))
		case 2:
			annotations = fields(group+"defaultTolerations", quoted(asJSON()), group+"tolerationsWhitelist",
				quoted(asJSON()))
		}
		configuration := ""
		if r.IntN(2) == 0 {
			configuration = "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: Configuration\ndefault: " +
				r.list(2, r.toleration) + "\nwhitelist: " + r.list(2, r.toleration)
		}
		w := (&world{plugin: "PodTolerationRestriction", configuration: configuration,
			objects: []string{namespaceDoc("ns", annotations, "")}}).build(t)
		for range 6 {
			text := r.classed(pod(nil, "tolerations", r.list(3, r.anyToleration), "initContainers", r.one("", "", "",
				"[{name: i, image: i, resources: {limits: {cpu: 1}}}]"), "resources", r.one("", "", "",
				"{requests: {memory: 1Gi}}"), "containers", "[{name: c, image: i, resources: "+
				r.one("{}", "{}", "{requests: {cpu: 1}}", "{limits: {memory: 1Gi}}", `{requests: {cpu: "0"}}`,
					`{requests: {cpu: "0"}, limits: {cpu: 1}}`, "{requests: {example.com/gpu: 1}}")+"}]"))
			a := ofPod(admission.Create, text, "")
			a.namespace = r.one("ns", "ns", "ns", "ns", "missing")
			w.compare(t, a, &count)
			w.compare(t, ofPod(admission.Update, text, text), &count)
		}
		w.validateOnly = true
		w.compare(t, ofPod(admission.Create, pod(nil, "tolerations", r.list(2, r.toleration)), ""), &count)
	}
	count.atLeast(t, 100, 100, 60)
}

// Which toleration makes another one superfluous, and which one a namespace allows by another one.
//
// SPEC: AUTH-3
func TestTolerationsOfNamespaces(t *testing.T) {
	const group = "scheduler.alpha.kubernetes.io/"
	all := []string{
		`{"key":"zone","value":"x1"}`, `{"key":"zone","operator":"Equal","value":"x1"}`,
		`{"key":"zone","operator":"Equal","value":"x2"}`, `{"key":"zone","operator":"Exists"}`,
		`{"key":"zone","operator":"Exists","effect":"NoSchedule"}`,
		`{"key":"zone","operator":"Exists","effect":"NoSchedule","tolerationSeconds":10}`,
		`{"key":"zone","operator":"Exists","effect":"NoExecute"}`,
		`{"key":"zone","operator":"Exists","effect":"NoExecute","tolerationSeconds":10}`,
		`{"key":"zone","operator":"Exists","effect":"NoExecute","tolerationSeconds":20}`,
		`{"key":"zone","operator":"Gt","value":"1"}`, `{"key":"gpu","operator":"Exists"}`, `{"operator":"Exists"}`,
	}
	count := tally{}
	for _, of := range []string{"defaultTolerations", "tolerationsWhitelist"} {
		for _, one := range all {
			w := (&world{plugin: "PodTolerationRestriction", objects: []string{namespaceDoc("ns", fields(group+of,
				quoted("["+one+"]")), "")}}).build(t)
			for _, other := range all {
				for _, list := range []string{other, other + ", " + one, other + ", " + other} {
					w.compare(t, ofPod(admission.Create, pod(nil, "tolerations", "["+list+"]"), ""), &count)
				}
			}
		}
	}
	count.atLeast(t, 150, 150, 150)
}

// SPEC: AUTH-3
func TestPodResizeValidator(t *testing.T) {
	node := func(name, labels, allocatable string) string {
		return doc("v1", "Node", "", name, []string{"labels", labels}, "status", fields("allocatable", allocatable))
	}
	w := (&world{plugin: "PodResizeValidator", objects: []string{
		node("big", "", "{cpu: 10, memory: 100Gi}"), node("small", "{kubernetes.io/os: linux}",
			"{cpu: 1, memory: 1Gi}"),
		node("other", "{kubernetes.io/os: windows}", "{cpu: 10, memory: 100Gi}"), node("none", "", ""),
	}}).build(t)
	r, count := seeded(11), tally{}
	size := func() string {
		return fields("requests", fields("cpu", r.one("", "500m", "1", "1500m"), "memory", r.one("", "1Gi", "2Gi")))
	}
	for range 300 {
		spec := []string{"nodeName", r.one("", "big", "small", "small", "other", "none", "missing"),
			"containers", "[{name: c, image: i, resources: " + size() + "}]",
			"initContainers", r.list(2, func() string {
				return fields("name", "i", "image", "i", "restartPolicy", r.one("", "Always"), "resources", size())
			}),
			"resources", r.one("", "", size()), "overhead", r.one("", "", "{cpu: 100m}")}
		a := ofPod(admission.Update, pod([]string{"generation", r.one("1", "2", "2", "2")}, spec...),
			pod([]string{"generation", "1"}))
		a.subresource, a.user = r.one("resize", "resize", "resize", ""), user.DefaultInfo{Name: "jane"}
		w.compare(t, a, &count)
	}
	w.compare(t, ofPod(admission.Create, pod(nil, "nodeName", "small"), ""), &count)
	count.atLeast(t, 0, 80, 80)
}

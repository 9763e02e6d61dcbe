package admission

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	ours "plinth/internal/admission"
)

func (r random) securityLabels() string {
	const prefix = "pod-security.kubernetes.io/"
	var pairs []string
	for _, mode := range []string{"enforce", "audit", "warn"} {
		pairs = append(pairs, prefix+mode, r.one("", "", "privileged", "baseline", "restricted", "restricted", "wrong"),
			prefix+mode+"-version", r.one("", "", "", "latest", "v1.20", "v1.99", "x"))
	}
	return fields(pairs...)
}

// spec is one that meets the standards or violates some of them.
func (r random) podSpec() string {
	context := fields("privileged", r.one("", "", "", "true"), "allowPrivilegeEscalation", r.one("", "false", "false"),
		"runAsNonRoot", r.one("", "true", "true"), "capabilities", r.one("", "{drop: [ALL]}", "{drop: [ALL]}",
			"{add: [SYS_TIME]}"),
		"seccompProfile", r.one("", "{type: RuntimeDefault}", "{type: RuntimeDefault}"))
	container := func(name string) string {
		return fields("name", name, "image", r.one("a", "b"), "securityContext", r.one("", context, context),
			"ports", r.one("", "", "", "[{containerPort: 80, hostPort: 80}]"))
	}
	ephemeral := func() string { return fields("name", r.one("e", "f"), "image", r.one("a", "b")) }
	return fields("containers", "["+container("c")+"]", "ephemeralContainers",
		r.one("", "", "["+ephemeral()+"]", "["+ephemeral()+", {name: g, image: a}]"), "initContainers",
		r.one("", "", "["+container("i")+"]"),
		"hostNetwork", r.one("", "", "", "", "true"), "runtimeClassName", r.one("", "", "", "", "sandbox"),
		"volumes", r.one("", "", "", "[{name: v, hostPath: {path: /}}]", "[{name: v, emptyDir: {}}]"))
}

// securityConfigurations are those of the tests with random requests.
var securityConfigurations = []string{"", `
apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults: {enforce: baseline, enforce-version: v1.25, warn: restricted, audit: restricted}
exemptions: {usernames: [root], namespaces: [exempt], runtimeClasses: [sandbox]}
`}

// SPEC: AUTH-3
func TestPodSecurity(t *testing.T) {
	r, count := seeded(6), tally{}
	for _, configuration := range securityConfigurations {
		for range 40 {
			w := (&world{plugin: "PodSecurity", configuration: configuration, objects: []string{
				namespaceDoc("ns", "", r.securityLabels()), namespaceDoc("exempt", "", r.securityLabels()),
			}}).build(t)
			for range 12 {
				w.comparePodSecurity(t, r, &count)
			}
		}
	}
	count.atLeast(t, 0, 500, 100)
}

// The metrics of PodSecurity count the same.
//
// SPEC: AUTH-3
func TestPodSecurityMetrics(t *testing.T) {
	r, count := seeded(16), tally{}
	before, counted := gatherPodSecurity(t), &figures{of: map[string]int{}}
	for _, configuration := range securityConfigurations {
		for i := range 24 {
			labels := r.securityLabels()
			if i%8 == 0 {
				labels = "" // everything is allowed
			}
			w := (&world{plugin: "PodSecurity", configuration: configuration, objects: []string{
				namespaceDoc("ns", "", labels), namespaceDoc("exempt", "", r.securityLabels()),
			}, metrics: countInto(counted.of)}).build(t)
			for range 4 {
				w.comparePodSecurity(t, r, &count)
			}
		}
	}
	compareMetrics(t, before, gatherPodSecurity(t), counted, 40)
}

// gatherPodSecurity reads the reference's counters of PodSecurity.
func gatherPodSecurity(t *testing.T) map[string]int {
	t.Helper()
	return gather(t, func(metric string, labels map[string]string) string {
		name, ok := strings.CutPrefix(metric, "pod_security_")
		if !ok {
			return ""
		}
		of := ours.SecuredRequest{Resource: labels["resource"], Subresource: labels["subresource"]}
		return series(name, labels["request_operation"], of, labels["mode"], labels["policy_level"],
			labels["policy_version"], labels["decision"]+labels["fatal"])
	})
}

func series(name, operation string, of ours.SecuredRequest, more ...string) string {
	return fmt.Sprint(name, " ", strings.ToLower(operation), " ", of.Resource, "/", of.Subresource, " ",
		strings.Trim(strings.Join(more, " "), " "))
}

// countInto are metrics of ours that count.
func countInto(counts map[string]int) ours.Metrics {
	count := func(name string, of ours.SecuredRequest, more ...string) {
		counts[series(name, of.Operation.String(), of, more...)]++
	}
	return ours.Metrics{PodSecurity: ours.PodSecurityMetrics{
		Evaluated: func(of ours.SecuredRequest, mode, level, version string, allowed bool) {
			if version != "latest" {
				version = "future" // the reference has no version in a test program: all others are later
			}
			count("evaluations_total", of, mode, level, version, map[bool]string{true: "allow", false: "deny"}[allowed])
		},
		Exempted: func(of ours.SecuredRequest) { count("exemptions_total", of) },
		Failed:   func(of ours.SecuredRequest, fatal bool) { count("errors_total", of, fmt.Sprint(fatal)) },
	}}
}

// comparePodSecurity compares a few random requests.
func (w *world) comparePodSecurity(t *testing.T, r random, count *tally) {
	t.Helper()
	by := user.DefaultInfo{Name: r.one("jane", "jane", "jane", "root", "")}
	namespace := r.one("ns", "ns", "ns", "exempt", "missing")
	text := func() string { return doc("v1", "Pod", namespace, "p", nil, "spec", r.podSpec()) }
	a := attempt{operation: admission.Create, version: "v1", resource: "pods", namespace: namespace, name: "p",
		object: text(), user: by}
	w.compare(t, a, count)
	a.operation, a.old, a.subresource = admission.Update, text(), r.one("", "", "status", "resize",
		"ephemeralcontainers")
	w.compare(t, a, count)
	template := func() string { return fields("template", fields("spec", r.podSpec())) }
	workload := attempt{operation: admission.Create, group: "apps", version: "v1", resource: "deployments",
		namespace: namespace, name: "d", user: by,
		object: doc("apps/v1", "Deployment", namespace, "d", nil, "spec", template())}
	w.compare(t, workload, count)
	workload.subresource = "status"
	w.compare(t, workload, count)
	workload = attempt{operation: admission.Create, group: "batch", version: "v1", resource: "cronjobs",
		namespace: namespace, name: "j", user: by,
		object: doc("batch/v1", "CronJob", namespace, "j", nil, "spec", fields("jobTemplate", fields("spec",
			template())))}
	w.compare(t, workload, count)
	workload = attempt{operation: admission.Create, version: "v1", resource: "replicationcontrollers",
		namespace: namespace, name: "r", user: by, object: doc("v1", "ReplicationController", namespace, "r", nil,
			"spec",
			r.one("{}", template()))}
	w.compare(t, workload, count)
	for _, kind := range [][2]string{{"apps", "ReplicaSet"}, {"apps", "StatefulSet"}, {"apps", "DaemonSet"},
		{"batch", "Job"}} {
		workload.group, workload.resource = kind[0], strings.ToLower(kind[1])+"s"
		workload.object = doc(kind[0]+"/v1", kind[1], namespace, "r", nil, "spec", template())
		w.compare(t, workload, count)
	}
	workload.group, workload.resource = "", "podtemplates"
	workload.object = doc("v1", "PodTemplate", namespace, "r", nil, "template", fields("spec", r.podSpec()))
	w.compare(t, workload, count)
	name := r.one("ns", "exempt")
	ns := attempt{operation: admission.Create, version: "v1", resource: "namespaces", namespace: name, name: name,
		object: namespaceDoc(name, "", r.securityLabels()), user: by}
	w.compare(t, ns, count)
	ns.operation, ns.old = admission.Update, namespaceDoc(name, "", r.securityLabels())
	w.compare(t, ns, count)
	ns.subresource = "status"
	w.compare(t, ns, count)
	w.compare(t, attempt{operation: admission.Create, version: "v1", resource: "configmaps", namespace: namespace,
		name: "c", object: doc("v1", "ConfigMap", namespace, "c", nil), user: by}, count)
}

// Cases that random ones do not meet.
//
// SPEC: AUTH-3
func TestPodSecurityOfFewRequests(t *testing.T) {
	count := tally{}
	levels := func(enforce, others string) string {
		return fmt.Sprintf("{pod-security.kubernetes.io/enforce: %s, pod-security.kubernetes.io/audit: %s, "+
			"pod-security.kubernetes.io/warn: %s}", enforce, others, others)
	}
	w := (&world{plugin: "PodSecurity", configuration: `
apiVersion: pod-security.admission.config.k8s.io/v1beta1
kind: PodSecurityConfiguration
defaults: {enforce: baseline}
exemptions: {namespaces: [exempt], runtimeClasses: [sandbox]}
`, objects: []string{namespaceDoc("ns", "", levels("restricted", "privileged")), namespaceDoc("exempt", "", "")}}).build(t)
	// Subresources that the standards are not about.
	a := ofPod(admission.Create, pod(nil, "hostNetwork", "true"), "")
	for _, sub := range []string{"binding", "eviction", "status", ""} {
		a.subresource = sub
		w.compare(t, a, &count)
	}
	// A Pod without containers has no images that could change.
	w.compare(t, ofPod(admission.Create, pod(nil, "containers", "[]", "hostNetwork", "true"), ""), &count)
	// One more ephemeral container, even without an image, which is refused only later.
	w.compare(t, ofPod(admission.Update, pod(nil, "ephemeralContainers", "[{name: e}]", "hostNetwork", "true"),
		pod(nil, "hostNetwork", "true")), &count)
	// Neither warned of nor noted: not even that it is exempt.
	template := doc("apps/v1", "Deployment", "ns", "d", nil, "spec",
		"{template: {spec: {runtimeClassName: sandbox, hostNetwork: true}}}")
	workload := attempt{operation: admission.Create, group: "apps", version: "v1", resource: "deployments",
		namespace: "ns", name: "d", object: template}
	w.compare(t, workload, &count)
	w.objects[0] = namespaceDoc("ns", "", levels("privileged", "restricted"))
	w.build(t)
	w.compare(t, workload, &count)
	workload.operation, workload.subresource, workload.old = admission.Update, "scale", template
	w.compare(t, workload, &count)
	for _, level := range []string{"privileged", "baseline", "restricted"} {
		for _, others := range []string{"privileged", "baseline"} {
			ns := attempt{operation: admission.Create, version: "v1", resource: "namespaces", namespace: "exempt",
				name: "exempt", object: namespaceDoc("exempt", "", levels(level, others))}
			w.compare(t, ns, &count)
		}
	}
	count.atLeast(t, 0, 10, 2)
}

// The Pods of a namespace are looked at when its level rises.
//
// SPEC: AUTH-3
func TestPodSecurityOfExistingPods(t *testing.T) {
	r, count := seeded(7), tally{}
	owner := func(uid string) string {
		return "[{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: " + uid + ", controller: true}]"
	}
	for range 20 {
		objects := []string{namespaceDoc("ns", "", "")}
		for i := range 12 {
			objects = append(objects, doc("v1", "Pod", r.one("ns", "ns", "other"), string(rune('a'+i))+"1",
				[]string{"ownerReferences", r.one("", owner("u1"), owner("u2"))}, "spec", r.podSpec()))
		}
		w := (&world{plugin: "PodSecurity", objects: objects, configuration: r.one("", `
apiVersion: pod-security.admission.config.k8s.io/v1alpha1
kind: PodSecurityConfiguration
exemptions: {runtimeClasses: [sandbox]}
`)}).build(t)
		for _, level := range []string{"baseline", "restricted", "privileged"} {
			w.compare(t, attempt{operation: admission.Update, version: "v1", resource: "namespaces", namespace: "ns",
				name: "ns", object: namespaceDoc("ns", "", "{pod-security.kubernetes.io/enforce: "+level+"}"),
				old: namespaceDoc("ns", "", "")}, &count)
		}
	}
	count.atLeast(t, 0, 60, 0)
}

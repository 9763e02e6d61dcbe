package builtin

import (
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/engine"
	"plinth/object"
)

// now is the time in the tests.
var now = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// types are the types by the name of their resource and version: "pods", "apps/v1 deployments".
func types(t testing.TB) map[string]*engine.Resource {
	t.Helper()
	all := map[string]*engine.Resource{}
	for _, r := range Resources(Config{Now: func() time.Time { return now }}) {
		name := r.Name
		if r.Group != "" {
			name = r.APIVersion() + " " + name
		}
		all[name] = r
	}
	return all
}

func parse(t testing.TB, text string) object.Value {
	t.Helper()
	if text == "" {
		return object.Nil
	}
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return parsed.Value
}

func show(v object.Value) string { return string(object.AppendJSON(nil, v)) }

// prepares are cases of fields that are reset or kept; without an old object, the case is a create. The objects have
// only the fields that the case tests.
var prepares = []struct {
	name, typ, old, sent, want string
}{
	{
		"a new Pod waits, whatever its client says", "pods", "",
		`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","resources":{}}]},"status":{"phase":"Running"}}`,
		`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","resources":{}}]},"status":{"phase":"Pending","qosClass":"BestEffort"}}`,
	},
	{
		"a Pod behind a gate says so", "pods", "",
		`{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"schedulingGates":[{"name":"a"}]}}`,
		`{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"schedulingGates":[{"name":"a"}]},"status":{"conditions":[{"lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:00Z","message":"Scheduling is blocked due to non-empty scheduling gates","reason":"SchedulingGated","status":"False","type":"PodScheduled"}],"phase":"Pending","qosClass":"BestEffort"}}`,
	},
	{
		"label keys become selectors", "pods", "",
		`{"metadata":{"labels":{"a":"1","b":"2"}},"spec":{"topologySpreadConstraints":[{"labelSelector":{},"matchLabelKeys":["a","c"]}],"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":{},"mismatchLabelKeys":["b"]}]}}}}`,
		`{"metadata":{"labels":{"a":"1","b":"2"}},"spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":{"matchExpressions":[{"key":"b","operator":"NotIn","values":["2"]}]},"mismatchLabelKeys":["b"]}]}},"topologySpreadConstraints":[{"labelSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["1"]}]},"matchLabelKeys":["a","c"]}]},"status":{"phase":"Pending","qosClass":"BestEffort"}}`,
	},
	{
		"a security profile moves from its annotation to the container", "pods", "",
		`{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"localhost/p"}},"spec":{"containers":[{"name":"c"},{"name":"d"}]}}`,
		`{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"localhost/p"}},"spec":{"containers":[{"name":"c","securityContext":{"appArmorProfile":{"localhostProfile":"p","type":"Localhost"}}},{"name":"d"}]},"status":{"phase":"Pending","qosClass":"BestEffort"}}`,
	},
	{
		"fields of features that are off go, and what held nothing else", "pods", "",
		`{"spec":{"containers":[{"name":"c","lifecycle":{"stopSignal":"SIGUSR1"}}],"schedulingGroup":{"a":1},"volumes":[{"emptyDir":{"mode":1},"name":"v"}]}}`,
		`{"spec":{"containers":[{"name":"c"}],"volumes":[{"emptyDir":{},"name":"v"}]},"status":{"phase":"Pending","qosClass":"BestEffort"}}`,
	},
	{
		"but not from an object that has them", "pods",
		`{"spec":{"containers":[{"lifecycle":{"stopSignal":"SIGUSR1"},"name":"c"}]},"status":{"phase":"Running"}}`,
		`{"spec":{"containers":[{"lifecycle":{"stopSignal":"SIGUSR2"},"name":"c"}],"schedulingGroup":{"a":1}},"status":{}}`,
		`{"spec":{"containers":[{"lifecycle":{"stopSignal":"SIGUSR2"},"name":"c"}]},"status":{"phase":"Running"}}`,
	},
	{
		"a new Namespace is active and waits for its controller", "namespaces", "",
		`{"metadata":{"name":"n","labels":{"a":"b"}},"spec":{"finalizers":["x"]},"status":{"phase":"Terminating"}}`,
		`{"metadata":{"labels":{"a":"b","kubernetes.io/metadata.name":"n"},"name":"n"},"spec":{"finalizers":["x","kubernetes"]},"status":{"phase":"Active"}}`,
	},
	{
		"the finalizers of a Namespace are not for its main URL", "namespaces",
		`{"metadata":{"name":"n"},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}}`,
		`{"metadata":{"name":"n"},"spec":{},"status":{}}`,
		`{"metadata":{"labels":{"kubernetes.io/metadata.name":"n"},"name":"n"},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}}`,
	},
	{
		"a new Job selects its own Pods and takes their labels", "batch/v1 jobs", "",
		`{"metadata":{"name":"j","uid":"u"},"spec":{"template":{"metadata":{}}}}`,
		`{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"j","controller-uid":"u","job-name":"j"},"name":"j","uid":"u"},"spec":{"selector":{"matchLabels":{"batch.kubernetes.io/controller-uid":"u"}},"template":{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"j","controller-uid":"u","job-name":"j"}}}},"status":{}}`,
	},
	{
		"a Job that brings its own selector keeps it", "batch/v1 jobs", "",
		`{"spec":{"manualSelector":true,"template":{"metadata":{}}},"status":{"active":1}}`,
		`{"spec":{"manualSelector":true,"template":{"metadata":{}}},"status":{}}`,
	},
	{
		"a DaemonSet counts its templates", "apps/v1 daemonsets",
		`{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"4"}},"spec":{"template":{"a":1}},"status":{}}`,
		`{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"9"}},"spec":{"template":{"a":2}},"status":{}}`,
		`{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"5"}},"spec":{"template":{"a":2}},"status":{}}`,
	},
	{
		"a new PersistentVolume waits", "persistentvolumes", "",
		`{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Bound"}}`,
		`{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"},"status":{"lastPhaseTransitionTime":"2026-01-01T00:00:00Z","phase":"Pending"}}`,
	},
	{
		"a data source stands in both its fields", "persistentvolumeclaims", "",
		`{"spec":{"dataSource":{"kind":"PersistentVolumeClaim","name":"a"}}}`,
		`{"spec":{"dataSource":{"kind":"PersistentVolumeClaim","name":"a"},"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"a"}},"status":{"phase":"Pending"}}`,
	},
	{
		"but only claims and snapshots in the older one", "persistentvolumeclaims", "",
		`{"spec":{"dataSource":{"apiGroup":"x","kind":"Y","name":"a"}}}`,
		`{"spec":{},"status":{"phase":"Pending"}}`,
	},
	{
		"a Service that becomes a name gives them up", "services",
		`{"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"externalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","ports":[{"nodePort":30001,"port":80}],"type":"NodePort"},"status":{"loadBalancer":{}}}`,
		`{"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"externalName":"a.b","externalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","ports":[{"nodePort":30001,"port":80}],"type":"ExternalName"},"status":{}}`,
		`{"spec":{"externalName":"a.b","ports":[{"port":80}],"type":"ExternalName"},"status":{"loadBalancer":{}}}`,
	},
	{
		"a Secret keeps its type", "secrets",
		`{"type":"Opaque"}`, `{"data":{}}`, `{"data":{},"type":"Opaque"}`,
	},
	{
		"a ServiceAccount refers to Secrets by name only", "serviceaccounts", "",
		`{"secrets":[{"kind":"Secret","name":"a"},{"namespace":"x"}]}`, `{"secrets":[{"name":"a"},{}]}`,
	},
	{
		"who asks for a certificate is not what the client says", "certificates.k8s.io/v1 certificatesigningrequests",
		"",
		`{"spec":{"groups":["system:masters"],"signerName":"a/b","username":"root"}}`,
		`{"spec":{"groups":["clerks"],"signerName":"a/b","username":"jane"},"status":{}}`,
	},
	{
		"a request for a certificate stays what it is", "certificates.k8s.io/v1 certificatesigningrequests",
		`{"spec":{"signerName":"a/b"},"status":{"certificate":"x"}}`, `{"spec":{"signerName":"c/d"},"status":{}}`,
		`{"spec":{"signerName":"a/b"},"status":{"certificate":"x"}}`,
	},
	{
		"a Node may be born with a status", "nodes", "",
		`{"spec":{"configSource":{}},"status":{"phase":"x"}}`, `{"spec":{},"status":{"phase":"x"}}`,
	},
	{
		"an autoscaler of the older version keeps no status in its annotations",
		"autoscaling/v1 horizontalpodautoscalers", "",
		`{"metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/conditions":"[{\"type\":\"A\",\"status\":\"True\",\"lastTransitionTime\":null}]"}},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"D","name":"d"},"targetCPUUtilizationPercentage":50},"status":{"currentReplicas":2,"desiredReplicas":2}}`,
		`{"metadata":{},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"D","name":"d"},"targetCPUUtilizationPercentage":50},"status":{"currentReplicas":0,"desiredReplicas":0}}`,
	},
}

// SPEC: WRITE-4
func TestPrepare(t *testing.T) {
	all := types(t)
	for _, c := range prepares {
		t.Run(c.name, func(t *testing.T) {
			r, old, obj := all[c.typ], parse(t, c.old), parse(t, c.sent)
			if old.IsNull() {
				obj = r.PrepareCreate(obj, access.User{Name: "jane", Groups: []string{"clerks"}})
			} else {
				obj = r.PrepareUpdate(obj, old)
			}
			obj = obj.Edit(nil, "apiVersion", "kind")
			if m := obj.At("metadata"); m.Len() == 1 && m.At("annotations").Kind() == object.Map &&
				m.At("annotations").Len() == 0 {
				obj = obj.With("metadata", object.MapOf())
			}
			if got := show(obj); got != show(parse(t, c.want)) {
				t.Errorf("%s\nhave %s\nwant %s", c.sent, got, show(parse(t, c.want)))
			}
		})
	}
}

// writes are cases of the fields that a write to a subresource changes.
var writes = []struct {
	name, typ, subresource, old, body, want string
}{
	{
		"a status, and the metadata with it", "resourcequotas", "status",
		`{"metadata":{"labels":{"a":"1"}},"spec":{"hard":{"pods":"1"}},"status":{}}`,
		`{"metadata":{"labels":{"a":"2"}},"spec":{"hard":{"pods":"9"}},"status":{"used":{"pods":"1"}}}`,
		`{"metadata":{"labels":{"a":"2"}},"spec":{"hard":{"pods":"1"}},"status":{"used":{"pods":"1"}}}`,
	},
	{
		"not the labels of a Deployment", "apps/v1 deployments", "status",
		`{"metadata":{"annotations":{"x":"1"},"labels":{"a":"1"}},"spec":{"replicas":1},"status":{}}`,
		`{"metadata":{"annotations":{"x":"2"},"labels":{"a":"2"}},"spec":{"replicas":2},"status":{"replicas":1}}`,
		`{"metadata":{"annotations":{"x":"2"},"labels":{"a":"1"}},"spec":{"replicas":1},"status":{"replicas":1}}`,
	},
	{
		"not the owners of a Pod, nor what older nodes leave out", "pods", "status",
		`{"metadata":{"ownerReferences":[{"name":"a"}]},"spec":{"nodeName":"n"},"status":{"conditions":[{"observedGeneration":3,"type":"Ready"}],"observedGeneration":3,"qosClass":"Burstable"}}`,
		`{"metadata":{"ownerReferences":[]},"spec":{},"status":{"conditions":[{"type":"Ready"}],"phase":"Running"}}`,
		`{"metadata":{"ownerReferences":[{"name":"a"}]},"spec":{"nodeName":"n"},"status":{"conditions":[{"observedGeneration":3,"type":"Ready"}],"observedGeneration":3,"phase":"Running","qosClass":"Burstable"}}`,
	},
	{
		"no metadata that mean something, for some kinds", "storage.k8s.io/v1 volumeattachments", "status",
		`{"metadata":{"labels":{"a":"1"}},"spec":{"attacher":"x"},"status":{"attached":false}}`,
		`{"metadata":{"finalizers":["f"],"labels":{"a":"2"}},"spec":{"attacher":"y"},"status":{"attached":true}}`,
		`{"metadata":{"labels":{"a":"1"}},"spec":{"attacher":"x"},"status":{"attached":true}}`,
	},
	{
		"no metadata at all, for flow control", "flowcontrol.apiserver.k8s.io/v1 flowschemas", "status",
		`{"metadata":{"labels":{"a":"1"}},"spec":{"matchingPrecedence":1},"status":{}}`,
		`{"metadata":{"labels":{"a":"2"}},"spec":{"matchingPrecedence":2},"status":{"conditions":[]}}`,
		`{"metadata":{"labels":{"a":"1"}},"spec":{"matchingPrecedence":1},"status":{"conditions":[]}}`,
	},
	{
		"the finalizers of a Namespace, and not its status", "namespaces", "finalize",
		`{"metadata":{"labels":{"kubernetes.io/metadata.name":"n"},"name":"n"},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Terminating"}}`,
		`{"metadata":{"labels":{"kubernetes.io/metadata.name":"n"},"name":"n"},"spec":{},"status":{"phase":"Active"}}`,
		`{"metadata":{"labels":{"kubernetes.io/metadata.name":"n"},"name":"n"},"spec":{},"status":{"phase":"Terminating"}}`,
	},
	{
		"replicas", "apps/v1 statefulsets", "scale",
		`{"metadata":{"labels":{"a":"1"},"name":"s"},"spec":{"replicas":1,"serviceName":"x"}}`,
		`{"metadata":{"labels":{"a":"2"},"name":"s"},"spec":{"replicas":5},"status":{"replicas":7}}`,
		`{"metadata":{"labels":{"a":"1"},"name":"s"},"spec":{"replicas":5,"serviceName":"x"}}`,
	},
	{
		"no replicas", "replicationcontrollers", "scale",
		`{"metadata":{"name":"s"},"spec":{"replicas":3}}`, `{"metadata":{"name":"s"},"spec":{}}`,
		`{"metadata":{"name":"s"},"spec":{"replicas":0}}`,
	},
	{
		"the verdict on a request, with its time", "certificates.k8s.io/v1 certificatesigningrequests", "approval",
		`{"spec":{"signerName":"a/b"},"status":{"certificate":"x"}}`,
		`{"spec":{},"status":{"certificate":"y","conditions":[{"status":"True","type":"Approved"}]}}`,
		`{"spec":{"signerName":"a/b"},"status":{"certificate":"x","conditions":[{"lastTransitionTime":"2026-02-03T04:05:06Z","lastUpdateTime":"2026-02-03T04:05:06Z","status":"True","type":"Approved"}]}}`,
	},
	{
		"a verdict is not for the status", "certificates.k8s.io/v1 certificatesigningrequests", "status",
		`{"spec":{},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","lastUpdateTime":"2026-01-01T00:00:00Z","reason":"a","status":"True","type":"Approved"}]}}`,
		`{"spec":{},"status":{"certificate":"y","conditions":[{"reason":"b","status":"True","type":"Approved"}]}}`,
		`{"spec":{},"status":{"certificate":"y","conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","lastUpdateTime":"2026-01-01T00:00:00Z","reason":"a","status":"True","type":"Approved"}]}}`,
	},
	{
		"containers for debugging", "pods", "ephemeralcontainers",
		`{"metadata":{"labels":{"a":"1"}},"spec":{"containers":[{"name":"c"}]},"status":{"phase":"Running"}}`,
		`{"metadata":{},"spec":{"containers":[{"name":"x"}],"ephemeralContainers":[{"name":"e"}]},"status":{}}`,
		`{"metadata":{"labels":{"a":"1"}},"spec":{"containers":[{"name":"c"}],"ephemeralContainers":[{"name":"e"}]},"status":{"phase":"Running"}}`,
	},
	{
		"resources of containers", "pods", "resize",
		`{"metadata":{},"spec":{"containers":[{"image":"a","name":"c","resources":{"requests":{"cpu":"1"}}}],"nodeName":"n"},"status":{"phase":"Running"}}`,
		`{"metadata":{},"spec":{"containers":[{"image":"b","name":"c","resources":{"requests":{"cpu":"2"}}}]},"status":{}}`,
		`{"metadata":{},"spec":{"containers":[{"image":"a","name":"c","resources":{"requests":{"cpu":"2"}}}],"nodeName":"n"},"status":{"phase":"Running"}}`,
	},
	{
		"the time at which a volume's phase changed", "persistentvolumes", "status",
		`{"spec":{},"status":{"lastPhaseTransitionTime":"2026-01-01T00:00:00Z","phase":"Pending"}}`,
		`{"spec":{},"status":{"lastPhaseTransitionTime":"2026-01-01T00:00:00Z","phase":"Bound"}}`,
		`{"spec":{},"status":{"lastPhaseTransitionTime":"2026-02-03T04:05:06Z","phase":"Bound"}}`,
	},
	{
		"devices that a claim has no longer", "resource.k8s.io/v1 resourceclaims", "status",
		`{"metadata":{},"spec":{},"status":{"allocation":{"devices":{"results":[{"device":"a","driver":"d","pool":"p"},{"device":"b","driver":"d","pool":"p"}]}}}}`,
		`{"metadata":{},"spec":{},"status":{"allocation":{"devices":{"results":[{"device":"b","driver":"d","pool":"p"}]}},"devices":[{"device":"a","driver":"d","pool":"p"},{"device":"b","driver":"d","pool":"p"}]}}`,
		`{"metadata":{},"spec":{},"status":{"allocation":{"devices":{"results":[{"device":"b","driver":"d","pool":"p"}]}},"devices":[{"device":"b","driver":"d","pool":"p"}]}}`,
	},
}

// SPEC: URI-7, WRITE-4
func TestWriteSubresource(t *testing.T) {
	all := types(t)
	for _, c := range writes {
		t.Run(c.typ+"/"+c.subresource+" "+c.name, func(t *testing.T) {
			r, want := all[c.typ], parse(t, c.want)
			got, err := r.Subresource(c.subresource).Write(parse(t, c.old), parse(t, c.body))
			if err != nil {
				t.Fatal(err)
			}
			if c.subresource == "status" && r.Default != nil {
				want = r.Default(want)
			}
			if show(got) != show(want) {
				t.Errorf("have %s\nwant %s", show(got), show(want))
			}
		})
	}
}

// SPEC: URI-7
func TestScale(t *testing.T) {
	all := types(t)
	for _, c := range []struct{ typ, obj, want string }{
		{
			"apps/v1 deployments",
			`{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","labels":{"x":"y"},"name":"d","namespace":"n","uid":"u"},"spec":{"replicas":3,"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["c","b"]}],"matchLabels":{"app":"x"}}},"status":{"replicas":2}}`,
			`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","name":"d","namespace":"n","uid":"u"},"spec":{"replicas":3},"status":{"replicas":2,"selector":"a in (b,c),app=x"}}`,
		},
		{
			"replicationcontrollers",
			`{"metadata":{"name":"r"},"spec":{"replicas":0,"selector":{"b":"2","a":"1"}},"status":{"replicas":0}}`,
			`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"r"},"spec":{},"status":{"replicas":0,"selector":"a=1,b=2"}}`,
		},
	} {
		got, err := all[c.typ].Subresource("scale").Represent(parse(t, c.obj))
		if err != nil {
			t.Fatal(err)
		}
		if show(got) != show(parse(t, c.want)) {
			t.Errorf("%s\nhave %s\nwant %s", c.typ, show(got), c.want)
		}
	}

	_, err := all["apps/v1 deployments"].Subresource("scale").Write(parse(t, `{"metadata":{"name":"d"}}`),
		parse(t, `{"spec":{"replicas":-1}}`))
	const want = `Scale.autoscaling "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0`
	if err == nil || err.Error() != want {
		t.Errorf("less than nothing: %v", err)
	}
	_, err = all["apps/v1 replicasets"].Subresource("scale").Represent(parse(t,
		`{"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}}`))
	if err == nil {
		t.Error("a selector that makes no sense is shown")
	}
}

// SPEC: DEL-2
func TestPodGrace(t *testing.T) {
	of := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		pod   string
		asked *int64
		want  int64
	}{
		{`{"spec":{"nodeName":"n","terminationGracePeriodSeconds":30},"status":{"phase":"Running"}}`, nil, 30},
		{`{"spec":{"nodeName":"n","terminationGracePeriodSeconds":30},"status":{"phase":"Running"}}`, of(5), 5},
		{`{"spec":{"nodeName":"n","terminationGracePeriodSeconds":30},"status":{"phase":"Running"}}`, of(0), 0},
		{`{"spec":{"nodeName":"n","terminationGracePeriodSeconds":-5},"status":{"phase":"Running"}}`, nil, 1},
		{`{"spec":{"nodeName":"n","terminationGracePeriodSeconds":30},"status":{"phase":"Succeeded"}}`, nil, 0},
		{`{"spec":{"nodeName":"n","terminationGracePeriodSeconds":30},"status":{"phase":"Failed"}}`, of(5), 0},
		{`{"spec":{"terminationGracePeriodSeconds":30},"status":{"phase":"Pending"}}`, nil, 0},
	} {
		if got, graceful := podGrace(parse(t, c.pod), c.asked); got != c.want || !graceful {
			t.Errorf("%s: %d seconds, graceful: %v; want %d", c.pod, got, graceful, c.want)
		}
	}
}

// SPEC: WRITE-4
func TestQOSClass(t *testing.T) {
	for _, c := range []struct{ spec, want string }{
		{`{}`, bestEffort},
		{`{"containers":[{"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1","memory":"1024Mi"}}}]}`,
			guaranteed},
		{`{"containers":[{"resources":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}}}]}`, burstable},
		{`{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}`, burstable},
		{`{"containers":[{"resources":{"requests":{"storage":"1"}}}]}`, bestEffort},
		{`{"containers":[{"resources":{"limits":{"cpu":"1","memory":"1"},"requests":{"cpu":"1","memory":"1"}}},{"resources":{}}]}`, burstable},
		{`{"containers":[{"resources":{}}],"initContainers":[{"resources":{"limits":{"cpu":"1","memory":"1"},"requests":{"cpu":"1","memory":"1"}}}]}`, burstable},
		{`{"containers":[{"resources":{}}],"resources":{"limits":{"cpu":"1","memory":"1"},"requests":{"cpu":"1","memory":"1"}}}`, guaranteed},
	} {
		if got := qosClass(parse(t, c.spec)); got != c.want {
			t.Errorf("%s: %s, want %s", c.spec, got, c.want)
		}
	}
}

// generations are pairs of objects that are, or are not, of one generation.
var generations = []struct {
	typ, old, new string
	bumps         bool
}{
	{"pods", `{"spec":{"a":1}}`, `{"spec":{"a":2}}`, true},
	{"pods", `{"metadata":{"labels":{"a":"1"}},"spec":{}}`, `{"spec":{},"status":{"phase":"x"}}`, false},
	{"apps/v1 deployments", `{"metadata":{},"spec":{}}`, `{"metadata":{"annotations":{"a":"1"}},"spec":{}}`, true},
	{"apps/v1 deployments", `{"metadata":{},"spec":{}}`, `{"metadata":{"annotations":{}},"spec":{}}`, false},
	{"apps/v1 replicasets", `{"metadata":{},"spec":{}}`, `{"metadata":{"annotations":{"a":"1"}},"spec":{}}`, false},
	{"podtemplates", `{"template":{"a":1}}`, `{"template":{"a":2}}`, true},
	{"discovery.k8s.io/v1 endpointslices", `{"endpoints":[]}`, `{"endpoints":[{}]}`, true},
	{"discovery.k8s.io/v1 endpointslices", `{"metadata":{}}`, `{"metadata":{"labels":{"a":"1"}}}`, true},
	{"discovery.k8s.io/v1 endpointslices", `{"metadata":{}}`, `{"metadata":{"annotations":{"a":"1"}}}`, false},
	{"admissionregistration.k8s.io/v1 mutatingwebhookconfigurations", `{"webhooks":null}`, `{"webhooks":[{}]}`, true},
	{"scheduling.k8s.io/v1 priorityclasses", `{"value":1}`, `{"value":2}`, false},
}

// SPEC: WRITE-4
func TestGeneration(t *testing.T) {
	all := types(t)
	for _, c := range generations {
		g := all[c.typ].Generation
		if bumps := !object.Equal(g(parse(t, c.old)), g(parse(t, c.new))); bumps != c.bumps {
			t.Errorf("%s: from %s to %s is a new generation: %v", c.typ, c.old, c.new, bumps)
		}
	}
	for _, name := range []string{"configmaps", "services", "namespaces", "nodes", "coordination.k8s.io/v1 leases"} {
		if all[name].Generation != nil {
			t.Errorf("%s count generations", name)
		}
	}
}

package defaults

import (
	"strings"
	"testing"
	"time"

	"plinth/object"
)

// cases are parts of objects; parts that do not matter in a case are omitted, as functions ignore absent fields.
var cases = []struct {
	name     string
	fill     func(object.Value) object.Value
	in, want string
}{
	{"a Pod of nothing but an image", Pod,
		`{"spec": {"containers": [{"name": "a", "image": "a:1", "resources": {}}]}, "status": {}}`,
		`{"spec": {"containers": [{"name": "a", "image": "a:1", "imagePullPolicy": "IfNotPresent", "resources": {},
		  "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
		  "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always", "schedulerName": "default-scheduler",
		  "securityContext": {}, "terminationGracePeriodSeconds": 30}, "status": {}}`},
	{"a template gets no service links", PodTemplate,
		`{"template": {"spec": {"containers": null}}}`,
		`{"template": {"spec": {"containers": null, "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
		  "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30}}}`},

	{"the old service account field follows the new one", specOfWhole,
		`{"serviceAccount": "a", "serviceAccountName": "b"}`, `{"serviceAccount": "b", "serviceAccountName": "b"}`},
	{"the new service account field is filled from the old one", specOfWhole,
		`{"serviceAccount": "a"}`, `{"serviceAccount": "a", "serviceAccountName": "a"}`},

	{"a Pod's grace period is not negative", gracePeriodOf(owner{pod: true}),
		`{"terminationGracePeriodSeconds": -5}`, `{"terminationGracePeriodSeconds": 1}`},
	{"zero is a grace period", gracePeriodOf(owner{pod: true}),
		`{"terminationGracePeriodSeconds": 0}`, `{"terminationGracePeriodSeconds": 0}`},
	{"a template's grace period may be negative", gracePeriodOf(owner{}),
		`{"terminationGracePeriodSeconds": -5}`, `{"terminationGracePeriodSeconds": -5}`},

	{"requests from limits", requestsFromLimits,
		`{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "storage": "1"}}`,
		`{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "1Gi", "storage": "1"}}`},
	{"requests from limits, where there are none", requestsFromLimits,
		`{"limits": {"cpu": "100u"}}`, `{"limits": {"cpu": "1m"}, "requests": {"cpu": "1m"}}`},
	{"no limits, no requests", requestsFromLimits, `{}`, `{}`},

	{"amounts are rounded up to thousandths", resourceList,
		`{"a": "1n", "b": "1500u", "c": "1e-9", "d": "1E-6", "e": "-1u", "f": "1024102400u", "g": "1", "h": "100m", "i": "1e3"}`,
		`{"a": "1m", "b": "2m", "c": "1e-3", "d": "1e-3", "e": "-1m", "f": "1024103m", "g": "1", "h": "100m", "i": "1e3"}`},

	{"ports of a Pod in the host's network", hostPort,
		`{"containerPort": 80}`, `{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}`},
	{"a host port that is set stays", hostPort,
		`{"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}`,
		`{"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}`},
	{"a port of zero has no host port", hostPort, `{"containerPort": 0}`, `{"containerPort": 0, "protocol": "TCP"}`},

	{"podIPs from podIP", podStatus, `{"podIP": "1"}`, `{"podIP": "1", "podIPs": [{"ip": "1"}]}`},
	{"podIP from podIPs", podStatus, `{"podIPs": [{"ip": "1"}, {"ip": "2"}]}`,
		`{"podIP": "1", "podIPs": [{"ip": "1"}, {"ip": "2"}]}`},
	{"podIP wins", podStatus, `{"podIP": "3", "podIPs": [{"ip": "1"}, {"ip": "2"}]}`,
		`{"podIP": "3", "podIPs": [{"ip": "3"}]}`},
	{"podIPs that begin with podIP stay", podStatus, `{"podIP": "1", "podIPs": [{"ip": "1"}, {"ip": "2"}]}`,
		`{"podIP": "1", "podIPs": [{"ip": "1"}, {"ip": "2"}]}`},

	{"the partition of a StatefulSet that says how it is updated", statefulSetUpdateStrategy,
		`{"rollingUpdate": {}, "type": "RollingUpdate"}`,
		`{"rollingUpdate": {"maxUnavailable": 1, "partition": 0}, "type": "RollingUpdate"}`},
	{"no rolling update, no partition", statefulSetUpdateStrategy, `{"type": "RollingUpdate"}`,
		`{"type": "RollingUpdate"}`},
	{"a Namespace without a name has no label", nameLabel, `{"labels": {"a": "b"}}`, `{"labels": {"a": "b"}}`},
	{"a Namespace without a name keeps its labels", nameLabel, `{"labels": {"kubernetes.io/metadata.name": "b"}}`,
		`{"labels": {"kubernetes.io/metadata.name": "b"}}`},

	{"a probe", probe, `{"httpGet": {"port": 80}, "periodSeconds": 5}`,
		`{"failureThreshold": 3, "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "periodSeconds": 5, "successThreshold": 1, "timeoutSeconds": 1}`},
	{"a probe over gRPC", probe, `{"grpc": {"port": 80, "service": null}}`,
		`{"failureThreshold": 3, "grpc": {"port": 80, "service": ""}, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1}`},

	{"a volume without a source is an empty directory", volume, `{"name": "a"}`, `{"emptyDir": {}, "name": "a"}`},
	{"a volume with a source is not", volume, `{"name": "a", "nfs": {"path": "/", "server": "b"}}`,
		`{"name": "a", "nfs": {"path": "/", "server": "b"}}`},
	{"any type of host path", volume, `{"hostPath": {"path": "/"}}`, `{"hostPath": {"path": "/", "type": ""}}`},
	{"an image as volume", volume, `{"image": {"reference": "a"}}`,
		`{"image": {"pullPolicy": "Always", "reference": "a"}}`},
	{"a projected volume", volume,
		`{"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"configMap": {}}]}}`,
		`{"projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"expirationSeconds": 3600, "path": "t"}}, {"configMap": {}}]}}`},

	{"a Service within the cluster", serviceSpec, `{"ports": [{"port": 80, "targetPort": 0}]}`,
		`{"internalTrafficPolicy": "Cluster", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "sessionAffinity": "None", "type": "ClusterIP"}`},
	{"a Service with an outside address", serviceSpec, `{"externalIPs": ["1.2.3.4"], "sessionAffinityConfig": {}}`,
		`{"externalIPs": ["1.2.3.4"], "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None", "type": "ClusterIP"}`},
	{"a Service that is another name", serviceSpec, `{"externalName": "a", "type": "ExternalName"}`,
		`{"externalName": "a", "sessionAffinity": "None", "type": "ExternalName"}`},
	{"clients that stay with their endpoint", serviceSpec, `{"sessionAffinity": "ClientIP", "type": "ExternalName"}`,
		`{"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}, "type": "ExternalName"}`},
	{"an empty target port is the port", servicePort, `{"port": 80, "targetPort": ""}`,
		`{"port": 80, "protocol": "TCP", "targetPort": 80}`},
	{"a named target port", servicePort, `{"port": 80, "targetPort": "http"}`,
		`{"port": 80, "protocol": "TCP", "targetPort": "http"}`},
	{"addresses of a load balancer", Service,
		`{"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}, {"hostname": "a"}]}}}`,
		`{"spec": {"allocateLoadBalancerNodePorts": true, "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster",
		  "sessionAffinity": "None", "type": "LoadBalancer"},
		  "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}, {"hostname": "a"}]}}}`},

	{"limits of containers", limitRangeItem,
		`{"max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1"}, "type": "Container"}`,
		`{"default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1"}, "max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1"}, "type": "Container"}`},
	{"limits of Pods", limitRangeItem, `{"max": {"cpu": "2"}, "type": "Pod"}`, `{"max": {"cpu": "2"}, "type": "Pod"}`},
	{"a namespace is labelled with its name", Namespace,
		`{"metadata": {"labels": {"a": "b", "kubernetes.io/metadata.name": "wrong"}, "name": "n"}}`,
		`{"metadata": {"labels": {"a": "b", "kubernetes.io/metadata.name": "n"}, "name": "n"}, "status": {"phase": "Active"}}`},
	{"a namespace without a name", Namespace, `{"metadata": {"generateName": "n-"}, "status": {"phase": "Active"}}`,
		`{"metadata": {"generateName": "n-"}, "status": {"phase": "Active"}}`},
	{"a node that can give all it has", nodeStatus, `{"capacity": {"cpu": "1u"}}`,
		`{"allocatable": {"cpu": "1m"}, "capacity": {"cpu": "1m"}}`},
	{"a node that can not", nodeStatus, `{"allocatable": {"cpu": "1"}, "capacity": {"cpu": "2"}}`,
		`{"allocatable": {"cpu": "1"}, "capacity": {"cpu": "2"}}`},

	{"labels of a controller from its template", withoutSpecOfTemplate(ReplicationController),
		`{"metadata": {}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}`,
		`{"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 1, "selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}}}}}`},
	{"a Deployment", withoutSpecOfTemplate(Deployment), `{"spec": {"strategy": {}, "template": {}}}`,
		`{"spec": {"progressDeadlineSeconds": 600, "replicas": 1, "revisionHistoryLimit": 10,
		  "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"}, "template": {}}}`},
	{"a Deployment that starts anew", deploymentStrategy, `{"type": "Recreate"}`, `{"type": "Recreate"}`},
	{"a Deployment scaled to zero", withoutSpecOfTemplate(ReplicaSet), `{"spec": {"replicas": 0, "template": {}}}`,
		`{"spec": {"replicas": 0, "template": {}}}`},
	{"a DaemonSet's update", daemonSetUpdateStrategy, `{}`,
		`{"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}, "type": "RollingUpdate"}`},
	{"a StatefulSet's update", statefulSetUpdateStrategy, `{}`,
		`{"rollingUpdate": {"maxUnavailable": 1, "partition": 0}, "type": "RollingUpdate"}`},
	{"a StatefulSet's update by name", statefulSetUpdateStrategy, `{"type": "RollingUpdate"}`,
		`{"type": "RollingUpdate"}`},

	{"a job for one Pod", jobWithoutTemplate, `{}`, `{"backoffLimit": 6, "completionMode": "NonIndexed", "completions": 1, "manualSelector": false,
		"parallelism": 1, "podReplacementPolicy": "TerminatingOrFailed", "suspend": false}`},
	{"a job with a work queue", jobWithoutTemplate,
		`{"backoffLimitPerIndex": 1, "parallelism": 3, "podFailurePolicy": {"rules": null}}`,
		`{"backoffLimit": 2147483647, "backoffLimitPerIndex": 1, "completionMode": "NonIndexed", "manualSelector": false, "parallelism": 3,
		"podFailurePolicy": {"rules": null}, "podReplacementPolicy": "Failed", "suspend": false}`},

	{"scaling rules for one direction", scalingBehavior, `{"scaleDown": {"selectPolicy": "Min"}}`,
		`{"scaleDown": {"policies": [{"periodSeconds": 15, "type": "Percent", "value": 100}], "selectPolicy": "Min"},
		  "scaleUp": {"policies": [{"periodSeconds": 15, "type": "Pods", "value": 4}, {"periodSeconds": 15, "type": "Percent", "value": 100}],
		  "selectPolicy": "Max", "stabilizationWindowSeconds": 0}}`},
	{"a policy with rules for what goes out", networkPolicySpec, `{"egress": [{}], "podSelector": {}}`,
		`{"egress": [{}], "podSelector": {}, "policyTypes": ["Ingress", "Egress"]}`},
	{"subjects", RoleBinding,
		`{"roleRef": {"apiGroup": "", "kind": "Role"}, "subjects": [{"kind": "User"}, {"kind": "ServiceAccount"}]}`,
		`{"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User"}, {"kind": "ServiceAccount"}]}`},
	{"all devices of a class", exactDeviceRequest, `{"allocationMode": "All"}`, `{"allocationMode": "All"}`},
	{"one device of a class", exactDeviceRequest, `{"deviceClassName": "a"}`,
		`{"allocationMode": "ExactCount", "count": 1, "deviceClassName": "a"}`},
}

// SPEC: VAL-4
func TestDefaults(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in, want := parse(t, c.in), parse(t, c.want)
			got := c.fill(in)
			if !object.Equal(got, want) {
				t.Fatalf("\n got %s\nwant %s", object.AppendJSON(nil, got), object.AppendJSON(nil, want))
			}
			if before := parse(t, c.in); !object.Equal(in, before) {
				t.Errorf("the input has changed: %s", object.AppendJSON(nil, in))
			}
			if again := c.fill(got); !object.Equal(again, got) {
				t.Errorf("not done at once: %s", object.AppendJSON(nil, again))
			}
		})
	}
}

// The wrappers extract the tested part from the whole.

func specOfWhole(spec object.Value) object.Value {
	filled := specOfTemplate(spec)
	return object.Fields("serviceAccount", filled.At("serviceAccount"), "serviceAccountName",
		filled.At("serviceAccountName"))
}

func gracePeriodOf(of owner) func(object.Value) object.Value {
	return func(spec object.Value) object.Value {
		w := over(spec)
		terminationGracePeriodSeconds(&w, of)
		return w.done()
	}
}

func withoutSpecOfTemplate(fill func(object.Value) object.Value) func(object.Value) object.Value {
	return func(obj object.Value) object.Value { return fill(obj).WithoutAt("spec", "template", "spec") }
}

func jobWithoutTemplate(spec object.Value) object.Value { return jobSpec(spec).Without("template") }

// SPEC: VAL-4
func TestTimedDefaults(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 890, time.FixedZone("", 3600))
	got := DeviceTaintRule(parse(t, `{"spec": {"taint": {"effect": "NoExecute"}}}`), now)
	if added := got.At("spec", "taint", "timeAdded").Str(); added != "2026-03-04T04:06:07Z" {
		t.Errorf("timeAdded %q", added)
	}
	if again := DeviceTaintRule(got, now.Add(time.Hour)); again != got {
		t.Errorf("a taint that has a time gets another one")
	}
}

func TestTaggedLatest(t *testing.T) {
	sum := strings.Repeat("0123456789abcdef", 4)
	for image, want := range map[string]bool{
		"nginx": true, "nginx:latest": true, "nginx:1": false, "": false, "Nginx": false, "library/nginx": true,
		"localhost:5000":   false,
		"localhost:5000/a": true, "example.com/a/b": true, "EXAMPLE/a": true, "[::1]:80/a": true, "[::1/a": false,
		"a__b/c--d.e": true,
		"a___b":       false, "-a": false, "a/": false, "a//b": false, "foo_bar.com/a": true, "example.com:/a": false,
		"example.com:x/a":     false,
		"nginx@sha256:" + sum: false, "nginx:latest@sha256:" + sum: true, "nginx:latest@sha256:00": false,
		"nginx:1@sha256:" + sum:   false,
		"nginx:latest@md5:" + sum: false, sum: false, sum + ":latest": true, "a:b:latest": false,
		"ex.com/" + strings.Repeat("a", 256): false,
		strings.Repeat("a", 248):             false, strings.Repeat("b", 247): true, "nginx:latest@sha512:" + sum + sum: true,
		"nginx:latest@sha384:" + sum + sum[:32]: true,
	} {
		if got := taggedLatest(image); got != want {
			t.Errorf("%q: %v", image, got)
		}
	}
}

func FuzzTaggedLatest(f *testing.F) {
	f.Add("example.com:5000/a/b:latest@sha256:00")
	f.Fuzz(func(t *testing.T, image string) {
		name, _, tagged := cutTag(image)
		if strings.Contains(image, "@") || !taggedLatest(image) {
			return
		}
		if !tagged && !taggedLatest(image+":latest") {
			t.Errorf("%q means latest, but not when it says so", image)
		}
		if taggedLatest(name + ":1") {
			t.Errorf("%q means latest with any tag", image)
		}
	})
}

func parse(t testing.TB, text string) object.Value {
	t.Helper()
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return parsed.Value
}

package defaults

import (
	"testing"

	"plinth/object"
)

// twoContainers is a Pod of typical size, as decoded from a client's request.
const twoContainers = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {
  "containers": [
    {"name": "web", "image": "nginx:1.27", "ports": [{"containerPort": 80, "name": "http"}],
     "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}, {"name": "MODE", "value": "on"}],
     "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
     "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}}, "readinessProbe": {"httpGet": {"port": "http"}},
     "volumeMounts": [{"mountPath": "/etc/web", "name": "config"}]},
    {"name": "side", "image": "registry.example.com/side:v2", "args": ["--quiet"], "resources": {"requests": {"cpu": "10m"}}}],
  "volumes": [{"name": "config", "configMap": {"name": "web"}}, {"name": "tmp", "emptyDir": {}}]}, "status": {}}`

func BenchmarkPodFresh(b *testing.B) {
	pod := parse(b, twoContainers)
	b.ReportAllocs()
	for b.Loop() {
		sink = Pod(pod)
	}
}

func BenchmarkPodDefaulted(b *testing.B) {
	pod := Pod(parse(b, twoContainers))
	b.ReportAllocs()
	for b.Loop() {
		sink = Pod(pod)
	}
}

func BenchmarkDeploymentFresh(b *testing.B) {
	deployment := object.Fields("spec", object.Fields("strategy", emptyMap, "template", parse(b, twoContainers)))
	b.ReportAllocs()
	for b.Loop() {
		sink = Deployment(deployment)
	}
}

var sink object.Value

// SPEC: VAL-4
func TestDefaultedComesBackAsItIs(t *testing.T) {
	pod := Pod(parse(t, twoContainers))
	deployment := Deployment(object.Fields("spec", object.Fields("template", pod)))
	service := Service(parse(t,
		`{"spec": {"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": 0}]}, "status": {}}`))
	for name, c := range map[string]struct {
		fill func(object.Value) object.Value
		obj  object.Value
	}{"Pod": {Pod, pod}, "Deployment": {Deployment, deployment}, "Service": {Service, service}} {
		if got := c.fill(c.obj); got != c.obj {
			t.Errorf("%s: copied without a change", name)
		}
		if n := testing.AllocsPerRun(100, func() { sink = c.fill(c.obj) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

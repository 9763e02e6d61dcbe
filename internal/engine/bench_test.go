package engine_test

import (
	"fmt"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// pod is a typical Pod with two containers.
const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"app":"web","pod-template-hash":"5d9c7b6f4"},"annotations":{"example.com/note":"two containers"}},
"spec":{"containers":[
{"name":"web","image":"nginx:1.27","ports":[{"containerPort":80,"name":"http"}],"env":[{"name":"MODE","value":"production"},{"name":"POD_IP","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}}],
"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"cpu":"500m","memory":"256Mi"}},"livenessProbe":{"httpGet":{"path":"/healthz","port":80}},"volumeMounts":[{"name":"config","mountPath":"/etc/web"}]},
{"name":"sidecar","image":"envoy:v1.30","args":["--config","/etc/envoy.yaml"],"ports":[{"containerPort":15001}],"readinessProbe":{"tcpSocket":{"port":15001},"periodSeconds":5},"volumeMounts":[{"name":"config","mountPath":"/etc/envoy","readOnly":true}]}],
"volumes":[{"name":"config","configMap":{"name":"web-config"}}],"nodeSelector":{"disk":"ssd"},"tolerations":[{"key":"dedicated","operator":"Equal","value":"web","effect":"NoSchedule"}]}}`

func builtinEngine(tb testing.TB) (*engine.Engine, *engine.Registry) {
	tb.Helper()
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(registry)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	e := engine.New(engine.Config{Store: s, Registry: registry})
	_, err = e.Create(tb.Context(), &engine.Request{Resource: registry.Now().Find("", "v1", "namespaces")},
		parse(tb, `{"metadata":{"name":"default"}}`))
	if err != nil {
		tb.Fatal(err)
	}
	return e, registry
}

func parse(tb testing.TB, text string) object.Parsed {
	tb.Helper()
	p, err := object.ParseJSON([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// BenchmarkCreatePod is a create from the bytes of the body to the commit in memory.
func BenchmarkCreatePod(b *testing.B) {
	e, registry := builtinEngine(b)
	pods := registry.Now().Find("", "v1", "pods")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		rq := &engine.Request{Resource: pods, Namespace: "default", Validation: engine.Strict}
		if _, err := e.Create(b.Context(), rq, parse(b, fmt.Sprintf(pod, fmt.Sprint("pod-", i)))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetPod(b *testing.B) {
	e, registry := builtinEngine(b)
	pods := registry.Now().Find("", "v1", "pods")
	if _, err := e.Create(b.Context(), &engine.Request{Resource: pods, Namespace: "default"},
		parse(b, fmt.Sprintf(pod, "a"))); err != nil {
		b.Fatal(err)
	}
	rq := &engine.Request{Resource: pods, Namespace: "default", Name: "a"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Get(b.Context(), rq, ""); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPatchPod is a merge patch of one label.
func BenchmarkPatchPod(b *testing.B) {
	e, registry := builtinEngine(b)
	pods := registry.Now().Find("", "v1", "pods")
	if _, err := e.Create(b.Context(), &engine.Request{Resource: pods, Namespace: "default"},
		parse(b, fmt.Sprintf(pod, "a"))); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		rq := &engine.Request{Resource: pods, Namespace: "default", Name: "a"}
		body := []byte(fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, i))
		if _, err := e.Patch(b.Context(), rq, engine.Patch{Type: engine.MergePatch, Body: body}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkApplyDeployment is an apply that changes an image, from the bytes of the intent to the commit in memory.
func BenchmarkApplyDeployment(b *testing.B) {
	e, registry := builtinEngine(b)
	deployments := registry.Now().Find("apps", "v1", "deployments")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		rq := &engine.Request{Resource: deployments, Namespace: "default", Name: "web", FieldManager: "bench",
			Validation: engine.Strict}
		if _, err := e.Apply(b.Context(), rq, parse(b, fmt.Sprintf(deployment, i))); err != nil {
			b.Fatal(err)
		}
	}
}

// deployment is an intent of two containers.
const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"app":"web"}},
"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[
{"name":"web","image":"web:v%d","ports":[{"containerPort":8080,"name":"http"}],"env":[{"name":"A","value":"b"}],"resources":{"limits":{"cpu":"1","memory":"1Gi"}}},
{"name":"proxy","image":"proxy:v1"}]}}}}`

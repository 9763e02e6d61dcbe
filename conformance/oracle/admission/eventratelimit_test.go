package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// SPEC: AUTH-3
func TestEventRateLimit(t *testing.T) { synctest.Test(t, testEventRateLimit) }

func testEventRateLimit(t *testing.T) {
	r, count := seeded(31), tally{}
	for _, limits := range []string{"{type: Server, qps: 1, burst: 3}", "{type: Namespace, qps: 2, burst: 2}",
		"{type: User, qps: 1, burst: 1, cacheSize: 5}", "{type: SourceAndObject, qps: 1, burst: 1}",
		"{type: Server, qps: 3, burst: 4}, {type: SourceAndObject, qps: 1, burst: 2}, {type: User, qps: 1, burst: 2}"} {
		w := (&world{plugin: "EventRateLimit", configuration: "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\n" +
			"kind: Configuration\nunknown: ignored\nlimits: [" + limits + "]\n"}).build(t)
		for range 150 {
			namespace := r.one("a", "b")
			event := doc("v1", "Event", namespace, "e", nil, "involvedObject", fields("kind", r.one("Pod", "Node"),
				"namespace", namespace, "name", r.one("p", "q"), "uid", r.one("", "u"), "apiVersion", r.one("", "v1")),
				"source", fields("component", r.one("", "kubelet"), "host", r.one("", "n1")))
			a := attempt{operation: admission.Create, version: "v1", resource: "events", namespace: namespace,
				name:   "e",
				object: event, user: user.DefaultInfo{Name: r.one("jane", "joe")}}
			switch r.IntN(8) {
			case 0:
				a.dry = true
			case 1:
				a.operation, a.old = admission.Update, event
			case 2:
				a.operation, a.object, a.old = admission.Delete, "", event
			case 3:
				a.resource, a.object = "configmaps", doc("v1", "ConfigMap", namespace, "e", nil)
			}
			w.compare(t, a, &count)
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		}
	}
	// The API group events.k8s.io is not limited.
	w := (&world{plugin: "EventRateLimit", configuration: "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\n" +
		"kind: Configuration\nlimits: [{type: Server, qps: 1, burst: 1}]\n"}).build(t)
	for range 3 {
		w.compare(t, attempt{operation: admission.Create, group: "events.k8s.io", version: "v1", resource: "events",
			namespace: "a", name: "e", object: doc("events.k8s.io/v1", "Event", "a", "e", nil)}, &count)
	}
	count.atLeast(t, 0, 200, 200)
}

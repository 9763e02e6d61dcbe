package admission

import (
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/admission"
)

// SPEC: AUTH-3
func TestDefaultTolerationSeconds(t *testing.T) {
	w := (&world{plugin: "DefaultTolerationSeconds"}).build(t)
	const (
		notReady    = "node.kubernetes.io/not-ready"
		unreachable = "node.kubernetes.io/unreachable"
	)
	var count tally
	var lists []string
	for _, key := range []string{"", notReady, unreachable, "other"} {
		for _, effect := range []string{"", "NoExecute", "NoSchedule"} {
			one := fmt.Sprintf(`{key: %q, operator: Exists, effect: %q}`, key, effect)
			lists = append(lists, "["+one+"]", fmt.Sprintf(`[%s, {key: %q, operator: Exists}]`, one, unreachable))
		}
	}
	for _, list := range append(lists, "[]") {
		for _, operation := range []admission.Operation{admission.Create, admission.Update} {
			for _, subresource := range []string{"", "status"} {
				pod := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: ns},
					spec: {containers: [{name: c, image: i}], tolerations: %s}}`, list)
				old := ""
				if operation == admission.Update {
					old = pod
				}
				w.compare(t, attempt{operation: operation, version: "v1", resource: "pods", subresource: subresource,
					namespace: "ns", name: "p", object: pod, old: old}, &count)
			}
		}
	}
	w.compare(t, attempt{operation: admission.Create, version: "v1", resource: "configmaps", namespace: "ns", name: "c",
		object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns}}`}, &count)
	w.compare(t, attempt{operation: admission.Delete, version: "v1", resource: "pods", namespace: "ns", name: "p",
		old: `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: ns}, spec: {containers: [{name: c, image: i}]}}`},
		&count)
	count.atLeast(t, 30, 30, 0)
}

package admission

import (
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/admission"
)

// SPEC: AUTH-3, URI-5
func TestNamespaceLifecycle(t *testing.T) {
	namespaceText := func(name, meta, phase string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, uid: u-%s,
			creationTimestamp: "2024-01-01T00:00:00Z"%s}, status: {phase: %s}}`, name, name, meta, phase)
	}
	const deleting = `, deletionTimestamp: "2024-01-02T00:00:00Z"`
	w := (&world{plugin: "NamespaceLifecycle", objects: []string{
		namespaceText("here", "", "Active"), namespaceText("leaving", deleting, "Terminating"),
		// The plugin looks at the namespace, not at whether its name may be deleted.
		namespaceText("default", deleting, "Terminating"),
	}}).build(t)
	var count tally
	for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete,
		admission.Connect} {
		for _, dry := range []bool{false, true} {
			for _, namespace := range []string{"here", "leaving", "gone", "default"} {
				for _, resource := range []string{"configmaps", "localsubjectaccessreviews", "pods/binding"} {
					a := provisioning(resource, namespace, operation)
					a.dry = dry
					w.compare(t, a, &count)
					if operation != admission.Create || resource != "configmaps" {
						continue
					}
					a.name = ""
					for _, meta := range []string{"generateName: g-", `name: ""`} {
						a.object = fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {%s, namespace: %s}}`, meta, namespace)
						w.compare(t, a, &count)
					}
				}
			}
			w.compare(t, provisioning("nodes", "", operation), &count)
			for _, name := range []string{"here", "leaving", "gone", "default", "kube-system", "kube-public",
				"kube-node-lease", ""} {
				a := provisioning("namespaces", name, operation)
				a.dry = dry
				w.compare(t, a, &count)
			}
			// A cluster-scoped object is not a namespace because it has the name of one.
			a := provisioning("nodes", "", operation)
			a.name = "kube-system"
			w.compare(t, a, &count)
		}
	}
	count.atLeast(t, 0, 100, 30)
}

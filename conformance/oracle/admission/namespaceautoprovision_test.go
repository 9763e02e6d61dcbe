package admission

import (
	"context"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	clienttesting "k8s.io/client-go/testing"

	"plinth/internal/apierr"
	"plinth/internal/store"
)

// namespaces are those that exist on both sides.
func (w *world) namespaces(t *testing.T) (theirs, mine []string) {
	list, err := w.client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range list.Items {
		theirs = append(theirs, ns.Name)
	}
	path := w.registry.Now().Find("", "v1", "namespaces").Stored.Path
	w.stored.Collection(path).Snapshot().Ascend(path, "", "", func(v *store.Version) bool {
		mine = append(mine, v.Key.Name)
		return true
	})
	slices.Sort(theirs)
	return theirs, mine
}

// SPEC: AUTH-3
func TestNamespaceAutoProvision(t *testing.T) {
	const here = `{apiVersion: v1, kind: Namespace,
		metadata: {name: here, uid: u, creationTimestamp: "2024-01-01T00:00:00Z"}}`
	// failures are what the creation of the namespace comes to, on both sides.
	namespaces := schema.GroupResource{Resource: "namespaces"}
	failures := []struct{ theirs, mine error }{
		{},
		{apierrors.NewAlreadyExists(namespaces, "there"), apierr.NewAlreadyExists(apierr.Type{Name: "namespaces"}, "there")},
		{apierrors.NewForbidden(namespaces, "there", errors.New("a quota says no")),
			apierr.NewForbidden(apierr.Type{Name: "namespaces"}, "there", "a quota says no")},
		{apierrors.NewInternalError(errors.New("no store")), apierr.NewInternal(errors.New("no store"))},
		{errors.New("no connection"), errors.New("no connection")},
	}
	var count tally
	created := 0
	for _, namespace := range []string{"here", "there", ""} {
		for _, resource := range []string{"configmaps", "namespaces", "nodes", "localsubjectaccessreviews", "pods/binding"} {
			for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete,
				admission.Connect} {
				for _, dry := range []bool{false, true} {
					for i, failure := range failures {
						a := provisioning(resource, namespace, operation)
						a.dry = dry
						if a.object == "" && operation != admission.Delete && operation != admission.Connect {
							continue
						}
						w := &world{plugin: "NamespaceAutoProvision", objects: []string{here}}
						if i > 0 {
							w.createNamespace = func(context.Context, string) error { return failure.mine }
						}
						w.build(t)
						if i > 0 {
							w.client.PrependReactor("create", "namespaces",
								func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, failure.theirs })
						}
						w.compare(t, a, &count)
						theirs, mine := w.namespaces(t)
						if !slices.Equal(theirs, mine) {
							t.Errorf("%+v: the namespaces are %q in the reference, and %q in ours", a, theirs, mine)
						}
						created += len(theirs) - 1
					}
				}
			}
		}
	}
	count.atLeast(t, 0, 100, 6)
	if created < 3 {
		t.Errorf("%d namespaces were created", created)
	}
}

// provisioning is an attempt on an object of a resource; object is "" if the resource has none with that namespace.
func provisioning(resource, namespace string, operation admission.Operation) attempt {
	a := attempt{operation: operation, version: "v1", resource: resource, namespace: namespace, name: "x"}
	meta := `metadata: {name: x, namespace: "` + namespace + `"}`
	switch resource {
	case "configmaps":
		a.object = `{apiVersion: v1, kind: ConfigMap, ` + meta + `}`
	case "namespaces": // the namespace of a request for one is its name
		a.name = namespace
		a.object = `{apiVersion: v1, kind: Namespace, metadata: {name: x}}`
	case "nodes":
		a.object = `{apiVersion: v1, kind: Node, metadata: {name: x}}`
	case "localsubjectaccessreviews":
		a.group = "authorization.k8s.io"
		a.object = `{apiVersion: authorization.k8s.io/v1, kind: LocalSubjectAccessReview, ` + meta + `,
			spec: {user: jane, resourceAttributes: {verb: get, resource: pods, namespace: "` + namespace + `"}}}`
	case "pods/binding":
		a.resource, a.subresource = "pods", "binding"
		a.object = `{apiVersion: v1, kind: Binding, ` + meta + `, target: {kind: Node, name: n1}}`
	}
	switch operation {
	case admission.Update:
		a.old = a.object
	case admission.Delete:
		a.object, a.old = "", a.object
	case admission.Connect:
		a.object = ""
	}
	return a
}

package builtin

import (
	corev1 "k8s.io/api/core/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/engine"
	"plinth/object"
)

// namespaceFinalizer keeps a deleted Namespace until it is empty.
const namespaceFinalizer = "kubernetes"

func namespaces() kind {
	return kind{
		name: "namespaces", kind: "Namespace", short: "ns",
		versions: []version{of[corev1.Namespace, corev1.NamespaceList]()},
		cluster:  true,
		defaults: defaults.Namespace, rules: validation.Namespace,
		untouched: map[string]string{"": "status", "status": "spec", "finalize": "status"},
		verbs:     []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		naming:    label,
		status:    statusAndMeta, initial: phase("Active"),
		onCreate: newNamespace,
		onUpdate: keepNamespaceFinalizers,
		onStatus: func(obj, _ object.Value) object.Value { return labelNamespace(obj) },
		fields:   []selectable{text("status.phase")},
		table:    columns.Namespaces, answersDeleted: true,
		special: func(r *engine.Resource) {
			r.DeleteDocumentedAsStatus = true
			r.Held = func(obj object.Value) bool { return obj.At("spec", "finalizers").Len() > 0 }
			r.Propagation = namespacePropagation
			r.MarkDeleted = func(obj object.Value) object.Value {
				return obj.WithoutAt("metadata", "deletionGracePeriodSeconds").WithAt(object.StringOf("Terminating"),
					"status", "phase")
			}
			r.Subresources = append(r.Subresources, &engine.Subresource{
				Name: "finalize", Group: r.Group, Version: r.Version, Kind: r.Kind,
				Verbs:   []string{"update"},
				Schema:  r.Schema,
				Default: r.Default,
				Write: func(old, body object.Value) (object.Value, error) {
					return labelNamespace(keep(body, old, "status")), nil
				},
			})
		},
	}
}

// namespacePropagation is that of most kinds, except that the first delete with orphanDependents=false waits for the
// dependents.
func namespacePropagation(obj object.Value, o engine.DeleteOptions) engine.Propagation {
	first := obj.At("metadata", "deletionTimestamp").IsNull()
	if first && o.OrphanDependents != nil && !*o.OrphanDependents {
		return engine.Foreground
	}
	return engine.PropagationOr(engine.Background, obj, o)
}

// newNamespace adds the finalizer, and the label with the name, to a new Namespace.
func newNamespace(obj object.Value) object.Value {
	finalizers := obj.At("spec", "finalizers").Items()
	has := false
	for _, f := range finalizers {
		has = has || f.Str() == namespaceFinalizer
	}
	if !has {
		finalizers = append(finalizers[:len(finalizers):len(finalizers)], object.StringOf(namespaceFinalizer))
		obj = obj.WithAt(object.ListOf(finalizers...), "spec", "finalizers")
	}
	return labelNamespace(obj)
}

// keepNamespaceFinalizers keeps spec.finalizers: only the subresource finalize changes them.
func keepNamespaceFinalizers(obj, old object.Value) object.Value {
	if finalizers := old.At("spec", "finalizers"); !finalizers.IsNull() {
		obj = obj.WithAt(finalizers, "spec", "finalizers")
	} else {
		obj = obj.WithoutAt("spec", "finalizers")
	}
	return labelNamespace(obj)
}

// labelNamespace sets the label with the name. The default has set it before, but a generated name is known only now.
func labelNamespace(obj object.Value) object.Value {
	const key = corev1.LabelMetadataName
	name := obj.At("metadata", "name")
	if object.Equal(obj.At("metadata", "labels", key), name) {
		return obj
	}
	return obj.WithAt(name, "metadata", "labels", key)
}

package builtin

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/gotypes"
	"plinth/object"
)

// bindings are virtual: creating one binds the Pod that it names.
func bindings() kind {
	return kind{
		name: "bindings", kind: "Binding", versions: []version{unlisted[corev1.Binding]()}, verbs: createOnly,
		special: func(r *engine.Resource) {
			r.Through = func() (apierr.Type, string) { return apierr.Type{Name: "pods"}, "binding" }
		},
	}
}

// podOperations are the subresources of Pods that take a POST: schedulers bind a Pod to a node, and clients that drain
// a node evict it.
func podOperations(c *Config) []*engine.Subresource {
	keeps := !c.Features.On(features.ClearingNominatedNodeNameAfterBinding)
	return []*engine.Subresource{
		{
			Name: "binding", Version: "v1", Kind: "Binding", Verbs: createOnly, Schema: gotypes.Of[corev1.Binding],
			ValidateBody: validateBinding,
			Write: func(old, body object.Value) (object.Value, error) {
				pod, err := bind(old, body, c.Now())
				if node := old.At("status", "nominatedNodeName"); err == nil && keeps && !node.IsNull() {
					pod = pod.WithAt(node, "status", "nominatedNodeName")
				}
				return pod, err
			},
		},
		{
			Name: "eviction", Group: "policy", Version: "v1", Kind: "Eviction", OldVersion: "v1beta1",
			Verbs: createOnly, Schema: gotypes.Of[policyv1.Eviction],
			Eviction: &engine.Eviction{
				Options: evictionOptions, Budgets: apierr.Type{Group: "policy", Name: "poddisruptionbudgets"},
				Decide: decideEviction, Mark: markEvicted,
			},
		},
	}
}

// validateBinding refuses a binding to anything but a node with a name.
func validateBinding(binding object.Value) error {
	target := binding.At("target")
	var errs field.ErrorList
	if kind := target.At("kind").Str(); kind != "" && kind != "Node" {
		errs = append(errs, field.NotSupported(field.NewPath("target", "kind"), kind, []string{"Node", "<empty>"}))
	}
	if target.At("name").Str() == "" {
		errs = append(errs, field.Required(field.NewPath("target", "name"), ""))
	}
	if len(errs) > 0 {
		return apierr.NewInvalid(apierr.Type{Name: "Binding"}, binding.At("metadata", "name").Str(), errs)
	}
	return nil
}

// bind binds a Pod to a node (`target.name`). A Pod that is bound already is refused.
func bind(pod, binding object.Value, now time.Time) (object.Value, error) {
	name, node := pod.At("metadata", "name").Str(), binding.At("target", "name").Str()
	refuse := func(format string, args ...any) (object.Value, error) {
		return object.Nil, apierr.NewConflict(apierr.Type{Name: "pods/binding"}, name, fmt.Sprintf(format, args...))
	}
	switch on := pod.At("spec", "nodeName").Str(); {
	case !pod.At("metadata", "deletionTimestamp").IsNull():
		return refuse("pod %s is being deleted, cannot be assigned to a host", name)
	case on != "":
		return refuse("pod %s is already assigned to node %q", name, on)
	case pod.At("spec", "schedulingGates").Len() > 0:
		return refuse("pod %s has non-empty .spec.schedulingGates", name)
	}
	pod = pod.WithAt(object.StringOf(node), "spec", "nodeName")
	pod = pod.WithoutAt("status", "nominatedNodeName")
	for _, key := range []string{"annotations", "labels"} {
		if added := binding.At("metadata", key); added.Len() > 0 {
			pod = pod.WithAt(pod.At("metadata", key).Edit(added.Members()), "metadata", key)
		}
	}
	return pod.WithAt(scheduled(pod.At("status", "conditions"), now), "status", "conditions"), nil
}

// scheduled returns the conditions with PodScheduled set to true.
func scheduled(conditions object.Value, now time.Time) object.Value {
	current := object.Fields(
		"type", object.StringOf("PodScheduled"), "status", object.StringOf("True"),
		"lastProbeTime", object.Nil, "lastTransitionTime", object.StringOf(now.UTC().Format(time.RFC3339)))
	for i, c := range conditions.Items() {
		if c.At("type").Str() == "PodScheduled" {
			return conditions.WithItem(i, current)
		}
	}
	return object.ListOf(append(conditions.Items()[:conditions.Len():conditions.Len()], current)...)
}

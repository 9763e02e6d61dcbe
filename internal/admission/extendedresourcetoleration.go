package admission

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/engine"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// extendedResourceToleration is the plugin ExtendedResourceToleration: a Pod that requests an extended resource, such
// as a GPU, tolerates the taint of the nodes that are kept for such Pods.
func extendedResourceToleration(_ context.Context, a *engine.Attributes) error {
	if !isPod(a) {
		return nil
	}
	names := map[string]bool{}
	for _, list := range []string{"containers", "initContainers"} {
		for _, c := range a.Object.At("spec", list).Items() {
			for _, m := range c.At("resources", "requests").Members() {
				if objectmeta.IsExtendedResource(m.Key) {
					names[m.Key] = true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a.Object = withToleration(a.Object, object.Fields("key", object.StringOf(name),
			"operator", object.StringOf(string(corev1.TolerationOpExists)),
			"effect", object.StringOf(string(corev1.TaintEffectNoSchedule))))
	}
	return nil
}

// withToleration returns a Pod with a toleration, in the place of those for the same taint.
func withToleration(pod, v object.Value) object.Value {
	t := readToleration(v)
	var next []object.Value
	replaced := false
	for _, old := range pod.At("spec", "tolerations").Items() {
		o := readToleration(old)
		if o.key == t.key && o.effect == t.effect && o.operator == t.operator && o.value == t.value {
			old, replaced = v, true
		}
		next = append(next, old)
	}
	if !replaced {
		next = append(next, v)
	}
	return pod.WithAt(object.ListOf(next...), "spec", "tolerations")
}

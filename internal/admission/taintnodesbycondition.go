package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/engine"
	"plinth/object"
)

// taintNodesByCondition is the plugin TaintNodesByCondition: a new Node gets the taint of one that is not ready, so
// that no Pod is scheduled onto it before its conditions are known. The node lifecycle controller takes it away.
func taintNodesByCondition(_ context.Context, a *engine.Attributes) error {
	if a.Operation != engine.OperationCreate || !about(a, "", "nodes", "") {
		return nil
	}
	taints := a.Object.At("spec", "taints").Items()
	for _, t := range taints {
		if t.At("key").Str() == corev1.TaintNodeNotReady &&
			t.At("effect").Str() == string(corev1.TaintEffectNoSchedule) {
			return nil
		}
	}
	taint := object.Fields("key", object.StringOf(corev1.TaintNodeNotReady),
		"effect", object.StringOf(string(corev1.TaintEffectNoSchedule)))
	a.Object = a.Object.WithAt(object.ListOf(append(taints[:len(taints):len(taints)], taint)...), "spec", "taints")
	return nil
}

package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/engine"
	"plinth/object"
)

// newDefaultTolerationSeconds makes the plugin DefaultTolerationSeconds: a Pod stays on a node that is not ready or not
// reachable for a limited time, unless it says how long.
func newDefaultTolerationSeconds(c *Config) (steps, error) {
	defaults := []object.Value{
		noExecute(corev1.TaintNodeNotReady, c.NotReadyTolerationSeconds),
		noExecute(corev1.TaintNodeUnreachable, c.UnreachableTolerationSeconds),
	}
	return steps{admit: func(_ context.Context, a *engine.Attributes) error {
		if !writes(a) || !about(a, "", "pods", "") {
			return nil
		}
		tolerations := a.Object.At("spec", "tolerations")
		added := tolerations.Items()
		for _, d := range defaults {
			if !tolerates(tolerations, d.At("key").Str()) {
				added = append(added[:len(added):len(added)], d)
			}
		}
		if len(added) > len(tolerations.Items()) {
			a.Object = a.Object.WithAt(object.ListOf(added...), "spec", "tolerations")
		}
		return nil
	}}, nil
}

// noExecute tolerates a taint for a time.
func noExecute(key string, seconds int64) object.Value {
	return object.Fields("key", object.StringOf(key), "operator", object.StringOf(string(corev1.TolerationOpExists)),
		"effect", object.StringOf(string(corev1.TaintEffectNoExecute)), "tolerationSeconds", object.IntOf(seconds))
}

// tolerates says whether a toleration is about a taint of this key with the effect NoExecute.
func tolerates(tolerations object.Value, key string) bool {
	for _, t := range tolerations.Items() {
		k, effect := t.At("key").Str(), t.At("effect").Str()
		if (k == key || k == "") && (effect == "" || effect == string(corev1.TaintEffectNoExecute)) {
			return true
		}
	}
	return false
}

package admission

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/admission/quota"
	"plinth/internal/engine"
	"plinth/object"
)

// isPod says whether a create or an update is of a Pod itself, and not of a subresource.
func isPod(a *engine.Attributes) bool { return writes(a) && about(a, "", "pods", "") }

// containerLists are the lists of containers of a Pod, in the order in which the reference visits them.
var containerLists = []string{"initContainers", "containers", "ephemeralContainers"}

// eachContainer calls f with each container of a Pod and its path.
func eachContainer(pod object.Value, f func(c object.Value, path *field.Path)) {
	spec := pod.At("spec")
	for _, list := range containerLists {
		for i, c := range spec.At(list).Items() {
			f(c, field.NewPath("spec", list).Index(i))
		}
	}
}

// editItems returns obj with each item of the list at path replaced by what edit makes of it. A list that does not
// change is kept.
func editItems(obj object.Value, edit func(item object.Value) object.Value, path ...string) object.Value {
	items := obj.At(path...).Items()
	var next []object.Value
	for i, item := range items {
		edited := edit(item)
		if edited == item {
			continue
		}
		if next == nil {
			next = slices.Clone(items)
		}
		next[i] = edited
	}
	if next == nil {
		return obj
	}
	return obj.WithAt(object.ListOf(next...), path...)
}

// sameQuantities says whether two maps have equal quantities, however they are written. A map that is absent is empty.
func sameQuantities(a, b object.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	for _, m := range a.Members() {
		other, ok := b.Get(m.Key)
		if !ok {
			return false
		}
		if q := quota.Quantity(m.Value); q.Cmp(quota.Quantity(other)) != 0 {
			return false
		}
	}
	return true
}

// toleration is a toleration of a Pod.
type toleration struct {
	key, operator, value, effect string
	seconds                      int64
	limited                      bool // seconds is set
}

func readToleration(v object.Value) toleration {
	seconds := v.At("tolerationSeconds")
	return toleration{
		key: v.At("key").Str(), operator: v.At("operator").Str(), value: v.At("value").Str(), effect: v.At("effect").Str(),
		seconds: seconds.Int(), limited: !seconds.IsNull(),
	}
}

// covers says whether a Pod that has the toleration t needs no other one in addition.
func (t toleration) covers(other toleration) bool {
	if t == other {
		return true
	}
	switch {
	case other.key != t.key && (t.key != "" || t.operator != string(corev1.TolerationOpExists)),
		other.effect != t.effect && t.effect != "",
		t.effect == string(corev1.TaintEffectNoExecute) && t.limited && (!other.limited || other.seconds > t.seconds):
		return false
	}
	switch corev1.TolerationOperator(t.operator) {
	case corev1.TolerationOpEqual, "":
		return other.operator == string(corev1.TolerationOpEqual) && other.value == t.value
	case corev1.TolerationOpExists:
		return true
	}
	return false
}

// mergeTolerations returns the tolerations of two lists without those that another one covers.
func mergeTolerations(first, second []object.Value) []object.Value {
	all := slices.Concat(first, second)
	read := make([]toleration, len(all))
	for i, v := range all {
		read[i] = readToleration(v)
	}
	var merged []object.Value
	var kept []toleration
	for i, t := range read {
		covered := slices.ContainsFunc(kept, func(k toleration) bool { return k.covers(t) }) ||
			slices.ContainsFunc(read[i+1:], func(later toleration) bool { return later != t && later.covers(t) })
		if !covered {
			merged, kept = append(merged, all[i]), append(kept, t)
		}
	}
	return merged
}

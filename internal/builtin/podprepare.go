package builtin

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/builtin/warnings"
	"plinth/object"
)

// newPod sets the fields of a new Pod that follow from others: selectors by label keys, AppArmor profiles from
// annotations, resources of the whole Pod if they are to be completed here, and the status.
func newPod(obj object.Value, complete bool) object.Value {
	spec := obj.At("spec")
	spec = appArmorFromAnnotations(spec, obj.At("metadata", "annotations"))
	spec = selectByLabelKeys(spec, obj.At("metadata", "labels"))
	if complete {
		spec = defaultPodResources(spec)
	}
	status := []object.Member{
		{Key: "phase", Value: object.StringOf("Pending")},
		{Key: "qosClass", Value: object.StringOf(qosClass(spec))},
	}
	if spec.At("schedulingGates").Len() > 0 {
		status = append(status, object.Member{Key: "conditions", Value: object.ListOf(object.Fields(
			"type", object.StringOf("PodScheduled"), "status", object.StringOf("False"),
			"reason", object.StringOf("SchedulingGated"),
			"message", object.StringOf("Scheduling is blocked due to non-empty scheduling gates"),
			"lastProbeTime", object.Nil, "lastTransitionTime", obj.At("metadata", "creationTimestamp"),
		))})
	}
	return obj.Edit([]object.Member{{Key: "spec", Value: spec}, {Key: "status", Value: object.MapOf(status...)}})
}

// keepPodResources keeps spec.resources when a client that does not know the field leaves it out.
func keepPodResources(obj, old object.Value) object.Value {
	if now, before := obj.At("spec", "resources"), old.At("spec", "resources"); now.IsNull() && !before.IsNull() {
		return obj.WithAt(before, "spec", "resources")
	}
	return obj
}

// keepPodStatus keeps fields of the status that older clients leave out.
func keepPodStatus(obj, old object.Value) object.Value {
	now, before := obj.At("status"), old.At("status")
	var set []object.Member
	for _, key := range []string{"qosClass", "resourceClaimStatuses", "extendedResourceClaimStatus",
		"nodeAllocatableResourceClaimStatuses"} {
		left := now.At(key)
		if key == "qosClass" && left.Len() == 0 {
			left = object.Nil
		}
		if v := before.At(key); left.IsNull() && !v.IsNull() {
			set = append(set, object.Member{Key: key, Value: v})
		}
	}
	if n := before.At("observedGeneration"); now.At("observedGeneration").Int() == 0 && n.Int() != 0 {
		set = append(set, object.Member{Key: "observedGeneration", Value: n})
	}
	if conditions, changed := keepObserved(now.At("conditions"), before.At("conditions")); changed {
		set = append(set, object.Member{Key: "conditions", Value: conditions})
	}
	if len(set) > 0 {
		obj = obj.With("status", now.Edit(set))
	}
	return obj
}

// keepObserved keeps the observedGeneration of conditions that are sent without one. Several conditions of one type are
// matched in order.
func keepObserved(now, previous object.Value) (conditions object.Value, changed bool) {
	before := map[string][]object.Value{}
	for _, c := range previous.Items() {
		t := c.At("type").Str()
		before[t] = append(before[t], c.At("observedGeneration"))
	}
	for i, c := range now.Items() {
		t := c.At("type").Str()
		if len(before[t]) == 0 {
			continue
		}
		n := before[t][0]
		before[t] = before[t][1:]
		if c.At("observedGeneration").Int() == 0 && n.Int() != 0 {
			now, changed = now.WithItem(i, c.With("observedGeneration", n)), true
		}
	}
	return now, changed
}

// selectByLabelKeys completes selectors that name only label keys (matchLabelKeys, mismatchLabelKeys) by the values of
// the Pod's own labels.
func selectByLabelKeys(spec, labels object.Value) object.Value {
	for _, sort := range []string{"podAffinity", "podAntiAffinity"} {
		affinity := spec.At("affinity", sort)
		if affinity.IsNull() {
			continue
		}
		changed := affinity
		for i, term := range affinity.At("preferredDuringSchedulingIgnoredDuringExecution").Items() {
			if t := matchKeys(term.At("podAffinityTerm"), labels); !object.Equal(t, term.At("podAffinityTerm")) {
				list := changed.At("preferredDuringSchedulingIgnoredDuringExecution").WithItem(i,
					term.With("podAffinityTerm", t))
				changed = changed.With("preferredDuringSchedulingIgnoredDuringExecution", list)
			}
		}
		for i, term := range affinity.At("requiredDuringSchedulingIgnoredDuringExecution").Items() {
			if t := matchKeys(term, labels); !object.Equal(t, term) {
				list := changed.At("requiredDuringSchedulingIgnoredDuringExecution").WithItem(i, t)
				changed = changed.With("requiredDuringSchedulingIgnoredDuringExecution", list)
			}
		}
		spec = spec.WithAt(changed, "affinity", sort)
	}
	constraints := spec.At("topologySpreadConstraints")
	for i, c := range constraints.Items() {
		if changed := matchKeys(c, labels); !object.Equal(changed, c) {
			constraints = constraints.WithItem(i, changed)
			spec = spec.With("topologySpreadConstraints", constraints)
		}
	}
	return spec
}

// matchKeys adds the requirements for its label keys to the selector of a term. A term without a selector does not
// match any Pod, so it stays without requirements.
func matchKeys(term, labels object.Value) object.Value {
	selector := term.At("labelSelector")
	if selector.IsNull() {
		return term
	}
	expressions := selector.At("matchExpressions").Items()
	before := len(expressions)
	for _, m := range [...]struct{ keys, operator string }{{"matchLabelKeys", "In"}, {"mismatchLabelKeys", "NotIn"}} {
		for _, key := range term.At(m.keys).Items() {
			if value, ok := labels.Get(key.Str()); ok {
				expressions = append(expressions[:len(expressions):len(expressions)], object.Fields(
					"key", key, "operator", object.StringOf(m.operator), "values", object.ListOf(value)))
			}
		}
	}
	if len(expressions) == before {
		return term
	}
	return term.With("labelSelector", selector.With("matchExpressions", object.ListOf(expressions...)))
}

// appArmorPrefix is the prefix of the annotations that named the AppArmor profiles of containers before there was a
// field for them.
const appArmorPrefix = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix

// appArmorFromAnnotations sets the AppArmor profile of containers that have none from their annotations, unless the Pod
// has the same one.
func appArmorFromAnnotations(spec, annotations object.Value) object.Value {
	if !hasPrefixed(annotations, appArmorPrefix) || spec.At("os", "name").Str() == "windows" {
		return spec
	}
	ofPod := spec.At("securityContext", "appArmorProfile")
	for _, list := range []string{"initContainers", "containers", "ephemeralContainers"} {
		for i, c := range spec.At(list).Items() {
			annotation, has := annotations.Get(appArmorPrefix + c.At("name").Str())
			if !has || !c.At("securityContext", "appArmorProfile").IsNull() {
				continue
			}
			profile := warnings.AppArmorProfile(annotation.Str())
			if !profile.IsNull() && !object.Equal(profile, ofPod) {
				spec = spec.With(list,
					spec.At(list).WithItem(i, c.WithAt(profile, "securityContext", "appArmorProfile")))
			}
		}
	}
	return spec
}

func hasPrefixed(m object.Value, prefix string) bool {
	for _, member := range m.Members() {
		if strings.HasPrefix(member.Key, prefix) {
			return true
		}
	}
	return false
}

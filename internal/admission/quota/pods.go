package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"

	"plinth/internal/objectmeta"
	"plinth/internal/store"
	"plinth/object"
)

// usePod is what a Pod uses. One that has ended counts as an object and no more, and so does one from the end of the
// grace of its deletion on, if nobody confirms that: its node may be lost.
func usePod(pod object.Value) *store.Charge {
	u := &store.Charge{Class: podClass(pod)}
	ended := counts(pods)
	status := pod.At("status")
	if made := status.At("extendedResourceClaimStatus"); !made.IsNull() {
		u.Note = claimOf(made.At("resourceClaimName").Str())
	}
	if phase := corev1.PodPhase(status.At("phase").Str()); phase == corev1.PodFailed || phase == corev1.PodSucceeded {
		u.Amounts = ended
		return u
	}
	typed := resourcesOf(pod)
	opts := helper.PodResourcesOptions{UseStatusResources: true}
	all := computeUse(helper.PodRequests(typed, opts), helper.PodLimits(typed, opts))
	all[CountName(pods)] = one
	u.Amounts = sorted(all)
	meta := pod.At("metadata")
	if grace := meta.At("deletionGracePeriodSeconds"); !grace.IsNull() {
		if at, err := time.Parse(time.RFC3339, meta.At("deletionTimestamp").Str()); err == nil {
			u.Until, u.After = at.Add(time.Duration(grace.Int())*time.Second), ended
		}
	}
	return u
}

// computeUse is what requests and limits count as: "cpu" is an old name of "requests.cpu".
func computeUse(requests, limits corev1.ResourceList) amounts {
	all := amounts{string(corev1.ResourcePods): one}
	for name, value := range requests {
		prefixed := corev1.DefaultResourceRequestsPrefix + string(name)
		switch {
		case computed(name), strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			all[string(name)], all[prefixed] = value, value
		case objectmeta.IsExtendedResource(string(name)),
			strings.HasPrefix(string(name), deviceClassPrefix):
			all[prefixed] = value
		}
	}
	for name, value := range limits {
		if computed(name) {
			all["limits."+string(name)] = value
		}
	}
	return all
}

// deviceClassPrefix begins the names of resources that are devices of a class.
const deviceClassPrefix = resourcev1.ResourceDeviceClassPrefix

// computed says whether a resource is one of those that are limited by requests and by limits.
func computed(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

// resourcesOf is the part of a Pod from which its resources are computed.
func resourcesOf(pod object.Value) *corev1.Pod {
	spec, status := pod.At("spec"), pod.At("status")
	typed := &corev1.Pod{}
	typed.Spec.Containers = containers(spec.At("containers"))
	typed.Spec.InitContainers = containers(spec.At("initContainers"))
	typed.Spec.Overhead = resourceList(spec.At("overhead"))
	typed.Spec.Resources = requirements(spec.At("resources"))
	typed.Status.ContainerStatuses = containerStatuses(status.At("containerStatuses"))
	typed.Status.InitContainerStatuses = containerStatuses(status.At("initContainerStatuses"))
	for _, c := range status.At("conditions").Items() {
		typed.Status.Conditions = append(typed.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodConditionType(c.At("type").Str()), Reason: c.At("reason").Str()})
	}
	return typed
}

func containers(list object.Value) []corev1.Container {
	all := make([]corev1.Container, 0, list.Len())
	for _, c := range list.Items() {
		policy := corev1.ContainerRestartPolicy(c.At("restartPolicy").Str()) // "" is as none
		all = append(all, corev1.Container{Name: c.At("name").Str(), Resources: *requirements(c.At("resources")),
			RestartPolicy: &policy})
	}
	return all
}

func containerStatuses(list object.Value) []corev1.ContainerStatus {
	all := make([]corev1.ContainerStatus, 0, list.Len())
	for _, c := range list.Items() {
		all = append(all, corev1.ContainerStatus{Name: c.At("name").Str(), Resources: requirements(c.At("resources")),
			AllocatedResources: resourceList(c.At("allocatedResources"))})
	}
	return all
}

// requirements reads ResourceRequirements; null has none.
func requirements(v object.Value) *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{Requests: resourceList(v.At("requests")), Limits: resourceList(v.At("limits"))}
}

func resourceList(v object.Value) corev1.ResourceList {
	if v.Len() == 0 {
		return nil
	}
	list := corev1.ResourceList{}
	for _, m := range v.Members() {
		list[corev1.ResourceName(m.Key)] = Quantity(m.Value)
	}
	return list
}

// Quantity reads a quantity; one that cannot be read is zero: validation refuses it.
func Quantity(v object.Value) resource.Quantity {
	text := v.Str()
	if v.Kind() != object.String {
		text = string(object.AppendJSON(nil, v))
	}
	q, _ := resource.ParseQuantity(text) // with an error it is zero
	return q
}

// required are the names that each container has to request if a quota limits them. It was a mistake of the first
// quotas, and no name is added.
var required = []string{"cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"}

// Missing says what a Pod has to request, because quotas limit it, and does not; "" if it lacks nothing.
func Missing(pod object.Value, limited func(name string) bool) string {
	typed := resourcesOf(pod)
	if helper.IsPodLevelResourcesSet(typed) {
		return ""
	}
	var texts []string
	for _, name := range required {
		if !limited(name) {
			continue
		}
		lack := map[string]bool{}
		for _, list := range [][]corev1.Container{typed.Spec.Containers, typed.Spec.InitContainers} {
			for i := range list {
				c := &list[i]
				if _, has := computeUse(c.Resources.Requests, c.Resources.Limits)[name]; !has {
					lack[c.Name] = true
				}
			}
		}
		if len(lack) > 0 {
			texts = append(texts, fmt.Sprintf("%s for: %s", name, strings.Join(slices.Sorted(maps.Keys(lack)), ",")))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return "must specify " + strings.Join(texts, "; ")
}

// Terminating says whether a Pod ends by itself.
func Terminating(pod object.Value) bool {
	seconds := pod.At("spec", "activeDeadlineSeconds")
	return !seconds.IsNull() && seconds.Int() >= 0
}

// usesOtherNamespaces says whether an affinity of a Pod is about Pods of other namespaces.
func usesOtherNamespaces(pod object.Value) bool {
	across := func(term object.Value) bool {
		return term.At("namespaces").Len() > 0 || !term.At("namespaceSelector").IsNull()
	}
	affinity := pod.At("spec", "affinity")
	for _, kind := range []string{"podAffinity", "podAntiAffinity"} {
		if slices.ContainsFunc(affinity.At(kind, "requiredDuringSchedulingIgnoredDuringExecution").Items(), across) {
			return true
		}
		for _, weighted := range affinity.At(kind, "preferredDuringSchedulingIgnoredDuringExecution").Items() {
			if across(weighted.At("podAffinityTerm")) {
				return true
			}
		}
	}
	return false
}

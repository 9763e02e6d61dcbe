package admission

import (
	"context"

	schedulingv1 "k8s.io/api/scheduling/v1"

	"plinth/internal/engine"
	"plinth/internal/features"
)

// groupProtection is the finalizer of the plugin PodGroupProtection. The controller podgroup-protection-controller
// takes it away when the group is deleted and has no running Pods any more.
const groupProtection = "scheduling.k8s.io/podgroup-protection"

// newPodGroupProtection makes the plugin PodGroupProtection: each new PodGroup has the finalizer.
func newPodGroupProtection(c *Config) (steps, error) {
	if !c.Features.On(features.GenericWorkload) {
		return steps{}, nil
	}
	return steps{admit: func(_ context.Context, a *engine.Attributes) error {
		if a.Operation == engine.OperationCreate && about(a, schedulingv1.GroupName, "podgroups", "") {
			protect(a, groupProtection)
		}
		return nil
	}}, nil
}

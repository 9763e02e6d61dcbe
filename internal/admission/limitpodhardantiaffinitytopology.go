package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/apierr"
	"plinth/internal/engine"
)

// limitPodHardAntiAffinityTopology is the plugin LimitPodHardAntiAffinityTopology: a Pod may exclude others from its
// node, and not from its zone or from the whole cluster.
func limitPodHardAntiAffinityTopology(_ context.Context, a *engine.Attributes) error {
	if !isPod(a) {
		return nil
	}
	terms := a.Object.At("spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
	for _, term := range terms.Items() {
		if key := term.At("topologyKey").Str(); key != corev1.LabelHostname {
			return apierr.NewForbidden(a.Request.Resource.Type(), a.Object.At("metadata", "name").Str(), fmt.Sprintf(
				"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", key,
				corev1.LabelHostname))
		}
	}
	return nil
}

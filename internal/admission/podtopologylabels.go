package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/engine"
	"plinth/internal/features"
)

// topologyLabels are the labels of a Node that its Pods get.
var topologyLabels = []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion}

// newPodTopologyLabels makes the plugin PodTopologyLabels: a Pod that is made on a node, or bound to one, gets the zone
// and the region of the node as labels.
func newPodTopologyLabels(c *Config) (steps, error) {
	if !c.Features.On(features.PodTopologyLabelsAdmission) {
		return steps{}, nil
	}
	return steps{admit: func(ctx context.Context, a *engine.Attributes) error {
		if a.Operation != engine.OperationCreate {
			return nil
		}
		name := ""
		switch {
		case about(a, "", "pods", ""):
			name = a.Object.At("spec", "nodeName").Str()
		case about(a, "", "pods", "binding"): // the resource bindings, which is older, gets no labels
			if target := a.Object.At("target"); target.At("kind").Str() == "Node" {
				name = target.At("name").Str()
			}
		}
		if name == "" {
			return nil
		}
		node, err := c.objects.get(ctx, kindOf{"", "v1", "nodes"}, "", name)
		if err != nil {
			return err
		}
		labels := node.At("metadata", "labels")
		for _, key := range topologyLabels {
			if v, ok := labels.Get(key); ok {
				a.Object = a.Object.WithAt(v, "metadata", "labels", key)
			}
		}
		return nil
	}}, nil
}

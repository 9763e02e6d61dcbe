package admission

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/admission/quota"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// newPodResizeValidator makes the plugin PodResizeValidator: a Pod on a node grows only if the node could ever have
// room for it.
func newPodResizeValidator(c *Config) (steps, error) {
	return steps{validate: func(ctx context.Context, a *engine.Attributes) error {
		if a.Operation != engine.OperationUpdate || !about(a, "", "pods", "resize") {
			return nil
		}
		name := a.Object.At("spec", "nodeName").Str()
		if name == "" || a.Object.At("metadata", "generation").Int() == a.Old.At("metadata", "generation").Int() {
			return nil
		}
		node, err := c.objects.get(ctx, kindOf{"", "v1", "nodes"}, "", name)
		switch {
		case err != nil:
			return forbidden(a, fmt.Sprintf("failed to get node %q: %v", name, err))
		case node.IsNull():
			return forbidden(a, fmt.Sprintf("node %q not found", name))
		}
		if os, ok := node.At("metadata", "labels").Get(corev1.LabelOSStable); ok && os.Str() != "linux" {
			return noResize(a, "UnsupportedPlatform",
				fmt.Sprintf("pod resize is only supported on linux nodes, node %q is %q", name, os.Str()))
		}
		if lacks := lackingResources(a.Object, node.At("status", "allocatable")); len(lacks) > 0 {
			return noResize(a, "NodeCapacity",
				"node didn't have enough allocatable resources: "+strings.Join(lacks, "; "))
		}
		return nil
	}}, nil
}

// noResize is a refusal with its reason as a cause, by which controllers tell them apart.
func noResize(a *engine.Attributes, reason, why string) error {
	err := apierr.From(forbidden(a, why))
	refused, details := *err, *err.Details
	details.Causes = append(details.Causes, apierr.Cause{Reason: reason})
	refused.Details = &details
	return &refused
}

// lackingResources says of which resources a Pod requests more than a node has for Pods.
func lackingResources(pod, allocatable object.Value) (lacks []string) {
	requests := podResources(pod, "requests")
	requests.add(readResources(pod.At("spec", "overhead")))
	cpu, memory := requests["cpu"], requests["memory"]
	if most := quota.Quantity(allocatable.At("cpu")); cpu.Cmp(most) > 0 {
		lacks = append(lacks, fmt.Sprintf("cpu, requested: %d, allocatable: %d", cpu.MilliValue(), most.MilliValue()))
	}
	if most := quota.Quantity(allocatable.At("memory")); memory.Cmp(most) > 0 {
		lacks = append(lacks, fmt.Sprintf("memory, requested: %d, allocatable: %d", memory.Value(), most.Value()))
	}
	return lacks
}

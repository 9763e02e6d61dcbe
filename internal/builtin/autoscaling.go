package builtin

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/convert"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/engine"
)

// autoscalingV2 is the version in which HorizontalPodAutoscalers are stored.
func autoscalingV2() group {
	return group{"autoscaling", "v2", []kind{{
		name: "horizontalpodautoscalers", kind: "HorizontalPodAutoscaler", short: "hpa", categories: []string{"all"},
		schema: gotypes.Of[autoscalingv2.HorizontalPodAutoscaler],
		status: statusAndMeta, generation: spec, table: columns.HorizontalPodAutoscalersV2,
	}}}
}

func autoscalingV1() group {
	return group{"autoscaling", "v1", []kind{{
		name: "horizontalpodautoscalers", kind: "HorizontalPodAutoscaler", short: "hpa", categories: []string{"all"},
		schema: gotypes.Of[autoscalingv1.HorizontalPodAutoscaler],
		status: statusAndMeta, generation: specAndAnnotations, table: columns.HorizontalPodAutoscalersV1,
		special: func(r *engine.Resource) { r.ToStored, r.FromStored = convert.HPAv1ToV2, convert.HPAv2ToV1 },
	}}}
}

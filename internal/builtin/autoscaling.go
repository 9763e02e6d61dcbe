package builtin

import (
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/convert"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/engine"
	"plinth/object"
)

// autoscalingV2 is the version in which HorizontalPodAutoscalers are stored.
func autoscalingV2() group {
	return group{"autoscaling", "v2", []kind{{
		name: "horizontalpodautoscalers", kind: "HorizontalPodAutoscaler", short: "hpa", categories: []string{"all"},
		schema: gotypes.Of[autoscalingv2.HorizontalPodAutoscaler],
		status: statusAndMeta, generation: spec, table: columns.HorizontalPodAutoscalers,
	}}}
}

func autoscalingV1() group {
	return group{"autoscaling", "v1", []kind{{
		name: "horizontalpodautoscalers", kind: "HorizontalPodAutoscaler", short: "hpa", categories: []string{"all"},
		schema: gotypes.Of[autoscalingv1.HorizontalPodAutoscaler],
		status: statusAndMeta, generation: specAndAnnotations, table: autoscalersV1(),
		special: func(r *engine.Resource) { r.ToStored, r.FromStored = autoscalerToStored, convert.HPAv2ToV1 },
	}}}
}

// autoscalerToStored fills in the defaults of v2 as well: what an annotation of v1 says of the behavior may be incomplete.
func autoscalerToStored(obj object.Value) (object.Value, error) {
	stored, err := convert.HPAv1ToV2(obj)
	if err != nil {
		return object.Nil, err
	}
	return defaults.HorizontalPodAutoscalerV2(stored), nil
}

// autoscalersV1 is the table of the version that is stored, over objects of the other one.
func autoscalersV1() columns.Table {
	stored := columns.HorizontalPodAutoscalers
	return columns.Table{Columns: stored.Columns, Cells: func(obj object.Value, now time.Time) []any {
		if v2, err := convert.HPAv1ToV2(obj); err == nil {
			obj = v2
		}
		return stored.Cells(obj, now)
	}}
}

package builtin

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"plinth/internal/access"
	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/convert"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/builtin/validation"
	"plinth/internal/engine"
	"plinth/object"
)

// autoscalersV2 is the version in which HorizontalPodAutoscalers are stored.
func autoscalersV2() kind {
	return kind{
		name: "horizontalpodautoscalers", kind: "HorizontalPodAutoscaler", short: "hpa", categories: []string{"all"},
		defaults: defaults.HorizontalPodAutoscalerV2, rules: validation.HorizontalPodAutoscaler,
		untouched: statusApart,
		schema:    gotypes.Of[autoscalingv2.HorizontalPodAutoscaler],
		list:      gotypes.Of[autoscalingv2.HorizontalPodAutoscalerList],
		status:    statusAndMeta, generation: spec, table: columns.HorizontalPodAutoscalers,
	}
}

func autoscalingV2() group { return group{"autoscaling", "v2", []kind{autoscalersV2()}} }

// autoscalingV1 has some fields of spec and status in annotations. Therefore an object is converted to the other
// version to find out whether it is valid, what to reset and what makes a new generation.
func autoscalingV1() group {
	v1, v2 := autoscalersV2(), autoscalersV2()
	v1.schema = gotypes.Of[autoscalingv1.HorizontalPodAutoscaler]
	v1.list = gotypes.Of[autoscalingv1.HorizontalPodAutoscalerList]
	v1.defaults, v1.rules = defaults.HorizontalPodAutoscalerV1, validation.HorizontalPodAutoscaler.Converted(asV2)
	v1.table = autoscalersV1()
	v1.generation = func(obj object.Value) object.Value { return spec(asV2(obj)) }
	v1.toStorage, v1.fromStorage = convert.HPAv1ToV2, convert.HPAv2ToV1
	v1.special = func(r *engine.Resource) {
		r.PrepareCreate = func(obj object.Value, by access.User) object.Value {
			return asV1(v2.prepareCreate(asV2(obj), by))
		}
		r.PrepareUpdate = func(obj, old object.Value) object.Value {
			return asV1(v2.prepareUpdate(asV2(obj), asV2(old)))
		}
		r.Subresource("status").Write = func(old, body object.Value) (object.Value, error) {
			return asV1(v2.writeStatus(asV2(old), asV2(body))), nil
		}
	}
	return group{"autoscaling", "v1", []kind{v1}}
}

// asV2 and asV1 convert. An object that cannot be converted is returned unchanged; the conversion to the stored version
// refuses it later.
func asV2(obj object.Value) object.Value { return converted(obj, convert.HPAv1ToV2) }

func asV1(obj object.Value) object.Value { return converted(obj, convert.HPAv2ToV1) }

func converted(obj object.Value, convert func(object.Value) (object.Value, error)) object.Value {
	if other, err := convert(obj); err == nil {
		return other
	}
	return obj
}

// autoscalersV1 is the table of the version that is stored, over objects of the other one.
func autoscalersV1() columns.Table {
	stored := columns.HorizontalPodAutoscalers
	return columns.Table{Columns: stored.Columns, Cells: func(obj object.Value) []any {
		return stored.Cells(asV2(obj))
	}}
}

package builtin

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"plinth/internal/access"
	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/convert"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

func autoscaling(c Config) group {
	return group{"autoscaling", []kind{{
		name: "horizontalpodautoscalers", kind: "HorizontalPodAutoscaler", short: "hpa", categories: []string{"all"},
		versions: []version{
			of[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscalerList](),
			autoscalersV1(),
		},
		defaults: defaults.HorizontalPodAutoscalerV2, rules: validation.HorizontalPodAutoscaler,
		untouched: statusApart,
		gated: []gated{below("spec.behavior", behind(features.HPAConfigurableTolerance, "scaleDown.tolerance",
			"scaleUp.tolerance"))},
		status: statusAndMeta, generation: c.autoscalerGeneration(), table: columns.HorizontalPodAutoscalers,
	}}}
}

// autoscalerGeneration is the part of an autoscaler whose change makes a new generation, if its gate is on.
func (c Config) autoscalerGeneration() func(obj object.Value) object.Value {
	if !c.Features.On(features.HPAGeneration) {
		return nil
	}
	return spec
}

// autoscalersV1 has some fields of spec and status in annotations. Therefore an object is converted to the other
// version to find out whether it is valid, what to reset and what makes a new generation.
func autoscalersV1() version {
	v := of[autoscalingv1.HorizontalPodAutoscaler, autoscalingv1.HorizontalPodAutoscalerList]()
	return v.by(convert.HPAv1ToV2, convert.HPAv2ToV1).but(func(v1 *kind) {
		v2 := v1.in(&v1.versions[0])
		v1.defaults, v1.rules = defaults.HorizontalPodAutoscalerV1, validation.HorizontalPodAutoscaler.Converted(asV2)
		v1.table = columns.Table{Columns: v2.table.Columns, Cells: func(obj object.Value) []any {
			return v2.table.Cells(asV2(obj))
		}}
		if v2.generation != nil {
			v1.generation = func(obj object.Value) object.Value { return spec(asV2(obj)) }
		}
		v1.gated = nil // v2 has them
		v1.special = func(r *engine.Resource) {
			v2.features = v1.features
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
	})
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

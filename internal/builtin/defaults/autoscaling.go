package defaults

import "plinth/object"

// HorizontalPodAutoscalerV1 defaults a HorizontalPodAutoscaler of autoscaling/v1. The conversion sets the default of
// its CPU target, because that depends on the annotations.
func HorizontalPodAutoscalerV1(obj object.Value) object.Value {
	return partOf(obj, "spec", minReplicas)
}

func minReplicas(spec object.Value) object.Value { return pointerOf(spec, "minReplicas", one) }

// HorizontalPodAutoscalerV2 defaults a HorizontalPodAutoscaler of autoscaling/v2.
func HorizontalPodAutoscalerV2(obj object.Value) object.Value {
	return partOf(obj, "spec", horizontalPodAutoscalerSpec)
}

func horizontalPodAutoscalerSpec(spec object.Value) object.Value {
	w := over(spec)
	w.optional("behavior", scalingBehavior)
	if w.get("metrics").Len() == 0 {
		w.set("metrics", cpuAt80Percent)
	}
	w.pointer("minReplicas", one)
	return w.done()
}

var cpuAt80Percent = object.ListOf(object.Fields(
	"type", object.StringOf("Resource"),
	"resource", object.Fields(
		"name", object.StringOf("cpu"),
		"target", object.Fields("type", object.StringOf("Utilization"), "averageUtilization", object.IntOf(80)))))

// scalingBehavior sets the defaults of both directions if one of them is given.
func scalingBehavior(behavior object.Value) object.Value {
	w := over(behavior)
	w.part("scaleDown", scaleDown)
	w.part("scaleUp", scaleUp)
	return w.done()
}

// scaleDown does not set the stabilization window: a flag of the controller is its default.
func scaleDown(rules object.Value) object.Value {
	w := over(rules)
	w.pointer("policies", scaleDownPolicies)
	w.pointer("selectPolicy", object.StringOf("Max"))
	return w.done()
}

func scaleUp(rules object.Value) object.Value {
	w := over(rules)
	w.pointer("policies", scaleUpPolicies)
	w.pointer("selectPolicy", object.StringOf("Max"))
	w.pointer("stabilizationWindowSeconds", zero)
	return w.done()
}

var (
	scaleDownPolicies = object.ListOf(scalingPolicy("Percent", 100))
	scaleUpPolicies   = object.ListOf(scalingPolicy("Pods", 4), scalingPolicy("Percent", 100))
)

func scalingPolicy(kind string, value int64) object.Value {
	return object.Fields("type", object.StringOf(kind), "value", object.IntOf(value), "periodSeconds", object.IntOf(15))
}

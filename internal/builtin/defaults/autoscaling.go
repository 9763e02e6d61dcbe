package defaults

import "plinth/object"

// HorizontalPodAutoscalerV1 defaults a HorizontalPodAutoscaler of autoscaling/v1. Its CPU target is filled in where it
// is converted, because it depends on the annotations.
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

// scalingBehavior fills in both directions as soon as something is said about one.
func scalingBehavior(behavior object.Value) object.Value {
	w := over(behavior)
	w.part("scaleDown", scaleDown)
	w.part("scaleUp", scaleUp)
	return w.done()
}

// scaleDown leaves its stabilization window open: a flag of the controller sets it.
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

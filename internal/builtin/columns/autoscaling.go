package columns

import (
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/object"
)

// autoscaling
var (
	HorizontalPodAutoscalers = autoscalers(func(obj object.Value) any {
		return metrics(obj.At("spec", "metrics").Items(), obj.At("status", "currentMetrics").Items())
	})
)

// autoscalers is the table of HorizontalPodAutoscalers of autoscaling/v2, to which those of v1 are converted. targets
// prints the metrics.
func autoscalers(targets cell) Table {
	return of(name,
		str("Reference", doc[autoscalingv2.HorizontalPodAutoscalerSpec]("scaleTargetRef"), func(obj object.Value) any {
			return obj.At("spec", "scaleTargetRef", "kind").Str() + "/" + obj.At("spec", "scaleTargetRef", "name").Str()
		}),
		str("Targets", doc[autoscalingv2.HorizontalPodAutoscalerSpec]("metrics"), targets),
		str("MinPods", doc[autoscalingv2.HorizontalPodAutoscalerSpec]("minReplicas"), func(obj object.Value) any {
			if v := obj.At("spec", "minReplicas"); !v.IsNull() {
				return itoa(v.Int())
			}
			return unset
		}),
		str("MaxPods", doc[autoscalingv2.HorizontalPodAutoscalerSpec]("maxReplicas"), whole("spec", "maxReplicas")),
		str("Replicas", doc[autoscalingv2.HorizontalPodAutoscalerStatus]("currentReplicas"),
			whole("status", "currentReplicas")),
		age,
	)
}

// mostMetrics is how many metrics are printed at most.
const mostMetrics = 2

// metrics prints the current and the target value of each metric.
func metrics(specs, statuses []object.Value) string {
	if len(specs) == 0 {
		return none
	}
	var shown []string
	for i, spec := range specs[:min(len(specs), mostMetrics)] {
		var status object.Value
		if i < len(statuses) {
			status = statuses[i]
		}
		shown = append(shown, metric(spec, status))
	}
	text := strings.Join(shown, ", ")
	if len(specs) > mostMetrics {
		text += " + " + itoa(int64(len(specs)-mostMetrics)) + " more..."
	}
	return text
}

// metricKeys maps types of metrics to the member with their source.
var metricKeys = map[string]string{
	"External": "external", "Pods": "pods", "Object": "object", "Resource": "resource",
	"ContainerResource": "containerResource",
}

func metric(spec, status object.Value) string {
	typ := spec.At("type").Str()
	key, known := metricKeys[typ]
	if !known {
		return "<unknown type>"
	}
	source, current := spec.At(key), status.At(key)
	target := source.At("target")
	average := target.At("averageValue")
	switch typ {
	case "Pods":
		return measured(current, "averageValue", true) + "/" + quantity(average)
	case "External", "Object":
		if !average.IsNull() {
			return measured(current, "averageValue", false) + "/" + quantity(average) + " (avg)"
		}
		return measured(current, "value", true) + "/" + quantity(target.At("value"))
	}
	name := source.At("name").Str() + ": "
	if !average.IsNull() {
		return name + measured(current, "averageValue", true) + "/" + quantity(average)
	}
	actual, want := unknown, "<auto>"
	if v := current.At("current", "averageUtilization"); !v.IsNull() {
		actual = itoa(v.Int()) + "%"
	}
	if v := target.At("averageUtilization"); !v.IsNull() {
		want = itoa(v.Int()) + "%"
	}
	return name + actual + "/" + want
}

// measured prints the last measured value. If zero is set, a measurement without this value is printed, too, as Go
// prints a nil pointer.
func measured(status object.Value, key string, zero bool) string {
	v := status.At("current", key)
	if status.IsNull() || v.IsNull() && !zero {
		return unknown
	}
	return quantity(v)
}

// quantity prints a quantity as Go prints a pointer to one: <nil> if it is absent.
func quantity(v object.Value) string { return or(v.Str(), "<nil>") }

// Scales is the table of the scale subresource. As in the reference its name column is not marked as a name.
var Scales = of(
	str("Name", doc[metav1.ObjectMeta]("name"), text("metadata", "name")),
	integer("Desired", doc[autoscalingv1.ScaleSpec]("replicas"), whole("spec", "replicas")),
	integer("Available", doc[autoscalingv1.ScaleStatus]("replicas"), whole("status", "replicas")),
	age,
)

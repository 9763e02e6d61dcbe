package convert

import (
	"encoding/json"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"plinth/object"
)

// The annotations in which autoscaling/v1 keeps, as JSON, what it has no fields for.
const (
	metricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	currentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	behaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
	conditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"
)

// hpaAnnotations lists what the conversions read or once wrote; none of it outlives a conversion.
var hpaAnnotations = []string{
	behaviorAnnotation, conditionsAnnotation, currentMetricsAnnotation, metricsAnnotation,
	"autoscaling.alpha.kubernetes.io/scale-down-tolerance", "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
}

// defaultCPUUtilization is what v1 means when neither the field nor the annotation names a metric.
const defaultCPUUtilization = 80

// HPAv1ToV2 converts a HorizontalPodAutoscaler of autoscaling/v1 to v2. An annotation that does not hold what it should is
// dropped without an error, as the reference does.
func HPAv1ToV2(obj object.Value) (object.Value, error) {
	annotations := obj.At("metadata", "annotations")
	spec, err := specV1ToV2(obj.At("spec"), annotations)
	if err != nil {
		return object.Nil, err
	}
	status, err := statusV1ToV2(obj.At("status"), annotations)
	if err != nil {
		return object.Nil, err
	}
	return obj.Edit([]object.Member{
		{Key: "apiVersion", Value: object.StringOf("autoscaling/v2")},
		{Key: "metadata", Value: withAnnotations(obj.At("metadata"), nil)},
		{Key: "spec", Value: spec},
		{Key: "status", Value: status},
	}), nil
}

func specV1ToV2(spec, annotations object.Value) (object.Value, error) {
	var cpu []object.Value
	if percent, ok := spec.Get("targetCPUUtilizationPercentage"); ok {
		cpu = []object.Value{cpuMetric("target", percent, "Utilization")}
	}
	metrics := cpu
	if text, ok := annotations.Get(metricsAnnotation); ok {
		var others []autoscalingv1.MetricSpec
		if json.Unmarshal([]byte(text.Str()), &others) == nil {
			converted := make([]autoscalingv2.MetricSpec, len(others))
			for i := range others {
				converted[i] = metricSpecV1ToV2(&others[i])
			}
			list, err := valueOf(converted)
			if err != nil {
				return object.Nil, err
			}
			metrics = append(append(make([]object.Value, 0, list.Len()+len(cpu)), list.Items()...), cpu...)
		}
	}
	if len(metrics) == 0 {
		metrics = []object.Value{cpuMetric("target", object.IntOf(defaultCPUUtilization), "Utilization")}
	}
	set := []object.Member{{Key: "metrics", Value: object.ListOf(metrics...)}}
	if text, ok := annotations.Get(behaviorAnnotation); ok {
		var behavior autoscalingv2.HorizontalPodAutoscalerBehavior
		if json.Unmarshal([]byte(text.Str()), &behavior) == nil && (behavior.ScaleUp != nil || behavior.ScaleDown != nil) {
			value, err := valueOf(&behavior)
			if err != nil {
				return object.Nil, err
			}
			set = append(set, object.Member{Key: "behavior", Value: value})
		}
	}
	return spec.Edit(set, "targetCPUUtilizationPercentage"), nil
}

func statusV1ToV2(status, annotations object.Value) (object.Value, error) {
	metrics := object.Nil
	if percent, ok := status.Get("currentCPUUtilizationPercentage"); ok {
		metrics = object.ListOf(cpuMetric("current", percent, ""))
	}
	if text, ok := annotations.Get(currentMetricsAnnotation); ok {
		var current []autoscalingv1.MetricStatus
		if json.Unmarshal([]byte(text.Str()), &current) == nil {
			converted := make([]autoscalingv2.MetricStatus, len(current))
			for i := range current {
				converted[i] = metricStatusV1ToV2(&current[i])
			}
			list, err := valueOf(converted)
			if err != nil {
				return object.Nil, err
			}
			metrics = list
		}
	}
	set := []object.Member{{Key: "currentMetrics", Value: metrics}}
	if text, ok := annotations.Get(conditionsAnnotation); ok {
		var conditions []autoscalingv2.HorizontalPodAutoscalerCondition
		if json.Unmarshal([]byte(text.Str()), &conditions) == nil && len(conditions) > 0 {
			list, err := valueOf(conditions)
			if err != nil {
				return object.Nil, err
			}
			set = append(set, object.Member{Key: "conditions", Value: list})
		}
	}
	drop := []string{"currentCPUUtilizationPercentage"}
	if status.At("currentReplicas").Int() == 0 {
		drop = append(drop, "currentReplicas") // v2 leaves it out when it is zero, v1 does not
	}
	return status.Edit(set, drop...), nil
}

// cpuMetric is the v2 metric, or the status of one, that stands for a percentage of v1.
func cpuMetric(place string, percent object.Value, targetType string) object.Value {
	measure := object.Fields("averageUtilization", percent)
	if targetType != "" {
		measure = measure.With("type", object.StringOf(targetType))
	}
	return object.Fields(
		"type", object.StringOf("Resource"),
		"resource", object.Fields("name", object.StringOf("cpu"), place, measure))
}

// cpuUtilization is the percentage of v1 that a metric of v2 stands for, place being "target" or "current".
func cpuUtilization(metric object.Value, place string) (percent object.Value, ok bool) {
	resource := metric.At("resource")
	if metric.At("type").Str() != "Resource" || resource.At("name").Str() != "cpu" {
		return object.Nil, false
	}
	return resource.At(place).Get("averageUtilization")
}

// HPAv2ToV1 converts a HorizontalPodAutoscaler of autoscaling/v2 to v1.
func HPAv2ToV1(obj object.Value) (object.Value, error) {
	var kept []object.Member
	spec, status := obj.At("spec"), obj.At("status")
	for _, keep := range []func() (object.Member, error){
		func() (object.Member, error) { return keepMetrics(spec.At("metrics")) },
		func() (object.Member, error) { return keepCurrentMetrics(status.At("currentMetrics")) },
		func() (object.Member, error) { return keepBehavior(spec.At("behavior")) },
		func() (object.Member, error) { return keepConditions(status.At("conditions")) },
	} {
		annotation, err := keep()
		if err != nil {
			return object.Nil, err
		}
		if annotation.Key != "" {
			kept = append(kept, annotation)
		}
	}
	return obj.Edit([]object.Member{
		{Key: "apiVersion", Value: object.StringOf("autoscaling/v1")},
		{Key: "metadata", Value: withAnnotations(obj.At("metadata"), kept)},
		{Key: "spec", Value: specV2ToV1(spec)},
		{Key: "status", Value: statusV2ToV1(status)},
	}), nil
}

func specV2ToV1(spec object.Value) object.Value {
	var set []object.Member
	for _, metric := range spec.At("metrics").Items() {
		if percent, ok := cpuUtilization(metric, "target"); ok {
			set = append(set, object.Member{Key: "targetCPUUtilizationPercentage", Value: percent})
			break
		}
	}
	return spec.Edit(set, "metrics", "behavior")
}

func statusV2ToV1(status object.Value) object.Value {
	set := []object.Member{{Key: "currentReplicas", Value: object.IntOf(status.At("currentReplicas").Int())}}
	for _, metric := range status.At("currentMetrics").Items() {
		if percent, ok := cpuUtilization(metric, "current"); ok { // the last one counts, for the target it is the first
			set = append(set, object.Member{Key: "currentCPUUtilizationPercentage", Value: percent})
		}
	}
	return status.Edit(set, "currentMetrics", "conditions")
}

// withAnnotations is metadata with its conversion annotations replaced by these.
func withAnnotations(metadata object.Value, kept []object.Member) object.Value {
	old, ok := metadata.Get("annotations")
	if !ok && len(kept) == 0 {
		return metadata
	}
	annotations := old.Edit(kept, dropped(kept)...)
	if annotations.Len() == 0 {
		return metadata.Without("annotations")
	}
	return metadata.With("annotations", annotations)
}

// dropped lists the conversion annotations that are not kept.
func dropped(kept []object.Member) []string {
	names := make([]string, 0, len(hpaAnnotations))
	for _, name := range hpaAnnotations {
		isKept := false
		for _, m := range kept {
			isKept = isKept || m.Key == name
		}
		if !isKept {
			names = append(names, name)
		}
	}
	return names
}

// keepMetrics keeps all metrics but the CPU utilization, which v1 has a field for. Members without a key mean: nothing to keep.
func keepMetrics(metrics object.Value) (object.Member, error) {
	var others []autoscalingv1.MetricSpec
	for _, metric := range metrics.Items() {
		if _, isCPU := cpuUtilization(metric, "target"); isCPU {
			continue
		}
		var v2 autoscalingv2.MetricSpec
		if err := decode(metric, &v2); err != nil {
			return object.Member{}, err
		}
		others = append(others, metricSpecV2ToV1(&v2))
	}
	if len(others) == 0 {
		return object.Member{}, nil
	}
	return annotation(metricsAnnotation, others)
}

// keepCurrentMetrics keeps them all, since the percentage alone would lose the raw value.
func keepCurrentMetrics(metrics object.Value) (object.Member, error) {
	if metrics.Len() == 0 {
		return object.Member{}, nil
	}
	statuses := make([]autoscalingv1.MetricStatus, metrics.Len())
	for i, metric := range metrics.Items() {
		var v2 autoscalingv2.MetricStatus
		if err := decode(metric, &v2); err != nil {
			return object.Member{}, err
		}
		statuses[i] = metricStatusV2ToV1(&v2)
	}
	return annotation(currentMetricsAnnotation, statuses)
}

func keepConditions(conditions object.Value) (object.Member, error) {
	if conditions.Len() == 0 {
		return object.Member{}, nil
	}
	var v1 []autoscalingv1.HorizontalPodAutoscalerCondition // the JSON of both versions is the same
	if err := decode(conditions, &v1); err != nil {
		return object.Member{}, err
	}
	return annotation(conditionsAnnotation, v1)
}

func keepBehavior(behavior object.Value) (object.Member, error) {
	if behavior.IsNull() {
		return object.Member{}, nil
	}
	var internal scalingBehavior
	if err := decode(behavior, &internal); err != nil {
		return object.Member{}, err
	}
	return annotation(behaviorAnnotation, &internal)
}

// annotation prints what is kept with encoding/json, because the order of the members is part of the annotation's text.
func annotation(name string, content any) (object.Member, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return object.Member{}, fmt.Errorf("convert: annotation %s: %w", name, err)
	}
	return object.Member{Key: name, Value: object.StringOf(string(text))}, nil
}

// decode reads a value as one of the Go types that the annotations are made of.
func decode(v object.Value, into any) error {
	if err := json.Unmarshal(object.AppendJSON(nil, v), into); err != nil {
		return fmt.Errorf("convert: HorizontalPodAutoscaler: %w", err)
	}
	return nil
}

// valueOf is decode backwards.
func valueOf(typed any) (object.Value, error) {
	text, err := json.Marshal(typed)
	if err != nil {
		return object.Nil, fmt.Errorf("convert: HorizontalPodAutoscaler: %w", err)
	}
	parsed, err := object.ParseJSON(text)
	return parsed.Value, err
}

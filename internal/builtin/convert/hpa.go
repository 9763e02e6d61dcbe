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

// HPAv1ToV2 converts a HorizontalPodAutoscaler of autoscaling/v1 to v2. An annotation that does not hold what it should
// is dropped without an error, as the reference does.
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
		if json.Unmarshal([]byte(text.Str()), &behavior) == nil &&
			(behavior.ScaleUp != nil || behavior.ScaleDown != nil) {
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
	spec, status := obj.At("spec"), obj.At("status")
	var kept annotationKeeper
	kept.metrics(spec.At("metrics"))
	kept.currentMetrics(status.At("currentMetrics"))
	kept.behavior(spec.At("behavior"))
	kept.conditions(status.At("conditions"))
	if kept.err != nil {
		return object.Nil, kept.err
	}
	return obj.Edit([]object.Member{
		{Key: "apiVersion", Value: object.StringOf("autoscaling/v1")},
		{Key: "metadata", Value: withAnnotations(obj.At("metadata"), kept.members)},
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
	edited := old.Edit(kept, hpaAnnotations...)
	if edited.Len() == 0 {
		return metadata.Without("annotations")
	}
	return metadata.With("annotations", edited)
}

// annotationKeeper gathers what v1 keeps outside of its fields, up to the first error.
type annotationKeeper struct {
	members []object.Member
	err     error
}

// metrics keeps all but the CPU utilization, which v1 has a field for.
func (a *annotationKeeper) metrics(list object.Value) {
	var others []autoscalingv1.MetricSpec
	for _, metric := range list.Items() {
		if _, isCPU := cpuUtilization(metric, "target"); isCPU {
			continue
		}
		var v2 autoscalingv2.MetricSpec
		a.decode(metric, &v2)
		others = append(others, metricSpecV2ToV1(&v2))
	}
	if len(others) > 0 {
		a.add(metricsAnnotation, others)
	}
}

// currentMetrics keeps them all, since the percentage alone would lose the raw value.
func (a *annotationKeeper) currentMetrics(list object.Value) {
	statuses := make([]autoscalingv1.MetricStatus, list.Len())
	for i, metric := range list.Items() {
		var v2 autoscalingv2.MetricStatus
		a.decode(metric, &v2)
		statuses[i] = metricStatusV2ToV1(&v2)
	}
	if len(statuses) > 0 {
		a.add(currentMetricsAnnotation, statuses)
	}
}

// conditions keeps them as they are: their JSON is the same in both versions.
func (a *annotationKeeper) conditions(list object.Value) {
	var v1 []autoscalingv1.HorizontalPodAutoscalerCondition
	if list.Len() > 0 {
		a.decode(list, &v1)
		a.add(conditionsAnnotation, v1)
	}
}

func (a *annotationKeeper) behavior(b object.Value) {
	if !b.IsNull() {
		var internal scalingBehavior
		a.decode(b, &internal)
		a.add(behaviorAnnotation, &internal)
	}
}

// add prints an annotation with encoding/json, because the order of the members is part of its text.
func (a *annotationKeeper) add(name string, content any) {
	if a.err != nil {
		return
	}
	text, err := json.Marshal(content)
	if err != nil {
		a.err = fmt.Errorf("convert: annotation %s: %w", name, err)
		return
	}
	a.members = append(a.members, object.Member{Key: name, Value: object.StringOf(string(text))})
}

// decode reads a value as one of the Go types that the annotations are made of.
func (a *annotationKeeper) decode(v object.Value, into any) {
	if err := json.Unmarshal(object.AppendJSON(nil, v), into); err != nil && a.err == nil {
		a.err = fmt.Errorf("convert: HorizontalPodAutoscaler: %w", err)
	}
}

// valueOf is the value of something that is one of those types.
func valueOf(typed any) (object.Value, error) {
	text, err := json.Marshal(typed)
	if err != nil {
		return object.Nil, fmt.Errorf("convert: HorizontalPodAutoscaler: %w", err)
	}
	parsed, err := object.ParseJSON(text)
	return parsed.Value, err
}

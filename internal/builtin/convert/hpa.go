package convert

import (
	"encoding/json"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"plinth/object"
)

// The annotations that hold, as JSON, the values for which autoscaling/v1 has no fields.
const (
	metricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	currentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	behaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
	conditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"
)

// hpaAnnotations lists the annotations that conversions read, or wrote in older releases. A conversion removes all of
// them.
var hpaAnnotations = []string{
	behaviorAnnotation, conditionsAnnotation, currentMetricsAnnotation, metricsAnnotation,
	"autoscaling.alpha.kubernetes.io/scale-down-tolerance", "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
}

// defaultCPUUtilization is the target of a v1 object that names a metric neither in the field nor in the annotation.
const defaultCPUUtilization = 80

// HPAv1ToV2 converts a HorizontalPodAutoscaler of autoscaling/v1 to v2. It never fails: an annotation that cannot be
// decoded is dropped without an error, as in the reference.
func HPAv1ToV2(obj object.Value) (object.Value, error) {
	annotations := obj.At("metadata", "annotations")
	return obj.Edit([]object.Member{
		{Key: "apiVersion", Value: object.StringOf("autoscaling/v2")},
		{Key: "metadata", Value: withAnnotations(obj.At("metadata"), nil)},
		{Key: "spec", Value: specV1ToV2(obj.At("spec"), annotations)},
		{Key: "status", Value: statusV1ToV2(obj.At("status"), annotations)},
	}), nil
}

// readAnnotation decodes the JSON of an annotation. It returns false if the annotation is absent or is not JSON.
func readAnnotation(annotations object.Value, name string, into any) bool {
	return json.Unmarshal([]byte(annotations.At(name).Str()), into) == nil
}

func specV1ToV2(spec, annotations object.Value) object.Value {
	var metrics []object.Value
	var others []autoscalingv1.MetricSpec
	if readAnnotation(annotations, metricsAnnotation, &others) {
		converted := make([]autoscalingv2.MetricSpec, len(others))
		for i := range others {
			converted[i] = metricSpecV1ToV2(&others[i])
		}
		metrics = append(metrics, valueOf(converted).Items()...)
	}
	if percent, ok := spec.Get("targetCPUUtilizationPercentage"); ok {
		metrics = append(metrics, cpuMetric("target", percent, "Utilization"))
	}
	if len(metrics) == 0 {
		metrics = []object.Value{cpuMetric("target", object.IntOf(defaultCPUUtilization), "Utilization")}
	}
	set := []object.Member{{Key: "metrics", Value: object.ListOf(metrics...)}}
	var behavior autoscalingv2.HorizontalPodAutoscalerBehavior
	if readAnnotation(annotations, behaviorAnnotation, &behavior) &&
		(behavior.ScaleUp != nil || behavior.ScaleDown != nil) {
		set = append(set, object.Member{Key: "behavior", Value: valueOf(&behavior)})
	}
	return spec.Edit(set, "targetCPUUtilizationPercentage")
}

func statusV1ToV2(status, annotations object.Value) object.Value {
	metrics := object.Nil
	if percent, ok := status.Get("currentCPUUtilizationPercentage"); ok {
		metrics = object.ListOf(cpuMetric("current", percent, ""))
	}
	var current []autoscalingv1.MetricStatus
	if readAnnotation(annotations, currentMetricsAnnotation, &current) {
		converted := make([]autoscalingv2.MetricStatus, len(current))
		for i := range current {
			converted[i] = metricStatusV1ToV2(&current[i])
		}
		metrics = valueOf(converted)
	}
	set := []object.Member{{Key: "currentMetrics", Value: metrics}}
	var conditions []autoscalingv2.HorizontalPodAutoscalerCondition
	if readAnnotation(annotations, conditionsAnnotation, &conditions) && len(conditions) > 0 {
		set = append(set, object.Member{Key: "conditions", Value: valueOf(conditions)})
	}
	drop := []string{"currentCPUUtilizationPercentage"}
	if status.At("currentReplicas").Int() == 0 {
		drop = append(drop, "currentReplicas") // v2 leaves it out when it is zero, v1 does not
	}
	return status.Edit(set, drop...)
}

// cpuMetric returns the v2 metric, or the status of one, for a percentage of v1.
func cpuMetric(place string, percent object.Value, targetType string) object.Value {
	measure := object.Fields("averageUtilization", percent)
	if targetType != "" {
		measure = measure.With("type", object.StringOf(targetType))
	}
	return object.Fields(
		"type", object.StringOf("Resource"),
		"resource", object.Fields("name", object.StringOf("cpu"), place, measure))
}

// cpuUtilization returns the percentage of v1 for a metric of v2; place is "target" or "current".
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

// withAnnotations returns metadata with its conversion annotations replaced by these.
func withAnnotations(metadata object.Value, kept []object.Member) object.Value {
	edited := metadata.At("annotations").Edit(kept, hpaAnnotations...)
	if edited.Len() == 0 {
		return metadata.Without("annotations")
	}
	return metadata.With("annotations", edited)
}

// annotationKeeper collects the annotations for values for which v1 has no fields.
type annotationKeeper struct {
	members []object.Member
	err     error // the last one; if it is set, members is not used
}

// metrics adds all metrics except the CPU utilization, which v1 has a field for.
func (a *annotationKeeper) metrics(list object.Value) {
	var others []autoscalingv1.MetricSpec
	for _, metric := range list.Items() {
		if _, isCPU := cpuUtilization(metric, "target"); isCPU {
			continue
		}
		var v2 autoscalingv2.MetricSpec
		a.unmarshal(metric, &v2)
		others = append(others, metricSpecV2ToV1(&v2))
	}
	if len(others) > 0 {
		a.add(metricsAnnotation, others)
	}
}

// currentMetrics adds all current metrics, also the CPU utilization: its field has the percentage, but not the raw
// value.
func (a *annotationKeeper) currentMetrics(list object.Value) {
	statuses := make([]autoscalingv1.MetricStatus, list.Len())
	for i, metric := range list.Items() {
		var v2 autoscalingv2.MetricStatus
		a.unmarshal(metric, &v2)
		statuses[i] = metricStatusV2ToV1(&v2)
	}
	if len(statuses) > 0 {
		a.add(currentMetricsAnnotation, statuses)
	}
}

// conditions adds the conditions, whose JSON is the same in both versions.
func (a *annotationKeeper) conditions(list object.Value) {
	var v1 []autoscalingv1.HorizontalPodAutoscalerCondition
	if list.Len() > 0 {
		a.unmarshal(list, &v1)
		a.add(conditionsAnnotation, v1)
	}
}

func (a *annotationKeeper) behavior(b object.Value) {
	if !b.IsNull() {
		var internal scalingBehavior
		a.unmarshal(b, &internal)
		a.add(behaviorAnnotation, &internal)
	}
}

// add prints an annotation with encoding/json, because the order of the members is part of its text.
func (a *annotationKeeper) add(name string, content any) {
	a.members = append(a.members, object.Member{Key: name, Value: object.StringOf(string(printed(content)))})
}

// unmarshal converts a value to one of the Go types of the annotations.
func (a *annotationKeeper) unmarshal(v object.Value, into any) {
	if err := json.Unmarshal(object.AppendJSON(nil, v), into); err != nil {
		a.err = fmt.Errorf("convert: HorizontalPodAutoscaler: %w", err)
	}
}

// printed returns the JSON of one of those types, or of a list of them. That cannot fail: they consist of strings,
// numbers, times and quantities.
func printed(typed any) []byte {
	text, err := json.Marshal(typed)
	if err != nil {
		panic("convert: " + err.Error())
	}
	return text
}

// valueOf is printed as a value.
func valueOf(typed any) object.Value {
	parsed, err := object.ParseJSON(printed(typed))
	if err != nil {
		panic("convert: " + err.Error())
	}
	return parsed.Value
}

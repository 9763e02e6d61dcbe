package validation

import (
	"fmt"
	"slices"
	"strings"

	"plinth/internal/features"
	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

const (
	maxScalingPeriod = 1800
	maxStabilization = 3600
)

var (
	metricKinds    = []string{"ContainerResource", "External", "Object", "Pods", "Resource"}
	targetKinds    = []string{"Utilization", "Value", "AverageValue"}
	selectPolicies = []string{"Disabled", "Max", "Min"}
	scalingKinds   = []string{"Percent", "Pods"}
	// metricSources are the members of a metric in the order in which the reference checks them, and their kinds.
	metricSources = [...][2]string{{"object", "Object"}, {"external", "External"}, {"pods", "Pods"},
		{"resource", "Resource"}, {"containerResource", "ContainerResource"}}
)

func autoscalerCreate(f *errorList, obj object.Value) { f.autoscaler(obj, object.Nil) }

func autoscalerUpdate(f *errorList, obj, old object.Value) { f.autoscaler(obj, old) }

func (f *errorList) autoscaler(obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	spec, before := obj.At("spec"), old.At("spec")
	p := (*fielderrors.Location)(nil).To("spec")
	f.replicaBounds(spec, before, p)
	f.scaleTarget(spec, before, p)
	f.metrics(spec, before, p.To("metrics"))
	for _, key := range [...]string{"scaleUp", "scaleDown"} {
		if rules := spec.At("behavior", key); !rules.IsNull() {
			f.scalingRules(rules, p.To("behavior").To(key))
		}
	}
}

// replicaBounds checks minReplicas, which always has a value, and maxReplicas. The declarative rule of the reference,
// which has no message, takes the place of the handwritten one where maxReplicas is new or has changed.
func (f *errorList) replicaBounds(spec, before object.Value, p *fielderrors.Location) {
	least, most := number(spec, "minReplicas"), number(spec, "maxReplicas")
	if had := !before.IsNull() && number(before, "minReplicas") == 0; least < 1 && !f.on(features.HPAScaleToZero) && !had {
		f.Invalid(p.To("minReplicas"), least, "must be greater than or equal to 1")
	} else {
		f.nonNegative(p.To("minReplicas"), least)
	}
	if most < 0 {
		f.Invalid(p.To("maxReplicas"), most, "must be greater than or equal to 1")
	}
	if most == 0 {
		var why string
		if !before.IsNull() && number(before, "maxReplicas") == 0 {
			why = "must be set and greater than 0"
		}
		f.Required(p.To("maxReplicas"), why)
	}
	if most < least {
		f.Invalid(p.To("maxReplicas"), most, "must be greater than or equal to `minReplicas`")
	}
}

func (f *errorList) scaleTarget(spec, previous object.Value, p *fielderrors.Location) {
	target, before := spec.At("scaleTargetRef"), previous.At("scaleTargetRef")
	kept := !previous.IsNull() && text(target, "apiVersion") == text(before, "apiVersion") &&
		text(target, "kind") == text(before, "kind")
	f.scaled(target, kept, text(target, "kind") == "ReplicationController", p.To("scaleTargetRef"))
}

// scaled checks a reference to the scaled or measured object.
func (f *errorList) scaled(ref object.Value, anyVersion, core bool, p *fielderrors.Location) {
	f.requiredSegment(p.To("kind"), text(ref, "kind"))
	f.requiredSegment(p.To("name"), text(ref, "name"))
	version := text(ref, "apiVersion")
	if why := apiVersionFault(version, core); why != "" && !anyVersion {
		f.Invalid(p.To("apiVersion"), version, why)
	}
}

// apiVersionFault returns the error in a group and version; core allows an empty text.
func apiVersionFault(version string, core bool) string {
	group, _, grouped := strings.Cut(version, "/")
	switch {
	case strings.Count(version, "/") > 1:
		return "unexpected GroupVersion string: " + version
	case !core && (!grouped || group == ""):
		return "apiVersion must specify API group"
	}
	return ""
}

func (f *errorList) metrics(spec, before object.Value, p *fielderrors.Location) {
	anyVersion := slices.ContainsFunc(before.At("metrics").Items(), func(metric object.Value) bool {
		described := metric.At("object", "describedObject")
		return text(metric, "type") == "Object" && apiVersionFault(text(described, "apiVersion"), true) != ""
	})
	toZero := false
	for i, metric := range spec.At("metrics").Items() {
		f.metric(metric, anyVersion, p.Item(i))
		kind := text(metric, "type")
		toZero = toZero || kind == "Object" || kind == "External"
	}
	if number(spec, "minReplicas") == 0 && !toZero {
		f.Forbidden(p, "must specify at least one Object or External metric to support scaling to zero replicas")
	}
}

func (f *errorList) metric(metric object.Value, anyVersion bool, p *fielderrors.Location) {
	kind := text(metric, "type")
	if kind == "" {
		f.Required(p.To("type"), "must specify a metric source type")
	}
	f.only(p.To("type"), kind, metricKinds)
	var n int
	var expected string
	for _, source := range metricSources {
		from := metric.At(source[0])
		if source[1] == kind {
			expected = source[0]
			if from.IsNull() {
				f.Required(p.To(source[0]), "must populate information for the given metric source")
			}
		}
		if from.IsNull() {
			continue
		}
		if n++; n == 1 {
			f.metricSource(source[0], from, anyVersion, p.To(source[0]))
		}
	}
	if n == 1 {
		return
	}
	for _, source := range metricSources {
		if source[0] != expected && has(metric, source[0]) {
			f.Forbidden(p.To(source[0]), "must populate the given metric source only")
		}
	}
}

func (f *errorList) metricSource(kind string, from object.Value, anyVersion bool, p *fielderrors.Location) {
	target := from.At("target")
	at := p.To("target")
	average, value, utilization := has(target, "averageValue"), has(target, "value"), has(target, "averageUtilization")
	switch kind {
	case "object":
		f.scaled(from.At("describedObject"), anyVersion, true, p.To("describedObject"))
		f.metricName(from, p)
		if !value && !average {
			f.Required(at.To("averageValue"), "must set either a target value or averageValue")
		}
	case "external":
		f.metricName(from, p)
		if !value && !average {
			f.Required(at.To("averageValue"), "must set either a target value for metric or a per-pod target")
		}
		if value && average {
			f.Forbidden(at.To("value"), "may not set both a target value for metric and a per-pod target")
		}
	case "pods":
		f.metricName(from, p)
		if !average {
			f.Required(at.To("averageValue"), "must specify a positive target averageValue")
		}
	default:
		f.metricResource(kind, from, p)
		if !utilization && !average {
			f.Required(at.To("averageUtilization"), "must set either a target raw value or a target utilization")
		}
		if utilization && average {
			f.Forbidden(at.To("averageValue"), "may not set both a target raw value and a target utilization")
		}
	}
	f.metricTarget(target, at)
}

func (f *errorList) metricName(from object.Value, p *fielderrors.Location) {
	if name := text(from.At("metric"), "name"); name == "" {
		f.Required(p.To("metric").To("name"), "must specify a metric name")
	} else {
		f.Each(p.To("metric").To("name"), name, objectmeta.PathSegmentErrors(name, false))
	}
}

func (f *errorList) metricResource(kind string, from object.Value, p *fielderrors.Location) {
	name := text(from, "name")
	if name == "" {
		f.Required(p.To("name"), "must specify a resource name")
	}
	if kind == "resource" {
		return
	}
	if name != "" {
		f.resourceName(name, containerResource, p.To("name"))
	}
	if container := text(from, "container"); container == "" {
		f.Required(p.To("container"), "must specify a container")
	} else {
		f.label(p.To("container"), container)
	}
}

func (f *errorList) metricTarget(target object.Value, p *fielderrors.Location) {
	kind := text(target, "type")
	if kind == "" {
		f.Required(p.To("type"), "must specify a metric target type")
	}
	if !holds(targetKinds, kind) {
		f.Invalid(p.To("type"), fielderrors.Word(kind), "must be either Utilization, Value, or AverageValue")
	}
	for _, key := range [...]string{"value", "averageValue"} {
		if v := target.At(key); !v.IsNull() {
			if amount := quantity(v); amount.Sign() != 1 {
				f.Invalid(p.To(key), amount, "must be positive")
			}
		}
	}
	if v := target.At("averageUtilization"); !v.IsNull() && v.Int() < 1 {
		f.Invalid(p.To("averageUtilization"), v.Int(), "must be greater than 0")
	}
}

func (f *errorList) scalingRules(rules object.Value, p *fielderrors.Location) {
	window := number(rules, "stabilizationWindowSeconds")
	f.nonNegativeZero(p.To("stabilizationWindowSeconds"), window)
	if window > maxStabilization {
		f.Invalid(p.To("stabilizationWindowSeconds"), window, fmt.Sprintf("must be less than or equal to %v",
			maxStabilization))
	}
	f.onlyIfSet(p.To("selectPolicy"), rules.At("selectPolicy"), selectPolicies)
	policies := rules.At("policies")
	if policies.Len() == 0 {
		f.Required(p.To("policies"), "must specify at least one Policy")
	}
	for i, policy := range policies.Items() {
		p := p.To("policies").Item(i)
		f.only(p.To("type"), text(policy, "type"), scalingKinds)
		f.positive(p.To("value"), number(policy, "value"))
		f.positive(p.To("periodSeconds"), number(policy, "periodSeconds"))
		if period := number(policy, "periodSeconds"); period > maxScalingPeriod {
			f.Invalid(p.To("periodSeconds"), period, fmt.Sprintf("must be less than or equal to %v", maxScalingPeriod))
		}
	}
	if tolerance := quantity(rules.At("tolerance")); tolerance.Sign() < 0 {
		f.Invalid(p.To("tolerance"), tolerance.String(), fielderrors.NotNegative)
	}
}

func autoscalerStatus(f *errorList, obj, _ object.Value) {
	f.qualifiedFinalizers(obj)
	p := (*fielderrors.Location)(nil).To("status")
	status := obj.At("status")
	for i, condition := range status.At("conditions").Items() {
		f.nonNegative(p.To("conditions").Item(i).To("observedGeneration"), number(condition, "observedGeneration"))
	}
	f.nonNegativeMembers(status, p, "currentReplicas", "desiredReplicas")
}

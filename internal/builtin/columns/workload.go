package columns

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"plinth/internal/engine"
	"plinth/object"
)

// What runs Pods: apps, batch, autoscaling, policy.
var (
	template = containers("spec", "template", "spec")

	ControllerRevisions = of(name,
		str("Controller", "Controller of the object", controller),
		str("Revision", doc[appsv1.ControllerRevision]("revision"), whole("revision")),
		age,
	)

	DaemonSets = of(name,
		integer("Desired", doc[appsv1.DaemonSetStatus]("desiredNumberScheduled"), whole("status", "desiredNumberScheduled")),
		integer("Current", doc[appsv1.DaemonSetStatus]("currentNumberScheduled"), whole("status", "currentNumberScheduled")),
		integer("Ready", doc[appsv1.DaemonSetStatus]("numberReady"), whole("status", "numberReady")),
		integer("Up-to-date", doc[appsv1.DaemonSetStatus]("updatedNumberScheduled"), whole("status", "updatedNumberScheduled")),
		integer("Available", doc[appsv1.DaemonSetStatus]("numberAvailable"), whole("status", "numberAvailable")),
		str("Node Selector", doc[corev1.PodSpec]("nodeSelector"), labels("spec", "template", "spec", "nodeSelector")),
		age, template[0], template[1],
		wide(str("Selector", doc[appsv1.DaemonSetSpec]("selector"), selector("spec", "selector"))),
	)

	Deployments = of(name,
		str("Ready", "Number of the pod with ready state", readyOfDesired),
		str("Up-to-date", doc[appsv1.DeploymentStatus]("updatedReplicas"), whole("status", "updatedReplicas")),
		str("Available", doc[appsv1.DeploymentStatus]("availableReplicas"), whole("status", "availableReplicas")),
		age, template[0], template[1],
		wide(str("Selector", doc[appsv1.DeploymentSpec]("selector"), func(obj object.Value) any {
			text, err := selectorText(obj.At("spec", "selector"))
			if err != nil {
				return "<invalid>"
			}
			return text
		})),
	)

	ReplicaSets = of(name,
		integer("Desired", doc[appsv1.ReplicaSetSpec]("replicas"), whole("spec", "replicas")),
		integer("Current", doc[appsv1.ReplicaSetStatus]("replicas"), whole("status", "replicas")),
		integer("Ready", doc[appsv1.ReplicaSetStatus]("readyReplicas"), whole("status", "readyReplicas")),
		age, template[0], template[1],
		wide(str("Selector", doc[appsv1.ReplicaSetSpec]("selector"), selector("spec", "selector"))),
	)

	StatefulSets = of(name, str("Ready", "Number of the pod with ready state", readyOfDesired), age, template[0], template[1])

	CronJobs = of(name,
		str("Schedule", doc[batchv1.CronJobSpec]("schedule"), text("spec", "schedule")),
		str("Timezone", doc[batchv1.CronJobSpec]("timeZone"), presentOr(none, "spec", "timeZone")),
		boolean("Suspend", doc[batchv1.CronJobSpec]("suspend"), suspended),
		integer("Active", doc[batchv1.CronJobStatus]("active"), size("status", "active")),
		str("Last Schedule", doc[batchv1.CronJobStatus]("lastScheduleTime"), func(obj object.Value) any {
			if v := obj.At("status", "lastScheduleTime"); !v.IsNull() {
				return ago(v)
			}
			return none
		}),
		age, containers("spec", "jobTemplate", "spec", "template", "spec")[0], containers("spec", "jobTemplate", "spec", "template", "spec")[1],
		wide(str("Selector", doc[batchv1.JobSpec]("selector"), selector("spec", "jobTemplate", "spec", "selector"))),
	)

	Jobs = of(name,
		str("Status", "Status of the job.", jobStatus),
		str("Completions", doc[batchv1.JobStatus]("succeeded"), completions),
		str("Duration", "Time required to complete the job.", jobDuration),
		age, template[0], template[1],
		wide(str("Selector", doc[batchv1.JobSpec]("selector"), selector("spec", "selector"))),
	)

	HorizontalPodAutoscalers = autoscalers(func(obj object.Value) any {
		return metrics(obj.At("spec", "metrics").Items(), obj.At("status", "currentMetrics").Items())
	})

	PodDisruptionBudgets = of(name,
		str("Min Available", "The minimum number of pods that must be available.", intOrPercent("spec", "minAvailable")),
		str("Max Unavailable", "The maximum number of pods that may be unavailable.", intOrPercent("spec", "maxUnavailable")),
		integer("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time.", whole("status", "disruptionsAllowed")),
		age,
	)
)

func readyOfDesired(obj object.Value) any {
	return fraction(obj.At("status", "readyReplicas").Int(), obj.At("spec", "replicas").Int())
}

// controller names the object that owns this one.
func controller(obj object.Value) any {
	for _, o := range obj.At("metadata", "ownerReferences").Items() {
		if !o.At("controller").Bool() {
			continue
		}
		kind := o.At("kind").Str()
		group, _, grouped := strings.Cut(o.At("apiVersion").Str(), "/")
		if !grouped {
			group = ""
		}
		switch {
		case kind == "" && group == "":
			return o.At("name").Str()
		case group != "":
			kind += "." + group
		}
		return strings.ToLower(kind) + "/" + o.At("name").Str()
	}
	return none
}

func suspended(obj object.Value) any {
	switch v := obj.At("spec", "suspend"); {
	case v.IsNull():
		return unset
	case v.Bool():
		return "True"
	}
	return "False"
}

func jobStatus(obj object.Value) any {
	conditions := obj.At("status", "conditions")
	is := func(typ string) bool {
		c, has := condition(conditions, typ)
		return has && isTrue(c)
	}
	switch {
	case is("Complete"):
		return "Complete"
	case is("Failed"):
		return "Failed"
	case deleted(obj):
		return "Terminating"
	case is("Suspended"):
		return "Suspended"
	case is("FailureTarget"):
		return "FailureTarget"
	case is("SuccessCriteriaMet"):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func completions(obj object.Value) any {
	done := obj.At("status", "succeeded").Int()
	if want := obj.At("spec", "completions"); !want.IsNull() {
		return fraction(done, want.Int())
	}
	if parallel := obj.At("spec", "parallelism").Int(); parallel > 1 {
		return fraction(done, 1) + " of " + itoa(parallel)
	}
	return fraction(done, 1)
}

func jobDuration(obj object.Value) any {
	start, end := obj.At("status", "startTime"), obj.At("status", "completionTime")
	switch {
	case start.IsNull():
		return ""
	case end.IsNull():
		return engine.Age{Since: at(start)}
	}
	return duration.HumanDuration(at(end).Sub(at(start)))
}

func intOrPercent(path ...string) cell {
	return func(obj object.Value) any {
		switch v := obj.At(path...); v.Kind() {
		case object.Int:
			return itoa(v.Int())
		case object.String:
			return v.Str()
		}
		return "N/A"
	}
}

// autoscalers is the table of HorizontalPodAutoscalers, whose metrics every version keeps in another place.
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
		str("Replicas", doc[autoscalingv2.HorizontalPodAutoscalerStatus]("currentReplicas"), whole("status", "currentReplicas")),
		age,
	)
}

// mostMetrics is how many metrics are shown.
const mostMetrics = 2

// metrics tells what is measured against what is wanted.
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

// metricKeys is the member in which a type of metric has its source.
var metricKeys = map[string]string{
	"External": "external", "Pods": "pods", "Object": "object", "Resource": "resource", "ContainerResource": "containerResource",
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
	is, want := unknown, "<auto>"
	if v := current.At("current", "averageUtilization"); !v.IsNull() {
		is = itoa(v.Int()) + "%"
	}
	if v := target.At("averageUtilization"); !v.IsNull() {
		want = itoa(v.Int()) + "%"
	}
	return name + is + "/" + want
}

// measured is a value as it was last measured. Where zero is set, a measurement counts even without the value.
func measured(status object.Value, key string, zero bool) string {
	v := status.At("current", key)
	if status.IsNull() || v.IsNull() && !zero {
		return unknown
	}
	return quantity(v)
}

// quantity is written as Go prints a pointer to one.
func quantity(v object.Value) string { return or(v.Str(), "<nil>") }

// Scales are what the scale subresource shows. As in the reference, its name is not marked as one.
var Scales = of(
	str("Name", doc[metav1.ObjectMeta]("name"), text("metadata", "name")),
	integer("Desired", doc[autoscalingv1.ScaleSpec]("replicas"), whole("spec", "replicas")),
	integer("Available", doc[autoscalingv1.ScaleStatus]("replicas"), whole("status", "replicas")),
	age,
)

package columns

import (
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"plinth/object"
)

// scheduling.k8s.io
var (
	PriorityClasses = of(name,
		integer("Value", doc[schedulingv1.PriorityClass]("value"), whole("value")),
		boolean("Global-Default", doc[schedulingv1.PriorityClass]("globalDefault"), truth(false, "globalDefault")),
		age,
		str("PreemptionPolicy", doc[schedulingv1.PriorityClass]("preemptionPolicy"), text("preemptionPolicy")),
	)

	CompositePodGroups = of(name,
		str("Policy", doc[schedulingv1alpha3.CompositePodGroupSpec]("schedulingPolicy"), groupPolicy),
		str("Workload", workloadOfGroup, groupWorkload),
		age)

	PodGroups = of(name,
		str("Policy", doc[schedulingv1beta1.PodGroupSpec]("schedulingPolicy"), groupPolicy),
		str("Workload", workloadOfGroup, groupWorkload),
		str("Status", "Status of the PodGroup", groupStatus),
		age)

	Workloads = of(name, age)
)

const workloadOfGroup = "Name of the referenced Workload object"

func groupPolicy(obj object.Value) any {
	if obj.At("spec", "schedulingPolicy", "gang").IsNull() {
		return "Basic"
	}
	return "Gang"
}

func groupWorkload(obj object.Value) any {
	if ref := obj.At("spec", "workloadRef"); !ref.IsNull() {
		return ref.At("workloadName").Str()
	}
	return none
}

// groupStatus is the state of a PodGroup. Of several conditions of a type, the last one counts.
func groupStatus(obj object.Value) any {
	var scheduled, disrupted object.Value
	for _, c := range obj.At("status", "conditions").Items() {
		switch c.At("type").Str() {
		case schedulingv1beta1.PodGroupInitiallyScheduled:
			scheduled = c
		case schedulingv1beta1.DisruptionTarget:
			disrupted = c
		}
	}
	switch {
	case !disrupted.IsNull():
		return disrupted.At("reason").Str()
	case scheduled.IsNull():
		return "Pending"
	case isTrue(scheduled):
		return "Scheduled"
	}
	return "Unschedulable"
}

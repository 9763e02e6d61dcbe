package columns

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"plinth/object"
)

// apps
var (
	template = containers("spec", "template", "spec")

	ControllerRevisions = of(name,
		str("Controller", "Controller of the object", controller),
		str("Revision", doc[appsv1.ControllerRevision]("revision"), whole("revision")),
		age,
	)

	DaemonSets = of(name,
		integer("Desired", doc[appsv1.DaemonSetStatus]("desiredNumberScheduled"),
			whole("status", "desiredNumberScheduled")),
		integer("Current", doc[appsv1.DaemonSetStatus]("currentNumberScheduled"),
			whole("status", "currentNumberScheduled")),
		integer("Ready", doc[appsv1.DaemonSetStatus]("numberReady"), whole("status", "numberReady")),
		integer("Up-to-date", doc[appsv1.DaemonSetStatus]("updatedNumberScheduled"),
			whole("status", "updatedNumberScheduled")),
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

	StatefulSets = of(name, str("Ready", "Number of the pod with ready state", readyOfDesired), age, template[0],
		template[1])
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

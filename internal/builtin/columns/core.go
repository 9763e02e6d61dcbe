package columns

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"plinth/object"
)

// The core group. Pods, Services, volumes and Events have separate files. LimitRanges have the common columns.
var (
	ComponentStatuses = of(name,
		str("Status", "Status of the component conditions", componentHealth),
		str("Message", "Message of the component conditions", healthText("message")),
		str("Error", "Error of the component conditions", healthText("error")),
	)

	ConfigMaps = of(name,
		str("Data", doc[corev1.ConfigMap]("data"), func(obj object.Value) any {
			return int64(obj.At("data").Len() + obj.At("binaryData").Len())
		}),
		age,
	)

	LimitRanges Table

	Namespaces = of(name, str("Status", "The status of the namespace", text("status", "phase")), age)

	Nodes = of(name,
		str("Status", "The status of the node", nodeStatus),
		str("Roles", "The roles of the node", nodeRoles),
		age,
		str("Version", doc[corev1.NodeSystemInfo]("kubeletVersion"), text("status", "nodeInfo", "kubeletVersion")),
		wide(str("Internal-IP", doc[corev1.NodeStatus]("addresses"), nodeAddress("InternalIP"))),
		wide(str("External-IP", doc[corev1.NodeStatus]("addresses"), nodeAddress("ExternalIP"))),
		wide(str("OS-Image", doc[corev1.NodeSystemInfo]("osImage"), textOr(unknown, "status", "nodeInfo", "osImage"))),
		wide(str("Kernel-Version", doc[corev1.NodeSystemInfo]("kernelVersion"), nodeKernel)),
		wide(str("Container-Runtime", doc[corev1.NodeSystemInfo]("containerRuntimeVersion"),
			textOr(unknown, "status", "nodeInfo", "containerRuntimeVersion"))),
	)

	ReplicationControllers = of(
		name,
		integer("Desired", doc[corev1.ReplicationControllerSpec]("replicas"), whole("spec", "replicas")),
		integer("Current", doc[corev1.ReplicationControllerStatus]("replicas"), whole("status", "replicas")),
		integer("Ready", doc[corev1.ReplicationControllerStatus]("readyReplicas"), whole("status", "readyReplicas")),
		age,
		containers("spec", "template", "spec")[0], containers("spec", "template", "spec")[1],
		wide(str("Selector", doc[corev1.ReplicationControllerSpec]("selector"), labels("spec", "selector"))),
	)

	ResourceQuotas = of(name,
		str("Request", "Request represents a minimum amount of cpu/memory that a container may consume.", quota(false)),
		str("Limit",
			"Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
			quota(true)),
		age,
	)

	Secrets = of(name,
		str("Type", doc[corev1.Secret]("type"), text("type")),
		str("Data", doc[corev1.Secret]("data"), size("data")),
		age,
	)

	ServiceAccounts = of(name, age)
)

func componentHealth(obj object.Value) any {
	c, has := condition(obj.At("conditions"), "Healthy")
	switch {
	case !has:
		return "Unknown"
	case isTrue(c):
		return "Healthy"
	}
	return "Unhealthy"
}

func healthText(field string) cell {
	return func(obj object.Value) any {
		c, _ := condition(obj.At("conditions"), "Healthy")
		return c.At(field).Str()
	}
}

func nodeStatus(obj object.Value) any {
	status := "Unknown"
	for _, c := range obj.At("status", "conditions").Items() { // the last one counts
		if c.At("type").Str() == "Ready" {
			status = "NotReady"
			if isTrue(c) {
				status = "Ready"
			}
		}
	}
	if obj.At("spec", "unschedulable").Bool() {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles returns the roles of a Node, from its labels in either of two forms.
func nodeRoles(obj object.Value) any {
	roles := sets.New[string]()
	for _, m := range obj.At("metadata", "labels").Members() {
		role, ok := strings.CutPrefix(m.Key, "node-role.kubernetes.io/")
		if m.Key == "kubernetes.io/role" {
			role, ok = m.Value.Str(), true
		}
		if ok && role != "" {
			roles.Insert(role)
		}
	}
	return or(strings.Join(sets.List(roles), ","), none)
}

func nodeAddress(typ string) cell {
	return func(obj object.Value) any {
		c, has := condition(obj.At("status", "addresses"), typ)
		if !has {
			return none
		}
		return c.At("address").Str()
	}
}

func nodeKernel(obj object.Value) any {
	info := obj.At("status", "nodeInfo")
	kernel := or(info.At("kernelVersion").Str(), unknown)
	if architecture := info.At("architecture").Str(); architecture != "" {
		kernel += " (" + architecture + ")"
	}
	return kernel
}

// quota lists used and hard amounts, either of the limits or of all other resources.
func quota(limits bool) cell {
	return func(obj object.Value) any {
		hard, used := obj.At("status", "hard"), obj.At("status", "used")
		var parts []string
		for _, m := range hard.Members() {
			if strings.HasPrefix(m.Key, "limits.") == limits {
				parts = append(parts, m.Key+": "+or(used.At(m.Key).Str(), "0")+"/"+m.Value.Str())
			}
		}
		return strings.Join(parts, ", ")
	}
}

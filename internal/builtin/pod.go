package builtin

import (
	corev1 "k8s.io/api/core/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/engine"
	"plinth/object"
)

func pods() kind {
	return kind{
		name: "pods", kind: "Pod", short: "po", categories: []string{"all"}, schema: gotypes.Of[corev1.Pod],
		status: statusNotOwners, onCreate: newPod, onUpdate: keepPodResources, onStatus: keepPodStatus,
		gated:      podGates("spec"),
		generation: spec,
		fields: []selectable{
			truth("spec.hostNetwork", "spec", "hostNetwork"),
			text("spec.nodeName", "spec", "nodeName"),
			text("spec.restartPolicy", "spec", "restartPolicy"),
			text("spec.schedulerName", "spec", "schedulerName"),
			text("spec.serviceAccountName", "spec", "serviceAccountName"),
			text("status.nominatedNodeName", "status", "nominatedNodeName"),
			text("status.phase", "status", "phase"),
			{"status.podIP", podIP},
			{"status.podIPs", nil},
		},
		table: columns.Pods, answersDeleted: true,
		special: func(r *engine.Resource) { r.GracefulDelete = podGrace },
	}
}

// podIP is the first of the addresses; the field of that name follows it.
func podIP(obj object.Value) string {
	if ips := obj.At("status", "podIPs").Items(); len(ips) > 0 {
		return ips[0].At("ip").Str()
	}
	return obj.At("status", "podIP").Str()
}

// podGrace gives a running Pod the time that the client or the Pod itself asks for. One that no node runs goes at once.
func podGrace(obj object.Value, asked *int64) (seconds int64, graceful bool) {
	seconds = obj.At("spec", "terminationGracePeriodSeconds").Int()
	if asked != nil {
		seconds = *asked
	}
	switch obj.At("status", "phase").Str() {
	case "Failed", "Succeeded":
		seconds = 0
	}
	if obj.At("spec", "nodeName").Str() == "" {
		seconds = 0
	}
	if seconds < 0 {
		seconds = 1
	}
	return seconds, true
}

// podGates are the fields of features that are off by default, below a path that leads to the spec of a Pod.
func podGates(path string) [][]string {
	var fields []string
	for _, containers := range []string{".containers[].", ".initContainers[].", ".ephemeralContainers[]."} {
		for _, field := range []string{
			"lifecycle.stopSignal",
			"livenessProbe.grpc.mode", "readinessProbe.grpc.mode", "startupProbe.grpc.mode",
			"volumeMounts[].bindMountOptions",
		} {
			fields = append(fields, path+containers+field)
		}
	}
	for _, field := range []string{
		".evictionResponders", ".schedulingGroup", ".volumes[].emptyDir.mode",
	} {
		fields = append(fields, path+field)
	}
	return gates(fields...)
}

package admission

import (
	"testing"

	"k8s.io/apiserver/pkg/admission"
)

// SPEC: AUTH-3
func TestNodeDeclaredFeatureValidator(t *testing.T) {
	r, count := seeded(37), tally{}
	features := []string{"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingExclusiveCPUs",
		"DRANodeAllocatableResources", "GuaranteedQoSPodCPUResize", "RestartAllContainersOnContainerExits",
		"UserNamespacesHostNetworkSupport", "VolumeBindMountOptions", "MemoryBackedVolumesResize"}
	node := func(name, labels string, declared string) string {
		return doc("v1", "Node", "", name, []string{"labels", labels}, "status", fields("declaredFeatures", declared))
	}
	quantity := func() string { return r.one("", `"1"`, `"2"`) }
	pod := func(generation, on string) string {
		return doc("v1", "Pod", "ns", "p", []string{"generation", generation}, "spec", fields("nodeName", on,
			"hostNetwork", r.one("", "", "true"), "hostUsers", r.one("", "", "false"),
			"resources", r.one("", fields("requests", fields("cpu", quantity()), "limits", fields("cpu", quantity()))),
			"volumes", r.one("", "[{name: v, emptyDir: {medium: Memory, sizeLimit: "+r.one("1Mi", "2Mi")+"}}]"),
			"containers", "["+fields("name", "c", "image", "i",
				"restartPolicyRules", r.one("", "",
					"[{action: RestartAllContainers, exitCodes: {operator: In, values: [1]}}]"),
				"resources", fields("requests", fields("cpu", quantity(), "memory", "1Gi"),
					"limits", fields("cpu", quantity(), "memory", "1Gi")))+"]"),
			"status", fields("qosClass", r.one("Guaranteed", "Burstable")))
	}
	selections := []string{"nodeName: full", "nodeName: none", "nodeName: gone", "allNodes: true", `nodeName: ""`,
		"nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}",
		"nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [d]}]}]}",
		"nodeSelector: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [none]}]}]}",
		"nodeSelector: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [full]}]}]}",
		"nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Bad}]}]}"}
	device := func(version, name, fields string) string {
		if version == "v1beta1" {
			fields = "basic: {" + fields + "}"
		}
		return "{name: " + name + ", " + fields + "}"
	}
	either := func(version, name, selection string) string {
		return device(version, name, selection+r.one("", ", nodeAllocatableResources: {r: {}}"))
	}
	slice := func(version, selection, devices string) attempt {
		return attempt{operation: admission.Create, group: "resource.k8s.io", version: version,
			resource: "resourceslices", name: "s", object: doc("resource.k8s.io/"+version, "ResourceSlice", "", "s", nil,
				"spec", "{driver: d, pool: {name: p, generation: 1, resourceSliceCount: 1}, "+selection+
					", devices: ["+devices+"]}")}
	}
	for i := range 60 {
		var gates map[string]bool
		if i%6 > 0 {
			gates = map[string]bool{"DRANodeAllocatableResources": i%6 > 1}
		}
		all := "[" + features[0]
		for _, f := range features[1:] {
			all += ", " + f
		}
		w := (&world{plugin: "NodeDeclaredFeatureValidator", gates: gates, objects: []string{node("full", "{a: b}",
			all+"]"),
			node("none", "{a: d}", ""), node("some", "{a: c}",
				"[DRANodeAllocatableResources, "+r.one(features...)+"]")}}).build(t)
		for _, selection := range selections {
			for _, version := range []string{"v1", "v1beta1"} {
				s := slice(version, selection, device(version, "d1", "nodeAllocatableResources: {r: {}}"))
				w.compare(t, s, &count)
				w.elsewhere(t, s)
			}
		}
		for range 12 {
			for _, on := range []string{"full", "none", "some", "gone", ""} {
				a := ofPod(admission.Update, pod(r.one("1", "2"), on), pod("1", on))
				a.subresource = r.one("", "resize", "status")
				w.compare(t, a, &count)
			}
			w.compare(t, ofPod(admission.Create, pod("1", "none"), ""), &count)
			v := r.one("v1", "v1beta1")
			s := slice(v, r.one(selections...)+r.one("", ", perDeviceNodeSelection: true"),
				either(v, "d1", r.one(selections...))+", "+either(v, "d2", r.one(selections...)))
			w.compare(t, s, &count)
			s.operation, s.old = admission.Update, s.object
			w.compare(t, s, &count)
		}
	}
	count.atLeast(t, 0, 1000, 300)
}

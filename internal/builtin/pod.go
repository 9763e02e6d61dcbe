package builtin

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

func pods(c Config) kind {
	k := podKind(c)
	complete := c.Features.On(features.PodLevelResourcesFixDefaulting)
	k.onCreate = func(obj object.Value) object.Value { return newPod(obj, complete) }
	switch {
	case complete:
		k.onUpdate = keepPodResources
	case c.Features.On(features.PodLevelResources):
		k.defaults = func(obj object.Value) object.Value { return completedBefore(defaults.Pod(obj)) }
	}
	return k
}

// podKind is the row of Pods, but for what depends on how the resources of a whole Pod are completed.
func podKind(c Config) kind {
	return kind{
		name: "pods", kind: "Pod", short: "po", categories: []string{"all"},
		versions: []version{of[corev1.Pod, corev1.PodList]()},
		defaults: defaults.Pod, rules: validation.Pod, warnings: warnings.Pod,
		untouched: map[string]string{"": "status", "status": "spec metadata.deletionTimestamp metadata.ownerReferences"},
		status:    statusNotOwners, onStatus: keepPodStatus,
		gated:       podGates("spec"),
		gatedStatus: []gated{grown("status", podStatusFeatures)},
		generation:  spec,
		fields: []selectable{
			truth("spec.hostNetwork"),
			text("spec.nodeName"),
			text("spec.restartPolicy"),
			text("spec.schedulerName"),
			text("spec.serviceAccountName"),
			text("status.nominatedNodeName"),
			text("status.phase"),
			{name: "status.podIP", value: podIP, paths: [][]string{{"status", "podIP"}, {"status", "podIPs"}}},
			{name: "status.podIPs"},
		},
		table: columns.Pods, answersDeleted: true,
		special: func(r *engine.Resource) {
			r.GracefulDelete = podGrace
			r.OldFields = map[string]string{"spec.host": "spec.nodeName"}
			r.Subresources = slices.Concat(r.Subresources,
				podSubresources(r, c.Features, validation.Pod.Rules(c.validation()).Running), podOperations(&c),
				podConnections(c.Features))
		},
	}
}

// podIP returns the first of status.podIPs, or status.podIP if podIPs is empty.
func podIP(obj object.Value) string {
	if ips := obj.At("status", "podIPs").Items(); len(ips) > 0 {
		return ips[0].At("ip").Str()
	}
	return obj.At("status", "podIP").Str()
}

// podGrace returns the grace period that the client or the Pod itself specifies. A Pod that has ended, or has no node,
// is deleted at once.
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

// behindEach returns the feature behind a gate that has these fields in the items of each list.
func behindEach(lists []string, gate features.Gate, fields ...string) feature {
	var paths []string
	for _, list := range lists {
		for _, field := range fields {
			paths = append(paths, list+"[]."+field)
		}
	}
	return behind(gate, paths...)
}

// podStatusFeatures are the features of a Pod's status.
var podStatusFeatures = sync.OnceValue(func() *tree {
	inContainers := func(gate features.Gate, fields ...string) feature {
		return behindEach([]string{"containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"}, gate,
			fields...)
	}
	return grow(
		behind(features.DRANodeAllocatableResources, "nodeAllocatableResourceClaimStatuses"),
		behind(features.CSIVolumeHealth, "volumeHealth"),
		behind(features.InPlacePodLevelResourcesVerticalScaling, "resources", "allocatedResources"),
		behind(features.DRAExtendedResource, "extendedResourceClaimStatus"),
		behind(features.PodObservedGenerationTracking, "observedGeneration", "conditions[].observedGeneration"),
		inContainers(features.ResourceHealthStatus, "allocatedResourcesStatus"),
		inContainers(features.ResourceHealthStatusMessage, "allocatedResourcesStatus[].resources[].message"),
		inContainers(features.ImageVolumeWithDigest, "volumeMounts[].volumeStatus"),
	)
})

// podFeatures are the features of a Pod's spec.
var podFeatures = sync.OnceValue(func() *tree {
	inContainers := func(gate features.Gate, fields ...string) feature {
		return behindEach([]string{"containers", "initContainers", "ephemeralContainers"}, gate, fields...)
	}
	restartRules := inContainers(features.ContainerRestartRules, "restartPolicyRules")
	restartRules.fields = append(restartRules.fields, "containers[].restartPolicy", "ephemeralContainers[].restartPolicy",
		"initContainers[].restartPolicy!Always")
	claims := inContainers(features.DynamicResourceAllocation, "resources.claims")
	claims.fields = append(claims.fields, "resourceClaims")
	return grow(
		restartRules, claims,
		behind(features.UserNamespacesSupport, "hostUsers"),
		behind(features.SupplementalGroupsPolicy, "securityContext.supplementalGroupsPolicy"),
		behind(features.SELinuxChangePolicy, "securityContext.seLinuxChangePolicy"),
		behind(features.PodLevelResources, "resources"),
		behind(features.MatchLabelKeysInPodTopologySpread, "topologySpreadConstraints[].matchLabelKeys"),
		behind(features.ClusterTrustBundleProjection, "volumes[].projected.sources[].clusterTrustBundle"),
		behind(features.PodCertificateRequest, "volumes[].projected.sources[].podCertificate"),
		behind(features.HostnameOverride, "hostnameOverride"),
		inContainers(features.ProcMountType, "securityContext.procMount=Default"),
		inContainers(features.InPlacePodVerticalScaling, "resizePolicy"),
		inContainers(features.EnvFiles, "env[].valueFrom.fileKeyRef"),
		inContainers(features.ContainerStopSignals, "lifecycle?.stopSignal"),
		inContainers(features.GRPCContainerProbeTLS, "livenessProbe.grpc.mode", "readinessProbe.grpc.mode",
			"startupProbe.grpc.mode"),
		inContainers(features.VolumeBindMountOptions, "volumeMounts[].bindMountOptions"),
		inContainers(features.H2CContainerProbe,
			"livenessProbe.httpGet.protocol", "readinessProbe.httpGet.protocol", "startupProbe.httpGet.protocol",
			"lifecycle.postStart.httpGet.protocol", "lifecycle.preStop.httpGet.protocol"),
		behind(features.EvictionRequestAPI, "evictionResponders"),
		behind(features.GenericWorkload, "schedulingGroup"),
		behind(features.EmptyDirVolumeMode, "volumes[].emptyDir.mode"),
		behind(features.AtomicWriteVolumeUserFields,
			"volumes[].secret.defaultUser", "volumes[].secret.items[].user",
			"volumes[].configMap.defaultUser", "volumes[].configMap.items[].user",
			"volumes[].downwardAPI.defaultUser", "volumes[].downwardAPI.items[].user",
			"volumes[].projected.defaultUser",
			"volumes[].projected.sources[].secret.items[].user", "volumes[].projected.sources[].configMap.items[].user",
			"volumes[].projected.sources[].downwardAPI.items[].user",
			"volumes[].projected.sources[].serviceAccountToken.user",
			"volumes[].projected.sources[].clusterTrustBundle.user",
			"volumes[].projected.sources[].podCertificate.user"),
	)
})

// podGates are those features in the spec of a Pod, or of a template for one.
func podGates(place string) []gated {
	g := grown(place, podFeatures)
	g.more = imageVolumes
	return []gated{g}
}

// imageVolumes drops the volumes of images and their mounts, while the gate ImageVolume is off and the old spec has
// none.
func imageVolumes(spec, old object.Value, set features.Set) object.Value {
	isImage := func(volume object.Value) bool { return !volume.At("image").IsNull() }
	volumes := spec.At("volumes").Items()
	if set.On(features.ImageVolume) || !slices.ContainsFunc(volumes, isImage) ||
		slices.ContainsFunc(old.At("volumes").Items(), isImage) {
		return spec
	}
	dropped := map[string]bool{}
	for _, volume := range volumes {
		if isImage(volume) {
			dropped[volume.At("name").Str()] = true
		}
	}
	without := func(v object.Value, list string, drop func(object.Value) bool) object.Value {
		kept := slices.DeleteFunc(slices.Clone(v.At(list).Items()), drop)
		if len(kept) == 0 {
			return v.Without(list)
		}
		return v.With(list, object.ListOf(kept...))
	}
	spec = without(spec, "volumes", isImage)
	for _, list := range []string{"containers", "initContainers", "ephemeralContainers"} {
		containers := slices.Clone(spec.At(list).Items())
		for i, container := range containers {
			containers[i] = without(container, "volumeMounts", func(mount object.Value) bool {
				return dropped[mount.At("name").Str()]
			})
		}
		if len(containers) > 0 {
			spec = spec.With(list, object.ListOf(containers...))
		}
	}
	return spec
}

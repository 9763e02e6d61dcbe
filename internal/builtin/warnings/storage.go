package warnings

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"plinth/object"
)

const useStorageClass = `deprecated since v1.8; use "storageClassName" attribute instead`

// goneVolumes are the sources of PersistentVolumes that are no longer supported, in the reference's order.
var goneVolumes = [...]struct{ member, shown, since string }{
	{"cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"},
	{"photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
	{"scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
	{"storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"},
	{"glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
	{"rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"},
}

func volume(obj object.Value) (warnings []string) {
	for _, a := range [...][2]string{
		{corev1.BetaStorageClassAnnotation, useStorageClass},
		{"volume.beta.kubernetes.io/mount-options", `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if annotated(obj.At("metadata"), a[0]) {
			warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: %s", a[0], a[1]))
		}
	}
	spec := obj.At("spec")
	if spec.At("persistentVolumeReclaimPolicy").Str() == "Recycle" {
		warnings = append(warnings,
			"spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	for i, term := range spec.At("nodeAffinity", "required", "nodeSelectorTerms").Items() {
		warnings = append(warnings, nodeTerm(fmt.Sprintf("spec.nodeAffinity.required.nodeSelectorTerms[%d]", i), term,
			false)...)
	}
	for _, g := range goneVolumes {
		if !spec.At(g.member).IsNull() {
			warnings = append(warnings, fmt.Sprintf("spec.%s: %s", g.shown, g.since))
		}
	}
	return warnings
}

func claim(obj object.Value) (warnings []string) {
	if annotated(obj.At("metadata"), corev1.BetaStorageClassAnnotation) {
		warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: %s", corev1.BetaStorageClassAnnotation,
			useStorageClass))
	}
	return append(warnings, claimSpec("spec", obj.At("spec"))...)
}

func claimSpec(path string, spec object.Value) (warnings []string) {
	for _, kind := range []string{"requests", "limits"} {
		warnings = fraction(warnings, func() string { return path + ".resources." + kind }, spec.At("resources", kind),
			"storage")
	}
	return warnings
}

const tokensInSecrets = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"

func driver(obj object.Value) []string {
	if spec := obj.At("spec"); spec.At("tokenRequests").Len() > 0 && spec.At("serviceAccountTokenInSecrets").IsNull() {
		return []string{tokensInSecrets}
	}
	return nil
}

func driverUpdate(obj, old object.Value) []string {
	if object.Equal(obj.At("spec", "tokenRequests"), old.At("spec", "tokenRequests")) {
		return nil
	}
	return driver(obj)
}

func capacity(obj object.Value) (warnings []string) {
	topology := obj.At("nodeTopology")
	for i, e := range topology.At("matchExpressions").Items() {
		if key := e.At("key").Str(); nodeLabels[key] != "" {
			warnings = append(warnings, fmt.Sprintf("nodeTopology.matchExpressions[%d].key: %s is %s", i, key,
				nodeLabels[key]))
		}
	}
	for _, m := range topology.At("matchLabels").Members() {
		if why, deprecated := nodeLabels[m.Key]; deprecated {
			warnings = append(warnings, fmt.Sprintf("nodeTopology.matchLabels.%s: %s", m.Key, why))
		}
	}
	return warnings
}

func class(obj object.Value) (warnings []string) {
	for i, topology := range obj.At("allowedTopologies").Items() {
		for j, e := range topology.At("matchLabelExpressions").Items() {
			if why, deprecated := nodeLabels[e.At("key").Str()]; deprecated {
				warnings = append(warnings, fmt.Sprintf("allowedTopologies[%d].matchLabelExpressions[%d].key: %s", i, j,
					why))
			}
		}
	}
	return warnings
}

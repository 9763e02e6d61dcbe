package builtin

import (
	corev1 "k8s.io/api/core/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

// core is the core group. Pods, Services, Namespaces and Events have separate files.
func core(c Config) group {
	return group{"", []kind{
		bindings(),
		{
			name: "configmaps", kind: "ConfigMap", short: "cm",
			versions: []version{of[corev1.ConfigMap, corev1.ConfigMapList]()},
			rules:    validation.ConfigMap,
			table:    columns.ConfigMaps,
		},
		{
			name: "endpoints", kind: "Endpoints", short: "ep",
			versions: []version{of[corev1.Endpoints, corev1.EndpointsList]()},
			defaults: defaults.Endpoints, rules: validation.Endpoints, warnings: warnings.Endpoints,
			putCreates: true, deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
			table: columns.Endpoints,
		},
		coreEvents(c),
		{
			name: "limitranges", kind: "LimitRange", short: "limits",
			versions: []version{of[corev1.LimitRange, corev1.LimitRangeList]()},
			defaults: defaults.LimitRange, rules: validation.LimitRange,
			putCreates: true, table: columns.LimitRanges,
		},
		namespaces(),
		{
			name: "nodes", kind: "Node", short: "no", versions: []version{of[corev1.Node, corev1.NodeList]()},
			cluster:  true,
			defaults: defaults.Node, rules: validation.Node, warnings: warnings.Node,
			untouched: statusApart,
			alias:     podCIDR, status: statusOnCreate, onCreate: dropNodeConfig, onUpdate: keepNodeConfig,
			onStatus: keepNodeStatusConfig,
			gated: []gated{
				below("spec", behind(features.InPlacePodVerticalScalingSchedulerPreemption, "podPreemptionPolicy")),
				below("status", behind(features.SupplementalGroupsPolicy, "features"),
					behind(features.NodeDeclaredFeatures, "declaredFeatures")),
			},
			gatedStatus: []gated{below("status.nodeInfo", behind(features.KubeletInUserNamespace,
				"runningInUserNamespace"))},
			fields: []selectable{truth("spec.unschedulable")},
			table:  columns.Nodes,
			more:   []*engine.Subresource{proxied[corev1.NodeProxyOptions]("NodeProxyOptions")},
		},
		{
			name: "persistentvolumeclaims", kind: "PersistentVolumeClaim", short: "pvc",
			defaults: defaults.PersistentVolumeClaim, rules: validation.PersistentVolumeClaim,
			warnings:  warnings.PersistentVolumeClaim,
			untouched: statusApart,
			versions:  []version{of[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList]()},
			status:    statusAndMeta, initial: phase("Pending"), onCreate: c.claimSource, onUpdate: c.claimSourceUpdate,
			gated: []gated{below("spec", behind(features.VolumeAttributesClass, "volumeAttributesClassName"))},
			gatedStatus: []gated{below("status", behind(features.CSIVolumeHealth, "healthStatus"),
				behind(features.VolumeAttributesClass, "currentVolumeAttributesClassName"),
				behind(features.VolumeAttributesClass, "modifyVolumeStatus"))},
			table: columns.PersistentVolumeClaims, answersDeleted: true,
		},
		{
			name: "persistentvolumes", kind: "PersistentVolume", short: "pv",
			defaults: defaults.PersistentVolume, rules: validation.PersistentVolume, warnings: warnings.PersistentVolume,
			untouched: statusApart,
			versions:  []version{of[corev1.PersistentVolume, corev1.PersistentVolumeList]()}, cluster: true,
			status: statusAndMeta, initial: volumePending, onStatus: volumePhase(c.Now),
			gated: []gated{below("spec", behind(features.VolumeAttributesClass, "volumeAttributesClassName"))},
			table: columns.PersistentVolumes, answersDeleted: true,
		},
		pods(c),
		{
			name: "podtemplates", kind: "PodTemplate",
			versions: []version{of[corev1.PodTemplate, corev1.PodTemplateList]()},
			defaults: defaults.PodTemplate, rules: validation.PodTemplate, warnings: warnings.PodTemplate,
			gated:      podGates("template.spec"),
			generation: func(obj object.Value) object.Value { return obj.At("template") },
			table:      columns.PodTemplates, answersDeleted: true,
		},
		{
			name: "replicationcontrollers", kind: "ReplicationController", short: "rc", categories: []string{"all"},
			defaults: defaults.ReplicationController, rules: validation.ReplicationController,
			warnings:  warnings.ReplicationController,
			untouched: statusApart,
			versions:  []version{of[corev1.ReplicationController, corev1.ReplicationControllerList]()},
			status:    statusAndMeta, gated: podGates("spec.template.spec"), generation: spec,
			fields: []selectable{number("status.replicas")},
			table:  columns.ReplicationControllers,
			scale:  labelsOf, propagation: orphans,
		},
		{
			name: "resourcequotas", kind: "ResourceQuota", short: "quota",
			versions: []version{of[corev1.ResourceQuota, corev1.ResourceQuotaList]()},
			defaults: defaults.ResourceQuota, rules: validation.ResourceQuota, warnings: warnings.ResourceQuota,
			untouched: statusApart,
			status:    statusAndMeta, table: columns.ResourceQuotas, answersDeleted: true,
			acts: func(r *engine.Resource, parts *Parts) { r.Refresh = parts.CountQuotas },
		},
		{
			name: "secrets", kind: "Secret", versions: []version{of[corev1.Secret, corev1.SecretList]()},
			defaults: defaults.Secret, rules: validation.Secret, warnings: warnings.Secret,
			alias: plainData, onUpdate: keepSecretType, fields: []selectable{text("type")},
			table: columns.Secrets, confidential: true,
		},
		{
			name: "serviceaccounts", kind: "ServiceAccount", short: "sa",
			versions: []version{of[corev1.ServiceAccount, corev1.ServiceAccountList]()},
			rules:    validation.ServiceAccount, warnings: warnings.ServiceAccount,
			onCreate: secretNames, onUpdate: func(obj, _ object.Value) object.Value { return secretNames(obj) },
			table: columns.ServiceAccounts, answersDeleted: true, more: accountTokens(), acts: answerTokens,
		},
		c.services(),
		componentStatuses(),
	}}
}

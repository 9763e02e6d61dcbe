package builtin

import (
	corev1 "k8s.io/api/core/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/internal/features"
	"plinth/object"
)

// core is the core group. Pods, Services, Namespaces and Events have separate files.
func core(c Config) group {
	return group{"", "v1", []kind{
		bindings(),
		{
			name: "configmaps", kind: "ConfigMap", short: "cm", schema: gotypes.Of[corev1.ConfigMap],
			list:  gotypes.Of[corev1.ConfigMapList],
			rules: validation.ConfigMap,
			table: columns.ConfigMaps,
		},
		{
			name: "endpoints", kind: "Endpoints", short: "ep", schema: gotypes.Of[corev1.Endpoints],
			list:     gotypes.Of[corev1.EndpointsList],
			defaults: defaults.Endpoints, rules: validation.Endpoints, warnings: warnings.Endpoints,
			putCreates: true, deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
			table: columns.Endpoints,
		},
		coreEvents(c),
		{
			name: "limitranges", kind: "LimitRange", short: "limits", schema: gotypes.Of[corev1.LimitRange],
			list:     gotypes.Of[corev1.LimitRangeList],
			defaults: defaults.LimitRange, rules: validation.LimitRange,
			putCreates: true, table: columns.LimitRanges,
		},
		namespaces(),
		{
			name: "nodes", kind: "Node", short: "no", schema: gotypes.Of[corev1.Node], list: gotypes.Of[corev1.NodeList],
			cluster:  true,
			defaults: defaults.Node, rules: validation.Node, warnings: warnings.Node,
			untouched: statusApart,
			alias:     podCIDR, status: statusOnCreate, onCreate: dropNodeConfig, onUpdate: keepNodeConfig,
			onStatus: keepNodeStatusConfig,
			gated: []gated{below("spec", behind(features.InPlacePodVerticalScalingSchedulerPreemption,
				"podPreemptionPolicy"))},
			fields: []selectable{truth("spec.unschedulable")},
			table:  columns.Nodes,
		},
		{
			name: "persistentvolumeclaims", kind: "PersistentVolumeClaim", short: "pvc",
			defaults: defaults.PersistentVolumeClaim, rules: validation.PersistentVolumeClaim,
			warnings:  warnings.PersistentVolumeClaim,
			untouched: statusApart,
			schema:    gotypes.Of[corev1.PersistentVolumeClaim], list: gotypes.Of[corev1.PersistentVolumeClaimList],
			status: statusAndMeta, initial: phase("Pending"), onCreate: claimSource, onUpdate: claimSourceUpdate,
			gatedStatus: []gated{below("status", behind(features.CSIVolumeHealth, "healthStatus"))},
			table:       columns.PersistentVolumeClaims, answersDeleted: true,
		},
		{
			name: "persistentvolumes", kind: "PersistentVolume", short: "pv",
			defaults: defaults.PersistentVolume, rules: validation.PersistentVolume, warnings: warnings.PersistentVolume,
			untouched: statusApart,
			schema:    gotypes.Of[corev1.PersistentVolume], list: gotypes.Of[corev1.PersistentVolumeList], cluster: true,
			status: statusAndMeta, initial: volumePending, onStatus: volumePhase(c.Now),
			table: columns.PersistentVolumes, answersDeleted: true,
		},
		pods(c),
		{
			name: "podtemplates", kind: "PodTemplate", schema: gotypes.Of[corev1.PodTemplate],
			list:     gotypes.Of[corev1.PodTemplateList],
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
			schema:    gotypes.Of[corev1.ReplicationController], list: gotypes.Of[corev1.ReplicationControllerList],
			status: statusAndMeta, gated: podGates("spec.template.spec"), generation: spec,
			fields: []selectable{number("status.replicas")},
			table:  columns.ReplicationControllers,
			scale:  labelsOf, propagation: orphans,
		},
		{
			name: "resourcequotas", kind: "ResourceQuota", short: "quota", schema: gotypes.Of[corev1.ResourceQuota],
			list:     gotypes.Of[corev1.ResourceQuotaList],
			defaults: defaults.ResourceQuota, rules: validation.ResourceQuota, warnings: warnings.ResourceQuota,
			untouched: statusApart,
			status:    statusAndMeta, table: columns.ResourceQuotas, answersDeleted: true,
		},
		{
			name: "secrets", kind: "Secret", schema: gotypes.Of[corev1.Secret], list: gotypes.Of[corev1.SecretList],
			defaults: defaults.Secret, rules: validation.Secret, warnings: warnings.Secret,
			alias: plainData, onUpdate: keepSecretType, fields: []selectable{text("type")},
			table: columns.Secrets, confidential: true,
		},
		{
			name: "serviceaccounts", kind: "ServiceAccount", short: "sa", schema: gotypes.Of[corev1.ServiceAccount],
			list:  gotypes.Of[corev1.ServiceAccountList],
			rules: validation.ServiceAccount, warnings: warnings.ServiceAccount,
			onCreate: secretNames, onUpdate: func(obj, _ object.Value) object.Value { return secretNames(obj) },
			table: columns.ServiceAccounts, answersDeleted: true, more: accountTokens(c),
		},
		services(),
		componentStatuses(),
	}}
}

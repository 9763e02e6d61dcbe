package builtin

import (
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/internal/features"
)

func storage(c Config) group {
	return group{"storage.k8s.io", []kind{
		{
			name: "csidrivers", kind: "CSIDriver",
			versions: []version{of[storagev1.CSIDriver, storagev1.CSIDriverList]()},
			cluster:  true,
			defaults: defaults.CSIDriver, rules: validation.CSIDriver, warnings: c.driverWarnings(),
			gated: []gated{below("spec",
				behind(features.SELinuxMountReadWriteOncePod, "seLinuxMount"),
				behind(features.MutableCSINodeAllocatableCount, "nodeAllocatableUpdatePeriodSeconds"),
				behind(features.CSIServiceAccountTokenSecrets, "serviceAccountTokenInSecrets"),
				behind(features.VolumeLimitScaling, "preventPodSchedulingIfMissing"),
			)},
			conditional: true, generation: spec, onCreate: uncounted, table: columns.CSIDrivers, answersDeleted: true,
		},
		{
			name: "csinodes", kind: "CSINode", versions: []version{of[storagev1.CSINode, storagev1.CSINodeList]()},
			cluster:     true,
			rules:       validation.CSINode,
			untouched:   statusAlone,
			conditional: true, status: statusOnly,
			gatedStatus: []gated{below("status", behind(features.CSIVolumeHealth, "storageHealth"))},
			table:       columns.CSINodes, answersDeleted: true,
		},
		{
			name: "csistoragecapacities", kind: "CSIStorageCapacity",
			versions: []version{of[storagev1.CSIStorageCapacity, storagev1.CSIStorageCapacityList]()},
			rules:    validation.CSIStorageCapacity, warnings: warnings.CSIStorageCapacity,
			conditional: true, table: columns.CSIStorageCapacities,
		},
		{
			name: "storageclasses", kind: "StorageClass", short: "sc",
			versions: []version{of[storagev1.StorageClass, storagev1.StorageClassList]()},
			defaults: defaults.StorageClass, rules: validation.StorageClass, warnings: warnings.StorageClass,
			cluster: true,
			table:   columns.StorageClasses, answersDeleted: true,
		},
		{
			name: "volumeattachments", kind: "VolumeAttachment",
			versions: []version{of[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList]()},
			defaults: defaults.VolumeAttachment, rules: validation.VolumeAttachment,
			untouched: statusAlone,
			cluster:   true,
			gatedStatus: []gated{below("status",
				behind(features.MutableCSINodeAllocatableCount, "attachError.errorCode"),
				behind(features.MutableCSINodeAllocatableCount, "detachError.errorCode"),
			)},
			conditional: true, status: statusOnly, table: columns.VolumeAttachments, answersDeleted: true,
		},
		{
			name: "volumeattributesclasses", kind: "VolumeAttributesClass", short: "vac",
			rules: validation.VolumeAttributesClass,
			versions: []version{
				of[storagev1.VolumeAttributesClass, storagev1.VolumeAttributesClassList](),
				of[storagev1beta1.VolumeAttributesClass, storagev1beta1.VolumeAttributesClassList](),
			},
			cluster: true, table: columns.VolumeAttributesClasses,
			answersDeleted: true,
		},
	}}
}

// driverWarnings are the warnings about CSIDrivers, which recommend a field of a feature.
func (c Config) driverWarnings() warnings.Rules {
	if !c.Features.On(features.CSIServiceAccountTokenSecrets) {
		return warnings.Rules{}
	}
	return warnings.CSIDriver
}

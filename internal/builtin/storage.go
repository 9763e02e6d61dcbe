package builtin

import (
	storagev1 "k8s.io/api/storage/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/features"
)

func storage() group {
	return group{"storage.k8s.io", "v1", []kind{
		{
			name: "csidrivers", kind: "CSIDriver", schema: gotypes.Of[storagev1.CSIDriver], cluster: true,
			conditional: true, generation: spec, onCreate: uncounted, table: columns.CSIDrivers, answersDeleted: true,
		},
		{
			name: "csinodes", kind: "CSINode", schema: gotypes.Of[storagev1.CSINode], cluster: true,
			conditional: true, status: statusOnly,
			gatedStatus: []gated{below("status", behind(features.CSIVolumeHealth, "storageHealth"))},
			table:       columns.CSINodes, answersDeleted: true,
		},
		{
			name: "csistoragecapacities", kind: "CSIStorageCapacity", schema: gotypes.Of[storagev1.CSIStorageCapacity],
			conditional: true, table: columns.CSIStorageCapacities,
		},
		{
			name: "storageclasses", kind: "StorageClass", short: "sc", schema: gotypes.Of[storagev1.StorageClass],
			cluster: true,
			table:   columns.StorageClasses, answersDeleted: true,
		},
		{
			name: "volumeattachments", kind: "VolumeAttachment", schema: gotypes.Of[storagev1.VolumeAttachment],
			cluster:     true,
			conditional: true, status: statusOnly, table: columns.VolumeAttachments, answersDeleted: true,
		},
		{
			name: "volumeattributesclasses", kind: "VolumeAttributesClass", short: "vac",
			schema: gotypes.Of[storagev1.VolumeAttributesClass], cluster: true, table: columns.VolumeAttributesClasses,
			answersDeleted: true,
		},
	}}
}

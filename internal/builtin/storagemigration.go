package builtin

import (
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/validation"
	"plinth/internal/features"
)

func storagemigration() group {
	return group{"storagemigration.k8s.io", []kind{
		{
			name: "storageversionmigrations", kind: "StorageVersionMigration", stored: "v1beta1",
			gates:     []features.Gate{features.StorageVersionMigrator},
			rules:     validation.StorageVersionMigration,
			untouched: statusAlone,
			versions: []version{
				of[storagemigrationv1.StorageVersionMigration, storagemigrationv1.StorageVersionMigrationList](),
				of[storagemigrationv1beta1.StorageVersionMigration, storagemigrationv1beta1.StorageVersionMigrationList](),
			},
			cluster:     true,
			conditional: true, status: statusOnly, table: columns.StorageVersionMigrations,
		},
	}}
}

package builtin

import (
	storagemigrationv1 "k8s.io/api/storagemigration/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
)

func storagemigration() group {
	return group{"storagemigration.k8s.io", "v1", []kind{
		{
			name: "storageversionmigrations", kind: "StorageVersionMigration", referenceStorage: "v1beta1",
			schema: gotypes.Of[storagemigrationv1.StorageVersionMigration], cluster: true,
			conditional: true, status: statusOnly, table: columns.StorageVersionMigrations,
		},
	}}
}

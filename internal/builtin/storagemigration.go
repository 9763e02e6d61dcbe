package builtin

import (
	storagemigrationv1 "k8s.io/api/storagemigration/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/builtin/validation"
)

func storagemigration() group {
	return group{"storagemigration.k8s.io", "v1", []kind{
		{
			name: "storageversionmigrations", kind: "StorageVersionMigration", referenceStorage: "v1beta1",
			rules:     validation.StorageVersionMigration,
			untouched: statusAlone,
			schema:    gotypes.Of[storagemigrationv1.StorageVersionMigration],
			list:      gotypes.Of[storagemigrationv1.StorageVersionMigrationList], cluster: true,
			conditional: true, status: statusOnly, table: columns.StorageVersionMigrations,
		},
	}}
}

package builtin

import (
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/validation"
)

// apiserverinternal is the group in which API servers tell each other how they store objects.
func apiserverinternal() group {
	return group{"internal.apiserver.k8s.io", []kind{
		{
			name: "storageversions", kind: "StorageVersion",
			versions: []version{
				of[apiserverinternalv1alpha1.StorageVersion, apiserverinternalv1alpha1.StorageVersionList](),
			},
			rules:     validation.StorageVersion,
			untouched: statusAlone,
			cluster:   true, naming: groupResource,
			conditional: true, status: statusOnly, table: columns.StorageVersions,
		},
	}}
}

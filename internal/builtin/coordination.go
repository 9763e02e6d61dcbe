package builtin

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/validation"
	"plinth/internal/features"
)

func coordination() group {
	return group{"coordination.k8s.io", []kind{
		{
			name: "leases", kind: "Lease", versions: []version{of[coordinationv1.Lease, coordinationv1.LeaseList]()},
			rules:      validation.Lease,
			putCreates: true, conditional: true,
			gated: []gated{below("spec", behind(features.CoordinatedLeaderElection, "strategy"),
				behind(features.CoordinatedLeaderElection, "preferredHolder"))},
			table: columns.Leases,
		},
	}}
}

package builtin

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/builtin/validation"
	"plinth/internal/features"
)

func coordination() group {
	return group{"coordination.k8s.io", "v1", []kind{
		{
			name: "leases", kind: "Lease", schema: gotypes.Of[coordinationv1.Lease], list: gotypes.Of[coordinationv1.LeaseList],
			rules:      validation.Lease,
			putCreates: true, conditional: true,
			gated: []gated{below("spec", behind(features.CoordinatedLeaderElection, "strategy"),
				behind(features.CoordinatedLeaderElection, "preferredHolder"))},
			table: columns.Leases,
		},
	}}
}

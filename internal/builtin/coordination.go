package builtin

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/validation"
	"plinth/internal/features"
)

func coordination() group {
	return group{"coordination.k8s.io", []kind{
		{
			name: "leasecandidates", kind: "LeaseCandidate", stored: "v1beta1",
			versions: []version{
				of[coordinationv1beta1.LeaseCandidate, coordinationv1beta1.LeaseCandidateList](),
				of[coordinationv1alpha2.LeaseCandidate, coordinationv1alpha2.LeaseCandidateList](),
			},
			rules:  validation.LeaseCandidate,
			naming: configKey, putCreates: true, conditional: true,
			table: columns.LeaseCandidates,
		},
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

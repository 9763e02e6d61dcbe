package builtin

import (
	policyv1 "k8s.io/api/policy/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
)

func policy() group {
	return group{"policy", "v1", []kind{
		{
			name: "poddisruptionbudgets", kind: "PodDisruptionBudget", short: "pdb",
			schema: gotypes.Of[policyv1.PodDisruptionBudget],
			naming: segment, conditional: true, status: statusAndMeta, generation: spec,
			table: columns.PodDisruptionBudgets,
		},
	}}
}

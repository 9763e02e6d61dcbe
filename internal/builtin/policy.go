package builtin

import (
	policyv1 "k8s.io/api/policy/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/validation"
)

func policy() group {
	return group{"policy", []kind{
		{
			name: "poddisruptionbudgets", kind: "PodDisruptionBudget", short: "pdb",
			rules:     validation.PodDisruptionBudget,
			untouched: statusApart,
			versions:  []version{of[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList]()},
			naming:    segment, conditional: true, status: statusAndMeta, generation: spec,
			table: columns.PodDisruptionBudgets,
		},
	}}
}

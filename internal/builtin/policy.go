package builtin

import (
	policyv1 "k8s.io/api/policy/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/builtin/validation"
)

func policy() group {
	return group{"policy", "v1", []kind{
		{
			name: "poddisruptionbudgets", kind: "PodDisruptionBudget", short: "pdb",
			rules:     validation.PodDisruptionBudget,
			untouched: statusApart,
			schema:    gotypes.Of[policyv1.PodDisruptionBudget], list: gotypes.Of[policyv1.PodDisruptionBudgetList],
			naming: segment, conditional: true, status: statusAndMeta, generation: spec,
			table: columns.PodDisruptionBudgets,
		},
	}}
}

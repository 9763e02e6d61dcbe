package builtin

import (
	schedulingv1 "k8s.io/api/scheduling/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
)

func scheduling() group {
	return group{"scheduling.k8s.io", []kind{
		{
			name: "priorityclasses", kind: "PriorityClass", short: "pc",
			versions: []version{of[schedulingv1.PriorityClass, schedulingv1.PriorityClassList]()},
			defaults: defaults.PriorityClass, rules: validation.PriorityClass,
			cluster:    true,
			generation: once, table: columns.PriorityClasses,
		},
	}}
}

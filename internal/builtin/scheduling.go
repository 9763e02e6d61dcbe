package builtin

import (
	schedulingv1 "k8s.io/api/scheduling/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/builtin/validation"
)

func scheduling() group {
	return group{"scheduling.k8s.io", "v1", []kind{
		{
			name: "priorityclasses", kind: "PriorityClass", short: "pc", schema: gotypes.Of[schedulingv1.PriorityClass],
			list:     gotypes.Of[schedulingv1.PriorityClassList],
			defaults: defaults.PriorityClass, rules: validation.PriorityClass,
			cluster:    true,
			generation: once, table: columns.PriorityClasses,
		},
	}}
}

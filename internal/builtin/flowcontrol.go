package builtin

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/builtin/validation"
)

func flowcontrol() group {
	return group{"flowcontrol.apiserver.k8s.io", "v1", []kind{
		{
			name: "flowschemas", kind: "FlowSchema", schema: gotypes.Of[flowcontrolv1.FlowSchema],
			list: gotypes.Of[flowcontrolv1.FlowSchemaList], cluster: true,
			defaults: defaults.FlowSchema, rules: validation.FlowSchema,
			untouched: statusAlone,
			status:    statusNotMeta, generation: spec, table: columns.FlowSchemas,
		},
		{
			name: "prioritylevelconfigurations", kind: "PriorityLevelConfiguration",
			defaults: defaults.PriorityLevelConfiguration, rules: validation.PriorityLevelConfiguration,
			untouched: statusAlone,
			schema:    gotypes.Of[flowcontrolv1.PriorityLevelConfiguration],
			list:      gotypes.Of[flowcontrolv1.PriorityLevelConfigurationList], cluster: true,
			status: statusNotMeta, generation: spec, table: columns.PriorityLevelConfigurations,
		},
	}}
}

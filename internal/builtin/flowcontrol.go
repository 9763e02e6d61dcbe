package builtin

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
)

func flowcontrol() group {
	return group{"flowcontrol.apiserver.k8s.io", []kind{
		{
			name: "flowschemas", kind: "FlowSchema",
			versions: []version{of[flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaList]()},
			cluster:  true,
			defaults: defaults.FlowSchema, rules: validation.FlowSchema,
			untouched: statusAlone,
			status:    statusNotMeta, generation: spec, table: columns.FlowSchemas,
		},
		{
			name: "prioritylevelconfigurations", kind: "PriorityLevelConfiguration",
			defaults: defaults.PriorityLevelConfiguration, rules: validation.PriorityLevelConfiguration,
			untouched: statusAlone,
			versions: []version{
				of[flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationList](),
			},
			cluster: true,
			status:  statusNotMeta, generation: spec, table: columns.PriorityLevelConfigurations,
		},
	}}
}

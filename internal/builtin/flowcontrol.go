package builtin

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
)

func flowcontrol() group {
	return group{"flowcontrol.apiserver.k8s.io", "v1", []kind{
		{
			name: "flowschemas", kind: "FlowSchema", schema: gotypes.Of[flowcontrolv1.FlowSchema], cluster: true,
			status: statusNotMeta, generation: spec, table: columns.FlowSchemas,
		},
		{
			name: "prioritylevelconfigurations", kind: "PriorityLevelConfiguration",
			schema: gotypes.Of[flowcontrolv1.PriorityLevelConfiguration], cluster: true,
			status: statusNotMeta, generation: spec, table: columns.PriorityLevelConfigurations,
		},
	}}
}

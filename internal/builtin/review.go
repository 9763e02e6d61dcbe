package builtin

import (
	corev1 "k8s.io/api/core/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/engine"
)

// componentStatuses tells of the parts that a control plane once had. This server is one part, and nobody writes here:
// the list is empty.
func componentStatuses() kind {
	return kind{
		name: "componentstatuses", kind: "ComponentStatus", short: "cs", schema: gotypes.Of[corev1.ComponentStatus],
		list:    gotypes.Of[corev1.ComponentStatusList],
		cluster: true, verbs: []string{"get", "list"}, deprecated: "v1 ComponentStatus is deprecated in v1.19+",
		table:   columns.ComponentStatuses,
		special: func(r *engine.Resource) { r.NotFoundAs = "componentstatus" },
	}
}

package builtin

import (
	corev1 "k8s.io/api/core/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/engine"
)

// componentStatuses list the components of a control plane, and are deprecated. This server is a single component: the
// list is always empty.
func componentStatuses() kind {
	return kind{
		name: "componentstatuses", kind: "ComponentStatus", short: "cs",
		versions: []version{of[corev1.ComponentStatus, corev1.ComponentStatusList]()},
		cluster:  true, verbs: []string{"get", "list"}, deprecated: "v1 ComponentStatus is deprecated in v1.19+",
		table:   columns.ComponentStatuses,
		special: func(r *engine.Resource) { r.NotFoundAs = "componentstatus" },
	}
}

package builtin

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/engine"
	"plinth/object"
)

// Component is a part of a control plane: a ComponentStatus.
type Component struct {
	Name           string
	Healthy        string // True, False or Unknown
	Message, Error string
}

// componentStatuses list the components of a control plane, and are deprecated. Those are asked when somebody reads the
// list.
func componentStatuses() kind {
	return kind{
		name: "componentstatuses", kind: "ComponentStatus", short: "cs",
		versions: []version{of[corev1.ComponentStatus, corev1.ComponentStatusList]()},
		cluster:  true, verbs: []string{"get", "list"}, deprecated: "v1 ComponentStatus is deprecated in v1.19+",
		table:   columns.ComponentStatuses,
		special: func(r *engine.Resource) { r.NotFoundAs = "componentstatus" },
		acts: func(r *engine.Resource, parts *Parts) {
			r.Made = func(ctx context.Context, name string) (all []object.Value) {
				if parts.Components == nil {
					return nil
				}
				for _, component := range parts.Components(ctx, name) {
					all = append(all, component.value())
				}
				return all
			}
		},
	}
}

func (c *Component) value() object.Value {
	condition := object.Fields("type", object.StringOf("Healthy"), "status", object.StringOf(c.Healthy))
	if c.Message != "" {
		condition = condition.With("message", object.StringOf(c.Message))
	}
	if c.Error != "" {
		condition = condition.With("error", object.StringOf(c.Error))
	}
	return object.Fields("metadata", object.Fields("name", object.StringOf(c.Name)),
		"conditions", object.ListOf(condition))
}

package admission

import (
	"context"

	"plinth/internal/apierr"
	"plinth/internal/engine"
)

// newNamespaceExists makes the plugin NamespaceExists: nothing is written in a namespace that does not exist.
// NamespaceLifecycle does more, and is on by default.
func newNamespaceExists(c *Config) (steps, error) {
	return steps{validate: func(ctx context.Context, a *engine.Attributes) error {
		name := a.Request.Namespace
		if name == "" || a.Operation == engine.OperationConnect || about(a, "", "namespaces", "") {
			return nil
		}
		ns, err := c.objects.get(ctx, kindOf{"", "v1", "namespaces"}, "", name)
		switch {
		case err != nil:
			return apierr.From(err)
		case ns.IsNull():
			return apierr.NewNotFound(apierr.Type{Name: "namespaces"}, name)
		}
		return nil
	}}, nil
}

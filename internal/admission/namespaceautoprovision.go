package admission

import (
	"context"

	"plinth/internal/apierr"
	"plinth/internal/engine"
)

// newNamespaceAutoProvision makes the plugin NamespaceAutoProvision: a create makes its namespace if that does not
// exist. It runs ahead of NamespaceLifecycle, which would refuse the create.
func newNamespaceAutoProvision(c *Config) (steps, error) {
	return steps{admit: func(ctx context.Context, a *engine.Attributes) error {
		name := a.Request.Namespace
		if a.Operation != engine.OperationCreate || a.DryRun || name == "" || about(a, "", "namespaces", "") {
			return nil
		}
		ns, err := c.objects.get(ctx, kindOf{"", "v1", "namespaces"}, "", name)
		if err != nil {
			return apierr.From(err)
		}
		if !ns.IsNull() {
			return nil
		}
		err = c.CreateNamespace(ctx, name)
		switch {
		case err == nil || apierr.Is(err, apierr.AlreadyExists): // another request was faster
			return nil
		case apierr.Is(err, apierr.Forbidden):
			return err
		}
		return forbidden(a, err.Error())
	}}, nil
}

package admission

import (
	"context"

	"plinth/internal/admission/hooks"
	"plinth/internal/admission/policies"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

// newPolicies makes the plugin MutatingAdmissionPolicy or ValidatingAdmissionPolicy.
func newPolicies(mutating bool) func(c *Config) (steps, error) {
	resource, name, metrics := "validatingadmissionpolicies", "ValidatingAdmissionPolicy", 0
	if mutating {
		resource, name, metrics = "mutatingadmissionpolicies", "MutatingAdmissionPolicy", 1
	}
	return func(c *Config) (steps, error) {
		kind := c.objects.resource(kindOf{hooks.Group, "v1", resource})
		by := c.objects.resource(kindOf{hooks.Group, "v1", resource[:len(resource)-len("ies")] + "ybindings"})
		if kind == nil || by == nil || mutating && !c.Features.On(features.MutatingAdmissionPolicy) {
			return steps{}, nil
		}
		_ = name
		p := policies.New(policies.Config{
			Policies: c.Store.Collection(kind.Stored.Path), Bindings: c.Store.Collection(by.Stored.Path),
			Types: c.Registry.Now,
			Namespace: func(ctx context.Context, name string) (object.Value, error) {
				return c.objects.get(ctx, kindOf{"", "v1", "namespaces"}, "", name)
			},
			Objects: c.objects, Cache: c.Expressions, Metrics: c.Metrics.Policies[metrics],
		})
		if mutating {
			return steps{admitInPasses: p.Admit}, nil
		}
		return steps{validate: func(ctx context.Context, a *engine.Attributes) error { return p.Validate(ctx, a) }}, nil
	}
}

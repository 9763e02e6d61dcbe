package controller

import (
	"context"
	"log/slog"
	"time"

	"plinth/internal/access"
	"plinth/internal/admission/policies"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// The name of the controller, and that of its field manager: the reference has two.
const (
	policyStatus        = "validatingadmissionpolicy-status-controller"
	policyStatusManager = "validatingadmissionpolicy-status"
)

// PolicyStatus sets the status of ValidatingAdmissionPolicies: whether their expressions fit the types that they are
// about (status.typeChecking), as the reference's controller of the same name does. Each generation of a policy is
// checked once. A CustomResourceDefinition that is created or changed later does not cause another check.
type PolicyStatus struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
}

// Start begins its loops.
func (c *PolicyStatus) Start(g *steps.Group) {
	of := c.Registry.Builtin().Find("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies")
	(&follower{engine: c.Engine, logger: c.Logger, name: policyStatus, types: []*engine.Resource{of},
		sync: c.sync}).start(g)
}

// sync checks the expressions of one policy.
func (c *PolicyStatus) sync(ctx context.Context, of *engine.Resource, o *engine.Object, gone bool) (time.Duration,
	error) {
	if gone {
		return 0, nil
	}
	policy, err := parsed(o)
	if err != nil {
		return 0, nil // it is mended or deleted by somebody else
	}
	generation := policy.At("metadata", "generation")
	if generation.Int() <= policy.At("status", "observedGeneration").Int() {
		return 0, nil
	}
	warnings, err := policies.TypeWarnings(c.Registry.Now(), policy)
	if err != nil {
		return 0, err
	}
	checking := object.Fields()
	if len(warnings) > 0 {
		checking = object.Fields("expressionWarnings", object.ListOf(warnings...))
	}
	intent := object.Fields("apiVersion", object.StringOf(of.APIVersion()), "kind", object.StringOf(of.Kind),
		"metadata", object.Fields("name", policy.At("metadata", "name")),
		"status", object.Fields("observedGeneration", generation, "typeChecking", checking))
	_, err = c.Engine.Apply(ctx, &engine.Request{
		Resource: of, Subresource: of.Subresource("status"), Name: o.Key.Name, User: access.ControllerAccount(policyStatus),
		FieldManager: policyStatusManager, Force: true,
	}, object.Parsed{Value: intent})
	return 0, err
}

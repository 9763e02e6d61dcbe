package policies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"plinth/internal/admission/hooks"
	"plinth/internal/apierr"
	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/merge"
	"plinth/object"
	"plinth/patch"
)

// Admit is mutating admission: the policies change the object one after the other, in the order of their names, and
// each sees it as the one before has left it. Which of them are for the request is decided before the first one.
func (p *Plugin) Admit(ctx context.Context, a *engine.Attributes, passes *hooks.Passes) error {
	if a.Operation == engine.OperationDelete {
		return nil // it has no object to be changed
	}
	steps, err := p.steps(ctx, a)
	if len(steps) == 0 || err != nil {
		return err
	}
	m := mutating{session: p.session(ctx, a), Calls: passes.Begin("policies", a.Object), second: passes.Second}
	for i := range steps {
		s := &steps[i]
		if s.err == nil {
			// The object must be there in each version before the first policy changes it.
			if _, err := m.asked.In(ctx, s.in); err != nil {
				s.binding, s.err = nil, fmt.Errorf("failed to configure policy: %w", err)
			}
		}
		if s.err != nil {
			m.problem(s, "", s.err)
		}
	}
	defer func() { m.End(a.Object) }()
	for i := range steps {
		if steps[i].err == nil {
			if err := m.step(&steps[i]); err != nil {
				return err
			}
		}
	}
	if m.mutated {
		m.Changed()
		passes.Wanted = true
	}
	if m.denied == nil {
		return nil
	}
	return m.denied
}

// mutating is the mutating admission of one request.
type mutating struct {
	*session
	*hooks.Calls
	second  bool
	mutated bool // a mutation was applied, even if it has changed nothing
	denied  *apierr.Error
}

// problem notes an error of a policy, which refuses the request unless the policy ignores errors. The first one is the
// message.
func (m *mutating) problem(s *step, reason string, err error) {
	if s.ignore {
		return
	}
	message := fmt.Sprintf("policy %q denied request: %v", s.policy.name, err)
	if s.binding != nil {
		message = fmt.Sprintf("policy '%s' with binding '%s' denied request: %v", s.policy.name, s.binding.name, err)
	}
	if m.denied == nil {
		m.denied = hooks.Forbidden(m.asked.Attributes, "")
		m.denied.Message = message
		if reason != "" {
			m.denied.Reason = apierr.Reason(reason)
		}
	}
	m.denied.Details.Causes = append(m.denied.Details.Causes, apierr.Cause{Message: message})
}

// step applies the mutations of a policy, with the params of one binding.
func (m *mutating) step(s *step) error {
	if len(s.params) == 0 {
		return nil
	}
	if err := m.readNamespace(); err != nil {
		return apierr.From(err)
	}
	of := s.program.Get()
	for _, param := range s.params {
		if err := m.apply(s, of, param); err != nil {
			return err
		}
	}
	return nil
}

// apply applies the mutations of a policy, with one param.
func (m *mutating) apply(s *step, of *program, param object.Value) error {
	q, err := m.asked.In(m.ctx, s.in)
	if err != nil {
		return apierr.NewInternal(err)
	}
	value := param
	if s.typed && !param.IsNull() {
		value = param.Edit(nil, "apiVersion", "kind")
	}
	meets, err := m.meets(s, of, q, value)
	if err != nil {
		m.problem(s, "Invalid", err)
		return nil
	}
	// The params of a binding are in one namespace, in one request.
	id := s.policy.name + "/" + s.binding.name + "/" + param.At("metadata", "name").Str()
	if !meets || m.second && !m.Again(id) {
		return nil
	}
	for i := range of.mutations {
		if q.Now.IsNull() { // there is nothing to be changed
			break
		}
		began := time.Now()
		err := m.mutate(&of.mutations[i], of, q, value)
		failure := noError
		if err != nil {
			failure = failureOf(err.Error())
		}
		m.metrics.Checked(s.policy.name, s.binding.name, failure, "", time.Since(began))
		var status *apierr.Error
		switch {
		case errors.As(err, &status):
			return status
		case err != nil:
			m.problem(s, "Invalid", err)
			continue
		}
		m.mutated = true
		if q, err = m.asked.In(m.ctx, s.in); err != nil {
			return apierr.NewInternal(err)
		}
	}
	if s.again {
		m.Called(id)
	}
	return nil
}

// mutate applies one mutation to the object.
func (m *mutating) mutate(step *mutation, of *program, q *hooks.Question, param object.Value) error {
	on := m.input(q, param)
	on.Namespace = m.whole
	values := of.scope.Evaluate(m.ctx, on, cel.PolicyBudget)
	var made object.Value
	if step.patch != nil {
		operations, err := values.Patch(step.patch)
		if err != nil {
			return err
		}
		made, err = patch.JSON(q.Now, operations, m.ctx.Err)
		switch {
		case errors.Is(err, jsonpatch.ErrTestFailed):
			return nil // as the reference has it: then the patch is not for this object
		case err != nil:
			return fmt.Errorf("JSON Patch: %w", hooks.PatchError(err))
		}
	} else {
		intent, err := values.Intent(step.intent)
		if err != nil {
			return err
		}
		intent = intent.Edit(nil, "apiVersion", "kind") // these are those of the object
		if made, err = merge.Overlay(q.Now, intent, q.BodySchema(q.Type)); err != nil {
			return fmt.Errorf("error applying patch: %w", err)
		}
	}
	// As in the reference, a patch may not add a field to a built-in type that it does not have.
	strict := step.patch != nil && q.Type.Written == nil
	next, _, err := q.Admitted(m.ctx, made, q.Now, q.Type, strict)
	switch {
	case err != nil && step.patch == nil:
		version := q.Now.At("apiVersion").Str()
		if !strings.Contains(version, "/") {
			version = "/" + version
		}
		return fmt.Errorf("unable to convert unstructured object to %s, Kind=%s: %w", version,
			q.Now.At("kind").Str(), err)
	case err != nil:
		return apierr.NewInternal(err)
	}
	m.asked.Replace(next)
	return nil
}

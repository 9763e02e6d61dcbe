package admission

import (
	"context"
	"errors"
	"time"

	"plinth/internal/admission/hooks"
	"plinth/internal/admission/policies"
	"plinth/internal/admission/webhooks"
	"plinth/internal/engine"
)

// chain is the plugins that are on, in their order.
type chain struct {
	plugins []pluginSteps
	// admitted and validated are told of the two steps as a whole.
	admitted, validated Observe
}

// pluginSteps is a plugin with what is told of its two steps.
type pluginSteps struct {
	steps
	admitted, validated Observe
}

// Observe is told how long admission took, and whether it refused the request.
type Observe func(operation engine.Operation, rejected bool, took time.Duration)

// Metrics are told how long admission takes. Nil functions are not called.
type Metrics struct {
	// Step returns what is told of mutating or validating admission as a whole, Plugin what is told of that of one
	// plugin.
	Step   func(mutating bool) Observe
	Plugin func(name string, mutating bool) Observe
	// Webhooks are told of each call of a webhook.
	Webhooks webhooks.Metrics
	// Validating and Mutating are told of each expression of a policy.
	Validating, Mutating policies.Metrics
	// Loaded is told of each attempt to load the static configurations of a plugin: err is why they could not be loaded,
	// and hash that of their files.
	Loaded func(plugin, hash string, err error)
	// PodSecurity is told of what PodSecurity finds.
	PodSecurity PodSecurityMetrics
}

// complete replaces nil functions by ones that do nothing.
func (m Metrics) complete() Metrics {
	nothing := func(engine.Operation, bool, time.Duration) {}
	if m.Step == nil {
		m.Step = func(bool) Observe { return nothing }
	}
	if m.Plugin == nil {
		m.Plugin = func(string, bool) Observe { return nothing }
	}
	if m.Loaded == nil {
		m.Loaded = func(string, string, error) {}
	}
	m.PodSecurity = m.PodSecurity.complete()
	return m
}

// admission returns the two functions of the chain; nil for one that no plugin has.
func (c *chain) admission() (a engine.Admission) {
	for i := range c.plugins {
		if p := &c.plugins[i]; p.admit != nil || p.admitInPasses != nil {
			a.Admit = c.admit
		}
		if c.plugins[i].validate != nil {
			a.Validate = c.validate
		}
	}
	return a
}

// ready implements Plugins.Ready.
func (c *chain) ready() error {
	var errs []error
	for i := range c.plugins {
		if ready := c.plugins[i].steps.ready; ready != nil {
			errs = append(errs, ready())
		}
	}
	return errors.Join(errs...)
}

// admit is mutating admission, in one pass or two (hooks.Passes).
func (c *chain) admit(ctx context.Context, a *engine.Attributes) (err error) {
	began := time.Now()
	var passes hooks.Passes
	if err = c.pass(ctx, a, &passes); err == nil && passes.Wanted {
		passes.Second = true
		err = c.pass(ctx, a, &passes)
	}
	c.admitted(a.Operation, err != nil, time.Since(began))
	return err
}

// pass calls all mutating plugins, up to the first error.
func (c *chain) pass(ctx context.Context, a *engine.Attributes, passes *hooks.Passes) error {
	began := time.Now()
	for i := range c.plugins {
		p := &c.plugins[i]
		var err error
		switch {
		case p.admit != nil:
			err = p.admit(ctx, a)
		case p.admitInPasses != nil:
			err = p.admitInPasses(ctx, a, passes)
		default:
			continue
		}
		ended := time.Now()
		p.admitted(a.Operation, err != nil, ended.Sub(began))
		began = ended // of the next one: reading the clock twice for each would cost more than most plugins do
		if err != nil {
			return err
		}
	}
	return nil
}

// validate is validating admission: it calls all validating plugins, up to the first error.
func (c *chain) validate(ctx context.Context, a *engine.Attributes) (err error) {
	first := time.Now()
	began := first
	for i := range c.plugins {
		p := &c.plugins[i]
		if p.validate == nil {
			continue
		}
		err = p.validate(ctx, a)
		ended := time.Now()
		p.validated(a.Operation, err != nil, ended.Sub(began))
		began = ended
		if err != nil {
			break
		}
	}
	c.validated(a.Operation, err != nil, began.Sub(first))
	return err
}

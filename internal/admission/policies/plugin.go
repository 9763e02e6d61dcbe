package policies

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"plinth/internal/admission/hooks"
	"plinth/internal/apierr"
	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/object"
)

// Config is what a plugin is made of.
type Config struct {
	// Policies and Bindings are the collections of the two kinds.
	Policies, Bindings *store.Collection
	// Types returns the types that are served now.
	Types     func() *engine.Types
	Namespace hooks.NamespaceReader
	Objects   Objects
	Cache     *cel.Cache // of the compiled expressions
	Metrics   Metrics
}

// Objects reads params: at the newest state, in the version of a type.
type Objects interface {
	// Get returns an object, null if there is none. namespace is "" for cluster scope.
	Get(ctx context.Context, r *engine.Resource, namespace, name string) (object.Value, error)
	// List returns the objects in a namespace that a selector selects, in the order of their names.
	List(ctx context.Context, r *engine.Resource, namespace string, selector labels.Selector) ([]object.Value, error)
}

// Plugin is MutatingAdmissionPolicy or ValidatingAdmissionPolicy. It may be used concurrently.
type Plugin struct {
	policies *view.View[*named[policy]]
	bindings *view.View[*named[binding]]
	newest   atomic.Pointer[set]
	// static has the policies in files. They precede the others, and see requests for policies, too.
	static    atomic.Pointer[set]
	types     func() *engine.Types
	namespace hooks.NamespaceReader
	objects   Objects
	cache     *cel.Cache
	metrics   Metrics
}

// New makes a plugin.
func New(c Config) *Plugin {
	p := &Plugin{
		policies: view.New(c.Policies, compile(func(obj object.Value) *policy { return newPolicy(obj, c.Cache) })),
		bindings: view.New(c.Bindings, compile(newBinding)),
		types:    c.Types, namespace: c.Namespace, objects: c.Objects, cache: c.Cache, metrics: c.Metrics.complete(),
	}
	p.SetStatic(nil, nil)
	return p
}

// SetStatic replaces the policies and bindings that are not objects of the API: each is sorted by name, and complete.
func (p *Plugin) SetStatic(policies, bindings []object.Value) {
	of := &named[policy]{}
	for _, obj := range policies {
		made := newPolicy(obj, p.cache)
		of.all = append(of.all, entry[policy]{made.name, func() (*policy, error) { return made, nil }})
	}
	by := &named[binding]{}
	for _, obj := range bindings {
		made := newBinding(obj)
		by.all = append(by.all, entry[binding]{made.name, func() (*binding, error) { return made, nil }})
	}
	p.static.Store(newSet(of, by))
}

// now is the set of the newest state, or why it is not known: a policy or a binding cannot be read.
func (p *Plugin) now() (*set, error) {
	policies, err := p.policies.Now()
	if err != nil {
		return nil, err
	}
	bindings, err := p.bindings.Now()
	if err != nil {
		return nil, err
	}
	if s := p.newest.Load(); s != nil && s.policies == policies && s.bindings == bindings {
		return s, nil
	}
	s := newSet(policies, bindings)
	p.newest.Store(s)
	return s, nil
}

// Ready returns an error if a policy or a binding cannot be read. Then it is not known what they say, and all requests
// are refused that policies are evaluated for.
func (p *Plugin) Ready() error {
	_, err := p.now()
	return err
}

// candidates returns the policies that may be for a request.
func (p *Plugin) candidates(ctx context.Context, a *engine.Attributes) ([]candidate, error) {
	r := a.Request.Resource
	if a.Request.OwnStart || hooks.IsReview(r) {
		return nil, nil
	}
	u, types := hooks.URLOf(a), p.types()
	first := p.static.Load().candidates(types, u)
	if hooks.IsPolicy(r) {
		return first, nil
	}
	configured, err := p.now()
	if err != nil {
		if configured, err = hooks.Await(ctx, a, p.now); err != nil {
			return nil, err
		}
	}
	others := configured.candidates(types, u)
	if len(first) == 0 {
		return others, nil
	}
	return append(append([]candidate(nil), first...), others...), nil
}

// matches says whether a matcher is for a request, and the type in whose version the request is seen then. known is
// that type if no rule names an object, as a candidate has it; nil: it is not known.
func (p *Plugin) matches(ctx context.Context, m *matcher, a *engine.Attributes, labels *hooks.Labels,
	known *engine.Resource) (*engine.Resource, error) {
	in := known
	if in == nil || m.named {
		in = m.in(p.types(), hooks.URLOf(a), &a.Name)
	}
	if in == nil {
		return nil, nil
	}
	selected, err := m.selectors.Select(ctx, p.namespace, labels)
	if err != nil || !selected {
		return nil, err
	}
	return in, nil
}

// step is a binding of a policy that a request is evaluated with, once for each of the params, of which null is none.
type step struct {
	candidate
	binding *binding
	params  []object.Value
	// typed says that the reference reads the params into Go types, which do not have their kind and apiVersion:
	// mutating policies do not see them. Validating policies do, as it adds them.
	typed bool
	// err is an error in what configures the policy, or the binding if there is one. It refuses the request unless the
	// policy ignores errors.
	err error
}

// steps finds the bindings that a request is evaluated with, in order.
func (p *Plugin) steps(ctx context.Context, a *engine.Attributes) (all []step, err error) {
	wrong := func(c candidate, b *binding, what string, err error) {
		all = append(all, step{candidate: c, binding: b, err: fmt.Errorf("failed to configure %s: %w", what, err)})
	}
	candidates, err := p.candidates(ctx, a)
	if len(candidates) == 0 || err != nil {
		return nil, err
	}
	labels := hooks.LabelsOf(a)
	for _, c := range candidates {
		in, err := p.matches(ctx, c.matcher, a, labels, c.in)
		var kind paramKind
		if err == nil && in != nil {
			c.in = in
			kind, err = p.paramKind(c.policy)
		}
		if err != nil {
			wrong(c, nil, "policy", err)
			continue
		}
		if in == nil {
			continue
		}
		for _, b := range c.bindings {
			params, ok, err := p.bound(ctx, b, kind, a, labels)
			switch {
			case err != nil:
				wrong(c, b, "binding", err)
			case ok:
				all = append(all, step{candidate: c, binding: b, params: params, typed: kind.typed()})
			}
		}
	}
	return all, nil
}

// bound returns the params that a request is evaluated with by a binding of its policy. is says that the binding is for
// the request; there may be no params then.
func (p *Plugin) bound(ctx context.Context, b *binding, kind paramKind, a *engine.Attributes, labels *hooks.Labels) (
	params []object.Value, holds bool, err error) {
	if b.matcher != nil {
		if in, err := p.matches(ctx, b.matcher, a, labels, nil); in == nil || err != nil {
			return nil, false, err
		}
	}
	params, err = p.params(ctx, kind, b.ref, hooks.NamespaceOf(a))
	return params, true, err
}

// session is what the evaluations of one request have in common.
type session struct {
	*Plugin
	ctx   context.Context
	asked hooks.Questions
	// requests are what expressions see of the request, by the version in which it is seen.
	requests map[*hooks.Question]*requests
	// namespace is that of the request, whole and as validations see it; set by readNamespace.
	whole, shown object.Value
	read         bool
}

// requests are the requests that the expressions of a question see: most name the resource in its version as theirs,
// match conditions the resource that was asked for. They are made when an expression uses them.
type requests struct{ request, conditions func() object.Value }

func (p *Plugin) session(ctx context.Context, a *engine.Attributes) *session {
	return &session{Plugin: p, ctx: ctx, asked: hooks.Questions{Attributes: a}, requests: map[*hooks.Question]*requests{}}
}

// readNamespace reads the namespace of the request, once. A request for a Namespace has none, though it counts as being
// in itself.
func (s *session) readNamespace() error {
	a := s.asked.Attributes
	name := a.Request.Namespace
	if s.read || name == "" || a.Request.Resource.Kind == "Namespace" && a.Request.Resource.Group == "" {
		return nil
	}
	s.read = true
	obj, err := s.namespace(s.ctx, name)
	switch {
	case err != nil:
		return err
	case obj.IsNull():
		return apierr.NewNotFound(apierr.Type{Name: "namespaces"}, name)
	}
	obj = obj.Edit(nil, "apiVersion", "kind")
	s.whole = obj
	s.shown = obj.With("metadata", obj.At("metadata").Edit(nil, "managedFields",
		"ownerReferences"))
	return nil
}

// see returns the requests of a question.
func (s *session) see(q *hooks.Question) *requests {
	v := s.requests[q]
	if v == nil {
		v = &requests{request: sync.OnceValue(func() object.Value { return q.ReviewedIn(q.Type) })}
		v.conditions = v.request
		if asked := q.Request.Resource; asked != q.Type {
			v.conditions = sync.OnceValue(func() object.Value { return q.ReviewedIn(asked) })
		}
		s.requests[q] = v
	}
	return v
}

// input is what most expressions are evaluated on.
func (s *session) input(q *hooks.Question, param object.Value) *cel.AdmissionInput {
	return &cel.AdmissionInput{
		Object: q.Now, OldObject: q.Before, Request: s.see(q).request, Namespace: s.shown, Params: param,
		User: q.Request.User, Authorizer: q.Request.Authorizer,
	}
}

// meets says whether the match conditions of a policy hold.
func (s *session) meets(c *step, of *program, q *hooks.Question, param object.Value) (bool, error) {
	if len(of.conditions) == 0 {
		return true, nil
	}
	on := s.input(q, param)
	on.Request, on.Namespace = s.see(q).conditions, object.Nil
	began := time.Now()
	holds, failed, stop := of.scope.Evaluate(s.ctx, on, cel.MatchConditionsBudget).Holds(of.conditions)
	if holds && len(failed) == 0 {
		return true, nil
	}
	s.metrics.ConditionsRun(c.policy.name, q.Operation, len(failed), time.Since(began))
	if stop != nil {
		holds, failed = true, []error{stop}
	}
	if holds && !c.ignore { // no condition is false, but some are errors
		return false, utilerrors.NewAggregate(failed)
	}
	return false, nil
}

// Metrics are told of what happens. Nil functions are not called.
type Metrics struct {
	// Checked is told of the result of an expression: the kind of its error (compile_error, out_of_budget, invalid_error
	// or no_error), and for validating policies the action (allow, deny, audit, warn).
	Checked func(policy, binding, failure, action string, took time.Duration)
	// ConditionsRun is told how long the match conditions of a policy took, and how many failed, unless all hold, as in
	// the reference.
	ConditionsRun func(policy string, operation engine.Operation, failed int, took time.Duration)
}

// complete replaces nil functions by ones that do nothing.
func (m Metrics) complete() Metrics {
	if m.Checked == nil {
		m.Checked = func(string, string, string, string, time.Duration) {}
	}
	if m.ConditionsRun == nil {
		m.ConditionsRun = func(string, engine.Operation, int, time.Duration) {}
	}
	return m
}

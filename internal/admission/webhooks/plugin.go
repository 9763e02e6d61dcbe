package webhooks

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/internal/webhook"
	"plinth/object"
)

// Config is what a plugin is made of.
type Config struct {
	// Mutating says that the hooks are those of MutatingWebhookConfigurations.
	Mutating bool
	// Configurations is the collection of the configurations.
	Configurations *store.Collection
	// Types returns the types that are served now, of which a hook may ask for another version.
	Types     func() *engine.Types
	Namespace NamespaceReader
	Clients   *webhook.Clients
	// Reviews says that hooks are asked about reviews of access and of tokens, too (the gate
	// ExcludeAdmissionWebhookVirtualResources is off).
	Reviews bool
	Metrics Metrics
}

// Plugin is MutatingAdmissionWebhook or ValidatingAdmissionWebhook. It may be used concurrently.
type Plugin struct {
	mutating bool
	all      *view.View[*set]
	// static has the hooks of configurations in files. They precede the others.
	static    atomic.Pointer[set]
	types     func() *engine.Types
	namespace NamespaceReader
	clients   *webhook.Clients
	reviews   bool
	metrics   Metrics
}

// New makes a plugin.
func New(c Config) *Plugin {
	p := &Plugin{
		mutating: c.Mutating, all: view.New(c.Configurations, compile), types: c.Types, namespace: c.Namespace,
		clients: c.Clients, reviews: c.Reviews, metrics: c.Metrics.complete(),
	}
	p.static.Store(newSet(nil))
	return p
}

// SetStatic replaces the configurations that are not objects of the API: they are sorted by name, and complete.
func (p *Plugin) SetStatic(all []object.Value) {
	var configurations []*configuration
	for _, obj := range all {
		name := obj.At("metadata", "name").Str()
		hooks := hooksOf(obj)
		for _, h := range hooks {
			h.id = "manifest/" + h.id
		}
		configurations = append(configurations, &configuration{name, func() ([]*hook, error) { return hooks, nil }})
	}
	p.static.Store(newSet(configurations))
}

// configurationKinds are the kinds that configure admission. Hooks that are made through the API are not asked about
// them, so that one cannot keep its own configuration from being mended.
var configurationKinds = map[string]bool{
	"ValidatingWebhookConfiguration": true, "MutatingWebhookConfiguration": true,
	"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
	"MutatingAdmissionPolicy": true, "MutatingAdmissionPolicyBinding": true,
}

// reviewResources are the virtual resources without which nobody could be authenticated or authorized.
var reviewResources = map[[2]string]bool{
	{"authentication.k8s.io", "selfsubjectreviews"}: true, {"authentication.k8s.io", "tokenreviews"}: true,
	{"authorization.k8s.io", "localsubjectaccessreviews"}: true,
	{"authorization.k8s.io", "selfsubjectaccessreviews"}:  true,
	{"authorization.k8s.io", "selfsubjectrulesreviews"}:   true,
	{"authorization.k8s.io", "subjectaccessreviews"}:      true,
}

// candidates returns the hooks whose rules match a request; none for the requests that hooks are not asked about.
func (p *Plugin) candidates(a *engine.Attributes) []candidate {
	r := a.Request.Resource
	if a.Request.OwnStart || !p.reviews && r.Answer != nil && reviewResources[[2]string{r.Group, r.Name}] {
		return nil
	}
	u, types, static := urlOf(a), p.types(), p.static.Load()
	first := static.candidates(types, u)
	if r.Group == Group && configurationKinds[r.Kind] {
		return first
	}
	others := p.all.Now().candidates(types, u)
	if len(static.byName) == 0 {
		return others
	}
	all := slices.Clone(first)
	for _, c := range others {
		c.index += len(static.hooks())
		all = append(all, c)
	}
	return all
}

// input is what the match conditions of a hook are evaluated on.
func input(q *question) *cel.AdmissionInput {
	return &cel.AdmissionInput{
		Object: q.obj, OldObject: q.old, Request: q.request(), User: q.Request.User, Authorizer: q.Request.Authorizer,
	}
}

// questions converts a request to the versions that hooks ask for, each once.
type questions struct {
	a    *engine.Attributes
	made map[*engine.Resource]*question
	// called: the last hook was asked.
	called bool
}

// in returns the request in the version of a type.
func (s *questions) in(ctx context.Context, r *engine.Resource) (*question, error) {
	if q := s.made[r]; q != nil {
		return q, nil
	}
	obj, old, err := s.a.In(ctx, r)
	if err != nil {
		return nil, err
	}
	q := &question{Attributes: s.a, in: r, obj: obj, old: old}
	if s.made == nil {
		s.made = map[*engine.Resource]*question{}
	}
	s.made[r] = q
	return q, nil
}

// Metrics are told of what happens. Nil functions are not called.
type Metrics struct {
	// Called is told of each call: whether the request was refused for it, and the code of the answer.
	Called func(name string, mutating bool, operation engine.Operation, rejected bool, code int, took time.Duration)
	// Rejected is told of each refusal. kind is calling_webhook_error, apiserver_internal_error or no_error.
	Rejected func(name string, mutating bool, operation engine.Operation, kind string, code int)
	// FailedOpen is told of each failure that the failure policy ignores.
	FailedOpen func(name string, mutating bool)
	// ConditionsRun is told how long the match conditions of a hook took, and how many failed; ConditionsExcluded of
	// each request that they keep from the hook.
	ConditionsRun      func(name string, mutating bool, operation engine.Operation, failed int, took time.Duration)
	ConditionsExcluded func(name string, mutating bool, operation engine.Operation)
}

// complete replaces nil functions by ones that do nothing.
func (m Metrics) complete() Metrics {
	if m.Called == nil {
		m.Called = func(string, bool, engine.Operation, bool, int, time.Duration) {}
	}
	if m.Rejected == nil {
		m.Rejected = func(string, bool, engine.Operation, string, int) {}
	}
	if m.FailedOpen == nil {
		m.FailedOpen = func(string, bool) {}
	}
	if m.ConditionsRun == nil {
		m.ConditionsRun = func(string, bool, engine.Operation, int, time.Duration) {}
	}
	if m.ConditionsExcluded == nil {
		m.ConditionsExcluded = func(string, bool, engine.Operation) {}
	}
	return m
}

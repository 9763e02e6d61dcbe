package webhooks

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"plinth/internal/admission/hooks"
	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/internal/samplelog"
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
	Namespace hooks.NamespaceReader
	Clients   *webhook.Clients
	// Static calls the hooks of SetStatic; nil: Clients does.
	Static *webhook.Clients
	// Reviews says that hooks are asked about reviews of access and of tokens, too (the gate
	// ExcludeAdmissionWebhookVirtualResources is off).
	Reviews bool
	Metrics Metrics
	// Logger is told of requests that hooks refuse, and of hooks that cannot be asked; nil: nobody is.
	Logger *slog.Logger
}

// Plugin is MutatingAdmissionWebhook or ValidatingAdmissionWebhook. It may be used concurrently.
type Plugin struct {
	mutating bool
	all      *view.View[*set]
	// static has the hooks of configurations in files. They precede the others.
	static    atomic.Pointer[set]
	types     func() *engine.Types
	namespace hooks.NamespaceReader
	clients   *webhook.Clients
	ofStatic  *webhook.Clients
	reviews   bool
	metrics   Metrics
	logger    *slog.Logger
	logs      struct{ refusals, failures samplelog.Sampler }
}

// New makes a plugin.
func New(c Config) *Plugin {
	p := &Plugin{
		mutating: c.Mutating, all: view.New(c.Configurations, compile), types: c.Types, namespace: c.Namespace,
		clients: c.Clients, ofStatic: cmp.Or(c.Static, c.Clients), reviews: c.Reviews, metrics: c.Metrics.complete(),
		logger: c.Logger,
	}
	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}
	p.static.Store(newSet(nil))
	return p
}

// SetStatic replaces the configurations that are not objects of the API: they are sorted by name, and complete.
func (p *Plugin) SetStatic(all []object.Value) {
	var configurations []*configuration
	for _, obj := range all {
		all := hooksOf(obj)
		for _, h := range all {
			h.id, h.static = "manifest/"+h.id, true
		}
		configurations = append(configurations, &configuration{hooks: func() ([]*hook, error) { return all, nil }})
	}
	p.static.Store(newSet(configurations))
}

// Ready returns an error if a configuration cannot be read. Then it is not known which requests its hooks are for, and
// all requests are refused that hooks are asked about.
func (p *Plugin) Ready() error {
	_, err := p.all.Now()
	return err
}

// candidates returns the hooks whose rules match a request; none for the requests that hooks are not asked about.
func (p *Plugin) candidates(ctx context.Context, a *engine.Attributes) ([]candidate, error) {
	r := a.Request.Resource
	if a.Request.OwnStart || !p.reviews && hooks.IsReview(r) {
		return nil, nil
	}
	u, types, static := hooks.URLOf(a), p.types(), p.static.Load()
	first := static.candidates(types, u)
	if hooks.IsConfiguration(r) {
		return first, nil
	}
	configured, err := p.all.Now()
	if err != nil {
		if configured, err = hooks.Await(ctx, a, p.all.Now); err != nil {
			return nil, err
		}
	}
	others := configured.candidates(types, u)
	if len(static.byName) == 0 {
		return others, nil
	}
	all := slices.Clone(first)
	for _, c := range others {
		c.index += len(static.all())
		all = append(all, c)
	}
	return all, nil
}

// input is what the match conditions of a hook are evaluated on.
func input(q *hooks.Question) *cel.AdmissionInput {
	return &cel.AdmissionInput{
		Object: q.Now, OldObject: q.Before,
		Request: sync.OnceValue(func() object.Value { return q.ReviewedIn(q.Request.Resource) }),
		User:    q.Request.User, Authorizer: q.Request.Authorizer,
	}
}

// Metrics are told of what happens. Nil functions are not called.
type Metrics struct {
	// Called is told of each call: whether the request was refused for it, and the code of the answer.
	Called func(name string, mutating bool, operation engine.Operation, rejected bool, code int, took time.Duration)
	// Rejected is told of each refusal. kind is calling_webhook_error, apiserver_internal_error or no_error.
	Rejected func(name string, mutating bool, operation engine.Operation, kind string, code int)
	// FailedOpen is told of each failure that the failure policy ignores.
	FailedOpen func(name string, mutating bool)
	// ConditionsRun is told how long the match conditions of a hook took, and how many failed, unless all hold, as in the
	// reference; ConditionsExcluded of each request that they keep from the hook.
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

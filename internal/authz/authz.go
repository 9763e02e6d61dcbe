// Package authz decides what users may do (AUTH-2).
//
// An authorizer ([access.Authorizer]) allows a request, denies it, or has no opinion. An [Authority] asks the
// authorizers of its [AuthorizationConfiguration] in order until one decides. The configuration is made of
// --authorization-mode, or is the file --authorization-config, which is reloaded when it changes. Members of
// system:masters may do everything, whatever the configuration says: they are allowed before any authorizer is asked.
//
// [RoleBased] implements the mode RBAC, nodes the mode Node (for kubelets), hook the mode Webhook, and
// attributePolicies the mode ABAC. In every mode the package also refuses writes of roles and bindings that would
// grant more than the writer has (see [Authority.PermitRole]).
//
// Roles, bindings, Pods and volumes are read through views of the store: values compiled from a collection, shared by
// all requests and never changed (package view). RBAC and Node take no lock on the path of a request but that of a
// view, and that one only after a change.
package authz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"plinth/internal/access"
	"plinth/internal/features"
	"plinth/internal/store"
	"plinth/internal/view"
)

// Mode is a kind of authorizer, as --authorization-mode names it.
type Mode string

// The modes.
const (
	AlwaysAllow Mode = "AlwaysAllow"
	AlwaysDeny  Mode = "AlwaysDeny"
	Node        Mode = "Node"
	RBAC        Mode = "RBAC"
	Webhook     Mode = "Webhook"
	ABAC        Mode = "ABAC"
)

// lister is an authorizer that can list what a user may do in a namespace.
type lister interface {
	access.Authorizer
	// rulesIn lists rules. incomplete says that there may be more.
	rulesIn(ctx context.Context, u *access.User, namespace string) (rules []Rule, incomplete bool, err error)
}

// named is an authorizer with the name that its reasons begin with. allowed and denied count its decisions.
type named struct {
	name string
	lister
	allowed, denied func()
}

// Authority is the authorizer of the server. Its zero value allows nothing, except to members of system:masters.
type Authority struct {
	roles    RoleBased
	nodes    nodes
	policies attributePolicies // of the mode ABAC
	options  Options
	// first are the types of the authorizers of the first configuration, without webhooks. Later configurations must
	// have them, too.
	first []Mode
	chain atomic.Pointer[chain]

	mu  sync.Mutex                  // guards now, and orders the changes of chain
	now *AuthorizationConfiguration // the last valid configuration
}

// chain is the list of authorizers of one configuration.
type chain []named

// Options are the settings that do not depend on the configuration.
type Options struct {
	Logger     *slog.Logger // nil: slog.Default
	PolicyFile string       // of the mode ABAC
	Metrics    Metrics
	Features   features.Set // the bootstrap policy depends on them
	// RetryDelay is the first delay before a webhook is called again after an error; 0: webhook.RetryDelay.
	RetryDelay time.Duration
}

// Metrics are the functions that the authority calls for its metrics. Each may be nil.
type Metrics struct {
	// Decisions returns the functions that count the decisions of an authorizer.
	Decisions func(mode, name string) (allowed, denied func())
	// Evaluated reports a call of a webhook. The result is "success", "canceled", "timeout" or "error".
	Evaluated func(name, result string, took time.Duration)
	// FailedOpen reports that a webhook has no opinion because it failed, with the result of the last call.
	FailedOpen func(name, result string)
	// Matched reports that the match conditions of an authorizer were evaluated.
	Matched func(mode, name string, took time.Duration, failed, excluded bool)
	// Configured reports the text of the current --authorization-config, Reloaded whether a change was accepted.
	Configured func(text []byte)
	Reloaded   func(ok bool)
}

// New creates an authority.
func New(c *AuthorizationConfiguration, o Options) (*Authority, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	y := &Authority{options: o, now: c}
	y.nodes.rules = sync.OnceValue(func() []Rule { return nodeRules(o.Features) })
	for _, a := range c.Authorizers {
		if a.Type != Webhook {
			y.first = append(y.first, a.Type)
		}
		if a.Type == ABAC {
			var err error
			if y.policies, err = loadPolicies(o.PolicyFile, o.Logger); err != nil {
				return nil, err
			}
		}
	}
	made, err := y.build(c)
	if err != nil {
		return nil, err
	}
	y.chain.Store(&made)
	return y, nil
}

// build creates the authorizers of a configuration. Those that read the store are shared by all configurations.
func (y *Authority) build(c *AuthorizationConfiguration) (chain, error) {
	var all chain
	for _, a := range c.Authorizers {
		var of lister
		switch a.Type {
		case AlwaysAllow:
			of = always{access.Allow, "", []Rule{{Verbs: everything, APIGroups: everything, Resources: everything},
				{Verbs: everything, NonResourceURLs: everything}}}
		case AlwaysDeny:
			of = always{decision: access.NoOpinion, reason: "Everything is forbidden."}
		case Webhook:
			hook, err := newWebhook(a.Name, a.Webhook, y.options)
			if err != nil {
				return nil, err
			}
			of = hook
		case Node, RBAC, ABAC:
			if !slices.Contains(y.first, a.Type) {
				return nil, fmt.Errorf("authorizer type %s is not allowed if it was not enabled at initial server startup", a.Type)
			}
			of = map[Mode]lister{Node: &y.nodes, RBAC: &y.roles, ABAC: y.policies}[a.Type]
		default:
			return nil, fmt.Errorf("unknown authorization mode %s specified", a.Type)
		}
		n := named{name: a.Name, lister: of, allowed: func() {}, denied: func() {}}
		if count := y.options.Metrics.Decisions; count != nil {
			n.allowed, n.denied = count(string(a.Type), a.Name)
		}
		all = append(all, n)
	}
	return all, nil
}

// authorizers returns the current authorizers.
func (y *Authority) authorizers() chain {
	if c := y.chain.Load(); c != nil {
		return *c
	}
	return nil
}

// Open sets the store. It is called before the first use.
func (y *Authority) Open(s *store.Store) {
	y.roles.open(s.Collection)
	y.nodes.open(s)
}

// Ready returns an error if a role or a binding cannot be read, so that users may have fewer rights than they should.
func (y *Authority) Ready() error {
	return errors.Join(unreadable(y.roles.roles), unreadable(y.roles.clusterRoles), unreadable(y.roles.bindings),
		unreadable(y.roles.clusterBindings))
}

// unreadable returns the error of a view.
func unreadable[T any](v *view.View[T]) error {
	_, err := v.Now()
	return err
}

// Authorize implements access.Authorizer: the first authorizer that allows or denies the request decides. If none
// does, the result is NoOpinion with the reasons of all, one per line.
func (y *Authority) Authorize(ctx context.Context, a *access.Attributes) (access.Decision, string, error) {
	if a.User.In(access.Masters) {
		return access.Allow, "", nil
	}
	var reasons []string
	var errs []error
	all := y.authorizers()
	for i := range all {
		decision, reason, err := all[i].Authorize(ctx, a)
		switch decision {
		case access.Allow:
			all[i].allowed()
			return decision, reason, err
		case access.Deny:
			all[i].denied()
			return decision, reason, err
		}
		if err != nil {
			errs = append(errs, err)
		}
		if reason != "" {
			reasons = append(reasons, all[i].name+": "+reason)
		}
	}
	return access.NoOpinion, strings.Join(reasons, "\n"), aggregate(errs)
}

// aggregate joins errors; nil if there are none.
func aggregate(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return utilerrors.NewAggregate(errs)
}

// RulesFor lists what a user may do in a namespace, as far as the authorizers can list it. incomplete says that there
// may be more. As in the reference it does not include what members of system:masters may do.
func (y *Authority) RulesFor(ctx context.Context, u *access.User, namespace string) (rules []Rule, incomplete bool,
	err error) {
	var errs []error
	for _, of := range y.authorizers() {
		found, more, err := of.rulesIn(ctx, u, namespace)
		rules, incomplete = append(rules, found...), incomplete || more
		if err != nil {
			errs = append(errs, err)
		}
	}
	return rules, incomplete, aggregate(errs)
}

// everything is a list that covers every verb, group, resource or path.
var everything = []string{all}

// always is an authorizer with a constant decision.
type always struct {
	decision access.Decision
	reason   string
	rules    []Rule
}

func (s always) Authorize(context.Context, *access.Attributes) (access.Decision, string, error) {
	return s.decision, s.reason, nil
}

func (s always) rulesIn(context.Context, *access.User, string) ([]Rule, bool, error) {
	return s.rules, false, nil
}

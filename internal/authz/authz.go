// Package authz decides what users may do (AUTH-2).
//
// An authorizer ([access.Authorizer]) allows a request, denies it, or leaves it to the next one. An [Authority] asks
// those of its [AuthorizationConfiguration] in order: that is what --authorization-mode stands for, or the file of
// --authorization-config, which may change meanwhile. Whatever they say, members of system:masters may do everything,
// since they are asked about first.
//
// [RoleBased] is the mode RBAC, nodes the mode Node, for kubelets, and hook the mode Webhook. Whatever the modes, it
// also says who may write which roles and bindings: nobody gives what they do not have (see [Authority.PermitRole]).
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
	"plinth/internal/store"
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
	ABAC        Mode = "ABAC" // which is refused
)

// lister is an authorizer that can list what a user may do in a namespace.
type lister interface {
	access.Authorizer
	// rulesIn says with incomplete that there may be more.
	rulesIn(ctx context.Context, u *access.User, namespace string) (rules []Rule, incomplete bool, err error)
}

// named is an authorizer of a union under the name by which its reasons are told. Allowed and denied count its
// decisions.
type named struct {
	name string
	lister
	allowed, denied func()
}

// Authority is all that decides what users may do. Its zero value allows nothing, other than to members of
// system:masters.
type Authority struct {
	roles   RoleBased
	nodes   nodes
	options Options
	// first is what the authority was made of, and the types of authorizers that it has for good.
	first []Mode
	chain atomic.Pointer[chain]

	mu  sync.Mutex // guards what follows
	now *AuthorizationConfiguration
}

// chain is the authorizers of one configuration.
type chain []named

// Options are what is the same for all configurations of an authority.
type Options struct {
	Logger  *slog.Logger // nil: slog.Default
	Metrics Metrics
	// RetryDelay is how long a webhook is waited for before it is asked again for the first time; 0: webhook.RetryDelay.
	RetryDelay time.Duration
}

// Metrics are told what happens. Each of them may be nil.
type Metrics struct {
	// Decisions returns what counts the decisions of an authorizer.
	Decisions func(mode, name string) (allowed, denied func())
	// Evaluated is told that a webhook was called: "success", "canceled", "timeout" or "error".
	Evaluated func(name, result string, took time.Duration)
	// FailedOpen is told that a webhook has no opinion because it failed, with the last result.
	FailedOpen func(name, result string)
	// Matched is told that the conditions of an authorizer were evaluated.
	Matched func(mode, name string, took time.Duration, failed, excluded bool)
	// Configured is told of the text of --authorization-config that holds now; Reloaded whether a new one was taken.
	Configured func(text []byte)
	Reloaded   func(ok bool)
}

// New makes an authority of a configuration that was parsed or made of modes.
func New(c *AuthorizationConfiguration, o Options) (*Authority, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	y := &Authority{options: o, now: c}
	for _, a := range c.Authorizers {
		if a.Type != Webhook {
			y.first = append(y.first, a.Type)
		}
	}
	made, err := y.build(c)
	if err != nil {
		return nil, err
	}
	y.chain.Store(&made)
	return y, nil
}

// build makes the authorizers of a configuration. Those that read the store are the authority's own.
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
		case Node, RBAC:
			if !slices.Contains(y.first, a.Type) {
				return nil, fmt.Errorf("authorizer type %s is not allowed if it was not enabled at initial server startup", a.Type)
			}
			if of = &y.roles; a.Type == Node {
				y.nodes.rules = nodeRules()
				of = &y.nodes
			}
		case ABAC:
			return nil, errABAC
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

var errABAC = errors.New("authorization by ABAC policies is not there yet")

// authorizers are those that hold now.
func (y *Authority) authorizers() chain {
	if c := y.chain.Load(); c != nil {
		return *c
	}
	return nil
}

// Open gives it the store. It is called before anybody else uses it.
func (y *Authority) Open(s *store.Store) {
	y.roles.open(s.Collection)
	y.nodes.open(s)
}

// Authorize implements access.Authorizer: the first authorizer that allows or denies the request decides. Where none of
// them has an opinion, the reason is what all of them have said.
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

// aggregate is nil where there are no errors.
func aggregate(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return utilerrors.NewAggregate(errs)
}

// RulesFor lists what a user may do in a namespace, as far as the authorizers can tell; incomplete says that there may
// be more. As in the reference, that somebody is of system:masters is not told by it.
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

// everything is a list of a rule that covers all.
var everything = []string{all}

// always is an authorizer that says the same of every request.
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

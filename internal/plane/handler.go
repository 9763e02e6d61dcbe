package plane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/aggregation"
	"plinth/internal/builtin"
	"plinth/internal/console"
	"plinth/internal/discovery"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/httpapi"
	"plinth/internal/impersonation"
)

// newAggregator makes the part that forwards group versions.
func (p *Plane) newAggregator() {
	c := p.config.Aggregation
	services := p.services()
	services.NoClusterIP = p.config.EndpointsOnly
	c.Endpoint, c.Features, c.Logger = services.Endpoint, p.config.Features, p.config.Logger
	c.Egress = p.config.Egress
	p.Aggregator = aggregation.New(c, p.Store)
}

// newHandler makes the handler of the API, and of the pages beside it.
func (p *Plane) newHandler() (err error) {
	c := p.config.HTTP
	c.Pages = p.accountPages()
	if p.config.Features.On(features.ComponentStatusz) {
		c.Statusz = &httpapi.Statusz{
			Started: time.Now(), GoVersion: runtime.Version(),
			BinaryVersion: strings.TrimPrefix(Version, "v"), Emulation: p.config.Releases.Emulated.String(),
		}
	}
	if !p.config.Features.On(features.ComponentFlagz) {
		c.Flagz = nil
	}
	var discovered func() *discovery.Peers
	if peers := p.config.Peers; peers != nil {
		peers.Shared = p.sharedVersions
		c.Peers, discovered = p.peers, peers.Discovered
	}
	p.Documents = discovery.New(discovery.Config{
		Registry: p.Registry, Version: version(p.config.Releases), ServerAddress: p.config.Address, Models: builtin.Models,
		Features: p.config.Features, Remotes: p.Aggregator.Remotes, Local: p.Aggregator.Local, Peers: discovered,
		AccountPages: c.Pages != nil,
	})
	if p.config.Handlers != nil {
		if c.Handlers, err = p.config.Handlers(p); err != nil {
			return err
		}
	}
	if p.Fairness != nil {
		all := maps.Clone(c.Handlers)
		if all == nil {
			all = map[string]http.Handler{}
		}
		maps.Copy(all, fairnessPages(p.Fairness))
		c.Handlers = all
	}
	limits := p.config.Limits
	stats := &typeStats{plane: p}
	c.Engine, c.Registry, c.Documents, c.Backends = p.Engine, p.Registry, p.Documents, p.backends
	c.Authenticate, c.Authorizer = p.auth.Authenticate, p.config.Authority
	constrained := p.config.Features.On(features.ConstrainedImpersonation)
	c.Impersonate = impersonation.New(p.config.Authority, constrained).Impersonate
	c.Acquire = httpapi.NewSlots(limits.Reading, &limits.Writing, limits.Share).Acquire
	c.Fairness, c.Stats = p.Fairness, stats.of
	c.Checks, c.Closing = p.checks(), p.closing
	c.Features, c.Logger = p.config.Features, p.config.Logger
	var page *console.Console
	if p.config.Console {
		page = console.New(console.Config{Authenticate: p.Authenticate, Issuers: p.config.Issuers,
			Sessions: p.config.Sessions, Planes: p.config.Planes != nil, Now: p.clock, Logger: p.config.Logger})
		c.Console = page
	}
	api, err := httpapi.New(c)
	if err != nil {
		return err
	}
	if page != nil {
		page.API = api
	}
	p.handler = api
	p.http = c
	return nil
}

// Reader makes a handler that answers reads of another engine's objects, which are of these types, as the plane answers
// those of its own: it has the same users, limits, metrics and audit, and no pages or other servers. Those may read who
// may do what is asked, whose user is left out; why is told to the others.
func (p *Plane) Reader(e *engine.Engine, types *engine.Registry, asked access.Attributes, why string) (http.Handler,
	error) {
	c := p.http
	c.Engine, c.Registry, c.EncodedBytes = e, types, 4<<20
	c.Authorizer = access.AuthorizerFunc(func(ctx context.Context, a *access.Attributes) (access.Decision, string, error) {
		decision, reason, err := p.authorize(ctx, a.User, asked)
		if decision != access.Allow {
			reason = why
		}
		return decision, reason, err
	})
	return reader(c)
}

// Refuser makes a handler that answers as one of Reader does for users who may not read. To others it says the same.
func (p *Plane) Refuser(why string) (http.Handler, error) {
	c := p.http
	c.Authorizer = access.AuthorizerFunc(func(context.Context, *access.Attributes) (access.Decision, string, error) {
		return access.NoOpinion, why, nil
	})
	return reader(c)
}

// Allows says whether the roles allow a user what is asked, whose user is left out.
func (p *Plane) Allows(ctx context.Context, user access.User, asked access.Attributes) bool {
	decision, _, err := p.authorize(ctx, user, asked)
	return err == nil && decision == access.Allow
}

func (p *Plane) authorize(ctx context.Context, user access.User, asked access.Attributes) (access.Decision, string,
	error) {
	asked.User = user
	return p.config.Authority.Authorize(ctx, &asked)
}

func reader(c httpapi.Config) (http.Handler, error) {
	c.Backends, c.Peers, c.Handlers, c.Pages, c.Checks, c.Console = nil, nil, nil, nil, nil, nil
	c.Statusz, c.Flagz = nil, nil
	return httpapi.New(c)
}

// readable returns an error if an object cannot be read that decides on requests: a policy, a webhook configuration, a
// binding. They are refused or answered with less then, and a client is better off at another server. The informers of
// the reference never sync with such an object.
func (p *Plane) readable() error {
	errs := []error{p.admission.Ready(), p.Aggregator.Ready(), p.config.Authority.Ready()}
	if p.Fairness != nil {
		errs = append(errs, p.Fairness.Ready())
	}
	for name, why := range p.Registry.Now().Unreadable() {
		errs = append(errs, fmt.Errorf("the CustomResourceDefinition %q cannot be read: %w", name, why))
	}
	return errors.Join(errs...)
}

// checks returns the health checks of /healthz, /livez and /readyz.
//
// A check has the name of the reference's check with the same meaning, because probes and scripts ask for checks by
// name. In the reference the checks "poststarthook/…" succeed when work is done that starts after the server listens.
// Here that work is done before the first request is served, so those with done always succeed. The check
// bootstrap-controller fails as long as the plane is there if the Service kubernetes could not be written at the start.
func (p *Plane) checks() []httpapi.Check {
	done := func(context.Context) error { return nil }
	given := func(check func(context.Context) error) func(context.Context) error {
		if check == nil {
			return done
		}
		return check
	}
	all := append([]httpapi.Check{{Name: "ping", Run: done}}, p.Storage.Checks()...)
	return append(all, []httpapi.Check{
		{Name: "loopback-serving-certificate", LiveOnly: true, Run: given(p.config.Certificate)},
		{Name: "informer-sync", ReadyOnly: true, Run: func(context.Context) error { return p.readable() }},
		{Name: "poststarthook/crd-informer-synced", Run: done},
		{Name: "poststarthook/start-system-namespaces-controller", Run: done},
		{Name: "poststarthook/storage-readiness", Run: func(context.Context) error { return p.Store.Healthy() }},
		{Name: "poststarthook/rbac/bootstrap-roles", Run: done},
		{Name: "poststarthook/bootstrap-controller", Run: func(context.Context) error { return p.serviceError }},
		{Name: "shutdown", ReadyOnly: true, Run: given(p.config.Serving)},
	}...)
}

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/builtin"
	"plinth/internal/discovery"
	"plinth/internal/features"
	"plinth/internal/httpapi"
	"plinth/internal/impersonation"
	"plinth/internal/metrics"
)

// newHandler builds the HTTP handler: the API, and the pages beside it.
func (s *Server) newHandler() (http.Handler, error) {
	c := &s.config
	var statusz *httpapi.Statusz
	if s.features.On(features.ComponentStatusz) {
		statusz = &httpapi.Statusz{
			Started: s.started, GoVersion: runtime.Version(),
			BinaryVersion: strings.TrimPrefix(Version, "v"), Emulation: s.releases.Emulated.String(),
		}
	}
	flagz := c.Flags
	if !s.features.On(features.ComponentFlagz) {
		flagz = nil
	}
	origins, err := c.origins()
	if err != nil {
		return nil, err
	}
	pages := s.accountPages()
	s.documents = discovery.New(discovery.Config{
		Registry: s.registry, Version: version(s.releases), ServerAddress: s.advertised(), Models: builtin.Models,
		NoCBOR:          !s.features.On(features.CBORServingAndStorage),
		NoStorageHashes: !s.features.On(features.StorageVersionHash),
		Remotes:         s.aggregator.Remotes, Local: s.aggregator.Local, AccountPages: pages != nil,
	})
	requests := metrics.NewRequests(s.registry)
	handlers, err := s.handlers(requests)
	if err != nil {
		return nil, err
	}
	return httpapi.New(httpapi.Config{
		Engine: s.engine, Registry: s.registry, Documents: s.documents,
		Authenticate:   s.auth.Authenticate,
		Impersonate:    impersonation.New(s.policy, s.features.On(features.ConstrainedImpersonation)).Impersonate,
		Authorizer:     s.policy,
		Auditor:        s.audit,
		Backends:       s.backends,
		Handlers:       handlers,
		Pages:          pages,
		Checks:         s.checks(),
		Statusz:        statusz,
		Flagz:          flagz,
		RequestTimeout: c.RequestTimeout, Acquire: c.slots().Acquire, Fairness: s.fairness, Stats: s.stats.of,
		MinRequestTimeout: max(1, time.Duration(c.MinRequestTimeout)*time.Second), // 0 would be httpapi's own default
		BookmarkInterval:  c.BookmarkInterval,
		StrictTransport:   strings.Join(c.StrictTransport, "; "),
		Origins:           origins, Goaway: c.GoawayChance,
		Shards:        s.features.On(features.ShardedListAndWatch),
		NoCompression: !s.features.On(features.APIResponseCompression),
		NoForce:       !s.features.On(features.AllowUnsafeMalformedObjectDeletion),
		NoLean:        !s.features.On(features.ManagedFieldsOptOut),
		NoCBOR:        !s.features.On(features.CBORServingAndStorage),
		Closing:       s.closing,
		Logger:        c.Logger, Metrics: requests.Hooks(),
	})
}

// advertised is the server's host and port in discovery documents.
func (s *Server) advertised() string {
	address := strings.TrimPrefix(s.URL(), "https://")
	host := cmp.Or(s.config.ExternalHostname, s.config.AdvertiseAddress)
	_, port, err := net.SplitHostPort(address)
	if host == "" || err != nil {
		return address
	}
	return net.JoinHostPort(host, port)
}

// handlers returns the pages that do not belong to the API.
func (s *Server) handlers(requests *metrics.Requests) (map[string]http.Handler, error) {
	shown := append(s.shown, metrics.Audit(s.audit),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "plinth_compiled_expressions",
			Help: "Expressions of custom types and of policies that are compiled."},
			func() float64 { return float64(s.expressions.Compiled()) }))
	shown = append(shown, metrics.Tokens(&s.verifier.Counters)...)
	shown = append(shown, s.aggregationMetrics.Collectors(s.aggregator, s.documents)...)
	shown = append(shown, s.storage.Collectors()...)
	if s.fairness != nil {
		shown = append(shown, metrics.Fairness(s.fairness)...)
	}
	all, err := metrics.Pages(&s.config.Metrics, s.config.Logger, requests, shown...)
	if err != nil {
		return nil, err
	}
	if s.fairness != nil {
		maps.Copy(all, fairnessPages(s.fairness))
	}
	if s.config.Profiling {
		maps.Copy(all, profiles())
	}
	return all, nil
}

// expired returns an error after the server's own certificate has expired. A restart creates a new one.
func (s *Server) expired(now time.Time) error {
	if s.own == nil || now.Before(s.own.NotAfter) {
		return nil
	}
	return fmt.Errorf("the server's own certificate has expired at %s", s.own.NotAfter.UTC().Format(time.RFC3339))
}

// readable returns an error if an object cannot be read that decides on requests: a policy, a webhook configuration, a
// binding. They are refused or answered with less then, and a client is better off at another server. The informers of
// the reference never sync with such an object.
func (s *Server) readable() error {
	errs := []error{s.admission.Ready(), s.aggregator.Ready(), s.policy.Ready()}
	if s.fairness != nil {
		errs = append(errs, s.fairness.Ready())
	}
	for name, why := range s.registry.Now().Unreadable() {
		errs = append(errs, fmt.Errorf("the CustomResourceDefinition %q cannot be read: %w", name, why))
	}
	return errors.Join(errs...)
}

// checks returns the health checks of /healthz, /livez and /readyz.
//
// A check has the name of the reference's check with the same meaning, because probes and scripts ask for checks by
// name. In the reference the checks "poststarthook/…" succeed when work is done that starts after the server listens.
// Here that work is done before the first request is served, so those with done always succeed. The check
// bootstrap-controller fails as long as the server runs if the Service kubernetes could not be written at the start.
func (s *Server) checks() []httpapi.Check {
	done := func(context.Context) error { return nil }
	all := append([]httpapi.Check{{Name: "ping", Run: func(context.Context) error { return nil }}}, s.storage.Checks()...)
	return append(all, []httpapi.Check{
		{Name: "loopback-serving-certificate", LiveOnly: true,
			Run: func(context.Context) error { return s.expired(s.clock()) }},
		{Name: "informer-sync", ReadyOnly: true, Run: func(context.Context) error { return s.readable() }},
		{Name: "poststarthook/crd-informer-synced", Run: done},
		{Name: "poststarthook/start-system-namespaces-controller", Run: done},
		{Name: "poststarthook/storage-readiness", Run: func(context.Context) error { return s.store.Healthy() }},
		{Name: "poststarthook/rbac/bootstrap-roles", Run: done},
		{Name: "poststarthook/bootstrap-controller", Run: func(context.Context) error { return s.serviceError }},
		{Name: "shutdown", ReadyOnly: true, Run: func(context.Context) error {
			if !s.ready.Load() {
				return errors.New("the server is starting or closing")
			}
			return nil
		}},
	}...)
}

// slots returns the slots of requests under way for a server without priority and fairness: separate ones for reads and
// writes.
func (c *Config) slots() *httpapi.Slots {
	return httpapi.NewSlots(c.MaxRequestsInflight, &c.MaxMutatingInflight)
}

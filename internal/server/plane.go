package server

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/aggregation"
	"plinth/internal/audit"
	"plinth/internal/cel"
	"plinth/internal/crd"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/gotypes"
	"plinth/internal/httpapi"
	"plinth/internal/initial"
	"plinth/internal/metrics"
	"plinth/internal/nodes"
	"plinth/internal/peers"
	"plinth/internal/plane"
	"plinth/internal/planes"
	"plinth/internal/storage"
)

// signer is the authority by which the controllers sign. On an etcd, one that the server has made itself does not sign
// for others: their servers would not know it.
func (s *Server) signer() plane.Signer {
	by := s.certificates.pki
	signer := plane.Signer{Certificate: by.Certificate, Key: by.Key, Bundle: s.certificates.authority}
	if s.config.onEtcd && s.config.Authority.Cert == nil {
		signer.Key = nil
	}
	return signer
}

// planeConfig makes the parts of the plane that flags and files decide on.
func (s *Server) planeConfig(ctx context.Context) (_ *plane.Config, err error) {
	c := &s.config
	if c.onEtcd {
		s.election = metrics.NewElection()
		s.counts.show(s.election.Collectors()...)
	}
	p := &plane.Config{
		Features: s.features, Versions: c.Versions, EventTTL: c.EventTTL,
		Now: c.Now, Logger: c.Logger, Storage: s.openStorage,
		NodePort: c.Services.NodePort, Self: s.self(), Address: s.advertised(),
		Signer:   s.signer(),
		Webhooks: c.Webhooks, GarbageCollection: c.GarbageCollection, Controllers: c.Controllers,
		EndpointsOnly: c.Aggregation.EndpointsOnly,
		Limits: plane.Limits{Fairness: c.PriorityAndFairness, Reading: c.MaxRequestsInflight,
			Writing: c.MaxMutatingInflight, Places: c.places},
		Handlers:    s.pages,
		Console:     c.Console,
		Certificate: func(context.Context) error { return s.certificates.expired(s.clock()) },
		Serving: func(context.Context) error {
			if !s.ready.Load() {
				return errors.New("the server is starting or closing")
			}
			return nil
		},
	}
	if p.Releases, err = c.releases(); err != nil {
		return nil, err
	}
	if p.Addresses, err = c.Services.Config(); err != nil {
		return nil, err
	}
	if p.Authority, err = s.authorization(); err != nil {
		return nil, err
	}
	if p.Accounts, err = s.accounts(ctx); err != nil {
		return nil, err
	}
	if err := s.authentication(p); err != nil {
		return nil, err
	}
	if p.Admission, err = s.admission(); err != nil {
		return nil, err
	}
	if s.audit, err = audit.New(c.Audit, c.Logger); err != nil {
		return nil, err
	}
	issued, forwarded, worklists := metrics.NewCertificates(), metrics.NewNodes(), metrics.NewWorklists()
	s.counts.show(issued.Collectors()...)
	s.counts.show(forwarded.Collectors()...)
	s.counts.show(worklists)
	expressions := metrics.NewExpressions()
	s.counts.show(expressions.Collectors()...)
	p.Expressions = expressions.Observe()
	if c.Planes {
		p.Definitions = crd.NewShared(gotypes.Of[metav1.ObjectMeta], &cel.Cache{Observe: p.Expressions, Sharing: true})
	}
	s.counts.aggregation = metrics.NewAggregation()
	p.Issued, p.Unavailable, p.Worklists = issued.Issued, s.counts.aggregation.Unavailable, worklists.Observe()
	p.Nodes = nodes.Config{Kubelets: c.Kubelets, Files: s.files,
		BytesPerSecond: c.ConnectionBytesPerSecond, Metrics: forwarded.Hooks()}
	p.Aggregation = aggregation.Config{Certificate: s.certificates.front.client, Dial: c.Aggregation.Dial,
		FollowRedirects: !c.Aggregation.RejectRedirects}
	if err := s.openPeerProxy(); err != nil {
		return nil, err
	}
	p.Peers = s.peerProxy
	p.HTTP, err = s.httpConfig()
	return p, err
}

// self is what the objects of the plane say of this server.
func (s *Server) self() initial.Self {
	self := initial.Self{Port: s.port(), Trusted: s.certificates.trusted, FrontProxy: s.certificates.front.FrontProxy}
	if s.config.EndpointReconciler != "none" {
		self.Endpoint = s.reachable()
	}
	return self
}

// accounts opens the keys of service accounts.
func (s *Server) accounts(ctx context.Context) (a plane.Accounts, err error) {
	c := &s.config
	if s.accountKeys, err = c.accountKeys(ctx, s.files); err != nil {
		return a, err
	}
	s.follow = append(s.follow, s.accountKeys.follow)
	s.counts.show(s.accountKeys.metrics.Collectors()...)
	a = plane.Accounts{Keys: s.accountKeys, Static: s.accountKeys.static, Issuers: c.issuers(),
		Lookup: c.ServiceAccounts.Lookup, Extend: c.ServiceAccounts.Extend, BootstrapTokens: c.BootstrapTokens,
		KeysURL: c.ServiceAccounts.JWKSURI}
	a.MaxSeconds, a.ExtendedSeconds = s.accountKeys.lifetimes(c)
	return a, nil
}

// httpConfig says how requests are answered.
func (s *Server) httpConfig() (httpapi.Config, error) {
	c := &s.config
	origins, err := c.origins()
	h := httpapi.Config{
		Auditor: s.audit, Flagz: c.Flags,
		RequestTimeout:    c.RequestTimeout,
		MinRequestTimeout: max(1, time.Duration(c.MinRequestTimeout)*time.Second), // 0 would be httpapi's own default
		StrictTransport:   strings.Join(c.StrictTransport, "; "),
		Origins:           origins, Goaway: c.GoawayChance, Metrics: s.counts.hooks(s), Draining: s.draining,
	}
	return h, err
}

// openStorage opens the storage that --storage or --etcd-servers selects.
func (s *Server) openStorage(ctx context.Context, types *engine.Registry, define engine.Define) (*storage.Storage,
	error) {
	c := &s.config
	services, err := c.Services.Config()
	if err != nil {
		return nil, err
	}
	to := storage.Config{
		NoSync: c.noSync, Files: s.files, Encryption: c.Encryption, KMSv1: s.features.On(features.KMSv1),
		Identity:     peers.HostIdentity(),
		HistoryBytes: c.WatchHistoryBytes, Past: c.Past, Log: c.Log, FirstNodePort: services.FirstPort,
		LastNodePort: services.LastPort,
		Registry:     types, Define: define, Logger: c.Logger, Now: c.Now,
	}
	if c.Planes {
		to.PlaneResources = planes.Resources
	}
	switch c.storageKind() {
	case inEtcd:
		if c.Backup.URL != "" {
			return nil, errors.New("--backup-url: the objects are in an etcd, which is backed up by etcdctl snapshot save")
		}
		to.Etcd = c.Etcd
	case embedded:
		to.Dir, to.Past.Dir = c.inDataDir("store"), c.inDataDir("past")
		to.Backup = c.Backup
		to.Backup.Document = c.backupDocument()
	}
	return storage.Open(ctx, to)
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

// Package server connects the parts and runs them: it turns the configuration into an open store, an engine,
// authentication, authorization, controllers and a listening HTTP server. It is the only package that may import all
// others.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/access"
	"plinth/internal/addresses"
	"plinth/internal/admission"
	"plinth/internal/aggregation"
	"plinth/internal/audit"
	"plinth/internal/auth"
	"plinth/internal/auth/oidc"
	"plinth/internal/auth/serviceaccount"
	"plinth/internal/authz"
	"plinth/internal/builtin"
	"plinth/internal/cel"
	"plinth/internal/controller"
	"plinth/internal/crd"
	"plinth/internal/datadir"
	"plinth/internal/discovery"
	"plinth/internal/engine"
	"plinth/internal/fairness"
	"plinth/internal/features"
	"plinth/internal/gotypes"
	"plinth/internal/initial"
	"plinth/internal/kubeconfig"
	"plinth/internal/metrics"
	"plinth/internal/nodes"
	"plinth/internal/peers"
	"plinth/internal/pki"
	"plinth/internal/storage"
	"plinth/internal/store"
)

// drainTime is how long requests may still run after the server has begun to close.
const drainTime = 10 * time.Second

// Server is a running server.
type Server struct {
	config    Config
	features  features.Set
	releases  features.Versions // that it behaves like
	started   time.Time
	storage   *storage.Storage
	store     *store.Store // that of storage
	allocator *addresses.Allocator
	peers     *peers.Config
	registry  *engine.Registry
	engine    *engine.Engine
	auth      *auth.Authenticator
	policy    *authz.Authority
	admission admission.Plugins
	follow    []func(context.Context) // what runs until the server closes
	// expressions are the compiled expressions of custom types and of policies.
	expressions        cel.Cache
	audit              *audit.Auditor // nil if auditing is off
	issuer             *serviceaccount.Issuer
	verifier           *serviceaccount.Verifier
	frontProxy         *frontProxy
	initial            *initial.Objects
	aggregator         *aggregation.Aggregator
	aggregationMetrics *metrics.Aggregation
	shown              []prometheus.Collector // what /metrics shows, beside the requests
	pki                *pki.Authority         // the server's own certificate authority
	authority          []byte                 // by which clients verify this server, as PEM; written to kubeconfigs
	// jwt verifies the tokens of OpenID Connect issuers. It is nil if neither an issuer nor --authentication-config is
	// configured.
	jwt         *oidc.Reloader
	accountKeys *accountKeys
	handler     http.Handler
	tls         *tls.Config  // has the certificates as soon as there is a listener
	http        *http.Server // nil without a listener
	documents   *discovery.Documents
	listener    net.Listener // nil in a server that is used in its process alone
	failed      chan error   // of capacity 1: why no more connections are accepted; nil without a listener
	admin       pki.Pair     // the administrator's client certificate
	ready       atomic.Bool
	// serviceError is why the Service kubernetes or its endpoints could not be written; nil if they are up to date.
	serviceError error
	own          *x509.Certificate // the server's certificate, if its own authority signed it
	clients      []byte            // the authorities that sign client certificates, as PEM
	// closing is cancelled (by quit) when the server closes. It ends watches and background work at once; other
	// requests may finish within drainTime. work counts the goroutines that Close waits for.
	closing context.Context
	quit    context.CancelFunc
	// leaving is cancelled (by leave) when the server is asked to stop, which may be some time before it closes
	// (Config.ShutdownDelay). Then it tells other servers and clients not to count on it, while it still serves.
	leaving     context.Context
	leave       context.CancelFunc
	work        sync.WaitGroup
	busy        controller.Busy
	quotas      *controller.ResourceQuotas
	definitions *controller.Definitions
	nodes       *nodes.Nodes       // sends requests on to nodes, Pods and Services
	fairness    *fairness.Fairness // nil without --enable-priority-and-fairness
	stats       *typeStats
}

// Serve prints the address of a server that was started to out, and runs it until ctx is cancelled, or until it accepts
// no more connections, which is an error. Then it closes the server.
func (s *Server) Serve(ctx context.Context, out io.Writer) error {
	s.greet(out, time.Since(s.started))
	if err := s.Wait(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	fmt.Fprintln(out, "Plinth is closing.")
	s.ready.Store(false)
	s.leave()
	var err error
	select {
	case <-time.After(s.config.ShutdownDelay):
	case err = <-s.failed:
	}
	return errors.Join(err, s.Close())
}

// Wait waits until ctx is cancelled, or until the server accepts no more connections, which is an error.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// Start starts a server. It accepts requests when Start returns. The caller has to call Close.
func Start(ctx context.Context, c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	set, ignored, err := c.features()
	if err != nil {
		return nil, err
	}
	releases, err := c.releases()
	if err != nil {
		return nil, err
	}
	if len(ignored) > 0 {
		c.Logger.Warn("feature gates that mean nothing here are ignored", "gates", ignored)
	}
	if err := c.locate(ctx); err != nil {
		return nil, err
	}
	dir, err := c.openDataDir(ctx)
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, features: set, releases: releases}
	if err := s.open(ctx, dir); err != nil {
		return nil, errors.Join(err, s.Close(), dir.Undo())
	}
	return s, nil
}

// open starts the parts in the order of their dependencies, from the store to the listener. A start that fails before
// the first request is answered leaves nothing in the data directory.
func (s *Server) open(ctx context.Context, dir *datadir.Dir) error {
	s.started = time.Now()
	s.closing, s.quit = context.WithCancel(context.WithoutCancel(ctx))
	s.leaving, s.leave = context.WithCancel(s.closing)
	keep := func(ctx context.Context) error { return s.keep(ctx, dir) }
	for _, stage := range []func(context.Context) error{
		s.openEngine, s.openObjects, s.openListener, s.openHandler, keep, s.begin,
	} {
		if err := stage(ctx); err != nil {
			return err
		}
	}
	return nil
}

// openEngine opens the storage, and makes the verbs over it: the types, who may do what, and what admission says.
func (s *Server) openEngine(ctx context.Context) error {
	c := &s.config
	err := s.authorization()
	if err != nil {
		return err
	}
	if s.accountKeys, err = c.accountKeys(ctx); err != nil {
		return err
	}
	s.follow = append(s.follow, s.accountKeys.follow)
	s.shown = append(s.shown, s.accountKeys.metrics.Collectors()...)
	definitions := crd.New(gotypes.Of[metav1.ObjectMeta])
	definitions.Call = s.webhooks().Call
	definitions.Expressions = &s.expressions
	definitions.LatestExpressions = s.releases.LatestExpressions()
	if c.Image != nil {
		definitions.Texts = c.Image.texts
	}
	services, err := c.Services.Config()
	if err != nil {
		return err
	}
	allocator := addresses.New(services)
	issued := metrics.NewCertificates()
	s.shown = append(s.shown, issued.Collectors()...)
	types, err := c.Versions.Resources(builtin.Config{
		EventTTL: c.EventTTL, Now: c.Now, Authenticate: s.reviewToken, Tokens: s.answerToken,
		NoTokens: !s.accountKeys.signs(),
		Features: s.features, Versions: s.releases, Definitions: definitions.Complete, Addresses: allocator,
		Authority: s.policy, CountQuotas: s.countQuotas, Components: s.components,
		Issued: issued.Issued, NamespaceLabel: s.namespaceLabel,
	}, c.Logger)
	if err != nil {
		return err
	}
	s.registry = engine.NewRegistry(types)
	if s.storage, err = s.openStorage(ctx, definitions.Define); err != nil {
		return err
	}
	s.store = s.storage.Store
	collection := s.store.Collection(crd.Path)
	definitions.Open(collection)
	s.allocator = allocator
	allocator.Open(s.store.Collection(addresses.CIDRs))
	s.policy.Open(s.store)
	s.registry.Define(collection, definitions.Define)
	if s.admission, err = s.admissionPlugins(); err != nil {
		return err
	}
	s.engine = engine.New(engine.Config{
		Store: s.store, Registry: s.registry, Now: c.Now, Admission: s.admission.Admission,
		KeepFinalizers: !c.GarbageCollection, Elsewhere: s.storage.Elsewhere(),
	})
	s.definitions = &controller.Definitions{
		Engine: s.engine, Registry: s.registry, Logger: c.Logger, Objects: definitions.Stored, Finalizer: crd.Finalizer,
		Busy: &s.busy, Shared: s.storage.OnEtcd(),
	}
	s.quotas = &controller.ResourceQuotas{Engine: s.engine, Registry: s.registry, Store: s.store, Logger: c.Logger,
		Busy: &s.busy, Admitted: !c.Runs(quotaController)}
	s.openFairness()
	return nil
}

// openObjects makes the objects that every server has, and repairs those that are there, unless they are the image of
// another server.
func (s *Server) openObjects(ctx context.Context) error {
	c := &s.config
	services, err := c.Services.Config()
	if err != nil {
		return err
	}
	s.initial = &initial.Objects{Engine: s.engine, Registry: s.registry, Store: s.store, Features: s.features,
		Logger: c.Logger, Now: s.clock, Fairness: c.PriorityAndFairness, Ranges: services.Ranges, NodePort: c.Services.NodePort}
	if c.Image != nil {
		return nil
	}
	// The server starts although some Services could not be repaired: it serves the others.
	if err := errors.Join(s.repairClaims(ctx), s.allocator.Adopt(ctx, s.engine, s.store)); err != nil {
		c.Logger.Warn("some Services are without what they should have", "error", err)
	}
	return s.initial.Begin(ctx)
}

// openListener opens the port, and reads or makes the certificates of the server and those that it believes. Then it is
// known what the server says of itself.
func (s *Server) openListener(ctx context.Context) (err error) {
	c := &s.config
	if err := s.authorities(); err != nil {
		return err
	}
	if err := s.openFrontProxy(); err != nil {
		return err
	}
	if !c.InProcess {
		if s.listener = c.Listener; s.listener == nil {
			if s.listener, err = c.listen(ctx); err != nil {
				return err
			}
		}
		if err := s.certify(); err != nil {
			return err
		}
	}
	if err := s.openPeers(); err != nil {
		return err
	}
	s.writeOwn(ctx)
	return nil
}

// openHandler makes what a request passes.
func (s *Server) openHandler(context.Context) (err error) {
	c := &s.config
	s.aggregator, s.aggregationMetrics = s.newAggregator(), metrics.NewAggregation()
	if s.auth, err = s.authenticator(s.tls); err != nil {
		return err
	}
	if s.audit, err = audit.New(c.Audit, c.Logger); err != nil {
		return err
	}
	if s.nodes, err = s.newNodes(); err != nil {
		return err
	}
	s.handler, err = s.newHandler()
	return err
}

// begin answers requests, and starts what runs beside them.
func (s *Server) begin(ctx context.Context) error {
	if s.listener != nil {
		s.accept()
	}
	s.control(s.definitions)
	s.runFairness()
	if s.config.Image == nil {
		s.run(func() { s.initial.KeepUp(s.closing) })
	}
	s.run(func() { s.storage.Recover(s.closing) })
	for _, follow := range s.follow {
		s.run(func() { follow(s.closing) })
	}
	s.ready.Store(true)
	if s.storage.OnEtcd() {
		renew := s.peers.Join(ctx)
		s.run(func() { renew(s.leaving) })
	}
	renew, err := s.peers.Lease()
	if renew != nil {
		s.run(func() { renew(s.leaving) })
	}
	return err
}

// openPeers makes what is known of this server among others.
func (s *Server) openPeers() (err error) {
	c := &s.config
	s.peers = &peers.Config{Engine: s.engine, Registry: s.registry, Features: s.features, Objects: s.initial,
		Logger: c.Logger, Now: s.clock, Address: s.reachable(), Port: s.port(), Etcd: s.storage.Cluster, Form: s.storage.Form,
		Reconciler: c.EndpointReconciler, Count: c.APIServerCount}
	s.peers.Host, s.peers.HostPort = s.peerAddress()
	if c.InProcess { // no other process can find it
		return nil
	}
	var listensAt []string
	if s.storage.OnEtcd() {
		listensAt = []string{s.listener.Addr().String()}
	}
	s.peers.Identity, err = peers.Identity(s.features, listensAt...)
	return err
}

// writeOwn writes the objects that say how to reach the server. The API works without them, so an error is logged and
// does not end the start.
func (s *Server) writeOwn(ctx context.Context) {
	if s.config.Image != nil {
		return
	}
	c := &s.config
	s.initial.Self = initial.Self{Port: s.port(), Peers: s.storage.OnEtcd(), Clients: s.clients,
		FrontProxy: s.frontProxy.FrontProxy}
	if c.EndpointReconciler != "none" {
		s.initial.Self.Endpoint = s.reachable()
	}
	if err := initial.Concurrently(func() error {
		if s.initial.Self.Peers {
			return nil
		}
		s.serviceError = s.initial.EnsureService(ctx)
		return s.serviceError
	}, func() error { return s.initial.EnsureConfigMaps(ctx) }); err != nil {
		c.Logger.Warn("objects of the server are not up to date", "error", err)
	}
}

// accept serves the connections of the listener.
func (s *Server) accept() {
	c := &s.config
	s.failed = make(chan error, 1)
	s.http = &http.Server{
		Handler:           s.handler,
		TLSConfig:         s.tls,
		ConnContext:       auth.Remember,
		ReadHeaderTimeout: 32 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    1 << 20,
		ErrorLog:          slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: cmp.Or(c.HTTP2MaxStreams, 1000)},
	}
	if c.DisableHTTP2 {
		s.http.Protocols = new(http.Protocols)
		s.http.Protocols.SetHTTP1(true)
	}
	s.run(func() {
		if err := s.http.ServeTLS(s.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			err = fmt.Errorf("no more connections are accepted: %w", err)
			c.Logger.Error("serving failed", "error", err) // who calls Start alone is not told otherwise
			s.failed <- err
		}
	})
}

// Certificates returns the TLS configuration by which another listener can serve Handler, with ConnContext (the
// kubeconfig of WriteKubeconfig is for it). It is for servers that have no listener, and is called once.
func (s *Server) Certificates() (*tls.Config, error) { return s.tls, s.certify() }

// ConnContext is the ConnContext of an http.Server that serves Handler.
var ConnContext = auth.Remember

// Kubeconfig writes the kubeconfig of the administrator, for a server at a URL. Certificates is called before.
func (s *Server) Kubeconfig(file, url string) error {
	return kubeconfig.Write(context.Background(), file, s.entry(url))
}

// Handler serves the requests of clients in the same process. The context of a request says who sends it (auth.As); if
// it does not, the credentials in its header do.
func (s *Server) Handler() http.Handler { return s.handler }

// Authenticate returns the user of a request, as Handler does.
func (s *Server) Authenticate(r *http.Request) (*access.Identity, error) {
	return s.auth.Authenticate(r.Context(), r)
}

// Type is where the objects of a kind are served.
type Type struct {
	Path       string // of the collection, without namespaces: "/apis/apps/v1"
	Resource   string // "deployments"
	Namespaced bool
	Status     bool   // it has the subresource status
	Key        string // the resource part of the keys of its objects in the store; "": nothing is stored
}

// OfKind returns where a kind is served.
func (s *Server) OfKind(apiVersion, kind string) (Type, bool) {
	if r := s.registry.Now().OfKind(apiVersion, kind); r != nil {
		return servedType(r), true
	}
	return Type{}, false
}

// OfResource returns what a resource serves in a version, or in any of its versions if version is "".
func (s *Server) OfResource(group, version, resource string) (Type, bool) {
	types := s.registry.Now()
	if version != "" {
		if r := types.Find(group, version, resource); r != nil {
			return servedType(r), true
		}
		return Type{}, false
	}
	for r := range types.All() {
		if r.Group == group && r.Name == resource {
			return servedType(r), true
		}
	}
	return Type{}, false
}

func servedType(r *engine.Resource) Type {
	t := Type{Path: "/apis/" + r.APIVersion(), Resource: r.Name, Namespaced: r.Namespaced,
		Status: r.Subresource("status") != nil}
	if r.Group == "" {
		t.Path = "/api/" + r.APIVersion()
	}
	if r.Stored != nil {
		t.Key = r.Stored.Path
	}
	return t
}

// Image is the objects of a server at one moment, of which other servers can be made (Config.Image). It never changes.
type Image struct {
	state *store.Image
	texts *crd.Texts
}

// Image returns the objects of the server as they are now.
func (s *Server) Image() *Image { return s.image(s.store.Image()) }

// Before returns the objects of the server as they were before these records, which are all changes since a revision,
// oldest first.
func (s *Server) Before(records []*store.Record) *Image {
	return s.image(s.store.Image().Before(records))
}

func (s *Server) image(state *store.Image) *Image {
	var earlier *crd.Texts
	if s.config.Image != nil {
		earlier = s.config.Image.texts
	}
	return &Image{state, crd.NewTexts(state.Versions(crd.Path), gotypes.Of[metav1.ObjectMeta], earlier)}
}

// Busy says whether the server's controllers have something to do at this moment (controller.Busy).
func (s *Server) Busy() bool { return s.busy.Tasks() > 0 }

// Store is the server's store.
func (s *Server) Store() *store.Store { return s.store }

func (s *Server) run(f func()) {
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		f()
	}()
}

// openStorage opens the storage that --storage or --etcd-servers selects.
func (s *Server) openStorage(ctx context.Context, define engine.Define) (*storage.Storage, error) {
	c := &s.config
	services, err := c.Services.Config()
	if err != nil {
		return nil, err
	}
	is := storage.Config{
		NoSync: c.noSync, Encryption: c.Encryption, KMSv1: s.features.On(features.KMSv1), Identity: peers.HostIdentity(),
		HistoryBytes: c.WatchHistoryBytes,
		Log:          c.Log, ImageAfter: c.ImageAfter, FirstNodePort: services.FirstPort, LastNodePort: services.LastPort, Registry: s.registry,
		Define: define, Logger: c.Logger, Now: c.Now,
	}
	if c.Image != nil {
		is.Image = c.Image.state
	}
	switch c.storageKind() {
	case inEtcd:
		is.Etcd = c.Etcd
	case embedded:
		is.Dir = c.inDataDir("store")
	}
	return storage.Open(ctx, is)
}

// URL is the address of the server in its administrator's kubeconfig. If the listener has none, it is a name for which
// the certificate is valid: a client needs a dialer of the listener's kind.
func (s *Server) URL() string {
	address, ok := s.address()
	if !ok {
		return "https://localhost:" + strconv.Itoa(s.port())
	}
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(address.Port))
}

// port is the port at which the server listens; 443 if it listens at none.
func (s *Server) port() int {
	if address, ok := s.address(); ok {
		return address.Port
	}
	return 443
}

// address is the address of the listener, if it listens at a port.
func (s *Server) address() (*net.TCPAddr, bool) {
	if s.listener == nil {
		return nil, false
	}
	address, ok := s.listener.Addr().(*net.TCPAddr)
	return address, ok
}

// Administrator returns what the administrator's kubeconfig has: the authority by which clients verify the server, as
// PEM, and the client certificate.
func (s *Server) Administrator() (authority []byte, certificate pki.Pair) {
	return s.authority, s.admin
}

// DropDocuments drops the documents of discovery and OpenAPI that clients have requested. A server does so only when it
// is told to: another client would wait for them to be printed again.
func (s *Server) DropDocuments() { s.documents.Drop() }

// greet prints the address of the server and the commands to try next.
func (s *Server) greet(out io.Writer, took time.Duration) {
	kubeconfig, err := filepath.Abs(s.config.WriteKubeconfig)
	if err != nil {
		kubeconfig = s.config.WriteKubeconfig
	}
	where := s.config.Storage + " storage"
	if s.storage.OnEtcd() {
		where = "its objects in the etcd at " + strings.Join(s.config.Etcd.Servers, ", ")
	}
	fmt.Fprintf(out, `Plinth %s is ready at %s after %d ms, with %s.

In another terminal:
  export KUBECONFIG=%s
  kubectl get namespaces

No kubectl? "make kubectl" builds bin/kubectl. Ctrl-C ends the server.
`, Version, s.URL(), took.Milliseconds(), where, kubeconfig)
}

// Close ends the server: it stops listening, ends watches, lets other requests finish within drainTime, waits for
// background work, and closes the store.
func (s *Server) Close() error {
	s.ready.Store(false)
	var errs []error
	if s.quit != nil {
		s.quit()
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if s.http != nil {
		if err := s.http.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("requests were still under way: %w", err), s.http.Close())
		}
	} else if s.listener != nil {
		errs = append(errs, s.listener.Close())
	}
	errs = append(errs, s.audit.Close(ctx)) // after the last request, so that its event is written, too
	s.work.Wait()
	s.expressions.Close()
	return errors.Join(append(errs, s.accountKeys.close(), s.storage.Close())...)
}

// clock is the current time by the configured clock.
func (s *Server) clock() time.Time {
	if s.config.Now != nil {
		return s.config.Now()
	}
	return time.Now()
}

// Package server is the process around a control plane (package plane). It turns the configuration of flags and files
// into certificates, a port, a storage, and the values of which the plane is made; it runs the plane, makes it known to
// other servers, counts for /metrics, and ends all of it in order. It is the only package that may import all others.
package server

import (
	"cmp"
	"context"
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

	"plinth/internal/audit"
	"plinth/internal/auth"
	"plinth/internal/configfile"
	"plinth/internal/console"
	"plinth/internal/datadir"
	"plinth/internal/egress"
	"plinth/internal/fairness"
	"plinth/internal/features"
	"plinth/internal/httpapi"
	"plinth/internal/metrics"
	"plinth/internal/peerproxy"
	"plinth/internal/peers"
	"plinth/internal/pki"
	"plinth/internal/plane"
	"plinth/internal/planes"
	"plinth/internal/planes/credentials"
	"plinth/internal/product"
	"plinth/internal/store"
)

// drainTime is how long requests may still run after the server has begun to close: no request but those that last long
// takes longer than RequestTimeout.
func (c *Config) drainTime() time.Duration {
	return max(10*time.Second, c.RequestTimeout) + c.ShutdownWatches
}

// Server is a running server.
type Server struct {
	config       Config
	features     features.Set
	started      time.Time
	plane        *plane.Plane             // the first one
	shared       *plane.Config            // that of the first plane, of which all others are made
	planes       *planes.Planes           // the others; nil without --planes
	credentials  *credentials.Credentials // of the others
	egress       egress.Policy            // of the others
	capacity     *fairness.Capacity       // of all planes; nil without --planes
	certificates *certificates
	accountKeys  *accountKeys
	files        *configfile.Files
	audit        *audit.Auditor // nil if auditing is off
	counts       counts
	peers        *peers.Config
	election     *metrics.Election       // nil: there are no other servers
	peerProxy    *peerproxy.Proxy        // nil: no requests go to other servers on the same etcd
	follow       []func(context.Context) // what runs until the server closes
	listener     net.Listener
	http         *http.Server
	draining     *httpapi.Draining // nil: clients are not told that the server ends
	failed       chan error        // of capacity 1: why no more connections are accepted
	ready        atomic.Bool
	// closing is cancelled (by quit) when the server closes. It ends background work at once; requests may finish within
	// Config.drainTime. work counts the goroutines that Close waits for.
	closing context.Context
	quit    context.CancelFunc
	// leaving is cancelled (by leave) when the server is asked to stop, which may be some time before it closes
	// (Config.ShutdownDelay). Then it tells other servers and clients not to count on it, while it still serves.
	leaving context.Context
	leave   context.CancelFunc
	work    sync.WaitGroup
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
	if len(ignored) > 0 {
		c.Logger.Warn("feature gates that mean nothing here are ignored", "gates", ignored)
	}
	if err := c.readAuthority(); err != nil {
		return nil, err
	}
	if err := c.locate(ctx); err != nil {
		return nil, err
	}
	dir, err := c.openDataDir(ctx)
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, features: set}
	if c.ShutdownRetryAfter || c.ShutdownWatches > 0 {
		s.draining = &httpapi.Draining{}
	}
	if err := s.open(ctx, dir); err != nil {
		return nil, errors.Join(err, s.Close(), dir.Undo())
	}
	return s, nil
}

// open starts the parts in the order of their dependencies, from the certificates and the port to the first request. A
// start that fails before that leaves nothing in the data directory.
func (s *Server) open(ctx context.Context, dir *datadir.Dir) error {
	s.started = time.Now()
	s.closing, s.quit = context.WithCancel(context.WithoutCancel(ctx))
	s.leaving, s.leave = context.WithCancel(s.closing)
	keep := func(ctx context.Context) error { return s.keep(ctx, dir) }
	for _, stage := range []func(context.Context) error{s.openPort, s.openPlane, s.openPeers, keep, s.begin} {
		if err := stage(ctx); err != nil {
			return err
		}
	}
	return nil
}

// openPort reads or makes the certificates of the server and those that it believes, and opens the port. Then it is
// known what the server says of itself.
func (s *Server) openPort(ctx context.Context) (err error) {
	c := &s.config
	s.files = &configfile.Files{Logger: c.Logger}
	if s.certificates, err = c.openCertificates(s.clock(), s.files); err != nil {
		return err
	}
	counts := metrics.NewCare(&s.certificates.expiry)
	s.files.Reloaded, s.certificates.used = counts.Reloaded, counts.Used
	s.counts.show(counts.Collectors()...)
	s.follow = append(s.follow, s.care)
	if s.listener = c.Listener; s.listener == nil {
		s.listener, err = c.listen(ctx)
	}
	return err
}

// openPlane makes the plane, and what the server gives it.
func (s *Server) openPlane(ctx context.Context) error {
	config, err := s.planeConfig(ctx)
	if err != nil {
		return err
	}
	s.withPlanes(config)
	s.shared = config
	if s.plane, err = plane.New(ctx, *config); err != nil {
		return err
	}
	return s.openPlanes(ctx)
}

// openPeers makes what is known of this server among others.
func (s *Server) openPeers(context.Context) (err error) {
	c, p := &s.config, s.plane
	s.peers = &peers.Config{Engine: p.Engine, Registry: p.Registry, Features: s.features, Objects: p.Objects,
		Logger: c.Logger, Now: s.clock, Address: s.reachable(), Port: s.port(), Etcd: p.Storage.Cluster, Form: p.Storage.Form,
		Reconciler: c.EndpointReconciler, Count: c.APIServerCount}
	if s.election != nil {
		s.peers.Leads = s.election.Leads
	}
	s.peers.Host, s.peers.HostPort = s.peerAddress()
	var listensAt []string
	if p.Storage.OnEtcd() {
		listensAt = []string{s.listener.Addr().String()}
	}
	s.peers.Identity, err = peers.Identity(s.features, listensAt...)
	return err
}

// begin answers requests, and starts what runs beside them.
func (s *Server) begin(ctx context.Context) error {
	s.accept()
	shared := s.plane.Storage.OnEtcd()
	if shared && s.config.Authority.Cert == nil {
		s.config.Logger.Info("CertificateSigningRequests are not signed: servers with --etcd-servers need an authority " +
			"in common for that, --cluster-signing-cert-file and --cluster-signing-key-file")
	}
	if shared {
		s.plane.Run(func(lead func(context.Context)) { s.peers.Elect(s.leaving, lead) })
	} else {
		s.plane.Run(nil)
	}
	if s.planes != nil {
		s.planes.Run()
	}
	for _, follow := range s.follow {
		s.run(func() { follow(s.closing) })
	}
	s.ready.Store(true)
	if shared {
		renew := s.peers.Join(ctx)
		s.run(func() { renew(s.leaving) })
	}
	if s.peerProxy != nil {
		s.run(func() { s.peerProxy.Run(s.closing, s.peers.Identity, s.peers.Follow) })
	}
	renew, err := s.peers.Lease()
	if renew != nil {
		s.run(func() { renew(s.leaving) })
	}
	return err
}

// accept serves the connections of the listener.
func (s *Server) accept() {
	c := &s.config
	s.failed = make(chan error, 1)
	s.http = &http.Server{
		Handler:           s.handler(),
		TLSConfig:         s.certificates.listener(),
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

// Store is the server's store.
func (s *Server) Store() *store.Store { return s.plane.Store }

func (s *Server) run(f func()) {
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		f()
	}()
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

// address is the address of the listener, if it is a port.
func (s *Server) address() (*net.TCPAddr, bool) {
	address, ok := s.listener.Addr().(*net.TCPAddr)
	return address, ok
}

// Administrator returns what the administrator's kubeconfig has: the authority by which clients verify the server, as
// PEM, and the client certificate.
func (s *Server) Administrator() (authority []byte, certificate pki.Pair) {
	return s.certificates.administrator()
}

// DropDocuments drops the documents of discovery and OpenAPI that clients have requested. A server does so only when it
// is told to: another client would wait for them to be printed again.
func (s *Server) DropDocuments() { s.plane.Documents.Drop() }

// greet prints the address of the server and the commands to try next.
func (s *Server) greet(out io.Writer, took time.Duration) {
	kubeconfig, err := filepath.Abs(s.config.WriteKubeconfig)
	if err != nil {
		kubeconfig = s.config.WriteKubeconfig
	}
	where := s.config.Storage + " storage"
	if s.plane.Storage.OnEtcd() {
		where = "its objects in the etcd at " + strings.Join(s.config.Etcd.Servers, ", ")
	}
	kubectl := "https://kubernetes.io/docs/tasks/tools has it."
	if strings.HasSuffix(product.Built().Version, "-dev") {
		kubectl = `"make kubectl" builds bin/kubectl.`
	}
	browser := ""
	if s.config.Console {
		browser = "\nIn a browser: " + s.URL() + console.Path + "/\n"
	}
	fmt.Fprintf(out, `Plinth %s is ready at %s after %d ms, with %s.

In another terminal:
  export KUBECONFIG=%s
  kubectl get namespaces
%s
No kubectl? %s Ctrl-C ends the server.
`, plane.Version, s.URL(), took.Milliseconds(), where, kubeconfig, browser, kubectl)
}

// Close ends the server: it stops listening, ends watches, lets other requests finish within Config.drainTime, waits
// for background work, and closes the store. With ShutdownRetryAfter it listens until the requests are finished, and
// refuses others.
func (s *Server) Close() error {
	s.ready.Store(false)
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), s.config.drainTime())
	defer cancel()
	stopped := s.beginToStop(ctx)
	if s.quit != nil {
		s.quit()
	}
	if s.planes != nil {
		s.planes.Quit()
	}
	if s.plane != nil {
		s.plane.Quit()
	}
	errs = append(errs, stopped())
	errs = append(errs, s.audit.Close(ctx)) // after the last request, so that its event is written, too
	s.work.Wait()
	if s.planes != nil {
		s.planes.Close()
	}
	if s.plane != nil {
		errs = append(errs, s.plane.Close())
	}
	return errors.Join(append(errs, s.accountKeys.close())...)
}

// goawayTime is how long watches go on after their connections were told that the server ends. A client that begins a
// watch again at once does so on another connection then.
const goawayTime = 50 * time.Millisecond

// beginToStop makes the server accept no more requests, or refuse them. What it returns waits until those under way are
// finished, and until the server does not listen any more.
func (s *Server) beginToStop(ctx context.Context) (stopped func() error) {
	if s.http == nil {
		return func() error {
			if s.listener == nil {
				return nil
			}
			return s.listener.Close()
		}
	}
	shutDown := func() error {
		err := s.http.Shutdown(ctx)
		if err != nil {
			err = errors.Join(fmt.Errorf("requests were still under way: %w", err), s.http.Close())
		}
		return err
	}
	if s.config.ShutdownWatches > 0 {
		s.draining.Pace(s.config.ShutdownWatches)
	}
	if s.config.ShutdownRetryAfter {
		s.draining.Refuse()
		return func() error {
			s.draining.Idle(ctx)
			return shutDown()
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- shutDown() }()
	if s.config.ShutdownDelay > 0 {
		time.Sleep(goawayTime)
	}
	return func() error { return <-ended }
}

// clock is the current time by the configured clock.
func (s *Server) clock() time.Time {
	if s.config.Now != nil {
		return s.config.Now()
	}
	return time.Now()
}

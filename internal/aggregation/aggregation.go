package aggregation

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"plinth/internal/access"
	"plinth/internal/discovery"
	"plinth/internal/egress"
	"plinth/internal/features"
	"plinth/internal/forward"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/internal/webhook"
)

// Path is the resource part of the keys of APIServices in the store.
const Path = "apiregistration.k8s.io/apiservices"

// discoveryTimeout limits the requests for a discovery document of a backend: they come from clients that want to
// know everything that is served, and that are not to wait for one server.
const discoveryTimeout = 5 * time.Second

// Config has what an Aggregator needs. Endpoint is required.
type Config struct {
	// Endpoint returns an address HOST:PORT at which a port of a Service is served.
	Endpoint func(ctx context.Context, namespace, service string, port int64) (string, error)
	// Certificate returns the client certificate by which backends know this server. Nil: there is none, and backends
	// do not believe what it says of users.
	Certificate func() (*tls.Certificate, error)
	// Dial opens connections to backends; nil: a net.Dialer. An Egress that restricts does not use it.
	Dial   forward.Dial
	Egress egress.Policy // where backends may be
	// FollowRedirects passes redirects of backends on to clients, instead of answering with 502.
	FollowRedirects bool
	Features        features.Set
	Logger          *slog.Logger
}

// Aggregator knows the backends. Its methods may be called concurrently.
type Aggregator struct {
	Config
	Outdated     webhook.Outdated // of the requests that are forwarded to the backends
	routes       *view.View[routes]
	availability *view.View[map[string]bool]
	local        *view.View[*discovery.Local]

	remotes  atomic.Pointer[[]*discovery.Remote] // what was fetched last
	fetchers fetchers
}

// New returns an Aggregator for the APIServices of a store.
func New(c Config, s *store.Store) *Aggregator {
	a := &Aggregator{Config: c}
	a.routes = view.New(s.Collection(Path), a.compile)
	a.availability = view.New(s.Collection(Path), compileAvailability)
	a.local = view.New(s.Collection(Path), compileLocal)
	return a
}

// Forwards answers the requests to a group version; nil if this server serves it itself.
func (a *Aggregator) Forwards(group, version string) func(http.ResponseWriter, *http.Request,
	*access.Attributes) error {
	if r := a.now()[groupVersion{group, version}]; r != nil {
		return r.forward
	}
	return nil
}

// now returns the routes. Those of APIServices that cannot be read are among them.
func (a *Aggregator) now() routes {
	all, _ := a.routes.Now()
	return all
}

// Ready returns an error if an APIService cannot be read. Then requests to its group version are answered with 503.
func (a *Aggregator) Ready() error {
	_, err := a.routes.Now()
	return err
}

// forward sends a request to the backend. Errors of this server are in plain text, as in the reference.
func (r *route) forward(w http.ResponseWriter, in *http.Request, asked *access.Attributes) error {
	const unavailable = "service unavailable"
	if !r.available {
		http.Error(w, unavailable, http.StatusServiceUnavailable)
		return nil
	}
	transport, err := r.server.connect()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return nil
	}
	ctx := in.Context()
	a := r.server.of
	address, err := a.Endpoint(ctx, r.server.namespace, r.server.name, r.server.port)
	if err != nil || !isHostPort(address) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.Logger.Debug("no address of a backend is known", "service", r.server, "address", address, "error", err)
		http.Error(w, unavailable, http.StatusServiceUnavailable)
		return nil
	}
	if !asked.IsResource { // it is the path of the group version
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, discoveryTimeout)
		defer cancel()
	}
	out := forward.Readdress(w, in.WithContext(ctx), address)
	user := asked.User
	if !a.Features.On(features.RemoteRequestHeaderUID) {
		user.UID = ""
	}
	target := forward.Target{URL: out.URL, Transport: transport, Rewrite: true,
		RefuseRedirects: !a.FollowRedirects, User: &user, Logger: a.Logger,
		Answered: func(answer *http.Response, err error) { a.Outdated.Count(ctx, out.URL.Hostname(), answer, err) }}
	err = target.Forward(w, out)
	if err == nil || in.Context().Err() != nil {
		return err
	}
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
	return nil
}

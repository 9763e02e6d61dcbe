package peerproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/discovery"
	"plinth/internal/egress"
	"plinth/internal/forward"
	"plinth/object"
)

// Forwarded is the header, set to "true", of a request that a server has forwarded to a peer.
const Forwarded = "X-Kubernetes-Peer-Proxied"

// serverName is a name for which the certificates of all servers are valid, at whatever address they are.
const serverName = "kubernetes.default.svc"

// Config is how peers are reached.
type Config struct {
	// Certificate returns the client certificate by which peers know this server.
	Certificate func() (*tls.Certificate, error)
	// AddressOf returns HOST:PORT of a peer.
	AddressOf func(ctx context.Context, identity string) (string, error)
	// Shared returns the versions that objects define, now. The result does not change: another Versions takes its place.
	Shared func() *Versions
	Logger *slog.Logger
	Metrics
}

// Metrics are callbacks. All are set.
type Metrics struct {
	// Rerouted is called when a peer, or this server in its place, has answered. All names are "" for a request of this
	// server itself. The code is 0 if the answer was that of a peer to an upgrade.
	Rerouted func(code int, group, version, resource string)
	// Unlocated is called when there is no address of any peer that serves a resource.
	Unlocated func(group, version, resource string)
	// SyncFailed is called when it could not be found out what a peer serves: "hostport_resolution", "fetch_discovery".
	SyncFailed func(kind string)
}

// Versions are versions of groups.
type Versions map[[2]string]bool

// resource is the name of a resource.
type resource struct{ group, version, name string }

// known is what peers serve. It does not change.
type known struct {
	own    string
	core   map[string][]object.Value // by identity, the groups of /api
	groups map[string][]object.Value // by identity, those of /apis
	by     map[resource][]string     // the identities of those that serve a resource, sorted
}

// Proxy knows the peers. Its methods may be called concurrently.
type Proxy struct {
	Config
	transport atomic.Pointer[http.Transport]
	known     atomic.Pointer[known]    // nil: no peer serves anything
	filtered  atomic.Pointer[filtered] // of known
	expire    chan struct{}            // see shared.gone
	last      map[string]documents     // that were fetched of each peer; Run's
	mu        sync.Mutex               // guards shared
	shared    shared
}

// New returns a Proxy that knows no peers. It reaches none before Trust.
func New(c Config) *Proxy {
	return &Proxy{Config: c, expire: make(chan struct{}, 1)}
}

// Trust sets the authorities of which the certificates of peers are. Requests that are under way go on.
func (p *Proxy) Trust(authorities *x509.CertPool) {
	old := p.transport.Swap(forward.NewTransport(&tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: authorities, ServerName: serverName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.Certificate() },
	}, nil, egress.Policy{}))
	if old != nil {
		old.CloseIdleConnections()
	}
}

// Serves says whether a peer may serve a resource. It is the question that every request asks.
func (p *Proxy) Serves(group, version, name string) bool {
	k := p.known.Load()
	return k != nil && len(k.by[resource{group, version, name}]) > 0
}

// Forwards answers the requests for a resource that this server does not serve; nil if no peer serves it either.
func (p *Proxy) Forwards(group, version, name string) func(http.ResponseWriter, *http.Request,
	*access.Attributes) error {
	v := p.now()
	if v == nil || v.leftOut(group, version) {
		return nil
	}
	of := resource{group, version, name}
	identities := v.of.by[of]
	if len(identities) == 0 {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request, asked *access.Attributes) error {
		return p.forward(w, r, asked, of, identities)
	}
}

// Discovered is what the peers serve, for discovery.Config; nil if there are none.
func (p *Proxy) Discovered() *discovery.Peers {
	if v := p.now(); v != nil {
		return v.discovered
	}
	return nil
}

// forward sends a request to one of the peers that serve its resource. Errors of the connection are in plain text, as
// in the reference.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, asked *access.Attributes, of resource,
	identities []string) error {
	address := p.locate(r.Context(), identities)
	if address == "" {
		if err := r.Context().Err(); err != nil {
			return err
		}
		p.Unlocated(of.group, of.version, of.name)
		return apierr.NewUnavailable("Error getting ip and port info of the remote server while proxying")
	}
	out := forward.Readdress(w, r, address)
	out.Header.Set(Forwarded, "true")
	code := 0 // of an answer to an upgrade, whatever it is, as in the reference: it is copied byte by byte
	target := forward.Target{URL: out.URL, Transport: p.transport.Load(), Rewrite: true, User: &asked.User,
		Logger: p.Logger, Answered: func(answer *http.Response, err error) {
			if err == nil {
				code = answer.StatusCode
			}
		}}
	defer func() { p.Rerouted(code, of.group, of.version, of.name) }()
	err := target.Forward(w, out)
	if err == nil || r.Context().Err() != nil {
		return err
	}
	code = http.StatusServiceUnavailable
	http.Error(w, err.Error(), code)
	return nil
}

// locate returns the address of one of the peers; "": that of none is known.
func (p *Proxy) locate(ctx context.Context, identities []string) string {
	for _, i := range rand.Perm(len(identities)) {
		address, err := p.addressOf(ctx, identities[i])
		if err == nil {
			return address
		}
		p.Logger.Debug("no address of another server is known", "server", identities[i], "error", err)
	}
	return ""
}

// addressOf is AddressOf with an error for what is no address.
func (p *Proxy) addressOf(ctx context.Context, identity string) (string, error) {
	address, err := p.AddressOf(ctx, identity)
	if err == nil {
		_, _, err = net.SplitHostPort(address)
	}
	return address, err
}

// index makes known of what each peer serves, those of /api included.
func index(own string, served map[string]documents) *known {
	if len(served) == 0 {
		return nil
	}
	k := &known{own: own, core: map[string][]object.Value{}, groups: map[string][]object.Value{},
		by: map[resource][]string{}}
	for identity, d := range served {
		k.core[identity], k.groups[identity] = d.core, d.groups
		for _, list := range [][]object.Value{d.core, d.groups} {
			discovery.EachResource(list, func(group, version, name string) {
				of := resource{group, version, name}
				k.by[of] = append(k.by[of], identity)
			})
		}
	}
	for _, identities := range k.by {
		slices.Sort(identities)
	}
	return k
}

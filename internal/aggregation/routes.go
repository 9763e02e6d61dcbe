package aggregation

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"plinth/internal/discovery"
	"plinth/internal/forward"
	"plinth/internal/view"
	"plinth/internal/webhook"
	"plinth/object"
)

// groupVersion is the key of a route.
type groupVersion struct{ group, version string }

// routes are all group versions that go to backends; nil if there are none. One whose APIService cannot be read is
// among them, without a backend: this server must not answer in place of a backend that it does not know.
type routes map[groupVersion]*route

// route is one group version. It does not change: for a changed APIService another takes its place.
type route struct {
	client
	uid                     string // of the APIService
	server                  *server
	available               bool
	groupPriority, priority int64
}

// server is how a backend is reached. APIServices that say the same of it share one, and with it the connections.
type server struct {
	spec            string // what identifies it: its service and how it is verified, as JSON
	namespace, name string
	port            int64
	of              *Aggregator
	bundle          []byte
	insecure        bool
	once            sync.Once
	transport       *http.Transport
	failed          error // why there is no transport
}

// compile makes the routes; it is a view.Compile.
func (a *Aggregator) compile(before routes, changes iter.Seq[view.Change]) routes {
	now := before
	change := func(name string, to *route) {
		var old groupVersion
		for key, r := range now {
			if r.name() == name {
				old = key
			}
		}
		if old == (groupVersion{}) && to == nil {
			return
		}
		changed := maps.Clone(now)
		delete(changed, old)
		if to != nil {
			if changed == nil {
				changed = routes{}
			}
			changed[to.groupVersion] = to
		}
		if now = changed; len(now) == 0 {
			now = nil
		}
	}
	for c := range changes {
		if c.Version != nil && c.Version.Sidecar.Unreadable != nil {
			change(c.Name, a.unreadable(c.Name, c.Version.Sidecar.Unreadable))
			continue
		}
		// Most APIServices are local. They are not parsed.
		if c.Version == nil || !bytes.Contains(c.Version.Data(), []byte(`"service":{`)) {
			change(c.Name, nil)
			continue
		}
		obj, err := object.ParseJSON(c.Version.Data())
		if err != nil || obj.Value.At("spec", "service").IsNull() {
			change(c.Name, nil)
			continue
		}
		change(c.Name, a.route(obj.Value, now))
	}
	return now
}

// Automanaged is the label of the APIServices that servers write, and its values: once at each start, and whenever one
// has changed.
const (
	Automanaged       = "kube-aggregator.kubernetes.io/automanaged"
	ManagedOnStart    = "onstart"
	ManagedContinuous = "true"
)

// Local are the APIServices without a service, for discovery.Config.
func (a *Aggregator) Local() *discovery.Local {
	local, _ := a.local.Now() // compileLocal knows what to do with those that cannot be read
	return local
}

// compileLocal is a view.Compile.
func compileLocal(before *discovery.Local, changes iter.Seq[view.Change]) *discovery.Local {
	now := map[[2]string]discovery.Priority{}
	if before != nil {
		now = maps.Clone(before.By)
	}
	for c := range changes {
		version, group, _ := strings.Cut(c.Name, ".")
		key := [2]string{group, version}
		delete(now, key)
		if c.Version == nil {
			continue
		}
		if c.Version.Sidecar.Unreadable != nil {
			if _, _, builtin := discovery.Priorities(group, version); builtin {
				now[key] = discovery.DefaultPriority(group, version) // it is there, whatever it says
			}
			continue
		}
		obj, err := object.ParseJSON(c.Version.Data())
		spec := obj.Value.At("spec")
		if err != nil || !spec.At("service").IsNull() {
			continue
		}
		p := discovery.Priority{Group: spec.At("groupPriorityMinimum").Int(), Version: spec.At("versionPriority").Int()}
		// That of a definition comes and goes with the definition, a moment later. It says nothing that the definition
		// does not say, and discovery is not to be printed twice.
		defined := obj.Value.At("metadata", "labels", Automanaged).Str() == ManagedContinuous
		if !defined || p != discovery.DefaultPriority(group, version) {
			now[key] = p
		}
	}
	switch {
	case before == nil && len(now) == 0:
		return nil
	case before != nil && maps.Equal(now, before.By):
		return before
	}
	return &discovery.Local{By: now}
}

// name is the name of the APIService.
func (r *route) name() string { return r.version + "." + r.group }

// route makes the route of an APIService. It takes the backend of another one that is reached in the same way.
func (a *Aggregator) route(obj object.Value, known routes) *route {
	spec := obj.At("spec")
	r := &route{
		client:        client{groupVersion: groupVersion{spec.At("group").Str(), spec.At("version").Str()}},
		uid:           obj.At("metadata", "uid").Str(),
		groupPriority: spec.At("groupPriorityMinimum").Int(), priority: spec.At("versionPriority").Int(),
		available: isAvailable(obj), server: a.serverOf(spec),
	}
	r.connect = r.reach
	for _, other := range known {
		if other.server.spec == r.server.spec {
			r.server = other.server
		}
	}
	return r
}

// unreadable makes the route of an APIService that cannot be read, which is never available; nil if this server serves
// the group version itself, whatever an APIService says.
func (a *Aggregator) unreadable(name string, why error) *route {
	version, group, _ := strings.Cut(name, ".")
	if _, _, builtin := discovery.Priorities(group, version); builtin {
		return nil
	}
	s := &server{spec: "unreadable " + name, of: a, failed: fmt.Errorf("the APIService cannot be read: %w", why)}
	s.once.Do(func() {}) // there is nothing to connect to
	r := &route{client: client{groupVersion: groupVersion{group, version}}, server: s}
	r.connect = r.reach
	return r
}

// isAvailable says whether the condition Available of an APIService is true.
func isAvailable(obj object.Value) bool {
	for _, c := range obj.At("status", "conditions").Items() {
		if c.At("type").Str() == "Available" {
			return c.At("status").Str() == "True"
		}
	}
	return false
}

// serverOf is the backend of the spec of an APIService.
func (a *Aggregator) serverOf(spec object.Value) *server {
	service := spec.At("service")
	bundle, _ := base64.StdEncoding.DecodeString(spec.At("caBundle").Str()) // decoding the request has checked it
	b := &server{
		namespace: service.At("namespace").Str(), name: service.At("name").Str(), port: service.At("port").Int(),
		of: a, bundle: bundle, insecure: spec.At("insecureSkipTLSVerify").Bool(),
	}
	if service.At("port").IsNull() { // stored by an older server
		b.port = 443
	}
	b.spec = string(object.AppendJSON(nil, object.ListOf(service, spec.At("caBundle"), spec.At("insecureSkipTLSVerify"))))
	return b
}

// String is the service of the backend.
func (b *server) String() string {
	return b.namespace + "/" + b.name + ":" + strconv.FormatInt(b.port, 10)
}

// reach is Connect.
func (r *route) reach(ctx context.Context) (http.RoundTripper, string, error) {
	b := r.server
	transport, err := b.connect()
	if err != nil {
		return nil, "", err
	}
	address, err := b.of.Endpoint(ctx, b.namespace, b.name, b.port)
	return transport, address, err
}

// connect returns the transport to the backend. Its certificate has to be for the name of the service, at whatever
// address that is.
func (b *server) connect() (*http.Transport, error) {
	b.once.Do(func() {
		config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: b.name + "." + b.namespace + ".svc",
			InsecureSkipVerify: b.insecure}
		if len(b.bundle) > 0 {
			if config.RootCAs, b.failed = webhook.CABundle(b.bundle); b.failed != nil {
				return
			}
		}
		if b.of.Certificate != nil {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return b.of.Certificate()
			}
		}
		b.transport = forward.NewTransport(config, b.of.Dial, b.of.Egress)
	})
	return b.transport, b.failed
}

// isHostPort says whether an address can be the host of a URL.
func isHostPort(address string) bool {
	_, _, err := net.SplitHostPort(address)
	return err == nil
}

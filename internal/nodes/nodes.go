package nodes

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"k8s.io/klog/v2"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/configfile"
	"plinth/internal/egress"
	"plinth/internal/features"
	"plinth/internal/forward"
	"plinth/object"
)

// Config has what Nodes reads, and how it reaches kubelets.
type Config struct {
	// Object reads a Pod, a Node or a Service, and EndpointSlices those of a Service. Their errors are answers.
	Object         func(ctx context.Context, resource, namespace, name string) (object.Value, error)
	EndpointSlices func(ctx context.Context, namespace, service string) ([]object.Value, error)

	Kubelets Kubelets
	// Files has those of Kubelets, and reads them again when they change; nil: they are read once.
	Files *configfile.Files
	// IPv6 says that the first range of cluster IPs is one of IPv6: of a Service in both families, those endpoints are
	// preferred.
	IPv6 bool
	// BytesPerSecond limits an upgraded connection in each direction; 0: there is no limit.
	BytesPerSecond int64
	Features       features.Set

	// Dial opens connections, and Lookup finds the addresses of a Node's name. Nil: those of package net. An Egress that
	// restricts does not use Dial.
	Dial   forward.Dial
	Lookup func(ctx context.Context, host string) ([]net.IPAddr, error)
	Egress egress.Policy // where nodes, Pods and Services may be
	Logger *slog.Logger  // nil: slog.Default

	Metrics Metrics
}

// Metrics are told of requests. A nil function is not called.
type Metrics struct {
	// Streaming is told of a request to exec, attach or portforward, and whether the kubelet gets a WebSocket itself.
	Streaming func(subresource string, toKubelet bool)
	// Translated is told of the code with which a WebSocket of exec or attach that this server translates has ended, and
	// Tunneled, of the code with which one of portforward was answered.
	Translated, Tunneled func(code int)
	// Log is told of a request for a log, and whether the kubelet's certificate counts; LogUnverified, of one that has
	// failed because of that.
	Log           func(insecure bool)
	LogUnverified func()
}

// fill sets the functions that are nil.
func (m *Metrics) fill() {
	if m.Streaming == nil {
		m.Streaming = func(string, bool) {}
	}
	if m.Translated == nil {
		m.Translated = func(int) {}
	}
	if m.Tunneled == nil {
		m.Tunneled = func(int) {}
	}
	if m.Log == nil {
		m.Log = func(bool) {}
	}
	if m.LogUnverified == nil {
		m.LogUnverified = func() {}
	}
}

// Kubelets says how kubelets are reached.
type Kubelets struct {
	AddressTypes []string // of Nodes, the preferred ones first
	Port         int      // of a Node whose status has none
	// CertFile and KeyFile are the client certificate; "": kubelets are asked without one.
	CertFile, KeyFile string
	// Certificate returns the client certificate for a new connection, if it is in no file; nil: that of CertFile.
	Certificate func() (*tls.Certificate, error)
	CAFile      string // the authorities of kubelets; "": their certificates are not verified
}

// DefaultKubelets are those that kube-apiserver expects without flags.
func DefaultKubelets() Kubelets {
	return Kubelets{Port: 10250, AddressTypes: []string{"Hostname", "InternalDNS", "InternalIP", "ExternalDNS",
		"ExternalIP"}}
}

// Nodes sends requests on.
type Nodes struct {
	Config
	transports transports
}

// Backend answers a request, as httpapi.Backend.
type Backend = func(w http.ResponseWriter, r *http.Request, asked *access.Attributes) error

// New creates a Nodes, or returns an error if a file of Kubelets is not what it should be.
func New(c Config) (*Nodes, error) {
	if c.Lookup == nil {
		c.Lookup = net.DefaultResolver.LookupIPAddr
	}
	c.Metrics.fill()
	n := &Nodes{Config: c}
	n.transports.of = n
	if err := n.transports.open(); err != nil {
		return nil, err
	}
	return n, nil
}

// Backend returns who answers requests to a subresource of the core group; nil: nobody here.
func (n *Nodes) Backend(resource, subresource string) Backend {
	var serve Backend
	switch resource + "/" + subresource {
	case "pods/log":
		serve = n.log
	case "pods/exec", "pods/attach", "pods/portforward":
		serve = n.shell
	case "pods/proxy":
		serve = n.podProxy
	case "nodes/proxy":
		serve = n.nodeProxy
	case "services/proxy":
		serve = n.serviceProxy
	default:
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request, asked *access.Attributes) error {
		// The libraries log what they return, too.
		return answerable(serve(w, r.WithContext(klog.NewContext(r.Context(), klog.Logger{})), asked))
	}
}

// answerable returns the error as the reference answers it: its text alone, if it is not an error of the API.
func answerable(err error) error {
	var known *apierr.Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &apierr.Error{Code: http.StatusInternalServerError, Message: err.Error()}
}

package nodes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/forward"
)

// kubelet is how the kubelet of one node is reached.
type kubelet struct {
	host, port string
	features   []string // that it declares
}

// kubelet finds the kubelet of a node. As in the reference, an error that there is no such node names the resource of
// the request: pods "NODE" not found.
func (n *Nodes) kubelet(ctx context.Context, asked *access.Attributes, name string) (*kubelet, error) {
	node, err := n.Object(ctx, "nodes", "", name)
	if apierr.Is(err, apierr.NotFound) {
		return nil, apierr.NewNotFound(apierr.Type{Name: asked.Resource}, name)
	}
	if err != nil {
		return nil, err
	}
	addresses := node.At("status", "addresses").Items()
	k := &kubelet{}
	for _, kind := range n.Kubelets.AddressTypes {
		for _, a := range addresses {
			if k.host == "" && a.At("type").Str() == kind {
				k.host = a.At("address").Str()
			}
		}
	}
	if k.host == "" {
		type address struct{ Type, Address string } // as the error of the reference shows it
		known := []address{}
		for _, a := range addresses {
			known = append(known, address{a.At("type").Str(), a.At("address").Str()})
		}
		return nil, fmt.Errorf("no preferred addresses found; known addresses: %v", known)
	}
	port := node.At("status", "daemonEndpoints", "kubeletEndpoint", "Port").Int()
	if port <= 0 {
		port = int64(n.Kubelets.Port)
	}
	k.port = strconv.FormatInt(port, 10)
	for _, feature := range node.At("status", "declaredFeatures").Items() {
		k.features = append(k.features, feature.Str())
	}
	return k, nil
}

// urlOf is the URL of a path of the kubelet.
func (k *kubelet) urlOf(path string, query url.Values) *url.URL {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(k.host, k.port), Path: path, RawQuery: query.Encode()}
}

// websockets says whether the kubelet translates WebSockets itself.
func (k *kubelet) websockets() bool { return slices.Contains(k.features, "ExtendWebSocketsToKubelet") }

// open reads the files of Kubelets, so that the server does not start with wrong ones, and whenever they change.
func (t *transports) open() error {
	k := &t.of.Kubelets
	if k.CertFile != "" || k.KeyFile != "" {
		if err := t.of.Files.Use("--kubelet-client-certificate and --kubelet-client-key",
			[]string{k.CertFile, k.KeyFile}, func(texts [][]byte) error {
				pair, err := tls.X509KeyPair(texts[0], texts[1])
				if err == nil {
					t.pair.Store(&pair)
				}
				return err
			}); err != nil {
			return err
		}
	}
	if k.CAFile == "" {
		return nil
	}
	return t.of.Files.Use("--kubelet-certificate-authority", []string{k.CAFile}, func(texts [][]byte) error {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(texts[0]) {
			return fmt.Errorf("%s has no certificate in PEM", k.CAFile)
		}
		t.authorities.Store(pool)
		return nil
	})
}

// transports are made when they are first used: most servers never need them.
type transports struct {
	of                          *Nodes
	authorities                 atomic.Pointer[x509.CertPool]   // of kubelets; nil: nobody knows them
	pair                        atomic.Pointer[tls.Certificate] // the client certificate; nil: there is none
	verified, unverified, plain lazyTransport
}

// lazyTransport is a transport that is made for the authorities of the other end, and made anew for others.
type lazyTransport struct {
	mu   sync.Mutex
	made *http.Transport
	by   *x509.CertPool
}

func (l *lazyTransport) get(by *x509.CertPool, config func(by *x509.CertPool) *tls.Config, of *Config) *http.Transport {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made != nil && l.by == by {
		return l.made
	}
	if l.made != nil { // requests that are under way end as they have begun
		l.made.CloseIdleConnections()
	}
	l.by, l.made = by, forward.NewTransport(config(by), of.Dial, of.Egress)
	l.made.Proxy = of.Egress.Proxy()
	return l.made
}

// kubelets is the transport to kubelets.
func (t *transports) kubelets() *http.Transport {
	return t.verified.get(t.authorities.Load(), t.config, &t.of.Config)
}

// insecure is the transport to kubelets whose certificates are not verified.
func (t *transports) insecure() *http.Transport { return t.unverified.get(nil, t.config, &t.of.Config) }

// proxied is the transport to Pods and Services.
func (t *transports) proxied() *http.Transport {
	config := func(*x509.CertPool) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true} // they are known by address only
	}
	return t.plain.get(nil, config, &t.of.Config)
}

// config is the TLS configuration for kubelets. Without authorities, certificates are not verified.
func (t *transports) config(authorities *x509.CertPool) *tls.Config {
	config := &tls.Config{RootCAs: authorities, InsecureSkipVerify: authorities == nil}
	if t.of.Kubelets.CertFile != "" || t.of.Kubelets.Certificate != nil {
		config.GetClientCertificate = t.clientCertificate
	}
	return config
}

// clientCertificate is that for a new connection.
func (t *transports) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if given := t.of.Kubelets.Certificate; given != nil {
		return given()
	}
	return t.pair.Load(), nil
}

package nodes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
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

// check reads the client certificate, so that the server does not start with a wrong one.
func (k *Kubelets) check() error {
	if k.CertFile != "" || k.KeyFile != "" {
		if _, err := tls.LoadX509KeyPair(k.CertFile, k.KeyFile); err != nil {
			return fmt.Errorf("--kubelet-client-certificate and --kubelet-client-key: %w", err)
		}
	}
	return nil
}

// authorities are those that sign the certificates of kubelets; nil: nobody knows them.
func (k *Kubelets) authorities() (*x509.CertPool, error) {
	if k.CAFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(k.CAFile)
	if err != nil {
		return nil, fmt.Errorf("--kubelet-certificate-authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--kubelet-certificate-authority: %s has no certificate in PEM", k.CAFile)
	}
	return pool, nil
}

// transports are made when they are first used: most servers never need them.
type transports struct {
	of                          *Nodes
	authorities                 *x509.CertPool // of kubelets; nil: nobody knows them
	verified, unverified, plain lazyTransport
	pair                        atomic.Pointer[tls.Certificate] // the last client certificate that could be read
}

type lazyTransport struct {
	once sync.Once
	made *http.Transport
}

func (l *lazyTransport) get(config func() *tls.Config, dial forward.Dial) *http.Transport {
	l.once.Do(func() {
		l.made = forward.NewTransport(config(), dial)
		l.made.Proxy = http.ProxyFromEnvironment
	})
	return l.made
}

// kubelets is the transport to kubelets.
func (t *transports) kubelets() *http.Transport {
	return t.verified.get(func() *tls.Config { return t.config(t.authorities) }, t.of.Dial)
}

// insecure is the transport to kubelets whose certificates are not verified.
func (t *transports) insecure() *http.Transport {
	return t.unverified.get(func() *tls.Config { return t.config(nil) }, t.of.Dial)
}

// proxied is the transport to Pods and Services.
func (t *transports) proxied() *http.Transport {
	// They are known by address only.
	return t.plain.get(func() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }, t.of.Dial)
}

// config is the TLS configuration for kubelets. Without authorities, certificates are not verified.
func (t *transports) config(authorities *x509.CertPool) *tls.Config {
	config := &tls.Config{RootCAs: authorities, InsecureSkipVerify: authorities == nil}
	if t.of.Kubelets.CertFile != "" {
		config.GetClientCertificate = t.clientCertificate
	}
	return config
}

// clientCertificate reads the client certificate. While a new one is being written, the last one is used.
func (t *transports) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(t.of.Kubelets.CertFile, t.of.Kubelets.KeyFile)
	if err != nil {
		if last := t.pair.Load(); last != nil {
			return last, nil
		}
		return nil, err
	}
	t.pair.Store(&pair)
	return &pair, nil
}

package server

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"

	"plinth/internal/initial"
	"plinth/internal/pki"
)

// Aggregation configures how group versions are forwarded to other API servers.
type Aggregation struct {
	// ClientCertFile and ClientKeyFile are the client certificate by which those know this server. "": with
	// OwnAuthority, one of an authority that the server makes for this purpose; otherwise there is none.
	ClientCertFile, ClientKeyFile string
	OwnAuthority                  bool
	// RejectRedirects answers redirects with an error instead of passing them on.
	RejectRedirects bool
	// EndpointsOnly never uses the cluster IP of a Service, even if the Service has no EndpointSlices.
	EndpointsOnly bool
}

// frontProxy is by what other API servers believe this server who the user of a request is.
type frontProxy struct {
	initial.FrontProxy
	files       [2]string // the client certificate and its key; "": it is in memory
	mu          sync.Mutex
	certificate *tls.Certificate // as it was read last; nil: there is none
}

// openFrontProxy reads the certificates for forwarding, or makes them beside those of an authority: another authority
// and a client certificate, since who has such a certificate can act as everybody.
func (c *Config) openFrontProxy(beside *pki.Authority) (f *frontProxy, err error) {
	f = &frontProxy{files: [2]string{c.Aggregation.ClientCertFile, c.Aggregation.ClientKeyFile}}
	if c.FrontProxy.CAFile != "" {
		f.Names, f.Users, f.UIDs = c.FrontProxy.AllowedNames, c.FrontProxy.UserHeaders, c.FrontProxy.UIDHeaders
		f.Groups, f.Extra = c.FrontProxy.GroupHeaders, c.FrontProxy.ExtraPrefixes
		if f.Authority, err = readAuthorities(c.FrontProxy.CAFile); err != nil {
			return nil, fmt.Errorf("--requestheader-client-ca-file: %w", err)
		}
	}
	switch {
	case f.files[0] != "":
		_, err = f.client()
		return f, err
	case !c.Aggregation.OwnAuthority || f.Authority != nil:
		return f, nil
	}
	own, err := beside.Beside("front-proxy", "plinth-front-proxy-ca")
	if err != nil {
		return nil, fmt.Errorf("forwarded requests: %w", err)
	}
	const name = "front-proxy-client"
	leaf, err := own.Leaf(name, pkix.Name{CommonName: name}, nil)
	if err != nil {
		return f, err
	}
	loaded, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		return f, err
	}
	f.certificate, f.Authority, f.Names = &loaded, own.PEM, []string{name}
	f.Users, f.UIDs = []string{"X-Remote-User"}, []string{"X-Remote-Uid"}
	f.Groups, f.Extra = []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"}
	return f, nil
}

// client returns the client certificate. It is read again for each connection, so that a renewed one is used without
// a restart; one that cannot be read leaves the one before in use.
func (f *frontProxy) client() (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files[0] != "" {
		loaded, err := tls.LoadX509KeyPair(f.files[0], f.files[1])
		if err != nil && f.certificate == nil {
			return nil, fmt.Errorf("--proxy-client-cert-file: %w", err)
		}
		if err == nil {
			f.certificate = &loaded
		}
	}
	if f.certificate == nil {
		return &tls.Certificate{}, nil // no certificate is sent
	}
	return f.certificate, nil
}

// validateAggregation refuses a certificate without its key.
func (c *Config) validateAggregation(refuse func(format string, args ...any)) {
	if (c.Aggregation.ClientCertFile == "") != (c.Aggregation.ClientKeyFile == "") {
		refuse("--proxy-client-cert-file and --proxy-client-key-file go together")
	}
}

// readAuthorities returns the certificates of a file, as PEM without anything else.
func readAuthorities(file string) ([]byte, error) {
	var b strings.Builder
	ders := certificatesIn(file)
	if len(ders) == 0 {
		return nil, fmt.Errorf("%s has no certificates", file)
	}
	for _, der := range ders {
		if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			return nil, err
		}
	}
	return []byte(b.String()), nil
}

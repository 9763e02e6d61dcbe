package server

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"sync/atomic"
	"time"

	"plinth/internal/expiry"
	"plinth/internal/forward"
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
	// Dial opens connections to other API servers; nil: a net.Dialer.
	Dial forward.Dial
}

// frontProxy is by what other API servers believe this server who the user of a request is.
type frontProxy struct {
	initial.FrontProxy
	authority   []byte         // its own, as PEM, which signs; nil: that of --requestheader-client-ca-file, or none
	signs       *pki.Authority // made the certificate, and renews it; nil: it is from files, or there is none
	expiry      *expiry.Certificates
	certificate atomic.Pointer[tls.Certificate] // nil: there is none
}

// ownProxy is the name of the certificate that a server makes for itself.
const ownProxy = "front-proxy-client"

// openFrontProxy reads the certificates for forwarding, or makes them beside those of a server: another authority and a
// client certificate, since who has such a certificate can act as everybody.
func (c *Config) openFrontProxy(beside *certificates) (f *frontProxy, err error) {
	f = &frontProxy{expiry: &beside.expiry}
	if c.FrontProxy.CAFile != "" {
		f.Names, f.Users, f.UIDs = c.FrontProxy.AllowedNames, c.FrontProxy.UserHeaders, c.FrontProxy.UIDHeaders
		f.Groups, f.Extra = c.FrontProxy.GroupHeaders, c.FrontProxy.ExtraPrefixes
	}
	certFile, keyFile := c.Aggregation.ClientCertFile, c.Aggregation.ClientKeyFile
	switch {
	case certFile != "":
		return f, beside.files.Use("--proxy-client-cert-file", []string{certFile, keyFile}, func(texts [][]byte) error {
			return f.use(texts[0], texts[1], certFile)
		})
	case !c.Aggregation.OwnAuthority || c.FrontProxy.CAFile != "":
		return f, nil
	}
	if f.signs, err = beside.pki.Beside("front-proxy", "plinth-front-proxy-ca"); err != nil {
		return nil, fmt.Errorf("forwarded requests: %w", err)
	}
	f.expiry.Set("front-proxy-ca", "", f.signs.PEM)
	f.authority, f.Names = f.signs.PEM, []string{ownProxy}
	f.Users, f.UIDs = []string{"X-Remote-User"}, []string{"X-Remote-Uid"}
	f.Groups, f.Extra = []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"}
	return f, f.sign(f.signs)
}

// use has f use a pair, which is from a file or, "", in memory.
func (f *frontProxy) use(cert, key []byte, file string) error {
	loaded, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	f.expiry.Set(ownProxy, file, cert)
	f.certificate.Store(&loaded)
	return nil
}

// own is the certificate that f renews itself; nil: there is none.
func (f *frontProxy) own() *x509.Certificate {
	if f.signs == nil {
		return nil
	}
	return f.certificate.Load().Leaf
}

// issue makes the certificate anew.
func (f *frontProxy) issue(now time.Time) error { return f.sign(f.signs.At(now)) }

func (f *frontProxy) sign(by *pki.Authority) error {
	leaf, err := by.Leaf(ownProxy, pkix.Name{CommonName: ownProxy}, nil)
	if err != nil {
		return err
	}
	return f.use(leaf.Cert, leaf.Key, "")
}

// client returns the client certificate for a connection.
func (f *frontProxy) client() (*tls.Certificate, error) {
	if c := f.certificate.Load(); c != nil {
		return c, nil
	}
	return &tls.Certificate{}, nil // no certificate is sent
}

// validateAggregation refuses a certificate without its key.
func (c *Config) validateAggregation(refuse func(format string, args ...any)) {
	if (c.Aggregation.ClientCertFile == "") != (c.Aggregation.ClientKeyFile == "") {
		refuse("--proxy-client-cert-file and --proxy-client-key-file go together")
	}
}

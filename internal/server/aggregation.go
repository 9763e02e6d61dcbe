package server

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/aggregation"
	"plinth/internal/apierr"
	"plinth/internal/discovery"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
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
	authority []byte // as PEM, which signs the certificates of such servers; empty: none is known
	names     []string
	// The names of the headers, as FrontProxy has them.
	users, uids, groups, extra []string

	files       [2]string // the client certificate and its key; "": it is in memory
	mu          sync.Mutex
	certificate *tls.Certificate // as it was read last; nil: there is none
}

// openFrontProxy reads the certificates for forwarding, or makes them: an authority and a client certificate, apart
// from those of clients, since who has such a certificate can act as everybody.
func (s *Server) openFrontProxy() (err error) {
	c := &s.config
	f := &frontProxy{files: [2]string{c.Aggregation.ClientCertFile, c.Aggregation.ClientKeyFile}}
	s.frontProxy = f
	if c.FrontProxy.CAFile != "" {
		f.names, f.users, f.uids = c.FrontProxy.AllowedNames, c.FrontProxy.UserHeaders, c.FrontProxy.UIDHeaders
		f.groups, f.extra = c.FrontProxy.GroupHeaders, c.FrontProxy.ExtraPrefixes
		if f.authority, err = readAuthorities(c.FrontProxy.CAFile); err != nil {
			return fmt.Errorf("--requestheader-client-ca-file: %w", err)
		}
	}
	switch {
	case f.files[0] != "":
		_, err = f.client()
		return err
	case !c.Aggregation.OwnAuthority || f.authority != nil || c.InProcess:
		return nil
	}
	own, err := s.pki.Beside("front-proxy", "plinth-front-proxy-ca")
	if err != nil {
		return fmt.Errorf("forwarded requests: %w", err)
	}
	const name = "front-proxy-client"
	leaf, err := own.Leaf(name, pkix.Name{CommonName: name}, nil)
	if err != nil {
		return err
	}
	loaded, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		return err
	}
	f.certificate, f.authority, f.names = &loaded, own.PEM, []string{name}
	f.users, f.uids = []string{"X-Remote-User"}, []string{"X-Remote-Uid"}
	f.groups, f.extra = []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"}
	return nil
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

// published is the part of the ConfigMap extension-apiserver-authentication by which other API servers believe this
// one.
func (f *frontProxy) published() (members []object.Member) {
	if len(f.authority) == 0 {
		return nil
	}
	const prefix = "requestheader-"
	for _, list := range []struct {
		key   string
		names []string
	}{
		{"allowed-names", f.names}, {"extra-headers-prefix", f.extra}, {"group-headers", f.groups}, {"uid-headers", f.uids},
		{"username-headers", f.users},
	} {
		if list.key == "uid-headers" && len(list.names) == 0 {
			continue
		}
		if list.names == nil {
			list.names = []string{}
		}
		text, _ := json.Marshal(list.names) // strings can be encoded
		members = append(members, object.Member{Key: prefix + list.key, Value: object.StringOf(string(text))})
	}
	return members
}

// validateAggregation refuses a certificate without its key.
func (c *Config) validateAggregation(refuse func(format string, args ...any)) {
	if (c.Aggregation.ClientCertFile == "") != (c.Aggregation.ClientKeyFile == "") {
		refuse("--proxy-client-cert-file and --proxy-client-key-file go together")
	}
}

// newAggregator makes the part that forwards group versions.
func (s *Server) newAggregator() *aggregation.Aggregator {
	c := &s.config
	services := s.services()
	services.NoClusterIP = c.Aggregation.EndpointsOnly
	return aggregation.New(aggregation.Config{
		Endpoint: services.Endpoint, Certificate: s.frontProxy.client,
		FollowRedirects: !c.Aggregation.RejectRedirects, NoUID: !s.features.On(features.RemoteRequestHeaderUID),
		Logger: c.Logger,
	}, s.store)
}

// localAPIServices are the APIServices of the built-in group versions that are served.
func (s *Server) localAPIServices() (all []initial) {
	for _, gv := range s.registry.Builtin().GroupVersions() {
		ofGroup, ofVersion, ok := discovery.Priorities(gv.Group, gv.Version)
		if !ok {
			continue
		}
		text := object.StringOf
		spec := []object.Member{{Key: "version", Value: text(gv.Version)},
			{Key: "groupPriorityMinimum", Value: object.IntOf(ofGroup)},
			{Key: "versionPriority", Value: object.IntOf(ofVersion)}}
		if gv.Group != "" {
			spec = append(spec, object.Member{Key: "group", Value: text(gv.Group)})
		}
		wanted := object.MapOf(spec...)
		labels := object.Fields(aggregation.Automanaged, text(aggregation.ManagedOnStart))
		all = append(all, initial{
			group: "apiregistration.k8s.io", version: "v1", resource: "apiservices", name: gv.Version + "." + gv.Group,
			body: object.Fields("metadata", object.Fields("labels", labels), "spec", wanted),
			revise: func(live object.Value) object.Value {
				switch live.At("metadata", "labels", aggregation.Automanaged).Str() {
				case aggregation.ManagedOnStart, aggregation.ManagedContinuous:
					if !object.Equal(live.At("spec"), wanted) {
						return live.With("spec", wanted)
					}
				}
				return live
			},
		})
	}
	return all
}

// deleteObsoleteAPIServices deletes the APIServices that earlier servers have written at their start, of group
// versions that are not served any more.
func (s *Server) deleteObsoleteAPIServices(ctx context.Context, wanted []initial) error {
	r := s.registry.Builtin().Find("apiregistration.k8s.io", "v1", "apiservices")
	if r == nil {
		return nil
	}
	known := map[string]bool{}
	for _, i := range wanted {
		known[i.name] = true
	}
	list, err := s.engine.List(ctx, &engine.Request{Resource: r}, engine.ListOptions{
		Labels: labels.SelectorFromSet(labels.Set{aggregation.Automanaged: aggregation.ManagedOnStart})})
	var errs []error
	if apierr.Is(err, apierr.StoreReadError) {
		s.config.Logger.Warn("APIServices that nobody needs any more may be left", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	for o := range list.Items {
		if known[o.Key.Name] {
			continue
		}
		rq := &engine.Request{Resource: r, Name: o.Key.Name}
		_, err := s.engine.Delete(ctx, rq, engine.DeleteOptions{PreconditionUID: o.Sidecar.UID})
		if err != nil && !apierr.Is(err, apierr.NotFound) && !apierr.Is(err, apierr.Conflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, list.Err())...)
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

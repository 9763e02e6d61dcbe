package server

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/object"
)

// trusted is the content of the ConfigMap extension-apiserver-authentication. Certificates that other servers have
// added stay until they expire.
func (s *Server) trusted(live object.Value) object.Value {
	const clients, proxies = "client-ca-file", "requestheader-client-ca-file"
	set := append(s.frontProxy.published(), object.Member{Key: clients,
		Value: object.StringOf(s.bundle(live.At(clients).Str(), s.clients))})
	if len(s.frontProxy.authority) > 0 {
		set = append(set, object.Member{Key: proxies,
			Value: object.StringOf(s.bundle(live.At(proxies).Str(), s.frontProxy.authority))})
	}
	if live.IsNull() {
		live = object.MapOf()
	}
	return live.Edit(set)
}

// ensureConfigMaps creates or updates the ConfigMaps that describe the server to other programs: the authorities of
// client certificates and of servers that forward requests, and the date since which the use of tokens in Secrets is
// recorded.
func (s *Server) ensureConfigMaps(ctx context.Context) error {
	const name = "extension-apiserver-authentication"
	config := func(name string, data object.Value, revise func(object.Value) object.Value) initial {
		return initial{version: "v1", resource: "configmaps", namespace: "kube-system", name: name,
			body: object.Fields("data", data), revise: revise}
	}
	since := func() object.Value { return object.StringOf(s.clock().UTC().Format(time.DateOnly)) }
	return s.createMissing(ctx, []initial{
		config(name, s.trusted(object.MapOf()), func(live object.Value) object.Value {
			return live.With("data", s.trusted(live.At("data")))
		}),
		config(access.LegacyTokenTracking, object.Fields(access.LegacyTokenTrackingSince, since()),
			func(live object.Value) object.Value {
				if _, err := time.Parse(time.DateOnly, live.At("data", access.LegacyTokenTrackingSince).Str()); err == nil {
					return live
				}
				return live.WithAt(since(), "data", access.LegacyTokenTrackingSince)
			}),
	})
}

// bundle joins the certificates in two texts, as PEM, without duplicates and expired ones.
func (s *Server) bundle(text string, more []byte) string {
	var all []*x509.Certificate
	for _, from := range [][]byte{[]byte(text), more} {
		for block, rest := pem.Decode(from); block != nil; block, rest = pem.Decode(rest) {
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err == nil && block.Type == "CERTIFICATE" && s.clock().Before(certificate.NotAfter) &&
				!slices.ContainsFunc(all, certificate.Equal) {
				all = append(all, certificate)
			}
		}
	}
	var bundle strings.Builder
	for _, certificate := range all {
		pem.Encode(&bundle, &pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}) // to memory: it cannot fail
	}
	return bundle.String()
}

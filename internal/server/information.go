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

// ensureConfigMaps creates or updates the ConfigMaps that describe the server to other programs: the authorities of
// client certificates, and the date since which the use of tokens in Secrets is recorded.
func (s *Server) ensureConfigMaps(ctx context.Context) error {
	const name, key = "extension-apiserver-authentication", "client-ca-file"
	config := func(name string, data object.Value, revise func(object.Value) object.Value) initial {
		return initial{version: "v1", resource: "configmaps", namespace: "kube-system", name: name,
			body: object.Fields("data", data), revise: revise}
	}
	since := func() object.Value { return object.StringOf(s.clock().UTC().Format(time.DateOnly)) }
	return s.createMissing(ctx, []initial{
		config(name, object.Fields(key, object.StringOf(s.bundle(""))), func(live object.Value) object.Value {
			// Certificates that other servers have added stay until they expire.
			return live.WithAt(object.StringOf(s.bundle(live.At("data", key).Str())), "data", key)
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

// bundle joins the certificates in text with the authorities of clients, as PEM, without duplicates and expired ones.
func (s *Server) bundle(text string) string {
	var all []*x509.Certificate
	for _, from := range [][]byte{[]byte(text), s.clients} {
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

package initial

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/object"
)

// trusted is the content of the ConfigMap extension-apiserver-authentication. Certificates that other servers have
// added stay until they expire, unless there are no others (Self.OnlyTrusted).
func (o *Objects) trusted(live object.Value) object.Value {
	const clients, proxies = "client-ca-file", "requestheader-client-ca-file"
	ofClients, ofProxies := o.Self.Trusted()
	if o.Self.OnlyTrusted {
		live = live.Without(clients).Without(proxies)
	}
	set := append(o.Self.FrontProxy.Members(), object.Member{Key: clients,
		Value: object.StringOf(o.bundle(live.At(clients).Str(), ofClients))})
	if len(ofProxies) > 0 {
		set = append(set, object.Member{Key: proxies,
			Value: object.StringOf(o.bundle(live.At(proxies).Str(), ofProxies))})
	}
	if live.IsNull() {
		live = object.MapOf()
	}
	return live.Edit(set)
}

// trackingPeriod is the least time between two creations of the ConfigMap access.LegacyTokenTracking by one server, as
// in the reference: servers that record the use of tokens and older ones, which delete it, do not fight over it.
const trackingPeriod = 30 * time.Minute

// EnsureConfigMaps creates or updates the ConfigMaps that describe the server to other programs: the authorities of
// client certificates and of servers that forward requests, and the date since which the use of tokens in Secrets is
// recorded.
func (o *Objects) EnsureConfigMaps(ctx context.Context) error {
	const name = "extension-apiserver-authentication"
	config := func(name string, data object.Value, revise func(object.Value) object.Value) Object {
		return Object{Version: "v1", Resource: "configmaps", Namespace: "kube-system", Name: name,
			Body: object.Fields("data", data), Revise: revise}
	}
	since := func() object.Value { return object.StringOf(o.Now().UTC().Format(time.DateOnly)) }
	now, tracks := time.Now(), false
	tracking := config(access.LegacyTokenTracking, object.Fields(access.LegacyTokenTrackingSince, since()),
		func(live object.Value) object.Value {
			if _, err := time.Parse(time.DateOnly, live.At("data", access.LegacyTokenTrackingSince).Str()); err == nil {
				return live
			}
			return live.WithAt(since(), "data", access.LegacyTokenTrackingSince)
		})
	tracking.May = func() bool {
		tracks = o.trackingMade.IsZero() || now.Sub(o.trackingMade) >= trackingPeriod
		return tracks
	}
	err := o.Ensure(ctx, []Object{
		config(name, o.trusted(object.MapOf()), func(live object.Value) object.Value {
			return live.With("data", o.trusted(live.At("data")))
		}),
		tracking,
	})
	if err == nil && tracks {
		o.trackingMade = now
	}
	return err
}

// bundle joins the certificates in two texts, as PEM, without duplicates and expired ones.
func (o *Objects) bundle(text string, more []byte) string {
	var all []*x509.Certificate
	for _, from := range [][]byte{[]byte(text), more} {
		for block, rest := pem.Decode(from); block != nil; block, rest = pem.Decode(rest) {
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err == nil && block.Type == "CERTIFICATE" && o.Now().Before(certificate.NotAfter) &&
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

// Members are the members of the ConfigMap, but for the authority; none without names of headers.
func (f *FrontProxy) Members() (members []object.Member) {
	if len(f.Users) == 0 {
		return nil
	}
	const prefix = "requestheader-"
	for _, list := range []struct {
		key   string
		names []string
	}{
		{"allowed-names", f.Names}, {"extra-headers-prefix", f.Extra}, {"group-headers", f.Groups}, {"uid-headers", f.UIDs},
		{"username-headers", f.Users},
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

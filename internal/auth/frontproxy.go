package auth

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"plinth/internal/access"
)

// FrontProxy configures the proxies that may name the user in headers (--requestheader-*): those with a client
// certificate of one of these authorities and with one of these names.
type FrontProxy struct {
	Authorities  *Authorities
	AllowedNames []string // common names; none: any
	// The names of the headers. Of UserHeaders and UIDHeaders the first one with a value counts, of GroupHeaders all. A
	// header whose name begins with one of ExtraPrefixes is an extra attribute: the rest of the name, in lower case and
	// unescaped as in a URL, is its key.
	UserHeaders, UIDHeaders, GroupHeaders, ExtraPrefixes []string
}

// proxied returns the user that a front proxy names; nil without an error if the client has no certificate, or the
// headers name no user. The error says that the certificate is not one of a proxy.
func (a *Authenticator) proxied(ctx context.Context, r *http.Request) (*access.Identity, error) {
	p := a.Proxy
	if p == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	v := remembered(ctx, p.Authorities, a.Now, func(k *verifications) *verificationPointer { return &k.proxy }, func(
		authorities *x509.CertPool) *verification {
		now := a.Now()
		chains, err := chainsTo(authorities, r.TLS.PeerCertificates, now)
		if err != nil {
			return &verification{err: err, until: nextStart(r.TLS.PeerCertificates, now)}
		}
		name := r.TLS.PeerCertificates[0].Subject.CommonName
		if len(p.AllowedNames) > 0 && !slices.Contains(p.AllowedNames, name) {
			err = fmt.Errorf("x509: subject with cn=%s is not in the allowed list", name)
		}
		return &verification{err: err, until: lastEnd(chains)}
	})
	if v.err != nil {
		return nil, v.err
	}
	user := access.User{Name: firstHeader(r.Header, p.UserHeaders), UID: firstHeader(r.Header, p.UIDHeaders)}
	if user.Name == "" {
		return nil, nil
	}
	for _, name := range p.GroupHeaders {
		for _, group := range r.Header[http.CanonicalHeaderKey(name)] {
			if group != "" {
				user.Groups = append(user.Groups, group)
			}
		}
	}
	for _, prefix := range p.ExtraPrefixes {
		for name, values := range r.Header {
			if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
				continue
			}
			key := strings.ToLower(name[len(prefix):])
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			if user.Extra == nil {
				user.Extra = map[string][]string{}
			}
			user.Extra[key] = append(user.Extra[key], values...)
		}
	}
	return authenticated(&access.Identity{User: user, Audiences: a.Audiences}), nil
}

// firstHeader returns the first value of the first header that has one.
func firstHeader(header http.Header, names []string) string {
	for _, name := range names {
		if value := header.Get(name); value != "" {
			return value
		}
	}
	return ""
}

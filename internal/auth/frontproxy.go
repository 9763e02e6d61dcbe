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

// FrontProxy is who may say in headers whom a request is from: proxies that show a certificate of these authorities, in
// one of these names.
type FrontProxy struct {
	Authorities  *x509.CertPool
	AllowedNames []string // common names; none: any
	// The headers that are looked at: the first one with a value is the user, and all values count of the others. What
	// follows a prefix is a key of the user's extra.
	UserHeaders, UIDHeaders, GroupHeaders, ExtraPrefixes []string
}

// proxied says who a front proxy says that the request is from; nil if it comes from none, or from one that says
// nothing.
func (a *Authenticator) proxied(ctx context.Context, r *http.Request) (*access.Identity, error) {
	p := a.Proxy
	if p == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	v := a.remembered(ctx, func(k *verdicts) *verdictPointer { return &k.proxy }, func() *verdict {
		now := a.Now()
		chains, err := chainsTo(p.Authorities, r.TLS.PeerCertificates, now)
		if err != nil {
			return &verdict{err: err, until: nextStart(r.TLS.PeerCertificates, now)}
		}
		name := r.TLS.PeerCertificates[0].Subject.CommonName
		if len(p.AllowedNames) > 0 && !slices.Contains(p.AllowedNames, name) {
			return &verdict{err: fmt.Errorf("x509: subject with cn=%s is not in the allowed list", name), until: lastEnd(chains)}
		}
		return &verdict{until: lastEnd(chains)}
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

// firstHeader is the first value of the first header that has one.
func firstHeader(header http.Header, names []string) string {
	for _, name := range names {
		if value := header.Get(name); value != "" {
			return value
		}
	}
	return ""
}

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

// FrontProxy configures the proxies that may name the user in headers: those with a certificate of these authorities
// and with one of these names.
type FrontProxy struct {
	Authorities  *x509.CertPool
	AllowedNames []string // common names; none: any
	// The headers that are read. The first user header with a value counts, and all values of the others. The rest of
	// a header's name after an extra prefix is the key in the user's extra.
	UserHeaders, UIDHeaders, GroupHeaders, ExtraPrefixes []string
}

// proxied returns the user that a front proxy names; nil if the request comes from no proxy, or the headers name none.
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

// firstHeader returns the first value of the first header that has one.
func firstHeader(header http.Header, names []string) string {
	for _, name := range names {
		if value := header.Get(name); value != "" {
			return value
		}
	}
	return ""
}

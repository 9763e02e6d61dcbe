// Package auth finds out who asks (AUTH-1).
//
// An [Authenticator] tries in turn the credentials that a request may show: the headers of a front proxy, a client
// certificate, and a bearer token, which several [Tokens] may know. Who shows none is anonymous.
//
// Why somebody is not let in is for TokenReviews and the debug log; a request is told 401 and no more. No error holds a
// token.
package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
)

// ErrInvalid means that the request shows credentials that nobody has: 401, not anonymous.
var ErrInvalid = errors.New("invalid bearer token")

// Tokens know the bearer tokens of one kind.
type Tokens interface {
	// Token says whose a token is. Nil without an error: it is no token of this kind, as far as one can see, and others
	// are asked. Audiences are those that it has to be for, one of them; none: those of this server.
	Token(ctx context.Context, token string, audiences []string) (*access.Identity, error)
}

// Config is what an Authenticator is made of.
type Config struct {
	// Clients are the authorities that sign client certificates; nil: there are none.
	Clients *x509.CertPool
	// Proxy is who may say in headers whom a request is from; nil: nobody.
	Proxy *FrontProxy
	// Tokens are asked in this order.
	Tokens []Tokens
	// Audiences are those of this server. A token that is for nobody in particular is for them.
	Audiences []string
	// NoAnonymous refuses requests without credentials, and AnonymousPaths, if there are any, all that are for other
	// paths.
	NoAnonymous    bool
	AnonymousPaths []string
	Now            func() time.Time // nil: time.Now
}

// Authenticator finds out who sends a request.
type Authenticator struct {
	Config
}

// New makes an authenticator.
func New(c Config) *Authenticator {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Authenticator{c}
}

// Authenticate says who sends the request; who shows no credentials is anonymous. As in the reference what a front
// proxy says goes before a certificate, and that before a token, and one that is no good does no harm beside another
// that is.
func (a *Authenticator) Authenticate(ctx context.Context, r *http.Request) (*access.Identity, error) {
	id, unproxied := a.proxied(ctx, r)
	if id != nil {
		return id, nil
	}
	id, uncertified := a.certified(ctx, r)
	if id != nil {
		return id, nil
	}
	token, wrong := tokenOf(r)
	if token != "" {
		if id, wrong = a.token(ctx, token, nil); id != nil {
			return id, nil
		}
	}
	if err := errors.Join(unproxied, uncertified, wrong); err != nil {
		return nil, err
	}
	if !a.anonymous(r.URL.Path) {
		return nil, errNoCredentials
	}
	return &access.Identity{User: access.Nobody()}, nil
}

// anonymous says whether requests for a path need no credentials.
func (a *Authenticator) anonymous(path string) bool {
	return !a.NoAnonymous && (len(a.AnonymousPaths) == 0 || slices.Contains(a.AnonymousPaths, path))
}

var errNoCredentials = errors.New("no credentials")

// reasons are why a token is nobody's, in the reference's words. What one kind of tokens says is among what all of them
// say.
type reasons []error

func (r reasons) Error() string {
	var texts []string
	for _, err := range r {
		if text := err.Error(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if len(texts) == 1 {
		return texts[0]
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// token says whose a token is: somebody's, or there is an error.
func (a *Authenticator) token(ctx context.Context, token string, audiences []string) (*access.Identity, error) {
	errs := reasons{ErrInvalid}
	for _, kind := range a.Tokens {
		id, err := kind.Token(ctx, token, audiences)
		switch {
		case err != nil:
			errs = append(errs, err)
		case id != nil:
			return authenticated(id), nil
		}
	}
	return nil, errs
}

// authenticated adds the group of those who have shown credentials.
func authenticated(id *access.Identity) *access.Identity {
	u := &id.User
	if u.Name != access.Anonymous && !u.In(access.Authenticated) && !u.In(access.Unauthenticated) {
		u.Groups = append(slices.Clip(u.Groups), access.Authenticated)
	}
	return id
}

// Review says whose a token is, as a request that shows it would find out, and whether there is somebody; an error says
// why not. Audiences are those that it has to be for, one of them; none: those of this server.
func (a *Authenticator) Review(ctx context.Context, token string, audiences []string) (id access.Identity, ok bool,
	err error) {
	if len(audiences) == 0 { // those of this server, as for requests, so that what is remembered of these holds here
		audiences = nil
	}
	shown, _ := tokenOf(&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}})
	if shown == "" { // a text that is no token is no credential
		if !a.anonymous("") {
			return id, false, nil
		}
		if audiences == nil {
			audiences = a.Audiences
		}
		return access.Identity{User: access.Nobody(), Audiences: audiences}, true, nil
	}
	found, err := a.token(ctx, shown, audiences)
	if err != nil {
		return id, false, err
	}
	return *found, true, nil
}

// Agnostic is tokens that are for nobody in particular: they are for this server, whose audiences these are.
func Agnostic(tokens Tokens, audiences []string) Tokens { return &agnostic{tokens, audiences} }

type agnostic struct {
	Tokens
	audiences []string
}

// Token implements Tokens.
func (a *agnostic) Token(ctx context.Context, token string, audiences []string) (*access.Identity, error) {
	meant := a.audiences
	if audiences != nil {
		if meant = Common(audiences, a.audiences); len(meant) == 0 {
			return nil, nil
		}
	}
	id, err := a.Tokens.Token(ctx, token, nil)
	if id != nil {
		id.Audiences = meant
	}
	return id, err
}

// Common is what is in both lists, in the order of the first.
func Common(a, b []string) []string {
	if slices.Equal(a, b) {
		return a
	}
	var both []string
	for _, s := range a {
		if slices.Contains(b, s) {
			both = append(both, s)
		}
	}
	return both
}

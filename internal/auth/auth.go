// Package auth authenticates requests (AUTH-1).
//
// An [Authenticator] tries the credentials that a request can have, in this order: the headers of a front proxy, a
// client certificate, a bearer token. Several [Tokens] may recognize bearer tokens. A request without credentials is
// anonymous.
//
// The client only gets 401. The reason is for TokenReviews and the debug log. No error contains a token.
//
// What a stranger can cost: requests without valid credentials are authenticated before any limit on concurrent
// requests applies. Therefore results are cached (per connection for certificates, per token in [Cached]), the number
// of lookups that leave the process is bounded, and headers are parsed in linear time.
package auth

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
)

// ErrInvalid means that the request has credentials that are not valid: 401, not anonymous.
var ErrInvalid = errors.New("invalid bearer token")

// Tokens authenticates one kind of bearer tokens.
type Tokens interface {
	// Token returns the user of a token. If it returns nil without an error, the token is of another kind, and the
	// next Tokens are asked. The token must be for one of the audiences; without any, for this server's.
	Token(ctx context.Context, token string, audiences []string) (*access.Identity, error)
}

// Config configures an Authenticator.
type Config struct {
	// Clients are the authorities of client certificates; nil if there are none.
	Clients *Authorities
	// LaterCertificates is asked about client certificates that none of Clients has signed, and returns the user, or nil
	// and why not; nil: nobody is asked.
	LaterCertificates func(ctx context.Context, r *http.Request) (*access.Identity, error)
	// Used is told how long the certificate of each request with one is still valid; nil: nobody is.
	Used func(left time.Duration)
	// Proxy are the trusted front proxies; nil if there are none.
	Proxy *FrontProxy
	// Tokens are asked in this order.
	Tokens []Tokens
	// Audiences are this server's. A token without audiences is for them.
	Audiences []string
	// NoAnonymous refuses requests without credentials. If AnonymousPaths is not empty, only these paths accept them.
	NoAnonymous    bool
	AnonymousPaths []string
	Now            func() time.Time // nil: time.Now
}

// Authenticator authenticates requests.
type Authenticator struct {
	Config
}

// New creates an Authenticator.
func New(c Config) *Authenticator {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Authenticator{c}
}

// identityKey is the key of As.
type identityKey struct{}

// As returns a context for requests of clients in the same process, by this user. It applies to requests without an
// Authorization header; no request from elsewhere has such a context.
func As(ctx context.Context, id *access.Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// Authenticate returns the user of a request, system:anonymous without credentials. As in the reference the headers of
// a front proxy take precedence over a certificate, and that over a token; an invalid credential is ignored if another
// one is valid. The caller must not change the User.
func (a *Authenticator) Authenticate(ctx context.Context, r *http.Request) (*access.Identity, error) {
	if id, ok := ctx.Value(identityKey{}).(*access.Identity); ok && r.Header["Authorization"] == nil {
		return id, nil
	}
	id, proxyErr := a.proxied(ctx, r)
	if id != nil {
		return id, nil
	}
	id, certErr := a.certified(ctx, r)
	if id != nil {
		return id, nil
	}
	token, tokenErr := tokenOf(r)
	if token != "" {
		if id, tokenErr = a.token(ctx, token, nil); id != nil {
			return id, nil
		}
	}
	if err := errors.Join(proxyErr, certErr, tokenErr); err != nil {
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

// reasons are the errors of all Tokens for one token, formatted as in the reference.
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

// token authenticates a token. It returns a user or an error.
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

// authenticated adds the group system:authenticated.
func authenticated(id *access.Identity) *access.Identity {
	u := &id.User
	if u.Name != access.Anonymous && !u.In(access.Authenticated) && !u.In(access.Unauthenticated) {
		u.Groups = append(slices.Clip(u.Groups), access.Authenticated)
	}
	return id
}

// Review authenticates a token for a TokenReview, as for a request. ok says whether the token is valid; err is the
// reason if not. The token must be for one of the audiences; without any, for one of this server's.
func (a *Authenticator) Review(ctx context.Context, token string, audiences []string) (id access.Identity, ok bool,
	err error) {
	if len(audiences) == 0 { // this server's, as for requests, so that results cached for requests are used
		audiences = nil
	}
	parsed, _ := tokenOf(&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}})
	if parsed == "" { // as in the reference, such a review is one of a request without credentials
		if !a.anonymous("") {
			return id, false, nil
		}
		if audiences == nil {
			audiences = a.Audiences
		}
		return access.Identity{User: access.Nobody(), Audiences: audiences}, true, nil
	}
	found, err := a.token(ctx, parsed, audiences)
	if err != nil {
		return id, false, err
	}
	return *found, true, nil
}

// Agnostic wraps Tokens whose tokens have no audience: they are for this server, which has these audiences.
func Agnostic(tokens Tokens, audiences []string) Tokens { return &agnostic{tokens, audiences} }

type agnostic struct {
	Tokens
	audiences []string
}

// Token implements Tokens.
func (a *agnostic) Token(ctx context.Context, token string, audiences []string) (*access.Identity, error) {
	valid := a.audiences
	if audiences != nil {
		if valid = Common(audiences, a.audiences); len(valid) == 0 {
			return nil, nil
		}
	}
	id, err := a.Tokens.Token(ctx, token, nil)
	if id != nil {
		id.Audiences = valid
	}
	return id, err
}

// Common returns the items that are in both lists, in the order of the first.
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

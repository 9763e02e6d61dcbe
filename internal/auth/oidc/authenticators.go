package oidc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"plinth/internal/access"
	"plinth/internal/auth"
)

// Config configures authenticators, besides a Configuration.
type Config struct {
	// Own are the issuers of service accounts, which a Configuration must not have.
	Own []string
	// Algorithms are the accepted signature algorithms; none: all asymmetric ones of RFC 7518.
	Algorithms []string
	Logger     *slog.Logger
	Now        func() time.Time
	Metrics    *Metrics // nil disables them
	// Secret returns the secret by which this server shows an issuer, when a user signs in with a browser, that it is
	// the client that it says; "", or nil for all issuers: it is a public client.
	Secret func(issuer string) (string, error)
}

// Metrics are the functions that JWT authenticators call for their metrics.
type Metrics struct {
	// Authenticated reports the authentication of a token of an issuer.
	Authenticated func(issuer string, ok bool, took time.Duration)
	// Fetched reports the keys of an issuer; nil: they could not be fetched.
	Fetched func(issuer string, keys []byte)
}

// allAlgorithms are the asymmetric signature algorithms of RFC 7518.
var allAlgorithms = []string{"ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"}

// Authenticators authenticates the tokens of the issuers of one configuration. It contacts no issuer before Start. It
// may be used concurrently.
type Authenticators struct {
	all  []*authenticator
	ctx  context.Context // of the background work; ends with Close
	quit context.CancelFunc
	work sync.WaitGroup
}

// New creates the authenticators of a configuration. The error says why the configuration is invalid, with the messages
// of the reference. The caller has to close them.
func New(c *Configuration, config Config) (*Authenticators, error) {
	compiled, errs := c.compile(config.Own)
	if err := errs.ToAggregate(); err != nil {
		return nil, fmt.Errorf("invalid authentication configuration: %w", err)
	}
	if len(config.Algorithms) == 0 {
		config.Algorithms = allAlgorithms
	}
	for _, a := range config.Algorithms {
		if !slices.Contains(allAlgorithms, a) {
			return nil, fmt.Errorf("oidc: unsupported signing alg: %q", a)
		}
	}
	ctx, quit := context.WithCancel(context.Background())
	all := &Authenticators{ctx: ctx, quit: quit}
	for i := range c.JWT {
		a, err := newAuthenticator(ctx, &c.JWT[i], compiled[i], config)
		if err != nil {
			quit()
			return nil, err
		}
		all.all = append(all.all, a)
	}
	return all, nil
}

// Start starts the discovery of the issuers.
func (a *Authenticators) Start() {
	for _, of := range a.all {
		a.work.Go(func() { of.source.run(a.ctx) })
	}
}

// Close ends the background work.
func (a *Authenticators) Close() {
	a.quit()
	a.work.Wait()
}

// Healthy returns an error for each issuer whose discovery has not succeeded yet.
func (a *Authenticators) Healthy() error {
	var errs []error
	for _, of := range a.all {
		if err := of.source.healthy(); err != nil {
			errs = append(errs, fmt.Errorf("oidc: authenticator for issuer %q is not healthy: %w", of.Issuer.URL, err))
		}
	}
	return errors.Join(errs...)
}

// issuers returns the URLs of the issuers.
func (a *Authenticators) issuers() []string {
	var urls []string
	for _, of := range a.all {
		urls = append(urls, of.Issuer.URL)
	}
	return urls
}

// Token implements auth.Tokens. It ignores the audiences: those of the configuration count, and auth.Agnostic gives the
// tokens those of this server.
func (a *Authenticators) Token(ctx context.Context, token string, _ []string) (*access.Identity, error) {
	if len(a.all) == 0 {
		return nil, nil
	}
	issuer, err := issuerOf(token)
	if err != nil { // not a JSON Web Token
		return nil, nil
	}
	i := slices.IndexFunc(a.all, func(of *authenticator) bool { return of.Issuer.URL == issuer })
	if i < 0 {
		return nil, nil
	}
	of := a.all[i]
	began := of.config.Now()
	user, err := of.authenticate(ctx, token)
	if m := of.config.Metrics; m != nil {
		m.Authenticated(issuer, err == nil, of.config.Now().Sub(began))
	}
	if err != nil {
		return nil, err
	}
	return &access.Identity{User: *user}, nil
}

// Google's tokens name their issuer without the scheme, which its discovery document has.
const (
	google      = "https://accounts.google.com"
	googleShort = "accounts.google.com"
)

// issuerOf returns the issuer of a token, which is not verified yet. The error says why the text is not a token.
func issuerOf(token string) (string, error) {
	issuer, err := auth.UnverifiedIssuer(token)
	if issuer == googleShort {
		issuer = google
	}
	return issuer, err
}

// authenticator authenticates the tokens of one issuer.
type authenticator struct {
	*Authenticator
	*expressions
	config   Config
	source   *source
	groupsOf *distributed // nil: groups are not read from a claim
}

func newAuthenticator(ctx context.Context, of *Authenticator, compiled *expressions,
	config Config) (*authenticator, error) {
	source, err := newSource(&of.Issuer, config)
	if err != nil {
		return nil, err
	}
	a := &authenticator{Authenticator: of, expressions: compiled, config: config, source: source}
	if of.ClaimMappings.Groups.Claim != "" {
		a.groupsOf = &distributed{ctx: ctx, claim: of.ClaimMappings.Groups.Claim, by: source}
	}
	return a, nil
}

// authenticate returns the user of a token of the issuer.
func (a *authenticator) authenticate(ctx context.Context, token string) (*access.User, error) {
	v := a.source.verifier()
	if v == nil {
		return nil, errors.New("oidc: authenticator not initialized")
	}
	c, err := v.verify(ctx, token)
	if err != nil {
		return nil, fmt.Errorf("oidc: verify token: %w", err)
	}
	if a.groupsOf != nil {
		if err := a.groupsOf.expand(ctx, c); err != nil {
			return nil, fmt.Errorf("oidc: could not expand distributed claims: %w", err)
		}
	}
	m := &mapping{authenticator: a, claims: c}
	user, err := m.user(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.checkClaims(ctx); err != nil {
		return nil, err
	}
	return user, m.checkUser(ctx, user)
}

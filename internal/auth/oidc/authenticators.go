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

// Config is what authenticators are made of, besides a Configuration.
type Config struct {
	// Own are issuers that nobody else may claim to be: those of service accounts.
	Own []string
	// Algorithms are those of signatures that are taken; none: all that there are.
	Algorithms []string
	Logger     *slog.Logger
	Now        func() time.Time
	// Metrics is told how it goes; nil: nobody wants to know.
	Metrics *Metrics
}

// Metrics are figures of JWT authenticators.
type Metrics struct {
	// Authenticated is told how a token of an issuer was found out about.
	Authenticated func(issuer string, ok bool, took time.Duration)
	// Fetched is told of the keys of an issuer; nil: they could not be fetched.
	Fetched func(issuer string, keys []byte)
}

// allAlgorithms are those of the signatures that a public key can verify.
var allAlgorithms = []string{"ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"}

// Authenticators know the tokens of the issuers of one configuration. Nobody is asked for keys before Start.
type Authenticators struct {
	all  []*authenticator
	ctx  context.Context // of what they do in the background
	quit context.CancelFunc
	work sync.WaitGroup
}

// New makes authenticators of a configuration, and says what is wrong with it. They are closed in the end.
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

// Start begins to ask the issuers where their keys are.
func (a *Authenticators) Start() {
	for _, of := range a.all {
		a.work.Go(func() { of.source.run(a.ctx) })
	}
}

// Close ends what the authenticators do in the background.
func (a *Authenticators) Close() {
	a.quit()
	a.work.Wait()
}

// Healthy says why an issuer is not known yet; nil: all are.
func (a *Authenticators) Healthy() error {
	var errs []error
	for _, of := range a.all {
		if err := of.source.healthy(); err != nil {
			errs = append(errs, fmt.Errorf("oidc: authenticator for issuer %q is not healthy: %w", of.Issuer.URL, err))
		}
	}
	return errors.Join(errs...)
}

// issuers are their URLs.
func (a *Authenticators) issuers() []string {
	var urls []string
	for _, of := range a.all {
		urls = append(urls, of.Issuer.URL)
	}
	return urls
}

// Token implements auth.Tokens: of tokens that are for nobody in particular.
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

// authenticator knows the tokens of one issuer.
type authenticator struct {
	*Authenticator
	*expressions
	config   Config
	source   *source
	groupsOf *distributed // nil: groups are no claim
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

// authenticate says whose a token of the issuer is.
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

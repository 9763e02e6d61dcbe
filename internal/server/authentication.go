package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/auth/serviceaccount"
	"plinth/internal/auth/tokenwebhook"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/webhook"
	"plinth/object"
)

// ServiceAccounts configures the tokens of service accounts.
type ServiceAccounts struct {
	Issuers        []string // the first is in new tokens, all are accepted; empty: defaultIssuer
	KeyFiles       []string // keys that verify tokens; empty: the signing key
	SigningKeyFile string   // the key that signs tokens; "": a generated one, if there are no KeyFiles
	// SigningEndpoint is the socket of a program that signs tokens and has all keys (package externaljwt); "": this server
	// has them.
	SigningEndpoint string
	Lookup          bool // legacy tokens are valid only while their Secrets exist
	MaxExpiration   time.Duration
	Extend          bool   // tokens of Pods are valid for a year, see serviceaccount.Issuer
	JWKSURI         string // URL of the public keys in the discovery document; "": this server
}

// FrontProxy configures proxies that authenticate users and name them in headers.
type FrontProxy struct {
	CAFile                                               string // of the proxies' certificates; "": no proxy
	AllowedNames                                         []string
	UserHeaders, UIDHeaders, GroupHeaders, ExtraPrefixes []string
}

// TokenWebhook configures a webhook that identifies the user of a bearer token.
type TokenWebhook struct {
	ConfigFile string // a kubeconfig; "": no webhook
	Version    string // of the TokenReviews that are sent
	CacheTTL   time.Duration
}

// open returns an authenticator that calls the webhook; nil if no webhook is configured.
func (w *TokenWebhook) open(audiences []string, now func() time.Time, logger *slog.Logger) (auth.Tokens, error) {
	if w.ConfigFile == "" {
		return nil, nil
	}
	remote, err := webhook.FromKubeconfig(w.ConfigFile)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(tokenwebhook.Versions, w.Version) {
		return nil, fmt.Errorf("unsupported authentication webhook version %q, supported versions are %q, %q", w.Version,
			tokenwebhook.Versions[0], tokenwebhook.Versions[1])
	}
	asked := &tokenwebhook.Webhook{Post: remote.Post, Version: w.Version, Audiences: audiences, Logger: logger}
	return auth.Cached(asked, w.CacheTTL, w.CacheTTL, now), nil
}

// validate returns errors as the reference does.
func (p *FrontProxy) validate(refuse func(format string, args ...any)) {
	for flag, names := range map[string][]string{
		"--requestheader-username-headers": p.UserHeaders, "--requestheader-uid-headers": p.UIDHeaders,
		"--requestheader-group-headers": p.GroupHeaders, "--requestheader-extra-headers-prefix": p.ExtraPrefixes,
		"--requestheader-allowed-names": p.AllowedNames,
	} {
		if slices.ContainsFunc(names, func(name string) bool { return strings.TrimSpace(name) == "" }) {
			refuse("%s: empty value", flag)
		}
	}
	switch {
	case p.CAFile != "" && len(p.UserHeaders) == 0:
		refuse("--requestheader-client-ca-file goes with --requestheader-username-headers")
	case len(p.UIDHeaders) > 0 && !slices.ContainsFunc(p.UIDHeaders,
		func(h string) bool { return strings.EqualFold(h, "X-Remote-Uid") }):
		refuse(
			"--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work")
	}
}

// open reads the authorities; it returns nil if no proxy is trusted. If one of them also signs client certificates,
// AllowedNames is required: otherwise every client could set the headers and act as another user.
func (p *FrontProxy) open(clients *x509.Certificate, clientFile string) (*auth.FrontProxy, error) {
	if p.CAFile == "" {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if _, err := appendAuthorities(pool, "--requestheader-client-ca-file", p.CAFile); err != nil {
		return nil, err
	}
	if len(p.AllowedNames) == 0 {
		own := append(certificatesIn(clientFile), clients.Raw)
		if slices.ContainsFunc(certificatesIn(p.CAFile), func(der []byte) bool {
			return slices.ContainsFunc(own, func(other []byte) bool { return slices.Equal(der, other) })
		}) {
			return nil, errors.New("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; " +
				"--requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating " +
				"proxy headers for arbitrary users")
		}
	}
	return &auth.FrontProxy{
		Authorities: pool, AllowedNames: p.AllowedNames, UserHeaders: p.UserHeaders, UIDHeaders: p.UIDHeaders,
		GroupHeaders: p.GroupHeaders, ExtraPrefixes: p.ExtraPrefixes,
	}, nil
}

// certificatesIn returns the certificates of a PEM file, as DER; none if the file cannot be read.
func certificatesIn(file string) (ders [][]byte) {
	text, _ := os.ReadFile(file)
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return ders
		}
		if block.Type == "CERTIFICATE" {
			ders = append(ders, block.Bytes)
		}
	}
}

// defaultIssuer is the issuer of service account tokens unless another one is configured.
const defaultIssuer = "https://kubernetes.default.svc.cluster.local"

// validateAuthentication returns all errors of the settings of authentication, joined.
func (c *Config) validateAuthentication() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	s := &c.ServiceAccounts
	for i, issuer := range s.Issuers {
		switch _, err := url.Parse(issuer); {
		case issuer == "":
			refuse("--service-account-issuer should not be an empty string")
		case strings.Contains(issuer, ":") && err != nil:
			refuse("--service-account-issuer: %q contains a colon, but is no URL: %w", issuer, err)
		case slices.Contains(s.Issuers[:i], issuer):
			refuse("--service-account-issuer: %q is there twice", issuer)
		}
	}
	c.FrontProxy.validate(refuse)
	c.OIDC.validate(c.AuthenticationConfig, refuse)
	if u, err := url.Parse(s.JWKSURI); s.JWKSURI != "" && (err != nil || u.Scheme != "https") {
		refuse("--service-account-jwks-uri: %q is no https:// URL", s.JWKSURI)
	}
	c.validateSigner(refuse)
	if d := s.MaxExpiration; d != 0 && (d < time.Hour || d > (1<<32)*time.Second) {
		refuse("--service-account-max-token-expiration: %s is not between 1 hour and 2^32 seconds", d)
	}
	return errors.Join(errs...)
}

// issuers are the issuers of service account tokens that are accepted.
func (c *Config) issuers() []string {
	if len(c.ServiceAccounts.Issuers) > 0 {
		return c.ServiceAccounts.Issuers
	}
	return []string{defaultIssuer}
}

// audiences are the audiences of this API.
func (c *Config) audiences() []string {
	if len(c.APIAudiences) > 0 {
		return c.APIAudiences
	}
	return c.issuers()
}

// authenticator combines the ways to authenticate, in the order in which the reference tries them.
func (s *Server) authenticator(serving *tls.Config) (*auth.Authenticator, error) {
	c := &s.config
	audiences := c.audiences()
	var tokens []auth.Tokens
	if c.AdministratorToken != "" {
		admin := access.User{Name: administrator, Groups: []string{access.Masters}}
		tokens = append(tokens, auth.Agnostic(auth.StaticToken(c.AdministratorToken, admin), audiences))
	}
	if c.TokenAuthFile != "" {
		static, err := auth.ReadTokens(c.TokenAuthFile)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, auth.Agnostic(static, audiences))
	}
	objects := serviceaccount.NewObjects(s.engine, s.registry)
	now := c.Now
	if now == nil {
		now = time.Now
	}
	s.issuer = &serviceaccount.Issuer{
		Keys: s.accountKeys, Name: c.issuers()[0], Audiences: audiences,
		Extend: c.ServiceAccounts.Extend, Objects: objects, Now: now,
		OtherUID: !s.features.On(features.TokenRequestServiceAccountUIDValidation),
		Webhooks: s.features.On(features.APIServerWebhookAuthenticationToken),
	}
	s.issuer.MaxSeconds, s.issuer.ExtendedSeconds = s.accountKeys.lifetimes(c)
	s.verifier = &serviceaccount.Verifier{
		Keys: s.accountKeys, Issuers: c.issuers(), Audiences: audiences, Objects: objects,
		Lookup: c.ServiceAccounts.Lookup, Now: now,
		Webhooks: s.features.On(features.APIServerWebhookAuthenticationToken),
		Used: func(ctx context.Context, secret *engine.Object, today string) {
			if err := objects.MarkUsed(ctx, secret, today); err != nil {
				c.Logger.Warn("the last use of a legacy token could not be noted", "secret", secret.Key.Name, "error", err)
			}
		},
	}
	tokens = append(tokens, s.verifier)
	if c.BootstrapTokens {
		tokens = append(tokens, auth.Agnostic(&serviceaccount.BootstrapTokens{Objects: objects, Now: now}, audiences))
	}
	config := auth.Config{Audiences: audiences, Now: now}
	// After tokens of service accounts, which are recognized without a call.
	jwt, err := s.jwtAuthenticator(&config)
	if err != nil {
		return nil, err
	}
	if jwt != nil {
		tokens = append(tokens, auth.Agnostic(jwt, audiences))
	}
	hook, err := c.TokenWebhook.open(audiences, now, c.Logger)
	if err != nil {
		return nil, err
	}
	if hook != nil { // last, because it costs the most
		tokens = append(tokens, hook)
	}
	proxy, err := c.FrontProxy.open(s.pki.Certificate, c.ClientCAFile)
	if err != nil {
		return nil, err
	}
	clients := serving.ClientCAs
	if proxy != nil { // the handshake requests certificates of its authority, too, but only the proxy's are accepted
		serving.ClientCAs = clients.Clone()
		if _, err := appendAuthorities(serving.ClientCAs, "--requestheader-client-ca-file", c.FrontProxy.CAFile); err != nil {
			return nil, err
		}
	}
	config.Clients, config.Proxy, config.Tokens = clients, proxy, tokens
	return auth.New(config), nil
}

// reviewToken authenticates a token for a TokenReview. s.auth is set before the first request.
func (s *Server) reviewToken(ctx context.Context, token string, audiences []string) (access.Identity, bool, error) {
	return s.auth.Review(ctx, token, audiences)
}

// answerToken answers a TokenRequest. s.issuer is set before the first request.
func (s *Server) answerToken(
	ctx context.Context, rq *engine.Request, account *engine.Object, body object.Value,
) (object.Value, []string, error) {
	return s.issuer.Answer(ctx, rq, account, body)
}

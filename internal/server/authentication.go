package server

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/auth/serviceaccount"
	"plinth/internal/auth/tokenwebhook"
	"plinth/internal/plane"
	"plinth/internal/webhook"
)

// ServiceAccounts configures the tokens of service accounts.
type ServiceAccounts struct {
	Issuers        []string // the first is in new tokens, all are accepted; empty: serviceaccount.DefaultIssuer
	KeyFiles       []string // keys that verify tokens; empty: the signing key
	SigningKeyFile string   // the key that signs tokens; "": a generated one, if there are no KeyFiles
	// SigningEndpoint is the socket of a program that signs tokens and has all keys (package externaljwt); "": this
	// server has them.
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

// separate refuses authorities of proxies that also sign client certificates, unless AllowedNames says which
// certificates are a proxy's: otherwise every client could set the headers and act as another user.
func (p *FrontProxy) separate(clients, proxies []*x509.Certificate) error {
	if len(p.AllowedNames) > 0 {
		return nil
	}
	if slices.ContainsFunc(proxies, func(c *x509.Certificate) bool { return slices.ContainsFunc(clients, c.Equal) }) {
		return errors.New("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; " +
			"--requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating " +
			"proxy headers for arbitrary users")
	}
	return nil
}

// open returns whom a request may name its user; nil if no proxy is trusted.
func (p *FrontProxy) open(authorities *auth.Authorities) *auth.FrontProxy {
	if p.CAFile == "" {
		return nil
	}
	return &auth.FrontProxy{
		Authorities: authorities, AllowedNames: p.AllowedNames, UserHeaders: p.UserHeaders, UIDHeaders: p.UIDHeaders,
		GroupHeaders: p.GroupHeaders, ExtraPrefixes: p.ExtraPrefixes,
	}
}

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
	for _, pair := range c.ConsoleSecrets {
		issuer, _, _ := strings.Cut(pair, "=")
		if _, err := c.clientSecret(issuer); err != nil {
			refuse("--console-oidc-client-secret-file: %w", err)
		}
	}
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
	return []string{serviceaccount.DefaultIssuer}
}

// audiences are the audiences of this API.
func (c *Config) audiences() []string {
	if len(c.APIAudiences) > 0 {
		return c.APIAudiences
	}
	return c.issuers()
}

// authentication sets who authenticates requests besides the objects of the plane: what is asked before these, and the
// tokens that are asked about after them.
func (s *Server) authentication(p *plane.Config) error {
	c, first := &s.config, &p.Authentication
	*first = auth.Config{Audiences: c.audiences(), Now: s.clock}
	if c.AdministratorToken != "" {
		admin := access.User{Name: administrator, Groups: []string{access.Masters}}
		first.Tokens = append(first.Tokens, auth.Agnostic(auth.StaticToken(c.AdministratorToken, admin), first.Audiences))
	}
	if c.TokenAuthFile != "" {
		static := &auth.TokenFile{}
		if err := s.files.Use("--token-auth-file", []string{c.TokenAuthFile}, func(texts [][]byte) error {
			none, err := static.Take(texts[0])
			if err != nil {
				return fmt.Errorf("%s: %w", c.TokenAuthFile, err)
			}
			if none {
				c.Logger.Warn("--token-auth-file has no tokens", "file", c.TokenAuthFile)
			}
			return nil
		}); err != nil {
			return err
		}
		first.Tokens = append(first.Tokens, auth.Agnostic(static, first.Audiences))
	}
	jwt, err := s.jwtAuthenticator(first)
	if err != nil {
		return err
	}
	if jwt != nil {
		p.Issuers = jwt
		p.LaterTokens = append(p.LaterTokens, auth.Agnostic(jwt, first.Audiences))
	}
	hook, err := c.TokenWebhook.open(first.Audiences, s.clock, c.Logger)
	if err != nil {
		return err
	}
	if hook != nil { // last, because it costs the most
		p.LaterTokens = append(p.LaterTokens, hook)
	}
	first.Clients, first.Used = s.certificates.clients, s.certificates.used
	first.Proxy = c.FrontProxy.open(s.certificates.proxies)
	return nil
}

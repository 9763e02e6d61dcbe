package server

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/auth"
	"plinth/internal/auth/oidc"
	"plinth/internal/authz"
	"plinth/internal/metrics"
	"plinth/internal/peers"
)

// OIDC configures one OpenID Connect issuer by flags: a short form of an AuthenticationConfiguration.
type OIDC struct {
	IssuerURL, ClientID string
	CAFile              string // "": the system's authorities verify the issuer
	// A prefix of "-" means no prefix. "" means the issuer and "#", or no prefix if the claim is email.
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	RequiredClaims                []string // CLAIM=VALUE
	SigningAlgs                   []string
	Given                         bool // whether any of these flags was given
}

// validate refuses combinations that the reference refuses.
func (o *OIDC) validate(configFile string, refuse func(format string, args ...any)) {
	switch {
	case !o.Given:
	case configFile != "":
		refuse("authentication-config file and oidc-* flags are mutually exclusive")
	case o.IssuerURL == "" || o.ClientID == "":
		refuse("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")
	}
}

// load is oidc.Load for the flags: the file is CAFile, or "".
func (o *OIDC) load(file string) (c *oidc.Configuration, authority []byte, err error) {
	if file != "" {
		if authority, err = os.ReadFile(file); err != nil {
			return nil, nil, err
		}
	}
	c, err = o.configuration(authority)
	return c, authority, err
}

// configuration converts the flags to an AuthenticationConfiguration. authority is what CAFile has.
func (o *OIDC) configuration(authority []byte) (*oidc.Configuration, error) {
	c := &oidc.Configuration{}
	if o.IssuerURL == "" || o.ClientID == "" {
		return c, nil
	}
	prefix := o.UsernamePrefix
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && o.UsernameClaim != "email":
		prefix = o.IssuerURL + "#"
	}
	a := oidc.Authenticator{
		Issuer:        oidc.Issuer{URL: o.IssuerURL, Audiences: []string{o.ClientID}},
		ClaimMappings: oidc.Mappings{Username: oidc.Prefixed{Claim: o.UsernameClaim, Prefix: &prefix}},
	}
	if o.GroupsClaim != "" {
		a.ClaimMappings.Groups = oidc.Prefixed{Claim: o.GroupsClaim, Prefix: &o.GroupsPrefix}
	}
	a.Issuer.CertificateAuthority = string(authority)
	required := map[string]string{} // the last value of a claim counts, as in the reference
	for _, pair := range o.RequiredClaims {
		claim, value, _ := strings.Cut(pair, "=")
		required[claim] = value
	}
	for _, claim := range slices.Sorted(maps.Keys(required)) {
		a.ClaimValidationRules = append(a.ClaimValidationRules, oidc.ClaimRule{Claim: claim, RequiredValue: required[claim]})
	}
	c.JWT = []oidc.Authenticator{a}
	return c, nil
}

// jwtAuthenticator creates the authenticator for tokens of OpenID Connect issuers; nil if neither an issuer nor
// --authentication-config is configured (the file may have issuers later). It also sets the fields of to that decide on
// requests without credentials: whether they are accepted, and at which paths.
func (s *Server) jwtAuthenticator(to *auth.Config) (*oidc.Reloader, error) {
	c := &s.config
	to.NoAnonymous = !c.AnonymousAuth || slices.Contains(c.AuthorizationModes, string(authz.AlwaysAllow))
	file, load, parse, algorithms := c.OIDC.CAFile, c.OIDC.load, c.OIDC.configuration, c.OIDC.SigningAlgs
	if c.AuthenticationConfig != "" {
		file, load, parse, algorithms = c.AuthenticationConfig, oidc.Load, oidc.Parse, nil
	}
	configured, text, err := load(file)
	if err != nil {
		return nil, err
	}
	if a := configured.Anonymous; a != nil {
		if c.AnonymousAuthGiven {
			return nil, field.Forbidden(field.NewPath("anonymous"),
				"--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file")
		}
		to.NoAnonymous = !a.Enabled
		for _, condition := range a.Conditions {
			to.AnonymousPaths = append(to.AnonymousPaths, condition.Path)
		}
	}
	if c.AuthenticationConfig == "" && len(configured.JWT) == 0 {
		return nil, nil
	}
	counted := text // the metrics are those of --authentication-config
	if c.AuthenticationConfig == "" {
		counted = nil
	}
	counts := metrics.NewIssuers(peers.HostIdentity(), counted)
	s.counts.show(counts.Collectors()...)
	told := oidc.Reloads{Reloaded: counts.Reloaded, Removed: counts.Removed}
	if c.AuthenticationConfig == "" {
		told.Reloaded = func(_ []byte, err error) { s.files.Reloaded("--oidc-ca-file", err) }
	}
	jwt, err := oidc.NewReloader(configured, text, parse, oidc.Config{
		Own: c.issuers(), Algorithms: algorithms, Logger: c.Logger, Now: to.Now, Metrics: counts.Hooks(),
		Secret: c.clientSecret,
	}, told)
	if err != nil {
		return nil, err
	}
	s.follow = append(s.follow, func(ctx context.Context) { jwt.Run(ctx, file) })
	return jwt, nil
}

// clientSecret returns the secret of the console as a client of an issuer; "" if there is none. The file is read each
// time, because the secret is used seldom, and is replaced while the server runs.
func (c *Config) clientSecret(issuer string) (string, error) {
	for _, pair := range c.ConsoleSecrets {
		of, file, _ := strings.Cut(pair, "=")
		if of != issuer {
			continue
		}
		text, err := os.ReadFile(file)
		secret := strings.TrimSpace(string(text))
		if err == nil && secret == "" {
			err = fmt.Errorf("%s is empty", file)
		}
		return secret, err
	}
	return "", nil
}

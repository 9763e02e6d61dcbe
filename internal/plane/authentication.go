package plane

import (
	"cmp"
	"context"
	"slices"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/auth/serviceaccount"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/httpapi"
	"plinth/object"
)

// authenticator combines the ways to authenticate, in the order in which the reference tries them.
func (p *Plane) authenticator() *auth.Authenticator {
	c, a := &p.config, &p.config.Accounts
	audiences := c.Authentication.Audiences
	objects := serviceaccount.NewObjects(p.Engine, p.Registry)
	p.issuer = &serviceaccount.Issuer{
		Keys: a.Keys, Name: a.Issuers[0], Audiences: audiences, Extend: a.Extend, Objects: objects, Now: p.clock,
		MaxSeconds: a.MaxSeconds, ExtendedSeconds: a.ExtendedSeconds,
		OtherUID: !c.Features.On(features.TokenRequestServiceAccountUIDValidation),
		Webhooks: c.Features.On(features.APIServerWebhookAuthenticationToken),
	}
	p.Verifier = &serviceaccount.Verifier{
		Keys: a.Keys, Issuers: a.Issuers, Audiences: audiences, Objects: objects, Lookup: a.Lookup, Now: p.clock,
		Webhooks: c.Features.On(features.APIServerWebhookAuthenticationToken),
		Used: func(ctx context.Context, secret *engine.Object, today string) {
			if err := objects.MarkUsed(ctx, secret, today); err != nil {
				c.Logger.Warn("the last use of a legacy token could not be noted", "secret", secret.Key.Name, "error", err)
			}
		},
	}
	own := []auth.Tokens{p.Verifier}
	if a.BootstrapTokens {
		own = append(own, auth.Agnostic(&serviceaccount.BootstrapTokens{Objects: objects, Now: p.clock,
			After: a.BootstrapAfter}, audiences))
	}
	config := c.Authentication
	// Tokens of service accounts are recognized without a call, those of LaterTokens are not.
	config.Tokens, config.Now = slices.Concat(config.Tokens, own, c.LaterTokens), p.clock
	return auth.New(config)
}

// reviewToken authenticates a token for a TokenReview. p.auth is set before the first request.
func (p *Plane) reviewToken(ctx context.Context, token string, audiences []string) (access.Identity, bool, error) {
	return p.auth.Review(ctx, token, audiences)
}

// answerToken answers a TokenRequest. p.issuer is set before the first request.
func (p *Plane) answerToken(
	ctx context.Context, rq *engine.Request, account *engine.Object, body object.Value,
) (object.Value, []string, error) {
	return p.issuer.Answer(ctx, rq, account, body)
}

// accountPages returns the two documents with which other programs verify the tokens of service
// accounts: the OpenID Connect discovery document of the issuer, and its public keys. Nil if the name of the issuer is
// not a URL under which they could be found, or if no key can be published.
func (p *Plane) accountPages() map[string]httpapi.Page {
	a := &p.config.Accounts
	documents := &serviceaccount.Documents{Keys: a.Keys, Issuer: a.Issuers[0], Now: p.clock,
		KeysURL: cmp.Or(a.KeysURL, "https://"+p.config.Address+serviceaccount.KeysPath)}
	err := serviceaccount.Discoverable(documents.Issuer)
	if err == nil && a.Static == nil {
		_, err = documents.KeySet()
	}
	if err != nil {
		p.config.Logger.Info("the OpenID Connect documents of the issuer of service account tokens are not served", "reason", err)
		return nil
	}
	return map[string]httpapi.Page{
		serviceaccount.KeysPath: {
			Type: serviceaccount.KeysType, Caching: documents.Caching, Body: documents.KeySet,
		},
		serviceaccount.ConfigurationPath: {
			Type: "application/json", Caching: documents.Caching, Body: documents.Configuration,
		},
	}
}

package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	oidclib "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// ErrUnavailable means that an issuer cannot be asked now.
var ErrUnavailable = errors.New("the issuer is not available")

// SignIn is one sign-in of a user at an issuer with a browser: the authorization code flow of OpenID Connect Core 1.0,
// 3.1, with PKCE (RFC 7636).
//
// Problem: the code that the issuer sends to the browser, and the browser to us, is as good as the user, and can be
// stolen on its way, or be somebody else's that a browser is made to send. What must hold:
//
//	browser that brings State = browser that got it     the caller binds State to a browser, and takes it once
//	who exchanges the code    = who began               the verifier, of which the issuer has seen only the hash
//	token                     = answer to this sign-in  the nonce, which is signed with the token
//	issuer that has answered  = issuer that was asked   iss in the answer (RFC 9207), or a Redirect of its own
type SignIn struct {
	Issuer   string // its URL
	Redirect string // to where the issuer sends the browser back; that of no other issuer
	State    string // what the browser brings back

	nonce, verifier string
}

// Answer is what the issuer has the browser bring back: the parameters of its redirect.
type Answer struct{ Code, Issuer, Error, Description string }

// endpoints are where a user signs in with a browser: what a discovery document says about that.
type endpoints struct {
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	Scopes        []string `json:"scopes_supported"`
	Methods       []string `json:"token_endpoint_auth_methods_supported"`
	Challenges    []string `json:"code_challenge_methods_supported"`
	Named         bool     `json:"authorization_response_iss_parameter_supported"`
}

// usable says whether users can sign in. An issuer that is only for the tokens of programs has no such endpoints.
func (e *endpoints) usable() bool {
	return secure(e.Authorization) && secure(e.Token) &&
		(len(e.Challenges) == 0 || slices.Contains(e.Challenges, "S256"))
}

// secure says whether an endpoint is at an https URL as RFC 6749, 3.1 and 3.2 have it.
func secure(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && u.Fragment == ""
}

// SignIns returns the URLs of the issuers at which users can sign in with a browser. It has those of which that is not
// known yet, because their discovery has not succeeded.
func (r *Reloader) SignIns() (urls []string) {
	for _, of := range r.current.Load().all {
		if v := of.source.verifier(); v == nil || v.at.usable() {
			urls = append(urls, of.Issuer.URL)
		}
	}
	return urls
}

// Begin begins a sign-in at an issuer, and returns to where the browser has to go.
func (r *Reloader) Begin(issuer, redirect string) (s *SignIn, address string, err error) {
	of, v, err := r.signsIn(issuer)
	if err != nil {
		return nil, "", err
	}
	s = &SignIn{Issuer: issuer, Redirect: redirect, State: rand.Text() + rand.Text(), nonce: rand.Text() + rand.Text(),
		verifier: oauth2.GenerateVerifier()}
	return s, of.client(v, s).AuthCodeURL(s.State, oidclib.Nonce(s.nonce), oauth2.S256ChallengeOption(s.verifier)), nil
}

// Finish exchanges the code of an answer, and returns the user's ID token. The caller has to authenticate the token: it
// is checked here that the issuer has signed it for this sign-in. No error contains a code or a token.
func (r *Reloader) Finish(ctx context.Context, s *SignIn, a Answer) (token string, err error) {
	of, v, err := r.signsIn(s.Issuer)
	switch {
	case err != nil:
		return "", err
	case a.Issuer != "" && a.Issuer != s.Issuer, a.Issuer == "" && v.at.Named:
		return "", fmt.Errorf("the answer is that of the issuer %q, and not of %q", a.Issuer, s.Issuer)
	case a.Error != "":
		return "", refusal(a.Error, a.Description)
	case a.Code == "":
		return "", errors.New("the issuer's answer has no code")
	}
	client := of.client(v, s)
	if secret := of.config.Secret; secret != nil {
		if client.ClientSecret, err = secret(s.Issuer); err != nil {
			return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if client.ClientSecret != "" && (len(v.at.Methods) == 0 || slices.Contains(v.at.Methods, "client_secret_basic")) {
		client.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	}
	got, err := client.Exchange(oidclib.ClientContext(ctx, of.source.direct()), a.Code, oauth2.VerifierOption(s.verifier))
	if err != nil {
		return "", exchangeError(err)
	}
	token, _ = got.Extra("id_token").(string)
	return token, v.forSignIn(ctx, token, client.ClientID, s)
}

// signsIn returns the authenticator of an issuer at which users can sign in.
func (r *Reloader) signsIn(issuer string) (*authenticator, *verifier, error) {
	all := r.current.Load().all
	i := slices.IndexFunc(all, func(of *authenticator) bool { return of.Issuer.URL == issuer })
	if i < 0 {
		return nil, nil, fmt.Errorf("%q is no issuer of this server", issuer)
	}
	v := all[i].source.verifier()
	switch {
	case v == nil:
		return nil, nil, fmt.Errorf("%w: its discovery document could not be read yet", ErrUnavailable)
	case !v.at.usable():
		return nil, nil, fmt.Errorf("the issuer %q has no endpoints where users sign in with a browser", issuer)
	}
	return all[i], v, nil
}

// client is this server as a client of the issuer. Without a secret it is a public client, which only names itself.
func (a *authenticator) client(v *verifier, s *SignIn) *oauth2.Config {
	c := &oauth2.Config{ClientID: a.Issuer.Audiences[0], RedirectURL: s.Redirect, Endpoint: oauth2.Endpoint{
		AuthURL: v.at.Authorization, TokenURL: v.at.Token, AuthStyle: oauth2.AuthStyleInParams}}
	// Some issuers refuse a scope that they do not know, and groups is no scope of the standard. No refresh token is asked
	// for (offline_access).
	c.Scopes = []string{oidclib.ScopeOpenID}
	for _, scope := range []string{oidclib.ScopeProfile, oidclib.ScopeEmail} {
		if len(v.at.Scopes) == 0 || slices.Contains(v.at.Scopes, scope) {
			c.Scopes = append(c.Scopes, scope)
		}
	}
	if g := a.ClaimMappings.Groups; g != (Prefixed{}) && slices.Contains(v.at.Scopes, "groups") {
		c.Scopes = append(c.Scopes, "groups")
	}
	return c
}

// direct returns an HTTP client that follows no redirect: the code is for the token endpoint alone.
func (s *source) direct() *http.Client {
	c := *s.client
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// forSignIn returns an error unless the issuer has signed a token for a client in answer to a sign-in.
func (v *verifier) forSignIn(ctx context.Context, token, client string, s *SignIn) error {
	if token == "" {
		return errors.New("the issuer's answer has no ID token")
	}
	c, err := v.verify(ctx, token)
	if err != nil {
		return err
	}
	var nonce string
	var audiences texts
	if err := c.read("nonce", &nonce); err != nil || subtle.ConstantTimeCompare([]byte(nonce), []byte(s.nonce)) != 1 {
		return errors.New("the ID token is not for this sign-in: it has another nonce")
	}
	if err := c.read("aud", &audiences); err != nil || !slices.Contains(audiences, client) {
		return fmt.Errorf("the ID token is not for the client %q", client)
	}
	return nil
}

// refusal is the error of an issuer that refuses.
func refusal(code, description string) error {
	if description == "" {
		return fmt.Errorf("the issuer refuses: %s", code)
	}
	return fmt.Errorf("the issuer refuses: %s: %s", code, description)
}

// exchangeError is the error of an exchange. Of an answer that is no refusal it has only the status.
func exchangeError(err error) error {
	var answered *oauth2.RetrieveError
	var failed *url.Error
	switch {
	case errors.As(err, &answered) && answered.ErrorCode != "":
		return refusal(answered.ErrorCode, answered.ErrorDescription)
	case errors.As(err, &answered):
		return fmt.Errorf("%w: its token endpoint answers %s", ErrUnavailable, answered.Response.Status)
	case errors.As(err, &failed):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("%w: the answer of its token endpoint cannot be read", ErrUnavailable)
}

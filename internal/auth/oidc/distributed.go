package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// maxClaimIssuers limits the issuers of distributed claims, whose names come from the responses of endpoints.
const maxClaimIssuers = 32

// distributed resolves a distributed claim (OpenID Connect Core 1.0, 5.6.2): the token names an endpoint, whose
// response is another token with the claim, which may have a different issuer. The discovery of that issuer starts with
// its first token; until it has succeeded, the claim is an error. Only tokens with a verified signature get here, so
// that strangers cannot make the server call endpoints.
type distributed struct {
	ctx   context.Context
	claim string
	by    *source // has the HTTP client for issuers and endpoints

	mu      sync.Mutex         // guards sources
	sources map[string]*source // by issuer; len(sources) ≤ maxClaimIssuers
}

// endpoint is an entry of the claim _claim_sources.
type endpoint struct {
	URL         string `json:"endpoint,omitempty"`
	AccessToken string `json:"access_token,omitempty"`
}

// expand adds the claim if the token names an endpoint for it, and does not have the claim itself.
func (d *distributed) expand(ctx context.Context, c claims) error {
	if c.has(d.claim) || !c.has("_claim_names") {
		return nil
	}
	var names map[string]string
	if err := c.read("_claim_names", &names); err != nil {
		return fmt.Errorf("oidc: error parsing distributed claim names: %w", err)
	}
	if !c.has("_claim_sources") {
		return errors.New("oidc: no claim sources")
	}
	var sources map[string]endpoint
	if err := c.read("_claim_sources", &sources); err != nil {
		return fmt.Errorf("oidc: could not parse claim sources: %w", err)
	}
	name, ok := names[d.claim]
	if !ok {
		return nil
	}
	at, ok := sources[name]
	switch {
	case !ok:
		return fmt.Errorf("id token _claim_names contained a source %s missing in _claims_sources", name)
	case at.URL == "": // an aggregated claim, maybe
		return nil
	}
	value, err := d.resolve(ctx, at)
	if err == nil {
		c[d.claim] = value
	}
	return err
}

// resolve returns the value of the claim at an endpoint.
func (d *distributed) resolve(ctx context.Context, at endpoint) (json.RawMessage, error) {
	token, err := d.get(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("while getting distributed claim %q: %w", d.claim, err)
	}
	issuer, err := issuerOf(token)
	if err != nil {
		return nil, fmt.Errorf("getting untrusted issuer from endpoint %v failed for claim %q: %w", at.URL, d.claim, err)
	}
	v := d.source(issuer).verifier()
	if v == nil {
		return nil, fmt.Errorf("verifying untrusted issuer %v failed: verifier not initialized for issuer: %q",
			issuer, issuer)
	}
	c, err := v.verify(ctx, token)
	if err != nil {
		return nil, fmt.Errorf("verify distributed claim token: %w", err)
	}
	value, ok := c[d.claim]
	if !ok {
		return nil, fmt.Errorf("jwt returned by distributed claim endpoint %q did not contain claim: %v", at.URL, d.claim)
	}
	return value, nil
}

// source returns the source of the keys of an issuer. Beyond maxClaimIssuers, it is one that never has keys.
func (d *distributed) source(issuer string) *source {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sources[issuer]
	if s == nil {
		s = d.by.of(issuer)
		if len(d.sources) >= maxClaimIssuers {
			return s
		}
		if d.sources == nil {
			d.sources = map[string]*source{}
		}
		d.sources[issuer] = s
		go s.run(d.ctx)
	}
	return s
}

func (d *distributed) get(ctx context.Context, at endpoint) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL, nil)
	if err != nil {
		return "", fmt.Errorf("while calling %v: %w", at.URL, err)
	}
	if at.AccessToken != "" {
		request.Header.Set("Authorization", "Bearer "+at.AccessToken)
	}
	response, err := d.by.client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	if response.StatusCode < http.StatusOK || response.StatusCode > http.StatusIMUsed {
		return "", fmt.Errorf("error while getting distributed claim JWT: %v", response.Status)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", errors.New("could not decode distributed claim response")
	}
	return string(text), nil
}

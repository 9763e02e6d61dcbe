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

// maxClaimIssuers bounds the issuers of distributed claims, whose names come from what endpoints answer.
const maxClaimIssuers = 32

// distributed gets a claim from where a token says that it is (OpenID Connect Core 1.0, 5.6.2): the token names an
// endpoint, and what the endpoint answers is a token, too, whose issuer is asked for its keys when it is met for the
// first time. Until it has answered, the claim cannot be got.
type distributed struct {
	ctx   context.Context
	claim string
	by    *source // how issuers and endpoints are asked

	mu      sync.Mutex
	sources map[string]*source // by issuer
}

// endpoint is where a claim is.
type endpoint struct {
	URL         string `json:"endpoint,omitempty"`
	AccessToken string `json:"access_token,omitempty"`
}

// expand adds the claim if it is elsewhere. A claim that is there itself, and one that is nowhere, are left as they
// are.
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

// resolve is the claim as an endpoint has it.
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

// source is the source of the keys of an issuer.
func (d *distributed) source(issuer string) *source {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sources[issuer]
	if s == nil {
		s = d.by.of(issuer)
		if len(d.sources) >= maxClaimIssuers { // it is never asked
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

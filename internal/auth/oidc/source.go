package oidc

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	oidclib "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"plinth/internal/execution"
)

const (
	// discoveryInterval is the delay before a discovery that has failed is tried again.
	discoveryInterval = 10 * time.Second
	// requestTimeout limits a request to an issuer.
	requestTimeout = 30 * time.Second
	// maxDocument limits the response of an issuer, in bytes.
	maxDocument = 4 << 20
	// leeway is how much earlier than its nbf a token is accepted.
	leeway = time.Minute

	discoveryPath = "/.well-known/openid-configuration"
)

// source discovers where the keys of an issuer are.
type source struct {
	issuer    string
	audiences []string
	config    Config
	client    *http.Client

	found  atomic.Pointer[verifier] // nil until the discovery has succeeded
	failed atomic.Pointer[error]    // the last error of the discovery
}

// newSource creates a source. It sends no request before run.
func newSource(i *Issuer, config Config) (*source, error) {
	if i.EgressSelectorType != "" {
		return nil, fmt.Errorf("oidc: egress lookup required with egress selector type %q", i.EgressSelectorType)
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if i.CertificateAuthority != "" {
		roots, err := authorities(i.CertificateAuthority)
		if err != nil {
			return nil, err
		}
		settings.RootCAs = roots
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: settings, TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true,
	}
	route := &route{by: transport}
	if i.DiscoveryURL != "" {
		to, err := url.Parse(i.DiscoveryURL)
		if err != nil {
			return nil, fmt.Errorf("oidc: invalid discovery URL: %w", err)
		}
		route.from, route.to = strings.TrimSuffix(i.URL, "/")+discoveryPath, to
	}
	return &source{
		issuer: i.URL, audiences: i.Audiences, config: config,
		client: &http.Client{Transport: route, Timeout: requestTimeout},
	}, nil
}

// of returns a source for another issuer, with the same HTTP client and without metrics.
func (s *source) of(issuer string) *source {
	quiet := s.config
	quiet.Metrics = nil
	return &source{issuer: issuer, audiences: s.audiences, config: quiet, client: s.client}
}

// run tries the discovery until it succeeds or ctx ends.
func (s *source) run(ctx context.Context) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-retry.C:
		}
		v, err := s.discover(ctx)
		if err == nil {
			s.found.Store(v)
			return
		}
		s.failed.Store(&err)
		if ctx.Err() == nil {
			s.config.Logger.Error("the discovery of an OpenID Connect issuer failed; its tokens are refused until it succeeds",
				"issuer", s.issuer, "error", err)
		}
		retry.Reset(discoveryInterval)
	}
}

// verifier returns the verifier of the issuer's tokens; nil if the discovery has not succeeded yet.
func (s *source) verifier() *verifier { return s.found.Load() }

// healthy returns the reason why the discovery has not succeeded yet.
func (s *source) healthy() error {
	if s.found.Load() != nil {
		return nil
	}
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return fmt.Errorf("oidc: authenticator for issuer %q is not initialized", s.issuer)
}

func (s *source) discover(ctx context.Context) (*verifier, error) {
	provider, err := oidclib.NewProvider(oidclib.ClientContext(ctx, s.client), s.issuer)
	if err != nil {
		return nil, err
	}
	var document struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&document); err != nil {
		return nil, err
	}
	if document.Keys == "" {
		return nil, errors.New("provider did not return JWKS URL")
	}
	client := s.client
	if s.config.Metrics != nil {
		client = &http.Client{Timeout: client.Timeout, Transport: &watched{
			by: client.Transport, url: document.Keys, told: func(keys []byte) { s.config.Metrics.Fetched(s.issuer, keys) },
			ctx: ctx,
		}}
	}
	keys := oidclib.NewRemoteKeySet(oidclib.ClientContext(ctx, client), document.Keys)
	v := &verifier{audiences: s.audiences, algorithms: s.config.Algorithms, now: s.config.Now}
	if provider.Claims(&v.at) != nil { // the keys are good all the same
		v.at = endpoints{}
	}
	for _, a := range v.algorithms {
		v.taken = append(v.taken, jose.SignatureAlgorithm(a))
	}
	c := &oidclib.Config{SupportedSigningAlgs: v.algorithms, Now: v.now}
	if len(s.audiences) == 1 {
		c.ClientID = s.audiences[0]
	} else { // the library supports only one audience
		c.SkipClientIDCheck = true
	}
	v.by = oidclib.NewVerifier(s.issuer, keys, c)
	return v, nil
}

// verifier verifies the tokens of one issuer.
type verifier struct {
	by         *oidclib.IDTokenVerifier
	audiences  []string
	algorithms []string
	taken      []jose.SignatureAlgorithm
	now        func() time.Time
	at         endpoints // where users sign in
}

// verify returns the claims of a token, if its issuer has signed it for one of the audiences, and it is valid now. The
// library is newer than that of the reference: it has another message for an algorithm that is not accepted, and
// accepts tokens up to five minutes before their nbf, so that both are checked here.
func (v *verifier) verify(ctx context.Context, token string) (claims, error) {
	var algorithm *jose.ErrUnexpectedSignatureAlgorithm
	if _, err := jose.ParseSignedCompact(compact(token), v.taken); errors.As(err, &algorithm) {
		return nil, fmt.Errorf("oidc: id token signed with unsupported algorithm, expected %q got %q", v.algorithms,
			algorithm.Got)
	}
	verified, err := v.by.Verify(ctx, token)
	if err != nil {
		return nil, err
	}
	var c claims
	if err := verified.Claims(&c); err != nil {
		return nil, fmt.Errorf("oidc: parse claims: %w", err)
	}
	if early, ok := notBefore(c); ok && v.now().Add(leeway).Before(early) {
		return nil, fmt.Errorf("oidc: current time %v before the nbf (not before) time: %v", v.now(), early)
	}
	if !slices.ContainsFunc(verified.Audience, func(a string) bool { return slices.Contains(v.audiences, a) }) {
		return nil, fmt.Errorf("oidc: expected audience in %q got %q", sorted(v.audiences), verified.Audience)
	}
	return c, nil
}

// compact returns a token without white space, which the reference ignores.
func compact(token string) string { return strings.Join(strings.Fields(token), "") }

// notBefore returns the time in the claim nbf; ok is false if there is none. The library has checked that it is a
// number.
func notBefore(c claims) (time.Time, bool) {
	var at *json.Number
	if c.read("nbf", &at) != nil || at == nil {
		return time.Time{}, false
	}
	seconds, err := at.Int64()
	if err != nil {
		fraction, err := at.Float64()
		if err != nil {
			return time.Time{}, false
		}
		seconds = int64(fraction)
	}
	return time.Unix(seconds, 0), true
}

// route sends the request for the discovery document to discoveryURL, and limits all responses to maxDocument.
type route struct {
	by   http.RoundTripper
	from string   // the URL that the library requests; "": there is no discoveryURL
	to   *url.URL // discoveryURL
}

// RoundTrip implements http.RoundTripper.
func (r *route) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.from != "" && request.Method == http.MethodGet && request.URL.String() == r.from {
		request = request.Clone(request.Context())
		request.Host, request.URL = "", r.to
	}
	execution.AssertOutside(request.Context(), "an issuer of tokens")
	response, err := r.by.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	response.Body = &bounded{response.Body, maxDocument}
	return response, nil
}

// bounded is a body of which no more than left bytes are read.
type bounded struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the response is longer than %d bytes", maxDocument)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// watched reports the keys that the library fetches, for metrics.
type watched struct {
	by   http.RoundTripper
	url  string            // of the keys
	told func(keys []byte) // gets nil if they could not be fetched
	ctx  context.Context   // ends with the authenticator; then nothing is reported
}

// RoundTrip implements http.RoundTripper.
func (w *watched) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.by.RoundTrip(request)
	if request.URL.String() != w.url || w.ctx.Err() != nil {
		return response, err
	}
	if err != nil || response.StatusCode != http.StatusOK {
		w.told(nil)
		return response, err
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // it was read
	var set jose.JSONWebKeySet
	if err != nil || json.Unmarshal(text, &set) != nil {
		w.told(nil)
	} else {
		w.told(text)
	}
	response.Body = io.NopCloser(strings.NewReader(string(text)))
	return response, err
}

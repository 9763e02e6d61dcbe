package server

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/auth"
	"plinth/internal/auth/oidc"
	"plinth/internal/authz"
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

// configuration converts the flags to an AuthenticationConfiguration.
func (o *OIDC) configuration() (*oidc.Configuration, error) {
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
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, err
		}
		a.Issuer.CertificateAuthority = string(text)
	}
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
func (s *Server) jwtAuthenticator(to *auth.Config) (auth.Tokens, error) {
	c := &s.config
	to.NoAnonymous = !c.AnonymousAuth || slices.Contains(c.AuthorizationModes, string(authz.AlwaysAllow))
	configured, err := c.OIDC.configuration()
	var text []byte
	algorithms := c.OIDC.SigningAlgs
	if c.AuthenticationConfig != "" {
		algorithms = nil
		configured, text, err = oidc.Load(c.AuthenticationConfig)
	}
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
	s.issuerMetrics = newIssuerMetrics(text)
	s.jwt, err = oidc.NewReloader(configured, text, oidc.Config{
		Own: c.issuers(), Algorithms: algorithms, Logger: c.Logger, Now: to.Now, Metrics: s.issuerMetrics.hooks(),
	}, oidc.Reloads{Reloaded: s.issuerMetrics.reloaded, Removed: s.issuerMetrics.removed})
	if err != nil {
		return nil, err
	}
	return s.jwt, nil
}

// hostname is the name of the machine; "" if it is unknown.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// issuerMetrics counts authentication by OpenID Connect issuers. They are registered only if an issuer may be
// configured.
type issuerMetrics struct {
	*reloadMetrics
	took    *prometheus.HistogramVec
	fetched *prometheus.GaugeVec
	keys    *prometheus.GaugeVec
	mu      sync.Mutex
	hashes  map[string]string // hash of the current keys of each issuer
}

func newIssuerMetrics(text []byte) *issuerMetrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	f := &issuerMetrics{
		reloadMetrics: newReloadMetrics("authentication"), hashes: map[string]string{},
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_authentication_jwt_authenticator_latency_seconds",
			Help:    "Authentication of JSON Web Tokens that were not remembered.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"result", "jwt_issuer_hash"}),
		fetched: gauge("apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds",
			"When the keys of an issuer were fetched last, by the result.", "result", "jwt_issuer_hash", "apiserver_id_hash"),
		keys: gauge("apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info",
			"The keys of an issuer that were fetched last, by their hash.", "jwt_issuer_hash", "apiserver_id_hash", "hash"),
	}
	if text != nil {
		f.configured(text)
	}
	return f
}

func hashOf(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text))
}

func (f *issuerMetrics) all() []prometheus.Collector {
	return append(f.reloadMetrics.all(), f.took, f.fetched, f.keys)
}

// hooks are the functions by which authenticators report.
func (f *issuerMetrics) hooks() *oidc.Metrics {
	result := map[bool]string{true: "success", false: "failure"}
	return &oidc.Metrics{
		Authenticated: func(issuer string, ok bool, took time.Duration) {
			f.took.WithLabelValues(result[ok], hashOf([]byte(issuer))).Observe(took.Seconds())
		},
		Fetched: func(issuer string, keys []byte) {
			of := hashOf([]byte(issuer))
			f.fetched.WithLabelValues(result[keys != nil], of, f.server).SetToCurrentTime()
			if keys == nil {
				return
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.keys.DeleteLabelValues(of, f.server, f.hashes[issuer])
			f.hashes[issuer] = hashOf(keys)
			f.keys.WithLabelValues(of, f.server, f.hashes[issuer]).Set(1)
		},
	}
}

// reloaded counts an attempt to reload the configuration, whose text is the one in use if err is nil.
func (f *issuerMetrics) reloaded(text []byte, err error) {
	if err == nil {
		f.configured(text)
	}
	f.reloadMetrics.reloaded(err == nil)
}

// removed deletes the metrics of issuers that are no longer configured.
func (f *issuerMetrics) removed(issuers []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, issuer := range issuers {
		of := prometheus.Labels{"jwt_issuer_hash": hashOf([]byte(issuer))}
		f.fetched.DeletePartialMatch(of)
		f.keys.DeletePartialMatch(of)
		delete(f.hashes, issuer)
	}
}

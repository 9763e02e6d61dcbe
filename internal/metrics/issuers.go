package metrics

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/auth/oidc"
)

// Issuers count authentication by OpenID Connect issuers. They are registered only if an issuer may be
// configured.
type Issuers struct {
	*Reloads
	took    *prometheus.HistogramVec
	fetched *prometheus.GaugeVec
	keys    *prometheus.GaugeVec
	mu      sync.Mutex
	hashes  map[string]string // hash of the current keys of each issuer
}

// NewIssuers makes metrics of a server with this identity. text is its configuration; nil: there is none.
func NewIssuers(identity string, text []byte) *Issuers {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	f := &Issuers{
		Reloads: newReloads(identity, "authentication"), hashes: map[string]string{},
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
		f.Configured(text)
	}
	return f
}

// hashOf is a text as the reference shows it in labels; "" for no text.
func hashOf(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text))
}

// Collectors are what /metrics shows.
func (f *Issuers) Collectors() []prometheus.Collector {
	return append(f.Reloads.Collectors(), f.took, f.fetched, f.keys)
}

// Hooks are the functions by which authenticators report.
func (f *Issuers) Hooks() *oidc.Metrics {
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

// Reloaded counts an attempt to reload the configuration, whose text is the one in use if err is nil.
func (f *Issuers) Reloaded(text []byte, err error) {
	if err == nil {
		f.Configured(text)
	}
	f.Reloads.Reloaded(err == nil)
}

// Removed deletes the metrics of issuers that are no longer configured.
func (f *Issuers) Removed(issuers []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, issuer := range issuers {
		of := prometheus.Labels{"jwt_issuer_hash": hashOf([]byte(issuer))}
		f.fetched.DeletePartialMatch(of)
		f.keys.DeletePartialMatch(of)
		delete(f.hashes, issuer)
	}
}

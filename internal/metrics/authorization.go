package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/authz"
)

// Authorization count decisions of authorizers, calls of their webhooks, and reloads of their configuration.
// Names are the reference's.
type Authorization struct {
	*Reloads
	decisions, evaluations, failOpen, matchErrors, matchExclusions *prometheus.CounterVec
	took, matchTook                                                *prometheus.HistogramVec
}

// NewAuthorization makes metrics of a server with this identity.
func NewAuthorization(identity string) *Authorization {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "apiserver", Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "apiserver", Name: name, Help: help,
			Buckets: buckets}, labels)
	}
	f := &Authorization{
		Reloads: newReloads(identity, "authorization"),
		decisions: counter("authorization_decisions_total", "Requests that an authorizer has allowed or denied.", "type",
			"name", "decision"),
		evaluations: counter("authorization_webhook_evaluations_total", "Calls of authorization webhooks.", "name", "result"),
		took: histogram("authorization_webhook_duration_seconds", "Time of calls of authorization webhooks.",
			prometheus.DefBuckets,
			"name", "result"),
		failOpen: counter("authorization_webhook_evaluations_fail_open_total",
			"Requests about which an authorization webhook had no opinion because it failed.", "name", "result"),
		matchErrors: counter("authorization_match_condition_evaluation_errors_total",
			"Requests for which match conditions of an authorizer failed.", "type", "name"),
		matchExclusions: counter("authorization_match_condition_exclusions_total",
			"Requests about which an authorizer was not asked because of its match conditions.", "type", "name"),
		matchTook: histogram("authorization_match_condition_evaluation_seconds",
			"Time in which match conditions of an authorizer were evaluated.",
			[]float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25}, "type", "name"),
	}
	return f
}

// Collectors are what /metrics shows.
func (f *Authorization) Collectors() []prometheus.Collector {
	return append(f.Reloads.Collectors(),
		f.decisions, f.evaluations, f.took, f.failOpen, f.matchErrors, f.matchExclusions, f.matchTook)
}

// Hooks are the functions by which package authz reports.
func (f *Authorization) Hooks() authz.Metrics {
	return authz.Metrics{
		Decisions: func(mode, name string) (allowed, denied func()) {
			return f.decisions.WithLabelValues(mode, name, "allowed").Inc, f.decisions.WithLabelValues(mode, name, "denied").Inc
		},
		Evaluated: func(name, result string, took time.Duration) {
			f.evaluations.WithLabelValues(name, result).Inc()
			f.took.WithLabelValues(name, result).Observe(took.Seconds())
		},
		FailedOpen: func(name, result string) { f.failOpen.WithLabelValues(name, result).Inc() },
		Matched: func(mode, name string, took time.Duration, failed, excluded bool) {
			f.matchTook.WithLabelValues(mode, name).Observe(took.Seconds())
			if failed {
				f.matchErrors.WithLabelValues(mode, name).Inc()
			}
			if excluded {
				f.matchExclusions.WithLabelValues(mode, name).Inc()
			}
		},
		Configured: f.Configured, Reloaded: f.Reloaded,
	}
}

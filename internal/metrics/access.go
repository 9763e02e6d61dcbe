package metrics

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/access"
)

// accessMetrics count the results of authentication and authorization.
type accessMetrics struct {
	authentication, authorization *outcomes
	users                         *prometheus.CounterVec
	names                         map[string]prometheus.Counter // by the label username
}

// outcomes count results and measure their time, by result. The metrics of each result are kept, because a look-up by
// label costs more than the counting.
type outcomes struct {
	counts   *prometheus.CounterVec
	took     *prometheus.HistogramVec
	byResult map[string]outcome
}

type outcome struct {
	count prometheus.Counter
	took  prometheus.Observer
}

func newOutcomes(count, duration, help string, results ...string) *outcomes {
	o := &outcomes{
		counts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: count, Help: help}, []string{"result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: duration, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"result"}),
		byResult: map[string]outcome{},
	}
	for _, result := range results {
		o.byResult[result] = outcome{o.counts.WithLabelValues(result), o.took.WithLabelValues(result)}
	}
	return o
}

func (o *outcomes) observe(result string, took time.Duration) {
	of := o.byResult[result]
	of.count.Inc()
	of.took.Observe(took.Seconds())
}

// wellKnown are the user names that the reference uses as labels. All others are counted as "email_id" if the name
// contains @, else as "other": clients choose their names, so names as labels would be unbounded.
var wellKnown = []string{"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"}

func newAccessMetrics() *accessMetrics {
	f := &accessMetrics{
		authentication: newOutcomes("authentication_attempts", "authentication_duration_seconds",
			"Authentication of requests, by its result.",
			"success", "error"),
		authorization: newOutcomes("authorization_attempts_total", "authorization_duration_seconds",
			"Authorization of requests, by its result.",
			"allowed", "denied", "no-opinion", "error"),
		users: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authenticated_user_requests", Help: "Authenticated requests, by well-known users.",
		}, []string{"username"}),
		names: map[string]prometheus.Counter{},
	}
	for _, name := range append([]string{"email_id", "other"}, wellKnown...) {
		f.names[name] = f.users.WithLabelValues(name)
	}
	return f
}

func (f *accessMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{f.authentication.counts, f.authentication.took, f.authorization.counts,
		f.authorization.took, f.users}
}

func (f *accessMetrics) authenticated(result string, user *access.User, took time.Duration) {
	f.authentication.observe(result, took)
	if result != "success" {
		return
	}
	name := "other"
	switch {
	case slices.Contains(wellKnown, user.Name):
		name = user.Name
	case strings.Contains(user.Name, "@"):
		name = "email_id"
	}
	f.names[name].Inc()
}

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/audit"
)

// auditMetrics reads the counters of auditing when /metrics is requested.
type auditMetrics struct{ counters *audit.Counters }

// Audit are the metrics of auditing; nil is an auditor that is off.
func Audit(a *audit.Auditor) prometheus.Collector {
	if a == nil {
		return auditMetrics{&audit.Counters{}}
	}
	return auditMetrics{&a.Counters}
}

var (
	auditEvents = prometheus.NewDesc("apiserver_audit_event_total", "Audit events handed to the backends.", nil, nil)
	auditErrors = prometheus.NewDesc("apiserver_audit_error_total",
		"Audit events that were lost, by the plugin that lost them.", []string{"plugin"}, nil)
	auditLevels = prometheus.NewDesc("apiserver_audit_level_total",
		"Requests by the level that the audit policy gives them.", []string{"level"}, nil)
	auditRejected = prometheus.NewDesc("apiserver_audit_requests_rejected_total",
		"Requests refused because they could not be recorded.", nil, nil)
)

// Describe implements prometheus.Collector.
func (auditMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{auditEvents, auditErrors, auditLevels, auditRejected} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (f auditMetrics) Collect(to chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(auditEvents, f.counters.Events.Load())
	count(auditRejected, f.counters.Rejected.Load())
	for level, n := range f.counters.Levels {
		count(auditLevels, n, level)
	}
	for plugin, n := range f.counters.Errors {
		count(auditErrors, n, plugin)
	}
}

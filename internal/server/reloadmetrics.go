package server

import "github.com/prometheus/client_golang/prometheus"

// reloadMetrics count reloads of a configuration file, and report the hash of the configuration in use. Names are
// the reference's.
type reloadMetrics struct {
	server       string // the hash of the server's identity
	reloads      *prometheus.CounterVec
	last, config *prometheus.GaugeVec
}

// newReloadMetrics creates the metrics of the configuration of "authentication", "authorization",
// "encryption" or "manifest_admission". by are further labels, whose values are given by with.
func newReloadMetrics(of string, by ...string) *reloadMetrics {
	subsystem := of + "_config_controller"
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "apiserver", Subsystem: subsystem, Name: name,
			Help: help}, append(by[:len(by):len(by)], labels...))
	}
	return &reloadMetrics{
		server: hashOf([]byte(identityOf(hostname(), "kube-apiserver"))),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "apiserver", Subsystem: subsystem, Name: "automatic_reloads_total",
			Help: "Reloads of the " + of + " configuration, by the result.",
		}, append(by[:len(by):len(by)], "status", "apiserver_id_hash")),
		last: gauge("automatic_reload_last_timestamp_seconds",
			"When the "+of+" configuration was reloaded last, by the result.", "status", "apiserver_id_hash"),
		config: gauge("last_config_info", "The "+of+" configuration in use, by its hash.", "apiserver_id_hash", "hash"),
	}
}

func (m *reloadMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.reloads, m.last, m.config}
}

// with returns the metrics of one value of a further label.
func (m *reloadMetrics) with(label, value string) *reloadMetrics {
	of := prometheus.Labels{label: value}
	return &reloadMetrics{server: m.server, reloads: m.reloads.MustCurryWith(of), last: m.last.MustCurryWith(of),
		config: m.config.MustCurryWith(of)}
}

// configured records which configuration is in use.
func (m *reloadMetrics) configured(text []byte) { m.configuredAs(hashOf(text)) }

// configuredAs does so by the configuration's hash.
func (m *reloadMetrics) configuredAs(hash string) {
	m.config.DeletePartialMatch(prometheus.Labels{"apiserver_id_hash": m.server})
	m.config.WithLabelValues(m.server, hash).Set(1)
}

// reloaded counts an attempt to reload the configuration.
func (m *reloadMetrics) reloaded(ok bool) {
	status := "failure"
	if ok {
		status = "success"
	}
	m.reloads.WithLabelValues(status, m.server).Inc()
	m.last.WithLabelValues(status, m.server).SetToCurrentTime()
}

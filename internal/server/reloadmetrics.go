package server

import "github.com/prometheus/client_golang/prometheus"

// reloadMetrics count reloads of a configuration file, and report the hash of the configuration in use. Names are
// the reference's.
type reloadMetrics struct {
	server       string // the hash of the server's identity
	reloads      *prometheus.CounterVec
	last, config *prometheus.GaugeVec
}

// newReloadMetrics creates the metrics of the configuration of "authentication" or "authorization".
func newReloadMetrics(of string) *reloadMetrics {
	subsystem := of + "_config_controller"
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "apiserver", Subsystem: subsystem, Name: name,
			Help: help}, labels)
	}
	return &reloadMetrics{
		server: hashOf([]byte(identity(hostname()))),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "apiserver", Subsystem: subsystem, Name: "automatic_reloads_total",
			Help: "Reloads of the " + of + " configuration, by the result.",
		}, []string{"status", "apiserver_id_hash"}),
		last: gauge("automatic_reload_last_timestamp_seconds",
			"When the "+of+" configuration was reloaded last, by the result.", "status", "apiserver_id_hash"),
		config: gauge("last_config_info", "The "+of+" configuration in use, by its hash.", "apiserver_id_hash", "hash"),
	}
}

func (m *reloadMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.reloads, m.last, m.config}
}

// configured records which configuration is in use.
func (m *reloadMetrics) configured(text []byte) {
	m.config.Reset()
	m.config.WithLabelValues(m.server, hashOf(text)).Set(1)
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

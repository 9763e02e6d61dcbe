package metrics

import "github.com/prometheus/client_golang/prometheus"

// Reloads count reloads of a configuration file, and report the hash of the configuration in use. Names are
// the reference's.
type Reloads struct {
	server       string // the hash of the server's identity
	reloads      *prometheus.CounterVec
	last, config *prometheus.GaugeVec
}

// newReloads creates the metrics of a server with this identity, of the configuration of "authentication",
// "authorization", "encryption" or "manifest_admission". by are further labels, whose values are given by with.
func newReloads(identity, of string, by ...string) *Reloads {
	subsystem := of + "_config_controller"
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "apiserver", Subsystem: subsystem, Name: name,
			Help: help}, append(by[:len(by):len(by)], labels...))
	}
	return &Reloads{
		server: hashOf([]byte(identity)),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "apiserver", Subsystem: subsystem, Name: "automatic_reloads_total",
			Help: "Reloads of the " + of + " configuration, by the result.",
		}, append(by[:len(by):len(by)], "status", "apiserver_id_hash")),
		last: gauge("automatic_reload_last_timestamp_seconds",
			"When the "+of+" configuration was reloaded last, by the result.", "status", "apiserver_id_hash"),
		config: gauge("last_config_info", "The "+of+" configuration in use, by its hash.", "apiserver_id_hash", "hash"),
	}
}

// Collectors are what /metrics shows.
func (m *Reloads) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.reloads, m.last, m.config}
}

// with returns the metrics of one value of a further label.
func (m *Reloads) with(label, value string) *Reloads {
	of := prometheus.Labels{label: value}
	return &Reloads{server: m.server, reloads: m.reloads.MustCurryWith(of), last: m.last.MustCurryWith(of),
		config: m.config.MustCurryWith(of)}
}

// Configured records which configuration is in use.
func (m *Reloads) Configured(text []byte) { m.ConfiguredAs(hashOf(text)) }

// ConfiguredAs does so by the configuration's hash.
func (m *Reloads) ConfiguredAs(hash string) {
	m.config.DeletePartialMatch(prometheus.Labels{"apiserver_id_hash": m.server})
	m.config.WithLabelValues(m.server, hash).Set(1)
}

// Reloaded counts an attempt to reload the configuration.
func (m *Reloads) Reloaded(ok bool) {
	status := "failure"
	if ok {
		status = "success"
	}
	m.reloads.WithLabelValues(status, m.server).Inc()
	m.last.WithLabelValues(status, m.server).SetToCurrentTime()
}

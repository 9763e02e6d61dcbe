package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/nodes"
)

// Nodes are the metrics of requests that go on to nodes. Names and labels are the reference's.
type Nodes struct {
	streaming, translated, tunneled, logs *prometheus.CounterVec
	unverified                            prometheus.Counter
}

// NewNodes makes metrics that have counted nothing yet.
func NewNodes() *Nodes {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Nodes{
		streaming: counter("apiserver_websocket_streaming_requests_total",
			"Requests to exec, attach and portforward, and whether the kubelet gets their WebSockets itself.", "subresource",
			"proxy_type"),
		translated: counter("apiserver_stream_translator_requests_total",
			"WebSockets of exec and attach that this server translates, by how they have ended.", "code"),
		tunneled: counter("apiserver_stream_tunnel_requests_total",
			"WebSockets of portforward that this server translates, by how they were answered.", "code"),
		logs: counter("kube_apiserver_pod_logs_insecure_backend_total",
			"Requests for logs, and whether the certificate of the kubelet counts.", "usage"),
		unverified: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kube_apiserver_pod_logs_backend_tls_failure_total",
			Help: "Requests for logs that have failed because of the certificate of the kubelet.",
		}),
	}
}

// Collectors are what /metrics shows.
func (f *Nodes) Collectors() []prometheus.Collector {
	return []prometheus.Collector{f.streaming, f.translated, f.tunneled, f.logs, f.unverified}
}

// Hooks are the functions by which package nodes reports.
func (f *Nodes) Hooks() nodes.Metrics {
	return nodes.Metrics{
		Streaming: func(subresource string, toKubelet bool) {
			by := "translated_at_apiserver"
			if toKubelet {
				by = "proxied_to_kubelet"
			}
			f.streaming.WithLabelValues(subresource, by).Inc()
		},
		Translated: func(code int) { f.translated.WithLabelValues(strconv.Itoa(code)).Inc() },
		Tunneled:   func(code int) { f.tunneled.WithLabelValues(strconv.Itoa(code)).Inc() },
		Log: func(insecure bool) {
			usage := "enforce_tls"
			if insecure {
				usage = "skip_tls_allowed"
			}
			f.logs.WithLabelValues(usage).Inc()
		},
		LogUnverified: f.unverified.Inc,
	}
}

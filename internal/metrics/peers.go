package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/discovery"
	"plinth/internal/peerproxy"
)

// Peers are the metrics of requests to other servers on the same etcd. Names and labels are the reference's.
type Peers struct{ rerouted, failed, unsynced *prometheus.CounterVec }

// NewPeers makes metrics that have counted nothing yet.
func NewPeers() *Peers {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Peers{
		rerouted: counter("apiserver_rerouted_request_total",
			"Requests to other servers for resources that are not served here, by the code of the answer; without a resource, "+
				"those that ask what is served there.", "code", "group", "version", "resource"),
		failed: counter("apiserver_peer_proxy_errors_total",
			"Requests that could be sent to no other server.", "type", "group", "version", "resource"),
		unsynced: counter("apiserver_peer_discovery_sync_errors_total",
			"How often it could not be found out what another server serves.", "type"),
	}
}

// Hooks are the functions by which package peerproxy reports.
func (f *Peers) Hooks() peerproxy.Metrics {
	return peerproxy.Metrics{
		Rerouted: func(code int, group, version, resource string) {
			f.rerouted.WithLabelValues(strconv.Itoa(code), group, version, resource).Inc()
		},
		Unlocated: func(group, version, resource string) {
			f.failed.WithLabelValues("endpoint_resolution", group, version, resource).Inc()
		},
		SyncFailed: func(kind string) { f.unsynced.WithLabelValues(kind).Inc() },
	}
}

// Collectors are what /metrics shows.
func (f *Peers) Collectors(d *discovery.Documents) []prometheus.Collector {
	counter := func(name, help string, value func(before, now, noPeer int64) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "aggregator_discovery_" + name, Help: help},
			func() float64 { return float64(value(d.Merges())) })
	}
	return []prometheus.Collector{f.rerouted, f.failed, f.unsynced,
		counter("peer_aggregated_cache_hits_total", "Requests for what all servers serve that needed no new document.",
			func(before, _, _ int64) int64 { return before }),
		counter("peer_aggregated_cache_misses_total", "Documents of what all servers serve that were made.",
			func(_, now, _ int64) int64 { return now }),
		counter("nopeer_requests_total", "Requests for what this server serves alone.",
			func(_, _, noPeer int64) int64 { return noPeer }),
	}
}

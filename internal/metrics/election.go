package metrics

import "github.com/prometheus/client_golang/prometheus"

// Election is the metric of whether this server has the tasks that one of all servers has, under the name of client-go.
type Election struct{ leads *prometheus.GaugeVec }

// NewElection makes the metric.
func NewElection() *Election {
	return &Election{prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "leader_election_master_status",
		Help: "Whether this server holds the Lease: 1 if it does, 0 if another one does."}, []string{"name"})}
}

// Leads records whether the server holds a Lease.
func (e *Election) Leads(lease string, leads bool) {
	value := 0.0
	if leads {
		value = 1
	}
	e.leads.WithLabelValues(lease).Set(value)
}

// Collectors are what /metrics shows.
func (e *Election) Collectors() []prometheus.Collector { return []prometheus.Collector{e.leads} }

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/aggregation"
	"plinth/internal/discovery"
)

// Aggregation are the metrics of APIServices and of the servers behind them. Names and labels are the
// reference's.
type Aggregation struct{ lost *prometheus.CounterVec }

// NewAggregation makes metrics that have counted nothing yet.
func NewAggregation() *Aggregation {
	return &Aggregation{lost: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "aggregator_unavailable_apiservice_total", Help: "APIServices that became unavailable, by the reason.",
	}, []string{"name", "reason"})}
}

// Unavailable counts an APIService that is not available any more.
func (f *Aggregation) Unavailable(name, reason string) {
	f.lost.WithLabelValues(name, reason).Inc()
}

// Collectors are what /metrics shows.
func (f *Aggregation) Collectors(a *aggregation.Aggregator, d *discovery.Documents) []prometheus.Collector {
	counter := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value)
	}
	return append([]prometheus.Collector{f.lost, &unavailableMetric{a},
		counter("aggregator_discovery_aggregation_count_total",
			"How many times the discovery documents of all servers were put together.",
			func() float64 { return float64(d.Aggregations()) }),
	}, outdated("kube_aggregator", "aggregated API servers", &a.Outdated)...)
}

// unavailableMetric says of each APIService whether it is unavailable. It reads the objects, so every server reports
// the same, although only one of several asks the backends.
type unavailableMetric struct{ of *aggregation.Aggregator }

var unavailableDescription = prometheus.NewDesc("aggregator_unavailable_apiservice",
	"1 for an APIService that is unavailable, 0 for one that is available.", []string{"name"}, nil)

// Describe is prometheus.Collector.
func (m *unavailableMetric) Describe(to chan<- *prometheus.Desc) { to <- unavailableDescription }

// Collect is prometheus.Collector.
func (m *unavailableMetric) Collect(to chan<- prometheus.Metric) {
	for name, available := range m.of.Availability() {
		value := 1.0
		if available {
			value = 0
		}
		to <- prometheus.MustNewConstMetric(unavailableDescription, prometheus.GaugeValue, value, name)
	}
}

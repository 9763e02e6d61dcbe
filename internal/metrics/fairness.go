package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/execution"
	"plinth/internal/fairness"
)

// places are the metrics of the places in which requests execute.
func places(f *fairness.Fairness) []prometheus.Collector {
	gauge := func(name, help string, value func(*execution.Figures) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "plinth_" + name, Help: help}, func() float64 {
			figures := f.Places()
			return value(&figures)
		})
	}
	counter := func(name, help string, value func(*execution.Figures) float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "plinth_" + name, Help: help}, func() float64 {
			figures := f.Places()
			return value(&figures)
		})
	}
	return []prometheus.Collector{
		gauge("places", "Requests that may execute at one time.",
			func(f *execution.Figures) float64 { return float64(f.Places) }),
		gauge("places_held", "Requests that execute.", func(f *execution.Figures) float64 { return float64(f.Held) }),
		gauge("places_waiting", "Requests that wait for a place to execute.",
			func(f *execution.Figures) float64 { return float64(f.Waiting) }),
		counter("place_waits_total", "How often a request has waited for a place and got it.",
			func(f *execution.Figures) float64 { return float64(f.HandedOver) }),
		counter("place_wait_seconds_total", "How long requests have waited for places.",
			func(f *execution.Figures) float64 { return f.Waited.Seconds() }),
	}
}

// Fairness are the metrics of priority and fairness, and of the places in which requests execute.
func Fairness(f *fairness.Fairness) []prometheus.Collector {
	return append(places(f), fairnessMetrics{f})
}

// fairnessMetrics reads the figures of fairness when /metrics is requested.
type fairnessMetrics struct{ fairness *fairness.Fairness }

// fairnessDescs are the metrics by their names without the prefix.
var fairnessDescs = func() map[string]*prometheus.Desc {
	all := map[string]*prometheus.Desc{}
	for _, m := range fairness.Metrics() {
		all[m.Name] = prometheus.NewDesc("apiserver_flowcontrol_"+m.Name, m.Help, m.Labels, nil)
	}
	return all
}()

// Describe implements prometheus.Collector.
func (m fairnessMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range fairnessDescs {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (m fairnessMetrics) Collect(to chan<- prometheus.Metric) {
	for _, f := range m.fairness.Figures() {
		desc := fairnessDescs[f.Name]
		switch {
		case f.Counts != nil:
			to <- prometheus.MustNewConstHistogram(desc, f.Samples, f.Sum, f.Counts, f.Labels...)
		case strings.HasSuffix(f.Name, "_total"):
			to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, f.Value, f.Labels...)
		default:
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, f.Value, f.Labels...)
		}
	}
}

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/store/past"
)

// pastMetrics reads what a log says of its past when /metrics is requested.
type pastMetrics struct {
	stats func() past.Stats
	now   func() time.Time
}

// Past are the metrics of what is kept of changes for longer than watches need it.
func Past(stats func() past.Stats, now func() time.Time) prometheus.Collector {
	if now == nil {
		now = time.Now
	}
	return &pastMetrics{stats, now}
}

var (
	pastBytesDesc = prometheus.NewDesc("plinth_past_bytes", "Bytes of the files of the past.", nil, nil)
	pastPacksDesc = prometheus.NewDesc("plinth_past_packs", "Files of the past.", nil, nil)
	pastAgeDesc   = prometheus.NewDesc("plinth_past_seconds",
		"Age of the oldest change in the files of the past; 0 if there are none.", nil, nil)
	pastRevisionDesc = prometheus.NewDesc("plinth_past_revision",
		"The revision up to which changes are in the files of the past; those after it are in the log alone.", nil, nil)
	pastFailuresDesc = prometheus.NewDesc("plinth_past_failures_total",
		"Attempts to write the past to files that have failed.", nil, nil)
	pastFailingDesc = prometheus.NewDesc("plinth_past_failing_seconds",
		"For how long the past could not be written; 0 if the last attempt has succeeded.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *pastMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{pastBytesDesc, pastPacksDesc, pastAgeDesc, pastRevisionDesc, pastFailuresDesc,
		pastFailingDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *pastMetrics) Collect(to chan<- prometheus.Metric) {
	s, now := m.stats(), m.now()
	since := func(t time.Time) float64 {
		if t.IsZero() {
			return 0
		}
		return max(0, now.Sub(t).Seconds())
	}
	gauge := func(d *prometheus.Desc, value float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	gauge(pastBytesDesc, float64(s.Bytes))
	gauge(pastPacksDesc, float64(s.Packs))
	gauge(pastAgeDesc, since(s.Oldest))
	gauge(pastRevisionDesc, float64(s.Until))
	to <- prometheus.MustNewConstMetric(pastFailuresDesc, prometheus.CounterValue, float64(s.Failures))
	gauge(pastFailingDesc, since(s.Failing))
}

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/expiry"
)

// Care counts how a server looks after its files and its certificates.
type Care struct {
	reloads *prometheus.CounterVec
	left    prometheus.Histogram
	of      *expiry.Certificates
}

// NewCare makes metrics of these certificates, which have counted nothing yet.
func NewCare(of *expiry.Certificates) *Care {
	const day = 24 * 60 * 60
	return &Care{of: of,
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "plinth_file_reloads_total",
			Help: "How often files of a flag have changed, by whether what they contain is used."}, []string{"flag", "result"}),
		left: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "apiserver_client_certificate_expiration_seconds",
			Help: "How long the certificates of clients are still valid, of each request by one.",
			Buckets: []float64{0, 1800, 3600, 2 * 3600, 6 * 3600, day / 2, day, 2 * day, 4 * day, 7 * day, 30 * day, 90 * day,
				180 * day, 360 * day},
		}),
	}
}

// Reloaded counts a change of files.
func (m *Care) Reloaded(flag string, err error) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.reloads.WithLabelValues(flag, result).Inc()
}

// Used counts a request by a client whose certificate is still valid for a time.
func (m *Care) Used(left time.Duration) { m.left.Observe(left.Seconds()) }

// Collectors are what /metrics shows.
func (m *Care) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.reloads, m.left, expiryMetric{m.of}}
}

// expiryMetric shows when certificates expire.
type expiryMetric struct{ of *expiry.Certificates }

var expiryDescription = prometheus.NewDesc("plinth_certificate_expiration_timestamp_seconds",
	"When the certificates that the server uses expire, the first one of each use and file.", []string{"use", "file"}, nil)

// Describe is prometheus.Collector.
func (expiryMetric) Describe(to chan<- *prometheus.Desc) { to <- expiryDescription }

// Collect is prometheus.Collector.
func (m expiryMetric) Collect(to chan<- prometheus.Metric) {
	for _, u := range m.of.Uses() {
		to <- prometheus.MustNewConstMetric(expiryDescription, prometheus.GaugeValue, float64(u.First().NotAfter.Unix()),
			u.For, u.File)
	}
}

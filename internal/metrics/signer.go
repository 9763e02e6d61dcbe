package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/auth/externaljwt"
	"plinth/internal/grpcsocket"
)

// Signer are the metrics of the external signer of tokens. Names are the reference's. They are registered only with a
// signer.
type Signer struct {
	calls             *prometheus.HistogramVec
	fetches, signed   *prometheus.CounterVec
	fetched, ofSource *prometheus.GaugeVec
}

// NewSigner makes the metrics.
func NewSigner() *Signer {
	const name = "apiserver_externaljwt_"
	code := []string{"code"}
	return &Signer{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name + "request_duration_seconds", Help: "Time of the calls of the external signer of tokens.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"method", "code"}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name + "fetch_keys_request_total", Help: "Attempts to fetch the keys that verify tokens.",
		}, code),
		signed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name + "sign_request_total", Help: "Attempts to have a token signed.",
		}, code),
		fetched: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: name + "fetch_keys_success_timestamp", Help: "When the keys were fetched last.",
		}, nil),
		ofSource: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: name + "fetch_keys_data_timestamp",
			Help: "When the signer has read the keys at their source that were fetched last.",
		}, nil),
	}
}

// Collectors are what /metrics shows; nothing without a signer.
func (m *Signer) Collectors() []prometheus.Collector {
	if m == nil {
		return nil
	}
	return []prometheus.Collector{m.calls, m.fetches, m.signed, m.fetched, m.ofSource}
}

// Hooks are the functions by which package externaljwt reports.
func (m *Signer) Hooks() externaljwt.Metrics {
	return externaljwt.Metrics{
		Called: func(method string, took time.Duration, err error) {
			m.calls.WithLabelValues(method, grpcsocket.Code(err)).Observe(took.Seconds())
		},
		Fetched: func(timestamp time.Time, err error) {
			m.fetches.WithLabelValues(grpcsocket.Code(err)).Inc()
			if err == nil {
				m.fetched.WithLabelValues().SetToCurrentTime()
				m.ofSource.WithLabelValues().Set(float64(timestamp.UnixNano()) / 1e9)
			}
		},
		Signed: func(err error) { m.signed.WithLabelValues(grpcsocket.Code(err)).Inc() },
	}
}

package metrics

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/store/etcd"
)

// Etcd are the metrics of the requests to etcd, under the names of the reference, and about how far the state is
// behind.
type Etcd struct {
	requests, errors *prometheus.CounterVec
	received         *prometheus.CounterVec
	took             *prometheus.HistogramVec
	leases, waited   prometheus.Histogram
	age              prometheus.GaugeFunc
	confirmed        *atomic.Int64 // when the state was last known to be up to date, in ns since 1970
}

// NewEtcd makes metrics that have counted nothing yet.
func NewEtcd() *Etcd {
	labels := []string{"operation", "group", "resource"}
	confirmed := &atomic.Int64{}
	m := &Etcd{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "etcd_requests_total",
			Help: "Requests to etcd."}, labels),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "etcd_request_errors_total",
			Help: "Requests to etcd that failed."}, labels),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "etcd_request_duration_seconds",
			Help: "How long requests to etcd took.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30,
				45, 60},
		}, labels),
		received: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_storage_events_received_total",
			Help: "Events of watches of etcd."}, labels[1:]),
		leases: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "etcd_lease_object_counts",
			Help: "Objects that shared a lease.", Buckets: []float64{10, 50, 100, 500, 1000, 2500, 5000}}),
		age: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "plinth_etcd_copy_age_seconds",
			Help: "How long ago the server's copy of the objects is known to have had all that etcd had.",
		}, func() float64 { return time.Since(time.Unix(0, confirmed.Load())).Seconds() }),
		confirmed: confirmed,
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "plinth_etcd_wait_seconds",
			Help:    "How long requests waited until the server's copy of the objects had the revision of etcd that they need.",
			Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 3, 10}}),
	}
	m.errors.WithLabelValues("get", "", "") // a rate needs the zero before the first error
	return m
}

// Observe are the functions that count.
func (m *Etcd) Observe() etcd.Observe {
	return etcd.Observe{
		Request: func(operation, resource string, took time.Duration, err error) {
			group, name, _ := strings.Cut(resource, "/")
			m.requests.WithLabelValues(operation, group, name).Inc()
			m.took.WithLabelValues(operation, group, name).Observe(took.Seconds())
			if err != nil {
				m.errors.WithLabelValues(operation, group, name).Inc()
			}
		},
		Received: func(resource string) {
			group, name, _ := strings.Cut(resource, "/")
			m.received.WithLabelValues(group, name).Inc()
		},
		Confirmed: func(at time.Time) { m.confirmed.Store(at.UnixNano()) },
		Waited:    func(d time.Duration) { m.waited.Observe(d.Seconds()) },
		Lease:     func(keys int) { m.leases.Observe(float64(keys)) },
	}
}

// Collectors are what /metrics shows; none without an etcd, with a nil *Etcd.
func (m *Etcd) Collectors() []prometheus.Collector {
	if m == nil {
		return nil
	}
	return []prometheus.Collector{m.requests, m.errors, m.took, m.received, m.leases, m.waited, m.age}
}

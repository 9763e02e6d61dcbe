package server

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/store"
	"plinth/internal/store/etcd"
)

// etcdMetrics are about the requests to etcd, under the names of the reference, and about how far the state is behind.
type etcdMetrics struct {
	requests, errors *prometheus.CounterVec
	took             *prometheus.HistogramVec
	leases, waited   prometheus.Histogram
}

func newEtcdMetrics() *etcdMetrics {
	labels := []string{"operation", "group", "resource"}
	return &etcdMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "etcd_requests_total",
			Help: "Requests to etcd."}, labels),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "etcd_request_errors_total",
			Help: "Requests to etcd that failed."}, labels),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "etcd_request_duration_seconds",
			Help: "How long requests to etcd took.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30,
				45, 60},
		}, labels),
		leases: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "etcd_lease_object_counts",
			Help: "Objects that shared a lease.", Buckets: []float64{10, 50, 100, 500, 1000, 2500, 5000}}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "plinth_etcd_wait_seconds",
			Help:    "How long requests waited until the server's copy of the objects had the revision of etcd that they need.",
			Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 3, 10}}),
	}
}

// observe are the functions that count.
func (m *etcdMetrics) observe() etcd.Observe {
	return etcd.Observe{
		Request: func(operation, resource string, took time.Duration, err error) {
			group, name, _ := strings.Cut(resource, "/")
			m.requests.WithLabelValues(operation, group, name).Inc()
			m.took.WithLabelValues(operation, group, name).Observe(took.Seconds())
			if err != nil {
				m.errors.WithLabelValues(operation, group, name).Inc()
			}
		},
		Waited: func(d time.Duration) { m.waited.Observe(d.Seconds()) },
		Lease:  func(keys int) { m.leases.Observe(float64(keys)) },
	}
}

// collectors are what /metrics shows; none without an etcd.
func (m *etcdMetrics) collectors() []prometheus.Collector {
	if m == nil {
		return nil
	}
	return []prometheus.Collector{m.requests, m.errors, m.took, m.leases, m.waited}
}

// etcdHealth asks etcd whether it answers, once a second at most: probes of many balancers share an answer.
type etcdHealth struct {
	cluster *etcd.Cluster

	mu    sync.Mutex
	asked time.Time
	err   error
}

// check returns nil if etcd has answered within the last second, or does within timeout.
func (h *etcdHealth) check(ctx context.Context, timeout time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.asked) < time.Second {
		return h.err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if h.err = h.cluster.Check(ctx); ctx.Err() == nil || h.err == nil {
		h.asked = time.Now()
	}
	return h.err
}

// storeHealthy returns why the store cannot be used. timeout is for an etcd.
func (s *Server) storeHealthy(timeout time.Duration) func(context.Context) error {
	if s.etcd == nil {
		return func(context.Context) error { return s.store.Healthy() }
	}
	return etcdHealthy(s.etcd, s.store, timeout)
}

// etcdHealthy returns why a store in an etcd cannot be used.
func etcdHealthy(cluster *etcd.Cluster, of *store.Store, timeout time.Duration) func(context.Context) error {
	health := &etcdHealth{cluster: cluster}
	return func(ctx context.Context) error {
		if err := of.Healthy(); err != nil {
			return err
		}
		return health.check(ctx, timeout)
	}
}

// etcdSize is the size of etcd's files, asked for once in an interval.
type etcdSize struct {
	mu    sync.Mutex
	asked time.Time
	bytes int64
}

func (z *etcdSize) of(cluster *etcd.Cluster, interval time.Duration) int64 {
	z.mu.Lock()
	defer z.mu.Unlock()
	if time.Since(z.asked) >= interval {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if bytes, err := cluster.Size(ctx); err == nil {
			z.bytes, z.asked = bytes, time.Now()
		}
	}
	return z.bytes
}

package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/encryption"
	"plinth/internal/grpcsocket"
)

// Encryption are the metrics of the encryption at rest. Names are the reference's. They are registered only with a
// configuration.
type Encryption struct {
	*Reloads
	operations                  *prometheus.CounterVec
	took, calls                 *prometheus.HistogramVec
	misses, failures            prometheus.Counter
	made                        prometheus.Histogram
	used                        *prometheus.CounterVec
	usedAt, statusAt, keysKnown *prometheus.GaugeVec
	badStatus                   *prometheus.CounterVec

	mu sync.Mutex // guards the following
	// keys has the labels by key IDs that are kept. A plugin may change its key often.
	keys, statusKeys labelSets
}

// labelSets are the sets of labels of a metric that were used lately, oldest first.
type labelSets [][]string

// add adds a set as the newest one, and returns those that are dropped.
func (l *labelSets) add(labels []string) (dropped [][]string) {
	if i := slices.IndexFunc(*l, func(old []string) bool { return slices.Equal(old, labels) }); i >= 0 {
		*l = slices.Delete(*l, i, i+1)
	}
	if n := len(*l) - maxLabelSets + 1; n > 0 {
		dropped = slices.Clone((*l)[:n])
		*l = slices.Delete(*l, 0, n)
	}
	*l = append(*l, labels)
	return dropped
}

// maxLabelSets is how many are kept, as in the reference.
const maxLabelSets = 100

// NewEncryption makes metrics of a server with this identity.
func NewEncryption(identity string) *Encryption {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	const envelope = "apiserver_envelope_encryption_"
	const storage = "apiserver_storage_"
	return &Encryption{
		Reloads: newReloads(identity, "encryption"),
		operations: counter(storage+"transformation_operations_total",
			"Values that were encrypted or decrypted, by the result.",
			"resource", "transformation_type", "transformer_prefix", "status"),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: storage + "transformation_duration_seconds", Help: "Time to encrypt or decrypt a value.",
			Buckets: prometheus.ExponentialBuckets(5e-6, 2, 25),
		}, []string{"transformation_type", "transformer_prefix"}),
		misses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: storage + "envelope_transformation_cache_misses_total",
			Help: "Keys that a plugin had to decrypt, as they were not known.",
		}),
		made: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: storage + "data_key_generation_duration_seconds", Help: "Time to make a key.",
			Buckets: prometheus.ExponentialBuckets(5e-6, 2, 14),
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: storage + "data_key_generation_failures_total", Help: "Keys that could not be made.",
		}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: envelope + "kms_operations_latency_seconds", Help: "Time of the calls of plugins.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 20),
		}, []string{"provider_name", "method_name", "grpc_status_code"}),
		used: counter(envelope+"key_id_hash_total", "Values by the key of the plugin, as a hash of its ID.",
			"transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"),
		usedAt: gauge(envelope+"key_id_hash_last_timestamp_seconds", "When a key of a plugin was used last.",
			"transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"),
		statusAt: gauge(envelope+"key_id_hash_status_last_timestamp_seconds", "When a plugin has named a key last.",
			"provider_name", "key_id_hash", "apiserver_id_hash"),
		badStatus: counter(envelope+"invalid_key_id_from_status_total", "Invalid key IDs that a plugin has named.",
			"provider_name", "error"),
		keysKnown: gauge(envelope+"dek_source_cache_size", "Keys that are known, and need no call of the plugin.",
			"provider_name"),
	}
}

// Collectors are what /metrics shows.
func (m *Encryption) Collectors() []prometheus.Collector {
	return append(m.Reloads.Collectors(), m.operations, m.took, m.misses, m.made, m.failures, m.calls, m.used, m.usedAt,
		m.statusAt, m.badStatus, m.keysKnown)
}

// Hooks are the functions by which package encryption reports.
func (m *Encryption) Hooks() *encryption.Metrics {
	return &encryption.Metrics{
		Transformed: func(resource, direction, prefix string, took time.Duration, err error) {
			m.operations.WithLabelValues(resource, direction, prefix, grpcsocket.Code(err)).Inc()
			if err == nil {
				m.took.WithLabelValues(direction, prefix).Observe(took.Seconds())
			}
		},
		Called: func(provider, method string, took time.Duration, err error) {
			m.calls.WithLabelValues(provider, method, grpcsocket.Code(err)).Observe(took.Seconds())
		},
		CacheMiss: m.misses.Inc,
		KeyUsed: func(direction, provider, keyID string) {
			labels := []string{direction, provider, hashOf([]byte(keyID)), m.server}
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, old := range m.keys.add(labels) {
				m.used.DeleteLabelValues(old...)
				m.usedAt.DeleteLabelValues(old...)
			}
			m.used.WithLabelValues(labels...).Inc()
			m.usedAt.WithLabelValues(labels...).SetToCurrentTime()
		},
		StatusKey: func(provider, keyID string) {
			labels := []string{provider, hashOf([]byte(keyID)), m.server}
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, old := range m.statusKeys.add(labels) {
				m.statusAt.DeleteLabelValues(old...)
			}
			m.statusAt.WithLabelValues(labels...).SetToCurrentTime()
		},
		BadStatusKey: func(provider, code string) { m.badStatus.WithLabelValues(provider, code).Inc() },
		KeyMade:      func(took time.Duration) { m.made.Observe(took.Seconds()) },
		KeysCached:   func(provider string, n int) { m.keysKnown.WithLabelValues(provider).Set(float64(n)) },
	}
}

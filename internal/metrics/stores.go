package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/engine"
	"plinth/internal/store"
)

// storeMetrics reads the store's statistics when /metrics is requested.
type storeMetrics struct {
	types  *engine.Registry
	size   func() int64
	stores []*store.Store
}

// Stores are the metrics of the stores that a server has its objects in; the statistics are those of the first one.
// size is the number of bytes of its files.
func Stores(types *engine.Registry, size func() int64, stores ...*store.Store) prometheus.Collector {
	return &storeMetrics{types, size, stores}
}

// storeGauge is one of the store's statistics as a metric.
type storeGauge struct {
	desc  *prometheus.Desc
	value func(store.Stats) float64
}

func storeGaugeOf(name, help string, value func(store.Stats) float64) storeGauge {
	return storeGauge{prometheus.NewDesc(name, help, nil, nil), value}
}

var (
	objectsDesc = prometheus.NewDesc("apiserver_resource_objects", "Stored objects of each type.",
		[]string{"group", "resource"}, nil)
	// The reference numbers the etcd clusters that it stores objects in.
	sizeDesc = prometheus.NewDesc("apiserver_storage_size_bytes", "Bytes of the files of the store.",
		[]string{"storage_cluster_id"}, nil)
	storeGauges = []storeGauge{
		storeGaugeOf("plinth_store_revision", "The newest durable revision.",
			func(s store.Stats) float64 { return float64(s.Revision) }),
		storeGaugeOf("plinth_store_bytes", "Bytes of all live objects.",
			func(s store.Stats) float64 { return float64(s.Bytes) }),
		storeGaugeOf("plinth_store_history_bytes", "Bytes of the watch history on disk.",
			func(s store.Stats) float64 { return float64(s.HistoryBytes) }),
		storeGaugeOf("plinth_store_history_seconds", "Age of the oldest change in the watch history.",
			func(s store.Stats) float64 { return s.HistoryAge.Seconds() }),
		storeGaugeOf("plinth_store_history_memory_bytes", "Approximate memory used by the watch history.",
			func(s store.Stats) float64 { return float64(s.HistoryMemory) }),
		storeGaugeOf("plinth_store_waiting_watches", "Watches that have sent every change and wait for the next.",
			func(s store.Stats) float64 { return float64(s.Waiting) }),
	}
)

// Describe implements prometheus.Collector.
func (f *storeMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- objectsDesc
	to <- sizeDesc
	for _, n := range storeGauges {
		to <- n.desc
	}
}

// Collect implements prometheus.Collector.
func (f *storeMetrics) Collect(to chan<- prometheus.Metric) {
	stats := f.stores[0].Stats()
	for _, n := range storeGauges {
		to <- prometheus.MustNewConstMetric(n.desc, prometheus.GaugeValue, n.value(stats))
	}
	to <- prometheus.MustNewConstMetric(sizeDesc, prometheus.GaugeValue, float64(f.size()), "etcd-0")
	var snapshots []*store.Snapshot
	for _, s := range f.stores {
		snapshot, err := s.Snapshot(0)
		if err != nil {
			return // the server is closing
		}
		snapshots = append(snapshots, snapshot)
	}
	count := func(path string) (objects int) {
		for _, s := range snapshots {
			objects += s.Count(path, "")
		}
		return objects
	}
	counted := map[string]bool{}
	for r := range f.types.Now().All() {
		if r.Virtual() || counted[r.Stored.Path] {
			continue
		}
		counted[r.Stored.Path] = true
		group, resource, _ := strings.Cut(r.Stored.Path, "/")
		to <- prometheus.MustNewConstMetric(objectsDesc, prometheus.GaugeValue, float64(count(r.Stored.Path)),
			group, resource)
	}
}

package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/controller/worklist"
)

// Worklists are the metrics of the worklists of controllers, by name, under the names that client-go gives those of its
// queues. It is a prometheus.Collector.
type Worklists struct {
	added, retried             *prometheus.CounterVec
	waited, took               *prometheus.HistogramVec
	depth, unfinished, longest *prometheus.Desc

	mu    sync.Mutex
	lists map[string]*listed
}

// listed is what the lists of a name are doing.
type listed struct {
	ready int
	began map[*time.Time]struct{} // when the tasks began that are being executed
}

// NewWorklists makes metrics that have counted nothing yet.
func NewWorklists() *Worklists {
	const name = "workqueue_"
	label := []string{"name"}
	counter := func(what, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name + what, Help: help}, label)
	}
	histogram := func(what, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name + what, Help: help,
			Buckets: prometheus.ExponentialBuckets(10e-9, 10, 10)}, label)
	}
	gauge := func(what, help string) *prometheus.Desc { return prometheus.NewDesc(name+what, help, label, nil) }
	return &Worklists{
		added:   counter("adds_total", "Tasks that became ready."),
		retried: counter("retries_total", "Tasks that failed, and were executed again."),
		waited:  histogram("queue_duration_seconds", "How long tasks were ready before they were executed."),
		took:    histogram("work_duration_seconds", "How long tasks were executed."),
		depth:   gauge("depth", "Tasks that are ready."),
		unfinished: gauge("unfinished_work_seconds",
			"For how long the tasks that are being executed have been, added up."),
		longest: gauge("longest_running_processor_seconds", "For how long the longest of them has been."),
		lists:   map[string]*listed{},
	}
}

// Observe are the functions that count.
func (w *Worklists) Observe() worklist.Observe {
	return worklist.Observe{
		Queued: func(name string, tasks int) {
			if tasks > 0 {
				w.added.WithLabelValues(name).Add(float64(tasks))
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.of(name).ready += tasks
		},
		Retried: func(name string) { w.retried.WithLabelValues(name).Inc() },
		Began: func(name string, ready time.Duration) (ended func()) {
			w.waited.WithLabelValues(name).Observe(ready.Seconds())
			began := new(time.Now())
			w.mu.Lock()
			defer w.mu.Unlock()
			w.of(name).ready--
			w.of(name).began[began] = struct{}{}
			return func() {
				w.took.WithLabelValues(name).Observe(time.Since(*began).Seconds())
				w.mu.Lock()
				defer w.mu.Unlock()
				delete(w.of(name).began, began)
			}
		},
	}
}

// of returns the lists of a name. The caller holds mu.
func (w *Worklists) of(name string) *listed {
	l := w.lists[name]
	if l == nil {
		l = &listed{began: map[*time.Time]struct{}{}}
		w.lists[name] = l
	}
	return l
}

// Describe implements prometheus.Collector.
func (w *Worklists) Describe(to chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{w.added, w.retried, w.waited, w.took} {
		c.Describe(to)
	}
	to <- w.depth
	to <- w.unfinished
	to <- w.longest
}

// Collect implements prometheus.Collector.
func (w *Worklists) Collect(to chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{w.added, w.retried, w.waited, w.took} {
		c.Collect(to)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, l := range w.lists {
		var sum, longest time.Duration
		for began := range l.began {
			took := time.Since(*began)
			sum, longest = sum+took, max(longest, took)
		}
		for desc, value := range map[*prometheus.Desc]float64{
			w.depth: float64(l.ready), w.unfinished: sum.Seconds(), w.longest: longest.Seconds(),
		} {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, name)
		}
	}
}

package server

import (
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"plinth/internal/access"
	"plinth/internal/audit"
	"plinth/internal/auth/serviceaccount"
	"plinth/internal/engine"
	"plinth/internal/httpapi"
	"plinth/internal/store"
)

// metrics are the metrics of /metrics. A metric that the reference has, too, has the same name and labels.
type metrics struct {
	registry *prometheus.Registry
	health   *prometheus.Registry // of /metrics/slis: results of health checks
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sizes    *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	watches  prometheus.Gauge
	dropped  *prometheus.CounterVec
	events   *prometheus.CounterVec
	sent     *prometheus.CounterVec
	access   *accessMetrics
	checks   *prometheus.GaugeVec
	checked  *prometheus.CounterVec

	types *engine.Registry
	mu    sync.RWMutex
	// byObservation has the metrics of each set of labels that has occurred. In its keys Took, Bytes and Rejected are
	// zero.
	//
	// Only names that are served become labels (httpapi.requestState.observation). But a client that may write definitions
	// can have any number of names served, one after the other. So when there are sweepAt entries, those of custom types
	// that are not served any more are dropped, with their metrics:
	//
	//	len(byObservation) < sweepAt ≤ 2 · (entries of served types at the last sweep) + firstSweep
	byObservation map[httpapi.Observation]*requestMetrics
	sweepAt       int
}

// firstSweep is the number of entries of metrics.byObservation at the first sweep.
const firstSweep = 4096

// requestMetrics are the metrics with one set of labels. They are kept because a look-up by labels for each request
// costs more than the counting.
type requestMetrics struct {
	requests        prometheus.Counter
	labels          []string // of requests
	duration, sizes prometheus.Observer
}

// The reference's buckets: seconds of a request, bytes of a response.
var (
	seconds = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20,
		30, 45, 60}
	lengths = prometheus.ExponentialBuckets(1000, 10, 7)
)

// newMetrics creates the metrics of one server. Each server has a separate registry, because a process may run several
// servers.
func newMetrics(s *store.Store, elsewhere *elsewhere, types *engine.Registry, auditor *audit.Auditor,
	size func() int64) *metrics {
	labels := []string{"component", "group", "version", "resource", "subresource", "scope", "verb"}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		health:   prometheus.NewRegistry(),
		access:   newAccessMetrics(),
		checks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "The last result of a health check: 1 for healthy.",
		}, []string{"name", "type"}),
		checked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "Results of health checks.",
		}, []string{"name", "type", "status"}),
		types:         types,
		byObservation: map[httpapi.Observation]*requestMetrics{},
		sweepAt:       firstSweep,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total", Help: "Answered requests.",
		}, append([]string{"code", "dry_run"}, labels...)),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds", Help: "Time from the first byte of a request to the last of its answer.",
			Buckets: seconds,
		}, append([]string{"dry_run"}, labels...)),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_response_sizes", Help: "Bytes of the bodies of answers.", Buckets: lengths,
		}, labels),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests", Help: "Requests being served, other than watches.",
		}, []string{"request_kind"}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches being served.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_dropped_requests_total", Help: "Requests refused because too many were being served.",
		}, []string{"request_kind"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_events_total", Help: "Events sent to watches.",
		}, []string{"group", "version", "resource"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plinth_watch_events_bytes_total", Help: "Bytes of the events sent to watches.",
		}, []string{"group", "version", "resource"}),
	}
	m.registry.MustRegister(m.requests, m.duration, m.sizes, m.inFlight, m.watches, m.dropped, m.events, m.sent,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&storeMetrics{s, elsewhere, types, size}, newAuditMetrics(auditor))
	m.registry.MustRegister(m.access.all()...)
	m.health.MustRegister(m.checks, m.checked)
	return m
}

// hooks are the functions by which the HTTP handler reports.
func (m *metrics) hooks() httpapi.Metrics {
	underWay := [...]prometheus.Gauge{
		httpapi.ReadOnly:    m.inFlight.WithLabelValues(httpapi.ReadOnly.String()),
		httpapi.Mutating:    m.inFlight.WithLabelValues(httpapi.Mutating.String()),
		httpapi.LongRunning: m.watches,
	}
	return httpapi.Metrics{
		Request:       m.request,
		Authenticated: m.access.authenticated, Authorized: m.access.authorization.observe, Checked: m.check,
		InFlight: func(class httpapi.Class, delta int) { underWay[class].Add(float64(delta)) },
		Events: func(group, version, resource string, events, bytes int) {
			m.events.WithLabelValues(group, version, resource).Add(float64(events))
			m.sent.WithLabelValues(group, version, resource).Add(float64(bytes))
		},
	}
}

func (m *metrics) request(o httpapi.Observation) {
	f := m.requestMetrics(o)
	f.requests.Inc()
	if o.Class != httpapi.LongRunning {
		f.duration.Observe(o.Took.Seconds())
		f.sizes.Observe(float64(o.Bytes))
	}
	if o.Rejected {
		m.dropped.WithLabelValues(o.Class.String()).Inc()
	}
}

// customResources is the resource label of histograms for all custom types together.
const customResources = "customresources"

// requestMetrics returns the metrics for an observation.
func (m *metrics) requestMetrics(o httpapi.Observation) *requestMetrics {
	o.Took, o.Bytes, o.Rejected = 0, 0, false
	m.mu.RLock()
	f := m.byObservation[o]
	m.mu.RUnlock()
	if f != nil {
		return f
	}
	component, dryRun := "", ""
	if o.Resource != "" {
		component = "apiserver"
	}
	if o.DryRun {
		dryRun = "All"
	}
	labels := []string{component, o.Group, o.Version, o.Resource, o.Subresource, o.Scope, o.Verb}
	f = &requestMetrics{labels: append([]string{strconv.Itoa(o.Code), dryRun}, labels...)}
	f.requests = m.requests.WithLabelValues(f.labels...)
	if o.Custom { // histograms for thousands of types would take more memory than the types
		labels = []string{component, "", "", customResources, o.Subresource, o.Scope, o.Verb}
	}
	if o.Class != httpapi.LongRunning {
		f.duration = m.duration.WithLabelValues(append([]string{dryRun}, labels...)...)
		f.sizes = m.sizes.WithLabelValues(labels...)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byObservation[o] = f
	if len(m.byObservation) >= m.sweepAt {
		m.sweep()
	}
	return f
}

// sweep drops the metrics of custom types that are not served any more. Their histograms are those of all custom types,
// and stay. The events of a watch are counted before its request is, so that each type with metrics of events has an
// entry in byObservation, or will have one. The caller holds mu.
func (m *metrics) sweep() {
	types := m.types.Now()
	for o, f := range m.byObservation {
		if o.Custom && types.Find(o.Group, o.Version, o.Resource) == nil {
			delete(m.byObservation, o)
			m.requests.DeleteLabelValues(f.labels...)
			m.events.DeleteLabelValues(o.Group, o.Version, o.Resource)
			m.sent.DeleteLabelValues(o.Group, o.Version, o.Resource)
		}
	}
	m.sweepAt = 2*len(m.byObservation) + firstSweep
}

// handler serves metrics.
func (m *metrics) handler(registry prometheus.Gatherer, logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(logger.Handler(),
		slog.LevelError)})
}

// storeMetrics reads the store's statistics when /metrics is requested.
type storeMetrics struct {
	store     *store.Store
	elsewhere *elsewhere // nil: the store has all objects
	types     *engine.Registry
	size      func() int64 // the bytes of the files of the store
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
	stats := f.store.Stats()
	for _, n := range storeGauges {
		to <- prometheus.MustNewConstMetric(n.desc, prometheus.GaugeValue, n.value(stats))
	}
	to <- prometheus.MustNewConstMetric(sizeDesc, prometheus.GaugeValue, float64(f.size()), "etcd-0")
	snapshot, err := f.store.Snapshot(0)
	if err != nil {
		return // the server is closing
	}
	count := func(path string) int { return snapshot.Count(path, "") }
	if e := f.elsewhere; e != nil {
		if events, err := e.store.Snapshot(0); err == nil {
			count = func(path string) int { return snapshot.Count(path, "") + events.Count(path, "") }
		}
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

// auditMetrics reads the counters of auditing when /metrics is requested.
type auditMetrics struct{ counters *audit.Counters }

func newAuditMetrics(a *audit.Auditor) auditMetrics {
	if a == nil {
		return auditMetrics{&audit.Counters{}}
	}
	return auditMetrics{&a.Counters}
}

var (
	auditEvents = prometheus.NewDesc("apiserver_audit_event_total", "Audit events handed to the backends.", nil, nil)
	auditErrors = prometheus.NewDesc("apiserver_audit_error_total",
		"Audit events that were lost, by the plugin that lost them.", []string{"plugin"}, nil)
	auditLevels = prometheus.NewDesc("apiserver_audit_level_total",
		"Requests by the level that the audit policy gives them.", []string{"level"}, nil)
	auditRejected = prometheus.NewDesc("apiserver_audit_requests_rejected_total",
		"Requests refused because they could not be recorded.", nil, nil)
)

// Describe implements prometheus.Collector.
func (auditMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{auditEvents, auditErrors, auditLevels, auditRejected} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (f auditMetrics) Collect(to chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(auditEvents, f.counters.Events.Load())
	count(auditRejected, f.counters.Rejected.Load())
	for level, n := range f.counters.Levels {
		count(auditLevels, n, level)
	}
	for plugin, n := range f.counters.Errors {
		count(auditErrors, n, plugin)
	}
}

// tokenMetrics counts the uses of tokens of service accounts, by the reference's names.
func tokenMetrics(c *serviceaccount.Counters) (all []prometheus.Collector) {
	for _, of := range []struct {
		name, help string
		count      *atomic.Int64
	}{
		{"legacy_tokens_total", "Uses of tokens without an audience.", &c.Legacy},
		{"legacy_auto_token_uses_total", "Uses of tokens from generated Secrets.", &c.Generated},
		{"legacy_manual_token_uses_total", "Uses of tokens from Secrets that were made by hand.", &c.Manual},
		{"invalid_legacy_auto_token_uses_total", "Uses of tokens from Secrets that are marked invalid.", &c.Invalid},
		{"stale_tokens_total", "Uses of tokens of Pods that should have been renewed.", &c.Stale},
		{"valid_tokens_total", "Uses of other tokens of Pods.", &c.Valid},
	} {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "serviceaccount", Name: of.name, Help: of.help,
		}, func() float64 { return float64(of.count.Load()) }))
	}
	return all
}

// storeSize is the size of the files of the store; of a store in memory, that of its live objects.
func (s *Server) storeSize() (bytes int64) {
	if s.etcd != nil {
		return s.etcdSize.of(s.etcd, s.config.EtcdSizeInterval)
	}
	if s.config.Storage == "memory" {
		return s.store.Stats().Bytes
	}
	// A file may go while the directory is read; then it does not count.
	filepath.WalkDir(filepath.Join(s.config.DataDir, "store"), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// certificateMetrics count the certificates that were issued for requests with a duration, by signer. Signers other
// than those of Kubernetes are counted as "other".
type certificateMetrics struct{ requested, honored *prometheus.CounterVec }

func newCertificateMetrics() *certificateMetrics {
	of := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "apiserver", Subsystem: "certificates_registry", Name: name, Help: help}, []string{"signerName"})
	}
	return &certificateMetrics{
		requested: of("csr_requested_duration_total", "Issued certificates whose request has a duration."),
		honored:   of("csr_honored_duration_total", "Issued certificates that are valid for the requested duration."),
	}
}

// issued counts a certificate.
func (m *certificateMetrics) issued(signer string, honored bool) {
	if !strings.HasPrefix(signer, "kubernetes.io/") {
		signer = "other"
	}
	m.requested.WithLabelValues(signer).Inc()
	if honored {
		m.honored.WithLabelValues(signer).Inc()
	}
}

// check counts a result of a health check.
func (m *metrics) check(name, endpoint string, healthy bool) {
	status, value := "success", 1.0
	if !healthy {
		status, value = "error", 0
	}
	m.checks.WithLabelValues(name, endpoint).Set(value)
	m.checked.WithLabelValues(name, endpoint, status).Inc()
}

// accessMetrics count the results of authentication and authorization.
type accessMetrics struct {
	authentication, authorization *outcomes
	users                         *prometheus.CounterVec
	names                         map[string]prometheus.Counter // by the label username
}

// outcomes count results and measure their time, by result. The metrics of each result are kept, because a look-up by
// label costs more than the counting.
type outcomes struct {
	counts   *prometheus.CounterVec
	took     *prometheus.HistogramVec
	byResult map[string]outcome
}

type outcome struct {
	count prometheus.Counter
	took  prometheus.Observer
}

func newOutcomes(count, duration, help string, results ...string) *outcomes {
	o := &outcomes{
		counts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: count, Help: help}, []string{"result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: duration, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"result"}),
		byResult: map[string]outcome{},
	}
	for _, result := range results {
		o.byResult[result] = outcome{o.counts.WithLabelValues(result), o.took.WithLabelValues(result)}
	}
	return o
}

func (o *outcomes) observe(result string, took time.Duration) {
	of := o.byResult[result]
	of.count.Inc()
	of.took.Observe(took.Seconds())
}

// wellKnown are the user names that the reference uses as labels. All others are counted as "email_id" if the name
// contains @, else as "other": clients choose their names, so names as labels would be unbounded.
var wellKnown = []string{"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"}

func newAccessMetrics() *accessMetrics {
	f := &accessMetrics{
		authentication: newOutcomes("authentication_attempts", "authentication_duration_seconds",
			"Authentication of requests, by its result.",
			"success", "error"),
		authorization: newOutcomes("authorization_attempts_total", "authorization_duration_seconds",
			"Authorization of requests, by its result.",
			"allowed", "denied", "no-opinion", "error"),
		users: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authenticated_user_requests", Help: "Authenticated requests, by well-known users.",
		}, []string{"username"}),
		names: map[string]prometheus.Counter{},
	}
	for _, name := range append([]string{"email_id", "other"}, wellKnown...) {
		f.names[name] = f.users.WithLabelValues(name)
	}
	return f
}

func (f *accessMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{f.authentication.counts, f.authentication.took, f.authorization.counts,
		f.authorization.took, f.users}
}

func (f *accessMetrics) authenticated(result string, user *access.User, took time.Duration) {
	f.authentication.observe(result, took)
	if result != "success" {
		return
	}
	name := "other"
	switch {
	case slices.Contains(wellKnown, user.Name):
		name = user.Name
	case strings.Contains(user.Name, "@"):
		name = "email_id"
	}
	f.names[name].Inc()
}

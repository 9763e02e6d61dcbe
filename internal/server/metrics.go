package server

import (
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"plinth/internal/access"
	"plinth/internal/audit"
	"plinth/internal/engine"
	"plinth/internal/httpapi"
	"plinth/internal/store"
)

// metrics are the figures of /metrics. Where the reference has the same figure, it has the same name and labels.
type metrics struct {
	registry *prometheus.Registry
	health   *prometheus.Registry // of /metrics/slis: what health checks have said
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sizes    *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	watches  prometheus.Gauge
	dropped  *prometheus.CounterVec
	events   *prometheus.CounterVec
	sent     *prometheus.CounterVec
	access   *accessFigures
	checks   *prometheus.GaugeVec
	checked  *prometheus.CounterVec

	mu sync.RWMutex
	of map[httpapi.Observation]*figuresOf // by what is the same for many requests
}

// figuresOf are the figures of requests of one sort. To find them by their labels each time costs more than to count.
type figuresOf struct {
	requests        prometheus.Counter
	duration, sizes prometheus.Observer
}

// Buckets of the reference: seconds of a request, bytes of an answer.
var (
	seconds = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20,
		30, 45, 60}
	lengths = prometheus.ExponentialBuckets(1000, 10, 7)
)

// newMetrics registers the figures of one server, on a registry of its own, so that a process may run several.
func newMetrics(s *store.Store, types *engine.Registry, auditor *audit.Auditor) *metrics {
	of := []string{"component", "group", "version", "resource", "subresource", "scope", "verb"}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		health:   prometheus.NewRegistry(),
		access:   newAccessFigures(),
		checks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "What a health check has said last: 1 for healthy.",
		}, []string{"name", "type"}),
		checked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "Answers of health checks.",
		}, []string{"name", "type", "status"}),
		of: map[httpapi.Observation]*figuresOf{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total", Help: "Answered requests.",
		}, append([]string{"code", "dry_run"}, of...)),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds", Help: "Time from the first byte of a request to the last of its answer.",
			Buckets: seconds,
		}, append([]string{"dry_run"}, of...)),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_response_sizes", Help: "Bytes of the bodies of answers.", Buckets: lengths,
		}, of),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests", Help: "Requests under way, other than watches.",
		}, []string{"request_kind"}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches under way.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_dropped_requests_total", Help: "Requests turned away because too many were under way.",
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
		&storeFigures{s, types}, newAuditFigures(auditor))
	m.registry.MustRegister(m.access.all()...)
	m.health.MustRegister(m.checks, m.checked)
	return m
}

// hooks are what the handler tells.
func (m *metrics) hooks() httpapi.Metrics {
	underWay := [...]prometheus.Gauge{
		httpapi.ReadOnly:    m.inFlight.WithLabelValues(httpapi.ReadOnly.String()),
		httpapi.Mutating:    m.inFlight.WithLabelValues(httpapi.Mutating.String()),
		httpapi.LongRunning: m.watches,
	}
	return httpapi.Metrics{
		Request:       m.request,
		Authenticated: m.access.authenticated, Authorized: m.access.authorization.tell, Checked: m.check,
		InFlight: func(class httpapi.Class, delta int) { underWay[class].Add(float64(delta)) },
		Events: func(group, version, resource string, events, bytes int) {
			m.events.WithLabelValues(group, version, resource).Add(float64(events))
			m.sent.WithLabelValues(group, version, resource).Add(float64(bytes))
		},
	}
}

func (m *metrics) request(o httpapi.Observation) {
	f := m.figuresOf(o)
	f.requests.Inc()
	if o.Class != httpapi.LongRunning {
		f.duration.Observe(o.Took.Seconds())
		f.sizes.Observe(float64(o.Bytes))
	}
	if o.Rejected {
		m.dropped.WithLabelValues(o.Class.String()).Inc()
	}
}

// customResources stands for all custom types where there is no figure for each of them.
const customResources = "customresources"

// figuresOf finds the figures of requests like this one.
func (m *metrics) figuresOf(o httpapi.Observation) *figuresOf {
	o.Took, o.Bytes, o.Rejected = 0, 0, false
	m.mu.RLock()
	f := m.of[o]
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
	of := []string{component, o.Group, o.Version, o.Resource, o.Subresource, o.Scope, o.Verb}
	f = &figuresOf{requests: m.requests.WithLabelValues(append([]string{strconv.Itoa(o.Code), dryRun}, of...)...)}
	if o.Custom { // a histogram for each of thousands of types would take more memory than the types
		of = []string{component, "", "", customResources, o.Subresource, o.Scope, o.Verb}
	}
	if o.Class != httpapi.LongRunning {
		f.duration = m.duration.WithLabelValues(append([]string{dryRun}, of...)...)
		f.sizes = m.sizes.WithLabelValues(of...)
	}
	m.mu.Lock()
	m.of[o] = f
	m.mu.Unlock()
	return f
}

// handler serves the figures.
func (m *metrics) handler(registry *prometheus.Registry, logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(logger.Handler(),
		slog.LevelError)})
}

// storeFigures reads the figures of the store when somebody asks for them.
type storeFigures struct {
	store *store.Store
	types *engine.Registry
}

// figure is one number of the store.
type figure struct {
	desc *prometheus.Desc
	of   func(store.Stats) float64
}

func figureOf(name, help string, of func(store.Stats) float64) figure {
	return figure{prometheus.NewDesc(name, help, nil, nil), of}
}

var (
	objectsDesc = prometheus.NewDesc("apiserver_resource_objects", "Stored objects of each type.",
		[]string{"group", "resource"}, nil)
	storeNumbers = []figure{
		figureOf("plinth_store_revision", "The newest durable revision.",
			func(s store.Stats) float64 { return float64(s.Revision) }),
		figureOf("plinth_store_bytes", "Bytes of all live objects.", func(s store.Stats) float64 { return float64(s.Bytes) }),
		figureOf("plinth_store_history_bytes", "Bytes of the changes that watches may still start behind.",
			func(s store.Stats) float64 { return float64(s.HistoryBytes) }),
		figureOf("plinth_store_history_seconds", "How far the history reaches back.",
			func(s store.Stats) float64 { return s.HistoryAge.Seconds() }),
		figureOf("plinth_store_history_memory_bytes", "Memory that the newest history takes, about.",
			func(s store.Stats) float64 { return float64(s.HistoryMemory) }),
		figureOf("plinth_store_waiting_watches", "Watches that have been told everything and wait.",
			func(s store.Stats) float64 { return float64(s.Waiting) }),
	}
)

// Describe names the figures.
func (f *storeFigures) Describe(to chan<- *prometheus.Desc) {
	to <- objectsDesc
	for _, n := range storeNumbers {
		to <- n.desc
	}
}

// Collect reads the figures.
func (f *storeFigures) Collect(to chan<- prometheus.Metric) {
	stats := f.store.Stats()
	for _, n := range storeNumbers {
		to <- prometheus.MustNewConstMetric(n.desc, prometheus.GaugeValue, n.of(stats))
	}
	snapshot, err := f.store.Snapshot(0)
	if err != nil {
		return // the server is closing
	}
	told := map[string]bool{}
	for r := range f.types.Now().All() {
		if r.Virtual() || told[r.Stored.Path] {
			continue
		}
		told[r.Stored.Path] = true
		group, resource, _ := strings.Cut(r.Stored.Path, "/")
		to <- prometheus.MustNewConstMetric(objectsDesc, prometheus.GaugeValue, float64(snapshot.Count(r.Stored.Path, "")),
			group, resource)
	}
}

// auditFigures reads the figures of auditing when somebody asks for them.
type auditFigures struct{ counters *audit.Counters }

func newAuditFigures(a *audit.Auditor) auditFigures {
	if a == nil {
		return auditFigures{&audit.Counters{}}
	}
	return auditFigures{&a.Counters}
}

var (
	auditEvents = prometheus.NewDesc("apiserver_audit_event_total", "Audit events handed to the backends.", nil, nil)
	auditErrors = prometheus.NewDesc("apiserver_audit_error_total",
		"Audit events that were lost, by the plugin that has lost them.", []string{"plugin"}, nil)
	auditLevels = prometheus.NewDesc("apiserver_audit_level_total",
		"Requests by the level at which the audit policy has them written down.", []string{"level"}, nil)
	auditRejected = prometheus.NewDesc("apiserver_audit_requests_rejected_total",
		"Requests refused because they could not be written down.", nil, nil)
)

// Describe names the figures.
func (auditFigures) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{auditEvents, auditErrors, auditLevels, auditRejected} {
		to <- d
	}
}

// Collect reads the figures.
func (f auditFigures) Collect(to chan<- prometheus.Metric) {
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

// check counts what a health check has said.
func (m *metrics) check(name, endpoint string, healthy bool) {
	status, value := "success", 1.0
	if !healthy {
		status, value = "error", 0
	}
	m.checks.WithLabelValues(name, endpoint).Set(value)
	m.checked.WithLabelValues(name, endpoint, status).Inc()
}

// accessFigures tell how authentication and authorization go.
type accessFigures struct {
	authentication, authorization *outcomes
	users                         *prometheus.CounterVec
	names                         map[string]prometheus.Counter // users by their label
}

// outcomes are the figures of something by its result. To find them by the label each time would cost more than to
// count.
type outcomes struct {
	counts *prometheus.CounterVec
	took   *prometheus.HistogramVec
	of     map[string]outcome
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
		of: map[string]outcome{},
	}
	for _, result := range results {
		o.of[result] = outcome{o.counts.WithLabelValues(result), o.took.WithLabelValues(result)}
	}
	return o
}

func (o *outcomes) tell(result string, took time.Duration) {
	of := o.of[result]
	of.count.Inc()
	of.took.Observe(took.Seconds())
}

// wellKnown are the users that the reference's metrics name. All others are one, or two: clients choose what they are
// called.
var wellKnown = []string{"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"}

func newAccessFigures() *accessFigures {
	f := &accessFigures{
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

func (f *accessFigures) all() []prometheus.Collector {
	return []prometheus.Collector{f.authentication.counts, f.authentication.took, f.authorization.counts,
		f.authorization.took, f.users}
}

func (f *accessFigures) authenticated(result string, user *access.User, took time.Duration) {
	f.authentication.tell(result, took)
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

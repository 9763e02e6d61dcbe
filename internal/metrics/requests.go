package metrics

import (
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/httpapi"
)

// Requests count the requests to a server, by what was asked, by whom they are from, and how they were answered.
type Requests struct {
	requests   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	sizes      *prometheus.HistogramVec
	inFlight   *prometheus.GaugeVec
	watches    *prometheus.GaugeVec
	sli        *prometheus.HistogramVec
	listed     *prometheus.HistogramVec
	eventSizes *prometheus.HistogramVec
	deprecated *prometheus.GaugeVec
	dropped    *prometheus.CounterVec
	events     *prometheus.CounterVec
	eventBytes *prometheus.CounterVec
	access     *accessMetrics
	checks     *prometheus.GaugeVec
	checked    *prometheus.CounterVec

	served func(group, version, resource string) bool
	mu     sync.RWMutex
	// byObservation has the metrics of each set of labels that has occurred. In its keys Took, Waited, Bytes and Rejected
	// are zero.
	//
	// Only names that are served become labels (httpapi.requestState.observation). But a client that may write
	// definitions can have any number of names served, one after the other. So when there are sweepAt entries, those of
	// custom types that are not served any more are dropped, with their metrics:
	//
	//	len(byObservation) < sweepAt ≤ 2 · (entries of served types at the last sweep) + firstSweep
	byObservation map[httpapi.Observation]*requestMetrics
	sweepAt       int
}

// firstSweep is the number of entries of Requests.byObservation at the first sweep.
const firstSweep = 4096

// requestMetrics are the metrics with one set of labels. They are kept because a look-up by labels for each request
// costs more than the counting.
type requestMetrics struct {
	requests        prometheus.Counter
	labels          []string // of requests
	duration, sizes prometheus.Observer
	sli             prometheus.Observer // nil for dry runs, as in the reference
}

// The reference's buckets: seconds of a request, bytes of a response.
var (
	seconds = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20,
		30, 45, 60}
	lengths = prometheus.ExponentialBuckets(1000, 10, 7)
)

// NewRequests makes metrics that have counted nothing yet. served says whether a custom type is served.
func NewRequests(served func(group, version, resource string) bool) *Requests {
	labels := []string{"component", "group", "version", "resource", "subresource", "scope", "verb"}
	return &Requests{
		access: newAccessMetrics(),
		checks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "The last result of a health check: 1 for healthy.",
		}, []string{"name", "type"}),
		checked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "Results of health checks.",
		}, []string{"name", "type", "status"}),
		served:        served,
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
		watches: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches and connections being served.",
		}, labels),
		sli: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_sli_duration_seconds",
			Help: "Time of a request without that in which it waited for webhooks and for its seats.", Buckets: seconds[2:],
		}, labels),
		listed: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_watch_list_duration_seconds",
			Help:    "Time until a watch has sent its initial events.",
			Buckets: append(seconds[2:len(seconds):len(seconds)], 90, 120, 180, 300),
		}, []string{"group", "version", "resource", "scope"}),
		eventSizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_watch_events_sizes", Help: "Bytes of each event sent to a watch.",
			Buckets: prometheus.ExponentialBuckets(1024, 2, 8),
		}, []string{"group", "version", "resource"}),
		deprecated: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_requested_deprecated_apis", Help: "Deprecated versions that were requested.",
		}, []string{"group", "version", "resource", "subresource", "removed_release"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_dropped_requests_total", Help: "Requests refused because too many were being served.",
		}, []string{"request_kind"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_events_total", Help: "Events sent to watches.",
		}, []string{"group", "version", "resource"}),
		eventBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plinth_watch_events_bytes_total", Help: "Bytes of the events sent to watches.",
		}, []string{"group", "version", "resource"}),
	}
}

// Collectors are what /metrics shows.
func (m *Requests) Collectors() []prometheus.Collector {
	return append(m.access.all(), m.requests, m.duration, m.sizes, m.inFlight, m.watches, m.dropped, m.events,
		m.eventBytes, m.sli, m.listed, m.eventSizes, m.deprecated)
}

// Hooks are the functions by which package httpapi reports.
func (m *Requests) Hooks() httpapi.Metrics {
	underWay := [...]prometheus.Gauge{
		httpapi.ReadOnly: m.inFlight.WithLabelValues(httpapi.ReadOnly.String()),
		httpapi.Mutating: m.inFlight.WithLabelValues(httpapi.Mutating.String()),
	}
	return httpapi.Metrics{
		Request:       m.request,
		Authenticated: m.access.authenticated, Authorized: m.access.authorization.observe, Checked: m.check,
		InFlight:    func(class httpapi.Class, delta int) { underWay[class].Add(float64(delta)) },
		LongRunning: m.longRunning, Listed: m.watchListed, EventSizes: m.eventSize,
		Events: func(group, version, resource string, events, bytes int) {
			m.events.WithLabelValues(group, version, resource).Add(float64(events))
			m.eventBytes.WithLabelValues(group, version, resource).Add(float64(bytes))
		},
	}
}

func (m *Requests) request(o httpapi.Observation) {
	f := m.requestMetrics(o)
	f.requests.Inc()
	if o.Class != httpapi.LongRunning {
		f.duration.Observe(o.Took.Seconds())
		f.sizes.Observe(float64(o.Bytes))
		if f.sli != nil {
			f.sli.Observe(max(0, o.Took-o.Waited).Seconds())
		}
	}
	if o.Rejected {
		m.dropped.WithLabelValues(o.Class.String()).Inc()
	}
}

// customResources is the resource label of histograms for all custom types together.
const customResources = "customresources"

// removedRelease finds in the warning of a deprecated version in which release it is gone.
var removedRelease = regexp.MustCompile(`unavailable in v(\d+\.\d+)\+`)

// component is the label of those who answer for a resource.
func component(o *httpapi.Observation) string {
	if o.Resource == "" {
		return ""
	}
	return "apiserver"
}

// longRunning counts a request that lasts long, or ends that.
func (m *Requests) longRunning(o httpapi.Observation, delta int) {
	m.watches.WithLabelValues(component(&o), o.Group, o.Version, o.Resource, o.Subresource, o.Scope, o.Verb).Add(
		float64(delta))
}

// watchListed measures a watch that has sent its initial events.
func (m *Requests) watchListed(group, version, resource, scope string, took time.Duration) {
	m.listed.WithLabelValues(group, version, resource, scope).Observe(took.Seconds())
}

// eventSize is what is told the sizes of events; of custom types together, as in other histograms.
func (m *Requests) eventSize(group, version, resource string, custom bool) interface{ Observe(float64) } {
	if custom {
		group, version, resource = "", "", customResources
	}
	return m.eventSizes.WithLabelValues(group, version, resource)
}

// requestMetrics returns the metrics for an observation.
func (m *Requests) requestMetrics(o httpapi.Observation) *requestMetrics {
	o.Took, o.Waited, o.Bytes, o.Rejected = 0, 0, 0, false
	m.mu.RLock()
	f := m.byObservation[o]
	m.mu.RUnlock()
	if f != nil {
		return f
	}
	dryRun := ""
	if o.DryRun {
		dryRun = "All"
	}
	if o.Deprecated != "" {
		release := ""
		if found := removedRelease.FindStringSubmatch(o.Deprecated); found != nil && !o.Custom {
			release = found[1]
		}
		m.deprecated.WithLabelValues(o.Group, o.Version, o.Resource, o.Subresource, release).Set(1)
	}
	labels := []string{component(&o), o.Group, o.Version, o.Resource, o.Subresource, o.Scope, o.Verb}
	f = &requestMetrics{labels: append([]string{strconv.Itoa(o.Code), dryRun}, labels...)}
	f.requests = m.requests.WithLabelValues(f.labels...)
	if o.Custom { // histograms for thousands of types would take more memory than the types
		labels = []string{component(&o), "", "", customResources, o.Subresource, o.Scope, o.Verb}
	}
	if o.Class != httpapi.LongRunning {
		f.duration = m.duration.WithLabelValues(append([]string{dryRun}, labels...)...)
		f.sizes = m.sizes.WithLabelValues(labels...)
		if !o.DryRun {
			f.sli = m.sli.WithLabelValues(labels...)
		}
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
func (m *Requests) sweep() {
	for o, f := range m.byObservation {
		if o.Custom && !m.served(o.Group, o.Version, o.Resource) {
			delete(m.byObservation, o)
			m.requests.DeleteLabelValues(f.labels...)
			of := prometheus.Labels{"group": o.Group, "version": o.Version, "resource": o.Resource}
			m.watches.DeletePartialMatch(of)
			m.listed.DeletePartialMatch(of)
			m.deprecated.DeletePartialMatch(of)
			m.events.DeleteLabelValues(o.Group, o.Version, o.Resource)
			m.eventBytes.DeleteLabelValues(o.Group, o.Version, o.Resource)
		}
	}
	m.sweepAt = 2*len(m.byObservation) + firstSweep
}

// check counts a result of a health check.
func (m *Requests) check(name, endpoint string, healthy bool) {
	status, value := "success", 1.0
	if !healthy {
		status, value = "error", 0
	}
	m.checks.WithLabelValues(name, endpoint).Set(value)
	m.checked.WithLabelValues(name, endpoint, status).Inc()
}

package metrics

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/admission"
	"plinth/internal/admission/policies"
	"plinth/internal/admission/webhooks"
	"plinth/internal/engine"
)

// Admission count what admission does. Names and labels are the reference's.
type Admission struct {
	step, plugin, webhook, conditions                               *prometheus.HistogramVec
	rejections, failOpen, requests, conditionErrors, conditionSkips *prometheus.CounterVec
	security, exemptions, securityErrors                            *prometheus.CounterVec
	// validated and mutated are of the expressions of policies.
	validated, mutated policyMetrics

	manifests *Reloads // of the static configurations, by plugin
}

// NewAdmission makes metrics of a server with this identity.
func NewAdmission(identity string) *Admission {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "apiserver", Subsystem: "admission", Name: name,
			Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "apiserver", Subsystem: "admission",
			Name: name, Help: help, Buckets: buckets}, labels)
	}
	podSecurity := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "pod_security", Name: name, Help: help}, labels)
	}
	short := []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5}
	return &Admission{
		step: histogram("step_admission_duration_seconds", "Time of mutating and validating admission.", short,
			"type", "operation", "rejected"),
		plugin: histogram("controller_admission_duration_seconds", "Time of each admission plugin.", short,
			"name", "type", "operation", "rejected"),
		webhook: histogram("webhook_admission_duration_seconds", "Time of calls of webhooks.",
			append(short[:len(short):len(short)], 10, 25), "name", "type", "operation", "rejected"),
		conditions: histogram("match_condition_evaluation_seconds", "Time of match conditions.",
			[]float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25}, "name", "kind", "type", "operation"),
		rejections: counter("webhook_rejection_count", "Requests that were refused because of a webhook.",
			"name", "type", "operation", "error_type", "rejection_code"),
		failOpen: counter("webhook_fail_open_count", "Calls of webhooks whose failure was ignored.", "name", "type"),
		requests: counter("webhook_request_total", "Calls of webhooks.", "name", "type", "operation", "code", "rejected"),
		conditionErrors: counter("match_condition_evaluation_errors_total", "Match conditions that failed.",
			"name", "kind", "type", "operation"),
		conditionSkips: counter("match_condition_exclusions_total", "Requests that match conditions kept from a webhook.",
			"name", "kind", "type", "operation"),
		security: podSecurity("evaluations_total", "Evaluations of Pods and templates, not counting exempt requests.",
			"decision", "policy_level", "policy_version", "mode", "request_operation", "resource", "subresource"),
		exemptions: podSecurity("exemptions_total", "Requests that are exempt.",
			"request_operation", "resource", "subresource"),
		securityErrors: podSecurity("errors_total", "Errors that kept PodSecurity from an evaluation (fatal), or from "+
			"reading the labels of a namespace.", "fatal", "request_operation", "resource", "subresource"),
		validated: newPolicyMetrics("validating", "policy", "policy_binding", "error_type", "enforcement_action"),
		mutated:   newPolicyMetrics("mutating", "policy", "policy_binding", "error_type"),
		manifests: newReloads(identity, "manifest_admission", "plugin"),
	}
}

// policyMetrics count the expressions of policies.
type policyMetrics struct {
	checks *prometheus.CounterVec
	took   *prometheus.HistogramVec
}

func newPolicyMetrics(kind string, labels ...string) policyMetrics {
	subsystem := kind + "_admission_policy"
	return policyMetrics{
		prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "apiserver", Subsystem: subsystem, Name: "check_total",
			Help: "Expressions of " + kind + " policies that had an effect."}, labels),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "apiserver", Subsystem: subsystem,
			Name: "check_duration_seconds", Help: "Time of the expressions of " + kind + " policies that had an effect.",
			Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1}}, labels),
	}
}

// hooks are what a plugin for policies tells; action says that the action is a label.
func (p policyMetrics) hooks(of *Admission, action bool) policies.Metrics {
	return policies.Metrics{
		Checked: func(policy, binding, failure, enforced string, took time.Duration) {
			labels := []string{policy, binding, failure}
			if action {
				labels = append(labels, enforced)
			}
			p.checks.WithLabelValues(labels...).Inc()
			p.took.WithLabelValues(labels...).Observe(took.Seconds())
		},
		ConditionsRun: func(policy string, operation engine.Operation, failed int, took time.Duration) {
			// The reference calls mutating policies validate, too.
			of.conditions.WithLabelValues(policy, "policy", typeOf(false), operation.String()).Observe(took.Seconds())
			if failed > 0 {
				of.conditionErrors.WithLabelValues(policy, "policy", typeOf(false), operation.String()).Add(float64(failed))
			}
		},
	}
}

// Collectors are what /metrics shows.
func (m *Admission) Collectors() []prometheus.Collector {
	return append(m.manifests.Collectors(), m.step, m.plugin, m.webhook, m.conditions, m.rejections, m.failOpen,
		m.requests, m.conditionErrors, m.conditionSkips, m.security, m.exemptions, m.securityErrors, m.validated.checks,
		m.validated.took, m.mutated.checks, m.mutated.took)
}

// typeOf is the label type of most metrics; those of webhooks call validating admission otherwise, but for the requests
// that match conditions exclude.
func typeOf(mutating bool) string {
	if mutating {
		return "admit"
	}
	return "validate"
}

func webhookType(mutating bool) string {
	if mutating {
		return "admit"
	}
	return "validating"
}

// codeText is a code as a label: none is above 600, so that a webhook cannot make any number of series.
func codeText(code int) string { return strconv.Itoa(min(code, 600)) }

// Hooks are the functions by which package admission reports.
func (m *Admission) Hooks() admission.Metrics {
	return admission.Metrics{
		Step:   func(mutating bool) admission.Observe { return observer(m.step, typeOf(mutating)) },
		Plugin: func(name string, mutating bool) admission.Observe { return observer(m.plugin, name, typeOf(mutating)) },
		Webhooks: webhooks.Metrics{
			Called: func(name string, mutating bool, operation engine.Operation, rejected bool, code int, took time.Duration) {
				kind, refused := webhookType(mutating), strconv.FormatBool(rejected)
				m.webhook.WithLabelValues(name, kind, operation.String(), refused).Observe(took.Seconds())
				m.requests.WithLabelValues(name, kind, operation.String(), codeText(code), refused).Inc()
			},
			Rejected: func(name string, mutating bool, operation engine.Operation, kind string, code int) {
				m.rejections.WithLabelValues(name, webhookType(mutating), operation.String(), kind, codeText(code)).Inc()
			},
			FailedOpen: func(name string, mutating bool) { m.failOpen.WithLabelValues(name, webhookType(mutating)).Inc() },
			ConditionsRun: func(name string, mutating bool, operation engine.Operation, failed int, took time.Duration) {
				labels := []string{name, "webhook", webhookType(mutating), operation.String()}
				m.conditions.WithLabelValues(labels...).Observe(took.Seconds())
				if failed > 0 {
					m.conditionErrors.WithLabelValues(labels...).Add(float64(failed))
				}
			},
			ConditionsExcluded: func(name string, mutating bool, operation engine.Operation) {
				m.conditionSkips.WithLabelValues(name, "webhook", typeOf(mutating), operation.String()).Inc()
			},
		},
		Validating: m.validated.hooks(m, true), Mutating: m.mutated.hooks(m, false),
		Loaded: func(plugin, hash string, err error) {
			of := m.manifests.with("plugin", plugin)
			of.Reloaded(err == nil)
			if err == nil {
				of.ConfiguredAs(hash)
			}
		},
		PodSecurity: m.podSecurity(),
	}
}

func (m *Admission) podSecurity() admission.PodSecurityMetrics {
	labels := func(of admission.SecuredRequest, before ...string) []string {
		return append(before, strings.ToLower(of.Operation.String()), of.Resource, of.Subresource)
	}
	decisions := map[bool]string{true: "allow", false: "deny"}
	return admission.PodSecurityMetrics{
		Evaluated: func(of admission.SecuredRequest, mode, level, version string, allowed bool) {
			m.security.WithLabelValues(labels(of, decisions[allowed], level, version, mode)...).Inc()
		},
		Exempted: func(of admission.SecuredRequest) { m.exemptions.WithLabelValues(labels(of)...).Inc() },
		Failed: func(of admission.SecuredRequest, fatal bool) {
			m.securityErrors.WithLabelValues(labels(of, strconv.FormatBool(fatal))...).Inc()
		},
	}
}

// observer observes with these labels, and those of the operation and of whether it was refused. A series is made when
// it is first needed, and looked up once: every write passes dozens of them.
func observer(of *prometheus.HistogramVec, labels ...string) admission.Observe {
	var series [engine.Operations][2]struct {
		once sync.Once
		to   prometheus.Observer
	}
	return func(operation engine.Operation, rejected bool, took time.Duration) {
		i := 0
		if rejected {
			i = 1
		}
		s := &series[operation][i]
		s.once.Do(func() {
			s.to = of.WithLabelValues(append(labels[:len(labels):len(labels)], operation.String(),
				strconv.FormatBool(rejected))...)
		})
		s.to.Observe(took.Seconds())
	}
}

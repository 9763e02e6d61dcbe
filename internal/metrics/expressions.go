package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/cel"
)

// Expressions are the metrics of CEL expressions. Names and buckets are the reference's.
type Expressions struct{ compiled, evaluated prometheus.Histogram }

// NewExpressions makes metrics that have counted nothing yet.
func NewExpressions() *Expressions {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "apiserver", Subsystem: "cel", Name: name,
			Help: help})
	}
	return &Expressions{
		histogram("compilation_duration_seconds",
			"How long it took to compile the expressions of a custom type, or of a policy."),
		histogram("evaluation_duration_seconds", "How long it took to evaluate the rules of a custom type on an object."),
	}
}

// Observe are the functions that count.
func (e *Expressions) Observe() cel.Observe {
	return cel.Observe{
		Compiled:  func(took time.Duration) { e.compiled.Observe(took.Seconds()) },
		Evaluated: func(took time.Duration) { e.evaluated.Observe(took.Seconds()) },
	}
}

// Collectors are what /metrics shows.
func (e *Expressions) Collectors() []prometheus.Collector {
	return []prometheus.Collector{e.compiled, e.evaluated}
}

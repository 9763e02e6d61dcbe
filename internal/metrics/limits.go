package metrics

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/yaml"

	"plinth/internal/features"
)

// Limits say which metrics are served, and with which values of their labels.
type Limits struct {
	// Disabled are the names of metrics that are not served.
	Disabled []string
	// Labels are the values that a label of a metric may have, separated by commas, by "METRIC,LABEL". Any other value
	// is served as "unexpected". LabelsFile is a YAML file with the same content; only one of them may be set.
	Labels     map[string]string
	LabelsFile string
	// ShowHidden is the release whose hidden metrics are to be shown: the one before this, or "". No metric is hidden.
	ShowHidden string
}

var (
	metricName  = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	metricLabel = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*,[a-zA-Z_][a-zA-Z0-9_]*$`)
)

// limitedMetrics is a Gatherer with only the metrics and the values of labels that the limits allow. Values are
// replaced when metrics are read, and not when they are counted as in the reference, so that counting costs nothing
// more; the metrics whose labels become equal are added up, which gives the same numbers.
type limitedMetrics struct {
	prometheus.Gatherer
	disabled map[string]bool
	allowed  map[string]map[string]map[string]bool // by metric and label: the values

	mu sync.Mutex
	// unexpected is how often a value was not allowed, as far as it has been read: see categorized.
	unexpected float64
}

// aboutMetrics are the metrics that the reference has about its metrics, as far as they are about the limits.
const (
	disabledTotal   = "disabled_metrics_total"
	hiddenTotal     = "hidden_metrics_total"
	unexpectedTotal = "cardinality_enforcement_unexpected_categorizations_total"
)

// figures are these metrics. Of another page than /metrics they are no part.
func (l *limitedMetrics) figures() []prometheus.Collector {
	figure := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		figure(disabledTotal, "Metrics that are not served because of --disabled-metrics.",
			func() float64 { return float64(len(l.disabled)) }),
		figure(hiddenTotal, "Metrics that are not served because they are deprecated.", func() float64 { return 0 }),
		figure(unexpectedTotal, "How often a label had a value that --allow-metric-labels does not allow.",
			func() float64 { return 0 }), // Gather knows it when it has all metrics
	}
}

// Validate returns an error if the limits or their file are wrong.
func (l *Limits) Validate() error {
	_, err := l.parse()
	return err
}

// parse checks the limits and reads their file.
func (l *Limits) parse() (*limitedMetrics, error) {
	of := &limitedMetrics{disabled: map[string]bool{}, allowed: map[string]map[string]map[string]bool{}}
	before := features.Current.Emulated
	if before.Minor--; l.ShowHidden != "" && l.ShowHidden != before.String() {
		return nil, fmt.Errorf("--show-hidden-metrics-for-version: %q must be omitted or have the value '%s'; only the "+
			"previous minor version is allowed", l.ShowHidden, before)
	}
	for _, name := range l.Disabled {
		if !metricName.MatchString(name) {
			return nil, fmt.Errorf("--disabled-metrics: %q is not the name of a metric", name)
		}
		of.disabled[name] = true
	}
	labels, from := l.Labels, "--allow-metric-labels"
	if l.LabelsFile != "" {
		from = "--allow-metric-labels-manifest"
		if len(l.Labels) > 0 {
			return nil, fmt.Errorf("%s: cannot be combined with --allow-metric-labels", from)
		}
		text, err := os.ReadFile(l.LabelsFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		labels = nil
		if err := yaml.Unmarshal(text, &labels); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", from, l.LabelsFile, err)
		}
	}
	for key, values := range labels {
		if !metricLabel.MatchString(key) {
			return nil, fmt.Errorf("%s: %q must have the format METRIC,LABEL", from, key)
		}
		metric, label, _ := strings.Cut(key, ",")
		if of.allowed[metric] == nil {
			of.allowed[metric] = map[string]map[string]bool{}
		}
		set := map[string]bool{}
		for value := range strings.SplitSeq(values, ",") {
			set[value] = true
		}
		of.allowed[metric][label] = set
	}
	return of, nil
}

// of returns the limited metrics of a registry.
func (l *limitedMetrics) of(registry prometheus.Gatherer) prometheus.Gatherer {
	if len(l.disabled) == 0 && len(l.allowed) == 0 {
		return registry
	}
	return &limitedMetrics{Gatherer: registry, disabled: l.disabled, allowed: l.allowed}
}

// Gather implements prometheus.Gatherer.
func (l *limitedMetrics) Gather() ([]*dto.MetricFamily, error) {
	all, err := l.Gatherer.Gather()
	var served []*dto.MetricFamily
	unexpected := 0.0
	var figure *dto.MetricFamily
	for _, family := range all {
		if l.disabled[family.GetName()] {
			continue
		}
		if allowed := l.allowed[family.GetName()]; allowed != nil {
			var replaced float64
			family.Metric, replaced = limit(family.Metric, allowed)
			unexpected += replaced
		}
		if family.GetName() == unexpectedTotal {
			figure = family
		}
		served = append(served, family)
	}
	if figure != nil {
		figure.Metric[0].Counter.Value = new(l.categorized(unexpected))
	}
	return served, err
}

// categorized returns the figure for so many values that are not allowed. Metrics of a type that is gone are dropped,
// but a counter never decreases.
func (l *limitedMetrics) categorized(now float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unexpected = max(l.unexpected, now)
	return l.unexpected
}

// limit replaces the values of labels that are not allowed, and adds up the metrics that then have equal labels. Gather
// makes the metrics and their values anew, but their labels are those that are counted with: they are not changed.
//
// replaced is how often the reference would have replaced them, which does it whenever something is counted: as often
// as the metrics have counted, so for a counter of seconds it is not exact, and for a gauge it is 1.
func limit(metrics []*dto.Metric, allowed map[string]map[string]bool) (served []*dto.Metric, replaced float64) {
	byLabels := map[string]*dto.Metric{}
	for _, m := range metrics {
		key := ""
		m.Label = slices.Clone(m.Label)
		for i, label := range m.Label {
			if values, ok := allowed[label.GetName()]; ok && !values[label.GetValue()] {
				m.Label[i] = &dto.LabelPair{Name: label.Name, Value: new("unexpected")}
				replaced += times(m)
			}
			key += m.Label[i].GetValue() + "\x00"
		}
		if sum := byLabels[key]; sum != nil {
			addMetric(sum, m)
			continue
		}
		byLabels[key] = m
		served = append(served, m)
	}
	return served, replaced
}

// times is how often a metric has counted.
func times(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	}
	return 1
}

// addMetric adds m to sum, a metric of the same family. Buckets of a histogram are cumulative and have the same bounds.
func addMetric(sum, m *dto.Metric) {
	switch {
	case m.Counter != nil:
		sum.Counter.Value = new(sum.Counter.GetValue() + m.Counter.GetValue())
	case m.Gauge != nil:
		sum.Gauge.Value = new(sum.Gauge.GetValue() + m.Gauge.GetValue())
	case m.Histogram != nil:
		h := sum.Histogram
		h.SampleCount = new(h.GetSampleCount() + m.Histogram.GetSampleCount())
		h.SampleSum = new(h.GetSampleSum() + m.Histogram.GetSampleSum())
		for i, bucket := range h.Bucket {
			bucket.CumulativeCount = new(bucket.GetCumulativeCount() + m.Histogram.Bucket[i].GetCumulativeCount())
		}
	}
}

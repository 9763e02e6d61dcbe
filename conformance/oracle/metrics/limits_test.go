// Package metrics compares which metrics are served, and with which values of labels, with component-base.
package metrics

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	upstream "k8s.io/component-base/metrics"

	"plinth/internal/metrics"
)

const unexpected = "cardinality_enforcement_unexpected_categorizations_total"

// values are those of a label; of most cases some are not allowed.
var values = []string{"", "a", "b", "c", "unexpected"}

// counted is a pair of metrics, a counter with the labels x and y and a histogram with the label x, here and there.
type counted struct {
	counter   interface{ count(x, y string) }
	histogram interface{ count(x, y string) }
}

type (
	ourCounter     struct{ *prometheus.CounterVec }
	ourHistogram   struct{ *prometheus.HistogramVec }
	theirCounter   struct{ *upstream.CounterVec }
	theirHistogram struct{ *upstream.HistogramVec }
)

func (c ourCounter) count(x, y string)     { c.WithLabelValues(x, y).Inc() }
func (c ourHistogram) count(x, _ string)   { c.WithLabelValues(x).Observe(1) }
func (c theirCounter) count(x, y string)   { c.WithLabelValues(x, y).Inc() }
func (c theirHistogram) count(x, _ string) { c.WithLabelValues(x).Observe(1) }

// TestLimitsAreUpstreams counts the same with random limits, and compares what is served, how many metrics are disabled
// and how often a value was not allowed.
//
// SPEC: RUN-3
func TestLimitsAreUpstreams(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	replaced := 0.0
	for n := range 200 {
		// Upstream's limits are those of the process, so each case has metrics of its own.
		total, seconds := fmt.Sprintf("m%d_total", n), fmt.Sprintf("m%d_seconds", n)
		limits := metrics.Limits{Labels: map[string]string{}}
		for _, label := range []string{total + ",x", total + ",y", seconds + ",x", seconds + ",y"} {
			if rng.IntN(2) == 0 {
				var some []string
				for _, v := range values {
					if rng.IntN(2) == 0 {
						some = append(some, v)
					}
				}
				limits.Labels[label] = strings.Join(some, ",")
			}
		}
		for _, name := range []string{total, seconds, "none", "none"} {
			if rng.IntN(8) == 0 {
				limits.Disabled = append(limits.Disabled, name)
			}
		}
		ours, page := here(t, &limits, total, seconds)
		theirs, registry := there(limits, total, seconds)
		before := familyOf(t, registry.Gather, unexpected)
		for range 30 {
			x, y := values[rng.IntN(len(values))], values[rng.IntN(len(values))]
			for _, c := range []counted{ours, theirs} {
				c.counter.count(x, y)
				c.histogram.count(x, y)
			}
		}
		for _, name := range []string{total, seconds} {
			if got, want := shown(familyOf(t, page, name)), shown(familyOf(t, registry.Gather, name)); got != want {
				t.Errorf("%+v: %s is\n%s\nwant\n%s", limits, name, got, want)
			}
		}
		want := valueOf(familyOf(t, registry.Gather, unexpected)) - valueOf(before)
		if got := valueOf(familyOf(t, page, unexpected)); got != want {
			t.Errorf("%+v: %v values are unexpected, want %v", limits, got, want)
		}
		replaced += want
	}
	if replaced < 1000 {
		t.Errorf("only %v values were replaced", replaced)
	}
}

type gather func() ([]*dto.MetricFamily, error)

func here(t *testing.T, limits *metrics.Limits, total, seconds string) (counted, gather) {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: total}, []string{"x", "y"})
	histogram := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: seconds}, []string{"x"})
	served := func(string, string, string) bool { return false }
	pages, err := metrics.Pages(limits, slog.New(slog.DiscardHandler), metrics.NewRequests(served), counter, histogram)
	if err != nil {
		t.Fatal(err)
	}
	return counted{ourCounter{counter}, ourHistogram{histogram}}, func() ([]*dto.MetricFamily, error) {
		w := httptest.NewRecorder()
		pages["/metrics"].ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		text, err := io.ReadAll(w.Body)
		if err != nil {
			return nil, err
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
		return slices.Collect(maps.Values(families)), err
	}
}

func there(limits metrics.Limits, total, seconds string) (counted, upstream.KubeRegistry) {
	if len(limits.Labels) > 0 {
		upstream.SetLabelAllowList(limits.Labels)
	}
	upstream.SetDisabledMetrics(limits.Disabled)
	registry := upstream.NewKubeRegistry()
	registry.RegisterMetaMetrics()
	counter := upstream.NewCounterVec(&upstream.CounterOpts{Name: total}, []string{"x", "y"})
	histogram := upstream.NewHistogramVec(&upstream.HistogramOpts{Name: seconds}, []string{"x"})
	registry.MustRegister(counter, histogram)
	return counted{theirCounter{counter}, theirHistogram{histogram}}, registry
}

func familyOf(t *testing.T, gather gather, name string) *dto.MetricFamily {
	t.Helper()
	all, err := gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() == name {
			return family
		}
	}
	return nil
}

func valueOf(family *dto.MetricFamily) float64 { return family.GetMetric()[0].GetCounter().GetValue() }

// shown is what a family has counted, by the values of its labels.
func shown(family *dto.MetricFamily) string {
	var lines []string
	for _, m := range family.GetMetric() {
		line := ""
		for _, label := range m.Label {
			line += fmt.Sprintf("%s=%q ", label.GetName(), label.GetValue())
		}
		lines = append(lines, fmt.Sprintf("%s%v %v", line, m.GetCounter().GetValue(), m.GetHistogram().GetSampleCount()))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

package fairness

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	componentmetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"plinth/internal/fairness"
)

const prefix = "apiserver_flowcontrol_"

// gauges are upstream's metrics that a level hands to its queues, with the clock of the test.
type gauges struct {
	waiting, executing, seats, demand *metrics.TimingRatioHistogram
	registry                          componentmetrics.KubeRegistry
}

func newGauges(now func() time.Time) (g gauges) {
	g.registry = componentmetrics.NewKubeRegistry()
	one := func(name, phase string, bounds []float64) *metrics.TimingRatioHistogram {
		opts := metrics.TimingRatioHistogramOpts{InitialDenominator: 1}
		opts.Name, opts.Help, opts.Buckets = prefix+name, name, bounds
		if phase != "" {
			opts.ConstLabels = map[string]string{"phase": phase}
		}
		h := metrics.NewTestableTimingRatioHistogram(now, &opts)
		g.registry.MustRegister(h)
		return h
	}
	requests := []float64{0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1}
	g.waiting = one("priority_level_request_utilization", "waiting", requests)
	g.executing = one("priority_level_request_utilization", "executing", requests)
	g.seats = one("priority_level_seat_utilization", "executing",
		[]float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1})
	g.demand = one("demand_seats", "", []float64{0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6})
	return g
}

// compareFigures compares the metrics of the queues at the end of a trace, and counts them. Upstream's demand drifts:
// when it dispatches a request with more final seats than there are seats, it reduces them before it subtracts the
// request from those that wait, so that the rest is never subtracted.
func compareFigures(t *testing.T, ours []fairness.Figure, u *theirs, drifts bool, counts map[string]int) {
	t.Helper()
	their := map[string]*dto.Metric{}
	read := func(families []*dto.MetricFamily, err error, level string) {
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				of, labels := "", ""
				for _, l := range m.GetLabel() {
					if l.GetName() == "priority_level" {
						of = l.GetValue()
					} else {
						labels += " " + l.GetValue()
					}
				}
				if of == level {
					their[strings.TrimPrefix(family.GetName(), prefix)+labels] = m
				}
			}
		}
	}
	families, err := u.gauges.registry.Gather()
	read(families, err, "")
	families, err = legacyregistry.DefaultGatherer.Gather()
	families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
		name := f.GetName()
		return name != prefix+"dispatch_r" && name != prefix+"latest_s" && !strings.HasSuffix(name, "_s_bounds")
	})
	read(families, err, u.name)
	for i := range ours {
		f := &ours[i]
		name := strings.Join(append([]string{f.Name}, f.Labels...), " ")
		m := their[name]
		delete(their, name)
		if f.Name == "demand_seats" && drifts {
			continue
		}
		counts[f.Name]++
		if have, want := text(f), textOf(m); have != want {
			t.Fatalf("%s: %s is\n %s, upstream has\n %s", u.name, name, have, want)
		}
	}
	for name := range maps.Keys(their) {
		t.Fatalf("%s: only upstream has %s", u.name, name)
	}
}

// rounded forgets differences of rounding.
func rounded(x float64) float64 { return math.Round(x*1e4) / 1e4 }

func text(f *fairness.Figure) string {
	if f.Counts == nil {
		return fmt.Sprint(f.Value)
	}
	lines := fmt.Sprint(f.Samples, " ", rounded(f.Sum/1e9))
	for _, bound := range slices.Sorted(maps.Keys(f.Counts)) {
		lines += fmt.Sprint(" ", bound, ":", f.Counts[bound])
	}
	return lines
}

func textOf(m *dto.Metric) string {
	if m.GetHistogram() == nil {
		return fmt.Sprint(m.GetGauge().GetValue())
	}
	h := m.GetHistogram()
	lines := fmt.Sprint(h.GetSampleCount(), " ", rounded(h.GetSampleSum()/1e9))
	for _, b := range h.GetBucket() {
		lines += fmt.Sprint(" ", b.GetUpperBound(), ":", b.GetCumulativeCount())
	}
	return lines
}

func init() { metrics.Register() }

// touch sets each metric of upstream once, so that it is gathered.
func touch() {
	ctx := context.Background()
	const l, s = "touched", "touched"
	metrics.AddRequestsInQueues(ctx, l, s, 1)
	metrics.AddSeatsInQueues(ctx, l, s, 1)
	metrics.AddRequestsExecuting(ctx, l, s, 1)
	metrics.SetCurrentR(l, 1)
	metrics.SetDispatchMetrics(l, 1, 1, 1, 1, 1, 1)
	metrics.AddSeatConcurrencyInUse(l, s, 1)
	metrics.AddReject(ctx, l, s, "time-out")
	metrics.AddDispatch(ctx, l, s)
	metrics.ObserveQueueLength(ctx, l, s, 1)
	metrics.ObserveWaitingDuration(ctx, l, s, "true", 1)
	metrics.ObserveExecutionDuration(ctx, l, s, 1)
	metrics.ObserveWatchCount(ctx, l, s, 1)
	metrics.AddEpochAdvance(ctx, l, true)
	metrics.ObserveWorkEstimatedSeats(l, s, 1)
	metrics.AddDispatchWithNoAccommodation(l, s)
	metrics.SetPriorityLevelConfiguration(l, 1, 1, 1)
	metrics.NotePriorityLevelConcurrencyAdjustment(l, 1, 1, 1, 1, 1, 1)
	metrics.SetFairFrac(1)
	metrics.GetWaitingReadonlyConcurrency()
	metrics.PriorityLevelExecutionSeatsGaugeVec.NewForLabelValuesSafe(0, 1, []string{l})
	metrics.RatioedGaugeVecPhasedElementPair(metrics.PriorityLevelConcurrencyGaugeVec, 1, 1, []string{l})
	metrics.ApiserverSeatDemands.NewForLabelValuesSafe(0, 1, []string{l})
}

// SPEC: AUTH-6
// The metrics have the names, types, labels and buckets of upstream's.
func TestMetrics(t *testing.T) {
	touch()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]string{}
	for _, family := range families {
		name, of := strings.CutPrefix(family.GetName(), prefix)
		if !of {
			continue
		}
		m := family.GetMetric()[0]
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName())
		}
		var buckets []float64
		for _, b := range m.GetHistogram().GetBucket() {
			buckets = append(buckets, b.GetUpperBound())
		}
		theirs[name] = describe(strings.ToLower(family.GetType().String()), labels, buckets)
	}
	if len(theirs) < 32 {
		t.Errorf("only %d metrics of upstream are known", len(theirs))
	}
	for _, m := range fairness.Metrics() {
		kind := "gauge"
		switch {
		case m.Buckets != nil:
			kind = "histogram"
		case strings.HasSuffix(m.Name, "_total"):
			kind = "counter"
		}
		if have := describe(kind, m.Labels, m.Buckets); have != theirs[m.Name] {
			t.Errorf("%s is a %s, upstream's is a %s", m.Name, have, theirs[m.Name])
		}
		delete(theirs, m.Name)
	}
	for name, text := range theirs {
		t.Errorf("%s, a %s, is missing", name, text)
	}
}

func describe(kind string, labels []string, buckets []float64) string {
	labels = slices.Sorted(slices.Values(labels))
	return fmt.Sprint(kind, labels, buckets)
}

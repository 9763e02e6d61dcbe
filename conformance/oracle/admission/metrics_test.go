package admission

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
)

// gather reads the reference's metrics as counts by series; durations are counted. series names the series of a metric
// with these labels, which may be that of several; "": it is not compared.
func gather(t *testing.T, series func(metric string, labels map[string]string) string) map[string]int {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]int{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if name := series(family.GetName(), labels); name != "" {
				figures[name] += int(m.GetCounter().GetValue()) + int(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return figures
}

// seriesOf names a series by its metric and the values of some labels.
func seriesOf(metric string, labels map[string]string, names []string) string {
	for _, name := range names {
		metric += " " + labels[name]
	}
	return metric
}

// compareMetrics compares what the reference has counted since before with what was counted here. The reference must
// have at least a number of series.
func compareMetrics(t *testing.T, before, theirs, here map[string]int, least int) {
	t.Helper()
	for name := range theirs {
		if theirs[name] -= before[name]; theirs[name] == 0 {
			delete(theirs, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		if theirs[name] != here[name] {
			t.Errorf("%s: %d there, %d here", name, theirs[name], here[name])
		}
		delete(here, name)
	}
	for name, n := range here {
		t.Errorf("%s: none there, %d here", name, n)
	}
	if len(theirs) < least {
		t.Errorf("the reference has only %d series of metrics: %v", len(theirs), theirs)
	}
}

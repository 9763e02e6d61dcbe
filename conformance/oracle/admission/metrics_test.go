package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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

// figures are counts by series.
type figures struct {
	mu sync.Mutex
	of map[string]int
}

// add adds to the count of a series, whose name and labels are the words.
func (f *figures) add(n int, words ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > 0 {
		if f.of == nil {
			f.of = map[string]int{}
		}
		f.of[strings.TrimSuffix(fmt.Sprintln(words...), "\n")] += n
	}
}

// take returns the counts as text, and begins anew.
func (f *figures) take() string {
	if f == nil {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	text := fmt.Sprintln(f.of)
	clear(f.of)
	return text
}

// compareMetrics compares what the reference has counted since before with what was counted here. The reference must
// have at least a number of series.
func compareMetrics(t *testing.T, before, theirs map[string]int, of *figures, least int) {
	t.Helper()
	if tryMutants != nil { // it has looked at the counts of each attempt
		return
	}
	here := of.of
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

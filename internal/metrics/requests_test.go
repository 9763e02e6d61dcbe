package metrics

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/httpapi"
)

// Metrics of custom types that are not served any more are dropped, however many there were; those of other types stay.
//
// SPEC: RUN-3
func TestMetricsOfDeletedTypes(t *testing.T) {
	m := NewRequests(func(string, string, string) bool { return false })
	shown := prometheus.NewRegistry()
	shown.MustRegister(m.Collectors()...)
	hooks := m.Hooks()
	pods := httpapi.Observation{Verb: "GET", Version: "v1", Resource: "pods", Code: 200}
	m.request(pods)
	const types = 20_000
	for i := range types {
		group := fmt.Sprintf("g%d.example.com", i)
		hooks.Events(group, "v1", "widgets", 1, 100)
		m.request(httpapi.Observation{
			Verb: "WATCH", Custom: true, Group: group, Version: "v1", Resource: "widgets", Code: 200, Class: httpapi.LongRunning,
		})
	}
	m.request(pods)
	if n := len(m.byObservation); n > firstSweep+2 {
		t.Errorf("%d entries after %d types", n, types)
	}
	families, err := shown.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if n := len(family.Metric); n > firstSweep+2 {
			t.Errorf("%s has %d metrics", family.GetName(), n)
		}
		if family.GetName() != "apiserver_request_total" {
			continue
		}
		for _, metric := range family.Metric {
			for _, label := range metric.Label {
				if label.GetName() == "resource" && label.GetValue() == "pods" && metric.Counter.GetValue() != 2 {
					t.Errorf("%v GETs of pods are counted, want 2", metric.Counter.GetValue())
				}
			}
		}
	}
}

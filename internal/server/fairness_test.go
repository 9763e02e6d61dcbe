package server

import (
	"strings"
	"testing"
)

// SPEC: AUTH-6
// A FlowSchema whose level is missing is dangling until the level exists; the level is then in the pages and metrics.
func TestFairness(t *testing.T) {
	c, _ := serveDefinitions(t)
	const group = "/apis/flowcontrol.apiserver.k8s.io/v1/"
	c.must(201, "POST", group+"flowschemas", map[string]any{
		"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
		"metadata": map[string]any{"name": "mine"},
		"spec":     map[string]any{"matchingPrecedence": 50, "priorityLevelConfiguration": map[string]any{"name": "late"}},
	})
	until := func(want string) {
		t.Helper()
		c.eventually("Dangling is "+want, func() bool {
			conditions, _ := c.must(200, "GET", group+"flowschemas/mine", nil).at("status", "conditions").([]any)
			return len(conditions) == 1 && conditions[0].(map[string]any)["status"] == want
		})
	}
	until("True")
	c.must(201, "POST", group+"prioritylevelconfigurations", map[string]any{
		"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
		"metadata": map[string]any{"name": "late"},
		"spec": map[string]any{"type": "Limited", "limited": map[string]any{
			"nominalConcurrencyShares": 1, "limitResponse": map[string]any{"type": "Reject"}}},
	})
	until("False")
	_, page := c.plain("/metrics")
	for _, want := range []string{`priority_level_request_utilization_count{phase="executing",priority_level="late"}`,
		`read_vs_write_current_requests_count{phase="executing",request_kind="mutating"}`,
		`demand_seats_bucket{priority_level="late",le="6"}`, `watch_count_samples_count{`} {
		if !strings.Contains(page, "\napiserver_flowcontrol_"+want) {
			t.Errorf("/metrics does not have %s", want)
		}
	}
	for path, want := range map[string]string{
		"/debug/api_priority_and_fairness/dump_priority_levels": "late,",
		"/debug/api_priority_and_fairness/dump_queues":          "workload-low,",
		"/debug/api_priority_and_fairness/dump_requests":        "PriorityLevelName,",
		"/metrics": `apiserver_flowcontrol_nominal_limit_seats{priority_level="late"}`,
	} {
		if _, text := c.plain(path); !strings.Contains(text, want) {
			t.Errorf("%s does not have %s:\n%.600s", path, want, text)
		}
	}
}

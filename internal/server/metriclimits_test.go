package server

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plinth/internal/metrics"
)

// metricsOf are the lines of /metrics of one metric.
func metricsOf(t *testing.T, client *apiClient, name string) (lines []string) {
	t.Helper()
	answer, err := client.send(t.Context(), http.MethodGet, "/metrics", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// Values of labels that are not allowed are served as one value, with the sum of their counts, whether the limits are
// in the flag or in a file; disabled metrics are not served.
//
// SPEC: RUN-3
func TestMetricLimits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "labels.yaml")
	const text = "\"apiserver_request_total,verb\": \"POST,LIST\"\n\"apiserver_response_sizes,verb\": \"POST\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, limits := range map[string]metrics.Limits{
		"flag": {Labels: map[string]string{
			"apiserver_request_total,verb": "POST,LIST", "apiserver_response_sizes,verb": "POST"}},
		"file": {LabelsFile: file},
	} {
		limits.Disabled = []string{"apiserver_current_inflight_requests", "of_nothing", "of_nothing"}
		limits.ShowHidden = "1.36"
		s := started(t, func(c *Config) { c.Metrics = limits })
		client := clientOf(t, s)
		for _, path := range []string{"default", "kube-system", "kube-public"} {
			if _, _, err := client.do(t.Context(), http.MethodGet, "/api/v1/namespaces/"+path, "", nil, 200); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if _, _, err := client.do(t.Context(), http.MethodDelete, "/api/v1/namespaces/none", "", nil, 404); err != nil {
				t.Fatal(err)
			}
		}
		if lines := metricsOf(t, client, "apiserver_current_inflight_requests"); len(lines) > 0 {
			t.Errorf("%s: a disabled metric is served: %s", name, lines)
		}
		total := metricsOf(t, client, "apiserver_request_total")
		const want = `resource="namespaces",scope="resource",subresource="",verb="unexpected",version="v1"} 3`
		if !strings.Contains(strings.Join(total, "\n"), want) {
			t.Errorf("%s: no %s in\n%s", name, want, strings.Join(total, "\n"))
		}
		for _, line := range total {
			if strings.Contains(line, `verb="GET"`) || strings.Contains(line, `verb="DELETE"`) {
				t.Errorf("%s: a value that is not allowed: %s", name, line)
			}
		}
		for _, want := range []string{"disabled_metrics_total 2", "hidden_metrics_total 0"} {
			figure, _, _ := strings.Cut(want, " ")
			if lines := metricsOf(t, client, figure); len(lines) != 1 || lines[0] != want {
				t.Errorf("%s: %q, want %s", name, lines, want)
			}
		}
		// conformance/oracle/metrics compares the figure with the reference's.
		const figure = "cardinality_enforcement_unexpected_categorizations_total"
		if lines := metricsOf(t, client, figure); len(lines) != 1 || lines[0] == figure+" 0" {
			t.Errorf("%s: %q", name, lines)
		}
		// GET and DELETE together, as the histogram has no label for the code.
		sizes := strings.Join(metricsOf(t, client, "apiserver_response_sizes_count"), "\n")
		const five = `resource="namespaces",scope="resource",subresource="",verb="unexpected",version="v1"} 5`
		if !strings.Contains(sizes, five) {
			t.Errorf("%s: no %s in\n%s", name, five, sizes)
		}
	}
	for name, limits := range map[string]metrics.Limits{
		"the value '1.36'":   {ShowHidden: "1.37"},
		"METRIC,LABEL":       {Labels: map[string]string{"verb": "x"}},
		"not the name":       {Disabled: []string{"a b"}},
		"cannot be combined": {Labels: map[string]string{"a,b": "x"}, LabelsFile: file},
		"no such file":       {LabelsFile: file + ".missing"},
	} {
		c := quiet(t.TempDir())
		c.Metrics = limits
		if err := c.validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the error is %v, want one with %q", err, name)
		}
	}
}

// The size of the store is that of its files; it grows with what is stored.
//
// SPEC: RUN-3
func TestStorageSize(t *testing.T) {
	s, err := Start(t.Context(), quiet(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	client := clientOf(t, s)
	if lines := metricsOf(t, client, "apiserver_storage_size_bytes"); len(lines) != 1 ||
		!strings.HasPrefix(lines[0], `apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} `) {
		t.Errorf("the metric is %q", lines)
	}
	before := s.plane.Storage.Size()
	body := jsonObject{"metadata": map[string]any{"name": "a"}, "data": map[string]any{"a": strings.Repeat("x", 500<<10)}}
	const configMaps = "/api/v1/namespaces/default/configmaps"
	if _, _, err := client.do(t.Context(), http.MethodPost, configMaps, "application/json", body,
		201); err != nil {
		t.Fatal(err)
	}
	if after := s.plane.Storage.Size(); before <= 0 || after < before {
		t.Errorf("%d bytes, then %d", before, after)
	}
}

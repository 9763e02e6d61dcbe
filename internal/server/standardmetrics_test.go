package server

import (
	_ "embed"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/metrics"
)

// standardMetrics are the metrics of kube-apiserver 1.37.1 of the levels STABLE and BETA, with their types and labels:
// those of k8s.io/apiserver, k8s.io/component-base and k8s.io/kubernetes/pkg/serviceaccount whose StabilityLevel says
// so, which are those that the help texts of a kube-apiserver's /metrics mark: conformance/http/metrics compares the
// list with what one serves. (apiserver_request_sli_duration_seconds and
// apiserver_client_certificate_expiration_seconds are ALPHA; dashboards read them.)
//
//go:embed testdata/standardmetrics.txt
var standardMetrics string

// absentMetrics are those of standardMetrics that no server here serves, with the reason.
var absentMetrics = map[string]string{
	"apiserver_storage_objects": "deprecated in 1.34 and hidden in 1.37: a kube-apiserver does not serve it either; " +
		"apiserver_resource_objects is there",
	"apiserver_validation_declarative_validation_mismatch_total": "there is one validation, and no second one beside it",
	"apiserver_validation_declarative_validation_panic_total":    "there is one validation, and no second one beside it",
	"registered_metrics_total":                                   "metrics have no stability level here",
}

// described are the labels of metrics, by name, whether or not they have counted something.
type described map[string][]string

var (
	descName  = regexp.MustCompile(`fqName: "([^"]*)"`)
	descConst = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
	descParts = regexp.MustCompile(`constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
)

func (d described) add(t *testing.T, all ...prometheus.Collector) {
	t.Helper()
	for _, c := range all {
		descs := make(chan *prometheus.Desc)
		go func() { c.Describe(descs); close(descs) }()
		for desc := range descs {
			text := desc.String()
			name, parts := descName.FindStringSubmatch(text), descParts.FindStringSubmatch(text)
			if name == nil || parts == nil {
				t.Fatalf("%s is of an unknown form", text)
			}
			labels := []string{}
			for _, found := range descConst.FindAllStringSubmatch(parts[1], -1) {
				labels = append(labels, found[1])
			}
			if parts[2] != "" {
				labels = append(labels, strings.Split(parts[2], ",")...)
			}
			slices.Sort(labels)
			d[name[1]] = labels
		}
	}
}

// The stable and beta metrics of kube-apiserver are served, with the same types and labels, or are in the table of
// those that are not; and none of these is served.
//
// SPEC: RUN-3
func TestStandardMetrics(t *testing.T) {
	s := started(t, func(*Config) {})
	page(t, s, "/readyz")
	page(t, s, "/api/v1/nodes")
	page(t, s, "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch="+
		"NotOlderThan&allowWatchBookmarks=true")
	types := map[string]string{}
	for line := range strings.Lines(page(t, s, "/metrics") + page(t, s, "/metrics/slis")) {
		if words := strings.Fields(line); len(words) == 4 && words[1] == "TYPE" {
			types[words[2]] = words[3]
		}
	}
	served := described{}
	shown, err := s.collectors(s.plane)
	if err != nil {
		t.Fatal(err)
	}
	served.add(t, shown...)
	served.add(t, s.counts.requests.Collectors()...)
	served.add(t, metrics.NewEtcd().Collectors()...)
	served.add(t, metrics.NewIssuers("", nil).Collectors()...)
	standard := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(standardMetrics)) {
		words := strings.Fields(line)
		name, labels := words[0], words[2:]
		standard[name] = true
		have, ok := served[name]
		if kind, shows := types[name]; shows && kind != words[1] {
			t.Errorf("%s is a %s, not a %s", name, kind, words[1])
		} else if !shows && !ok && absentMetrics[name] == "" {
			t.Errorf("%s is not served", name)
		} else if absentMetrics[name] != "" && (shows || ok) {
			t.Errorf("%s is served, though a table says it is not", name)
		} else if ok && !slices.Equal(have, labels) {
			t.Errorf("%s has the labels %v, want %v", name, have, labels)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(absentMetrics)) {
		if !standard[name] {
			t.Errorf("%s is not in the list", name)
		}
	}
	for _, name := range []string{"apiserver_watch_list_duration_seconds", "apiserver_watch_events_sizes",
		"apiserver_request_sli_duration_seconds", "apiserver_longrunning_requests", "kubernetes_build_info"} {
		if types[name] == "" {
			t.Errorf("%s has counted nothing", name)
		}
	}
}

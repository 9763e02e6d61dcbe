package server

import (
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
// so, which are those that the help texts of a kube-apiserver's /metrics mark. (apiserver_request_sli_duration_seconds
// and apiserver_client_certificate_expiration_seconds are ALPHA; dashboards read them.)
const standardMetrics = `
apiserver_admission_controller_admission_duration_seconds histogram name operation rejected type
apiserver_admission_step_admission_duration_seconds histogram operation rejected type
apiserver_admission_webhook_admission_duration_seconds histogram name operation rejected type
apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds gauge apiserver_id_hash status
apiserver_authentication_config_controller_automatic_reloads_total counter apiserver_id_hash status
apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds gauge apiserver_id_hash status
apiserver_authorization_config_controller_automatic_reloads_total counter apiserver_id_hash status
apiserver_cel_compilation_duration_seconds histogram
apiserver_cel_evaluation_duration_seconds histogram
apiserver_client_certificate_expiration_seconds histogram
apiserver_current_inflight_requests gauge request_kind
apiserver_flowcontrol_current_executing_requests gauge flow_schema priority_level
apiserver_flowcontrol_current_executing_seats gauge flow_schema priority_level
apiserver_flowcontrol_current_inqueue_requests gauge flow_schema priority_level
apiserver_flowcontrol_dispatched_requests_total counter flow_schema priority_level
apiserver_flowcontrol_nominal_limit_seats gauge priority_level
apiserver_flowcontrol_rejected_requests_total counter flow_schema priority_level reason
apiserver_flowcontrol_request_wait_duration_seconds histogram execute flow_schema priority_level
apiserver_longrunning_requests gauge component group resource scope subresource verb version
apiserver_request_duration_seconds histogram component dry_run group resource scope subresource verb version
apiserver_request_sli_duration_seconds histogram component group resource scope subresource verb version
apiserver_request_total counter code component dry_run group resource scope subresource verb version
apiserver_requested_deprecated_apis gauge group removed_release resource subresource version
apiserver_response_sizes histogram component group resource scope subresource verb version
apiserver_storage_events_received_total counter group resource
apiserver_storage_objects gauge resource
apiserver_storage_size_bytes gauge storage_cluster_id
apiserver_validating_admission_policy_check_duration_seconds histogram enforcement_action error_type policy policy_binding
apiserver_validating_admission_policy_check_total counter enforcement_action error_type policy policy_binding
apiserver_validation_declarative_validation_mismatch_total counter
apiserver_validation_declarative_validation_panic_total counter
apiserver_watch_events_sizes histogram group resource version
apiserver_watch_events_total counter group resource version
apiserver_watch_list_duration_seconds histogram group resource scope version
apiserver_webhooks_x509_insecure_sha1_total counter
apiserver_webhooks_x509_missing_san_total counter
disabled_metrics_total counter
hidden_metrics_total counter
kubernetes_build_info gauge build_date compiler git_commit git_tree_state git_version go_version major minor platform
kubernetes_feature_enabled gauge name stage
kubernetes_healthcheck gauge name type
kubernetes_healthchecks_total counter name status type
registered_metrics_total counter deprecated_version stability_level
serviceaccount_legacy_tokens_total counter
serviceaccount_stale_tokens_total counter
serviceaccount_valid_tokens_total counter
workqueue_adds_total counter name
workqueue_depth gauge name
workqueue_longest_running_processor_seconds gauge name
workqueue_queue_duration_seconds histogram name
workqueue_retries_total counter name
workqueue_unfinished_work_seconds gauge name
workqueue_work_duration_seconds histogram name
`

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

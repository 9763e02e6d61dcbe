package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The metrics of PodSecurity, and those of static configurations and their reloads, have the reference's names and
// labels.
//
// SPEC: AUTH-3, RUN-3
func TestMetricsOfAdmission(t *testing.T) {
	dir := t.TempDir()
	manifests, configuration := filepath.Join(dir, "manifests"), filepath.Join(dir, "admission.yaml")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(manifests, 0o700); err != nil {
		t.Fatal(err)
	}
	write(configuration, fmt.Sprintf(`{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
		"plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": {"apiVersion": "apiserver.config.k8s.io/v1",
		"kind": "WebhookAdmissionConfiguration", "staticManifestsDir": %q}},
		{"name": "PodSecurity", "configuration": {"apiVersion": "pod-security.admission.config.k8s.io/v1",
		"kind": "PodSecurityConfiguration", "exemptions": {"namespaces": ["kube-system"]}}}]}`, manifests))
	client := clientOf(t, started(t, func(c *Config) { c.AdmissionConfig = configuration }))
	send := func(path, body string, code int) {
		t.Helper()
		_, _, err := client.do(t.Context(), http.MethodPost, path, "application/json", json.RawMessage(body), code)
		if err != nil {
			t.Fatal(err)
		}
	}
	send("/api/v1/namespaces", `{"metadata": {"name": "strict", "labels": {
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "v1.30"}}}`, 201)
	const pod = `{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`
	send("/api/v1/namespaces/strict/pods", pod, 403)
	send("/api/v1/namespaces/kube-system/pods", pod, 201)
	const group = "/apis/admissionregistration.k8s.io/v1/"
	send(group+"validatingadmissionpolicies", `{"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": [
		{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]},
		"matchConditions": [{"name": "c", "expression": "request.name != 'other'"}],
		"validations": [{"expression": "false"}]}}`, 201)
	send(group+"validatingadmissionpolicybindings", `{"metadata": {"name": "b"}, "spec": {"policyName": "p",
		"validationActions": ["Deny", "Audit"]}}`, 201)
	send(group+"mutatingadmissionpolicies", `{"metadata": {"name": "m"}, "spec": {"matchConstraints": {"resourceRules": [
		{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]},
		"reinvocationPolicy": "Never", "mutations": [{"patchType": "ApplyConfiguration",
		"applyConfiguration": {"expression": "Object{}"}}]}}`, 201)
	send(group+"mutatingadmissionpolicybindings", `{"metadata": {"name": "b"}, "spec": {"policyName": "m"}}`, 201)
	send("/api/v1/namespaces/default/secrets", `{"metadata": {"name": "s"}}`, 422)
	send("/api/v1/namespaces/default/secrets", `{"metadata": {"name": "other"}}`, 201) // its conditions are timed
	shows := func(name, labels string) bool {
		has := func(line string) bool { return strings.Contains(line, labels) }
		return slices.ContainsFunc(metricsOf(t, client, name), has)
	}
	for _, c := range [][]string{
		{"pod_security_evaluations_total", `{decision="deny",mode="enforce",policy_level="restricted",` +
			`policy_version="v1.30",request_operation="create",resource="pod",subresource=""} 1`},
		{"pod_security_exemptions_total", `{request_operation="create",resource="pod",subresource=""} 1`},
		{"apiserver_validating_admission_policy_check_total",
			`{enforcement_action="deny",error_type="invalid_error",policy="p",policy_binding="b"} 1`},
		{"apiserver_validating_admission_policy_check_duration_seconds_count",
			`{enforcement_action="audit",error_type="invalid_error",policy="p",policy_binding="b"} 1`},
		{"apiserver_mutating_admission_policy_check_total",
			`{error_type="no_error",policy="m",policy_binding="b"}`},
		{"apiserver_admission_match_condition_evaluation_seconds_count",
			`{kind="policy",name="p",operation="CREATE",type="validate"} 1`},
		{reloads + "reloads_total", `plugin="ValidatingAdmissionWebhook",status="success"} 1`},
		{reloads + "reload_last_timestamp_seconds", `plugin="ValidatingAdmissionWebhook",status="success"`},
		{"apiserver_manifest_admission_config_controller_last_config_info", `hash="",plugin="ValidatingAdmissionWebhook"} 1`},
	} {
		if !shows(c[0], c[1]) {
			t.Errorf("%s: no %s in %s", c[0], c[1], metricsOf(t, client, c[0]))
		}
	}
	write(filepath.Join(manifests, "wrong.yaml"), "kind: Pod")
	eventually := func(name, label string) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !shows(name, label); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s never shows %s: %s", name, label, metricsOf(t, client, name))
			}
		}
	}
	eventually(reloads+"reloads_total", `plugin="ValidatingAdmissionWebhook",status="failure"}`)
	write(filepath.Join(manifests, "wrong.yaml"), `{"apiVersion": "v1", "kind": "List", "items": []}`)
	eventually("apiserver_manifest_admission_config_controller_last_config_info",
		`hash="sha256:0b5243a3`) // of these bytes and a zero
	if lines := metricsOf(t, client, "apiserver_manifest_admission_config_controller_last_config_info"); len(lines) != 1 {
		t.Errorf("an old hash is still there: %s", lines)
	}
}

const reloads = "apiserver_manifest_admission_config_controller_automatic_"

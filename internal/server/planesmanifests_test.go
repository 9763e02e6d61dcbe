package server

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Webhooks in files of the process are asked in each plane, wherever they are and with the credentials of the process.
// Those that a plane registers at the same address get no credentials.
//
// SPEC: BEY-9, AUTH-3
func TestManifestsInPlanes(t *testing.T) {
	var calls sync.Map // the credentials with which a path was called last
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Store(r.URL.Path, r.Header.Get("Authorization"))
		var review struct {
			Request struct{ UID, Name string }
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": %q, "allowed": %t}}`,
			review.Request.UID, review.Request.Name != "refused")
	}))
	defer hook.Close()
	configuration := func(name, path string) string {
		return fmt.Sprintf(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
			"metadata": {"name": %q}, "webhooks": [{"name": "w.example.com", "clientConfig": {"url": %q, "caBundle": %q},
			"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
			"sideEffects": "None", "admissionReviewVersions": ["v1"]}]}`, name, hook.URL+path,
			base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
				Bytes: hook.Certificate().Raw})))
	}
	dir := t.TempDir()
	manifests := filepath.Join(dir, "manifests")
	if err := os.Mkdir(manifests, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{
		"kubeconfig": `{"users": [{"name": "*", "user": {"token": "of-the-process"}}]}`,
		"admission.json": fmt.Sprintf(`{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
			"plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": {"apiVersion": "apiserver.config.k8s.io/v1",
			"kind": "WebhookAdmissionConfiguration", "kubeConfigFile": %q, "staticManifestsDir": %q}}]}`,
			filepath.Join(dir, "kubeconfig"), manifests),
	} {
		write(file, text)
	}
	const registered = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	for _, egress := range [][]string{nil, {"127.0.0.0/8"}} {
		write("manifests/w.json", configuration("w.static.k8s.io", "/static"))
		s := startPlanes(t, func(c *Config) {
			c.AdmissionConfig, c.PlanesEgress = filepath.Join(dir, "admission.json"), egress
		})
		s.create("a", "")
		for _, plane := range []string{"", "a"} {
			calls.Clear()
			s.want(201, plane, "POST", planeMaps, mapOf("allowed", "1"))
			s.want(400, plane, "POST", planeMaps, mapOf("refused", "1"))
			if got, _ := calls.Load("/static"); got != "Bearer of-the-process" {
				t.Errorf("plane %q: the webhook in a file was called with %v", plane, got)
			}
		}
		write("manifests/w.json", "{") // what was loaded stays, also for planes that begin now
		s.create("b", "")
		s.want(201, "b", "POST", planeMaps, mapOf("allowed", "1"))
		s.want(400, "b", "POST", planeMaps, mapOf("refused", "1"))
		s.want(201, "a", "POST", registered, configuration("w", "/registered"))
		if egress == nil {
			refusal := s.want(500, "a", "POST", planeMaps, mapOf("one", "1"))
			if text := refusal.At("message").Str(); !strings.Contains(text, "loopback") {
				t.Errorf("a webhook that the plane has registered: %s", text)
			}
			continue
		}
		calls.Clear()
		s.want(201, "a", "POST", planeMaps, mapOf("one", "1"))
		if got, _ := calls.Load("/registered"); got != "" {
			t.Errorf("a webhook that the plane has registered was called with %v", got)
		}
	}
}

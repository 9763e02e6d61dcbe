package operators

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"plinth/conformance/internal/authority"
	"plinth/conformance/internal/harness"
)

// A webhook server gets another certificate, of another authority: the open connection is used on, a new one is not
// trusted until the configuration names the new authority, and is then used at once. The reference does the same
// (CONFORMANCE_REFERENCE=1).
//
// SPEC: AUTH-3
func TestReplacedCertificate(t *testing.T) {
	kinds := []harness.Kind{harness.Plinth}
	if harness.WantReference() {
		kinds = append(kinds, harness.Reference)
	}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) { replaceCertificate(t, kind) })
	}
}

func replaceCertificate(t *testing.T, kind harness.Kind) {
	config, err := harness.Run(t, harness.Options{Kind: kind}).Config()
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	hook := newRotating(t)
	first := hook.rotate(t)
	configuration, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
		hook.configuration(first), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	create := func() error {
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(),
			&core.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{})
		return err
	}
	eventually := func(what string, met func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !met(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	eventually("the webhook is never called", func() bool { return create() == nil && hook.calls.Load() > 0 })

	second := hook.rotate(t)
	calls, opened := hook.calls.Load(), hook.opened.Load()
	if err := create(); err != nil || hook.calls.Load() != calls+1 || hook.opened.Load() != opened {
		t.Errorf("over the open connection: %v; %d calls, %d new connections", err, hook.calls.Load()-calls,
			hook.opened.Load()-opened)
	}

	hook.server.CloseClientConnections()
	const untrusted = `failed calling webhook "rotating.example.com": failed to call webhook: Post "<hook>/?timeout=10s": ` +
		`tls: failed to verify certificate: x509: certificate signed by unknown authority`
	eventually("the new certificate is never refused", func() bool { // a client may not know yet that it is disconnected
		err := create()
		if err == nil {
			t.Fatal("the new certificate is trusted")
		}
		return strings.Contains(strings.ReplaceAll(err.Error(), hook.server.URL, "<hook>"), untrusted)
	})

	configuration.Webhooks = hook.configuration(slices.Concat(first, second)).Webhooks
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), configuration,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if kind == harness.Plinth { // the reference sees the change a moment later
		if err := create(); err != nil {
			t.Errorf("after the configuration has changed: %v", err)
		}
	}
	eventually("the new authority is never trusted", func() bool { return create() == nil })
	if hook.opened.Load() == opened {
		t.Error("no new connection was opened")
	}
}

// rotating is a webhook server that admits everything, and whose certificate can be replaced while it runs.
type rotating struct {
	server        *httptest.Server
	certificate   atomic.Pointer[tls.Certificate]
	calls, opened atomic.Int64 // requests, and connections
}

func newRotating(t *testing.T) *rotating {
	h := &rotating{}
	h.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.calls.Add(1)
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`,
			review.Request.UID)
	}))
	h.server.EnableHTTP2 = true
	h.server.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		h.opened.Add(1)
		return h.certificate.Load(), nil
	}}
	h.rotate(t)
	h.server.StartTLS()
	h.server.TLS.Certificates = nil // httptest's own
	t.Cleanup(h.server.Close)
	return h
}

// rotate makes another authority and a certificate of it, and returns the authority's certificate.
func (h *rotating) rotate(t *testing.T) []byte {
	t.Helper()
	made, ca, err := authority.Serving()
	if err != nil {
		t.Fatal(err)
	}
	h.certificate.Store(made)
	return ca
}

func (h *rotating) configuration(bundle []byte) *registration.ValidatingWebhookConfiguration {
	none, url := registration.SideEffectClassNone, h.server.URL+"/"
	return &registration.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "rotating"},
		Webhooks: []registration.ValidatingWebhook{{Name: "rotating.example.com",
			ClientConfig: registration.WebhookClientConfig{URL: &url, CABundle: bundle},
			Rules: []registration.RuleWithOperations{{Operations: []registration.OperationType{"CREATE"},
				Rule: registration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"configmaps"}}}},
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}}}
}

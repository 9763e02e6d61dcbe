package soak

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// SPEC: AUTH-3, STORE-1: kill -9 while a create waits for a webhook leaves nothing of it, and the configuration of the
// webhook holds after the restart.
func TestKillDuringWebhook(t *testing.T) {
	if harness.Target() == harness.Reference {
		return // it restarts on another port
	}
	asked := make(chan struct{}, 1)
	hook := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then is the end of the connection noticed
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	}))
	defer hook.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	server := harness.RunTarget(t)
	client := load.New(server, 4)
	if err := client.Namespace(t.Context(), "waits"); err != nil {
		t.Fatal(err)
	}
	post := func(path, body string) error {
		_, err := client.Do(t.Context(), load.Request{Method: http.MethodPost, Path: path, Body: []byte(body)})
		return err
	}
	if err := post("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", fmt.Sprintf(`{
		"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"w"},
		"webhooks":[{"name":"w.example.com","clientConfig":{"url":%q,"caBundle":%q},"admissionReviewVersions":["v1"],
		"sideEffects":"None","timeoutSeconds":30,"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],
		"operations":["CREATE"]}],"objectSelector":{"matchLabels":{"waits":"yes"}}}]}`, hook.URL,
		base64.StdEncoding.EncodeToString(ca))); err != nil {
		t.Fatal(err)
	}
	const path = "/api/v1/namespaces/waits/configmaps"
	for round := range 3 {
		name := fmt.Sprint("a", round)
		body := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"waits":"yes"}}}`, name)
		done := make(chan error, 1)
		go func() { done <- post(path, body) }()
		select {
		case <-asked:
		case <-time.After(20 * time.Second):
			t.Fatal("the webhook is not asked")
		}
		server.Kill()
		if err := <-done; err == nil {
			t.Error("the create of a server that is killed succeeds")
		}
		client.Close()
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		var status *load.StatusError
		_, err := client.Do(t.Context(), load.Request{Method: http.MethodGet, Path: path + "/" + name})
		if !errors.As(err, &status) || status.Code != http.StatusNotFound {
			t.Errorf("after the restart: %v", err)
		}
	}
	if err := post(path, `{"metadata":{"name":"free"}}`); err != nil {
		t.Error(err)
	}
}

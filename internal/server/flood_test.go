package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// holding is a webhook in the process of the server. It allows what it is asked when the test says so.
type holding struct {
	arrived chan struct{}
	release chan struct{}
}

func (h *holding) RoundTrip(r *http.Request) (*http.Response, error) {
	var review struct{ Request struct{ UID string } }
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		return nil, err
	}
	h.arrived <- struct{}{}
	<-h.release
	w := httptest.NewRecorder()
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`,
		review.Request.UID)
	return w.Result(), nil
}

const (
	crowd = `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"PriorityLevelConfiguration",
		"metadata":{"name":"crowd"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":100,
		"borrowingLimitPercent":0,"limitResponse":{
		"type":"Queue","queuing":{"queues":64,"handSize":4,"queueLengthLimit":50}}}}}`
	crowded = `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"crowd"},"spec":{
		"matchingPrecedence":50,"priorityLevelConfiguration":{"name":"crowd"},"distinguisherMethod":{"type":"ByUser"},
		"rules":[{"subjects":[{"kind":"User","user":{"name":"jane"}},{"kind":"User","user":{"name":"bob"}}],"resourceRules":[{
		"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}]}]}}`
	editors = `{"metadata":{"name":"crowd"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",
		"name":"cluster-admin"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"jane"},
		{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"bob"}]}`
	slowWebhook = `{"metadata":{"name":"holding"},"webhooks":[{"name":"holding.example.org","sideEffects":"None",
		"admissionReviewVersions":["v1"],"clientConfig":{"url":"https://holding.example.org/"},"rules":[{
		"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]}]}`
	// Of 100 seats the level has 29 by its shares and the 245 of the suggested levels, and keeps one.
	openSeats = 28
)

// as sends a request of one of the users of tenants.
func (s *Server) as(token, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, r)
	return w
}

// SPEC: AUTH-6
// While creates of one user that wait for a webhook have all seats that they can have, and more of them wait, another
// user of the same level is served.
func TestFloodOfOneFlow(t *testing.T) {
	hook := &holding{make(chan struct{}), make(chan struct{})}
	s := tenantsWith(t, t.TempDir(), func(c *Config) {
		c.PriorityAndFairness, c.MaxRequestsInflight, c.MaxMutatingInflight = true, 50, 50
		c.Webhooks = func(host string) http.RoundTripper {
			if host != "holding.example.org" {
				return nil
			}
			return hook
		}
	})
	for path, body := range map[string]string{
		"/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations":     crowd,
		"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas":                     crowded,
		rbacPath + "/clusterrolebindings":                                       editors,
		"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": slowWebhook,
	} {
		if w := s.as("sesame", "POST", path, body); w.Code != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	const maps = "/api/v1/namespaces/default/configmaps"
	var flood sync.WaitGroup
	for i := range 40 {
		flood.Go(func() {
			w := s.as("jane", "POST", maps, fmt.Sprintf(`{"metadata":{"name":"m%d"}}`, i))
			if w.Code != http.StatusCreated {
				t.Errorf("the flood got %d %s", w.Code, w.Body)
			}
		})
	}
	for range openSeats {
		<-hook.arrived
	}
	waits := func() bool {
		page := s.as("sesame", "GET", "/debug/api_priority_and_fairness/dump_queues", "").Body.String()
		for line := range strings.Lines(page) {
			if f := strings.Split(line, ","); strings.TrimSpace(f[0]) == "crowd" && strings.TrimSpace(f[2]) != "0" {
				return true
			}
		}
		return false
	}
	for !waits() {
	}
	if w := s.as("bob", "GET", maps, ""); w.Code != http.StatusOK {
		t.Errorf("another user got %d %s", w.Code, w.Body)
	}
	go func() {
		for range hook.arrived {
		}
	}()
	close(hook.release)
	flood.Wait()
	close(hook.arrived)
}

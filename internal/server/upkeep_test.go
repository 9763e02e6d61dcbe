package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// parsedAnswer is the object in a response.
func parsedAnswer(t *testing.T, answer *http.Response) jsonObject {
	t.Helper()
	var obj jsonObject
	if err := json.Unmarshal([]byte(told(t, answer)), &obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// What a kube-apiserver keeps up itself comes back while the server runs, whichever controllers do: its Service, its
// ConfigMaps and their content, its namespaces, its ServiceCIDR and its flow schemas. It also deletes Leases of servers
// that have expired.
//
// SPEC: RUN-8
func TestOwnObjectsComeBack(t *testing.T) {
	const (
		service    = "/api/v1/namespaces/default/services/kubernetes"
		trusted    = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
		tracking   = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking"
		schema     = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/catch-all"
		leases     = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
		cidr       = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
		namespaced = "/api/v1/namespaces/kube-node-lease"
	)
	for _, controllers := range []string{"-namespace-controller", "*"} {
		t.Run(controllers, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, client := inMemory(t, func(c *Config) { c.Controllers = []string{controllers} })
				defer s.Close()
				defer client.CloseIdleConnections()
				do := func(method, path, body string, want int) jsonObject {
					t.Helper()
					return parsedAnswer(t, ask(t, s, client, method, path, body, want))
				}
				uid := do(http.MethodGet, service, "", 200).text("metadata", "uid")
				gone := []string{service, schema}
				do(http.MethodDelete, tracking, "", 200)
				if controllers == "*" {
					gone = append(gone, namespaced)
				}
				for _, path := range gone {
					do(http.MethodDelete, path, "", 200)
				}
				authority := do(http.MethodGet, trusted, "", 200)
				clients := authority.text("data", "client-ca-file")
				authority["data"] = map[string]any{}
				emptied, err := json.Marshal(authority)
				if err != nil {
					t.Fatal(err)
				}
				do(http.MethodPut, trusted, string(emptied), 200)
				do(http.MethodPost, leases, `{"metadata":{"name":"old","labels":{"apiserver.kubernetes.io/identity":
					"kube-apiserver"}},"spec":{"renewTime":"1999-01-01T00:00:00.000000Z","leaseDurationSeconds":3600}}`, 201)
				do(http.MethodPost, leases, `{"metadata":{"name":"other"},"spec":{"renewTime":"1999-01-01T00:00:00.000000Z",
					"leaseDurationSeconds":3600}}`, 201)

				time.Sleep(11 * time.Second)
				if again := do(http.MethodGet, service, "", 200); again.text("metadata", "uid") == uid ||
					again.text("spec", "clusterIP") != "10.0.0.1" {
					t.Errorf("the Service is %v", again)
				}
				time.Sleep(time.Minute)
				for _, path := range gone {
					do(http.MethodGet, path, "", 200)
				}
				if got := do(http.MethodGet, trusted, "", 200).text("data", "client-ca-file"); got != clients {
					t.Errorf("the authorities of clients are %q, want %q", got, clients)
				}
				do(http.MethodGet, cidr, "", 200)
				before := s.plane.Store.Revision()
				time.Sleep(5 * time.Minute)
				if s.peers.Identity == "" {
					t.Error("the server has no identity")
				} else if made := s.plane.Store.Revision() - before; made > 31 { // 30 times its own Lease
					t.Errorf("%d writes in five minutes", made)
				}
				do(http.MethodGet, tracking, "", 404) // it is made once in half an hour
				time.Sleep(time.Hour)
				do(http.MethodGet, leases+"/old", "", 404)
				do(http.MethodDelete, tracking, "", 200)
				time.Sleep(time.Minute + 11*time.Second)
				made := do(http.MethodGet, tracking, "", 200)
				made["data"] = map[string]any{"since": "x"}
				wrong, err := json.Marshal(made)
				if err != nil {
					t.Fatal(err)
				}
				do(http.MethodPut, tracking, string(wrong), 200)
				time.Sleep(time.Minute + 11*time.Second)
				if got := do(http.MethodGet, tracking, "", 200).text("data", "since"); len(got) != len(time.DateOnly) {
					t.Errorf("a wrong day stays %q", got)
				}
				do(http.MethodDelete, tracking, "", 200)
				time.Sleep(25 * time.Minute)
				do(http.MethodGet, tracking, "", 404)
				time.Sleep(6 * time.Minute)
				do(http.MethodGet, tracking, "", 200)
				do(http.MethodGet, leases+"/other", "", 200)
			})
		})
	}
}

// A server that disagrees with somebody about the status of a FlowSchema writes it at most six times a minute, and has
// the last word when the other one stops.
//
// SPEC: RUN-8, AUTH-6
func TestFlowSchemaFight(t *testing.T) {
	const schema = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/catch-all"
	synctest.Test(t, func(t *testing.T) {
		s, client := inMemory(t, nil)
		defer s.Close()
		defer client.CloseIdleConnections()
		get := func() jsonObject { return parsedAnswer(t, ask(t, s, client, http.MethodGet, schema, "", 200)) }
		dangling := func(obj jsonObject) string {
			conditions, _ := obj.at("status", "conditions").([]any)
			if len(conditions) != 1 {
				t.Fatalf("the conditions are %v", conditions)
			}
			return jsonObject(conditions[0].(map[string]any)).text("status")
		}
		time.Sleep(2 * time.Minute)
		wrong := strings.ReplaceAll(`{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{},
			"status":{"conditions":[{"type":"Dangling","status":"True","reason":"NotFound","message":"as I see it"}]}}`, "\n", "")
		var corrected []time.Time
		for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(time.Second) {
			if dangling(get()) == "True" {
				continue
			}
			corrected = append(corrected, time.Now())
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, s.URL()+schema+"/status",
				strings.NewReader(wrong))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/merge-patch+json")
			answer, err := client.Do(request)
			if err != nil || answer.StatusCode != 200 {
				t.Fatal(answer, err)
			}
			answer.Body.Close()
		}
		for i := range corrected {
			if j := i + 7; j < len(corrected) && corrected[j].Sub(corrected[i]) < time.Minute {
				t.Fatalf("seven writes from %s to %s", corrected[i], corrected[j])
			}
		}
		if len(corrected) < 20 { // and it does not give up
			t.Errorf("the status was corrected %d times in ten minutes", len(corrected))
		}
		time.Sleep(2 * time.Minute)
		if obj := get(); dangling(obj) != "False" {
			t.Errorf("the status stays %v", obj.at("status"))
		}
	})
}

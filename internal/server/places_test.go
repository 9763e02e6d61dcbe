package server

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// SPEC: AUTH-8
// Over a real connection, 50 creates that wait for a webhook hold no place: a GET of the same user is served
// meanwhile, and at the end all places are free.
func TestWaitingTakesNoPlace(t *testing.T) {
	hook := &holding{make(chan struct{}), make(chan struct{})}
	s := tenantsWith(t, t.TempDir(), func(c *Config) {
		c.PriorityAndFairness, c.MaxRequestsInflight, c.MaxMutatingInflight, c.places = true, 400, 200, 4
		c.Webhooks = func(string) http.RoundTripper { return hook }
	})
	for path, body := range map[string]string{
		rbacPath + "/clusterrolebindings":                                       editors,
		"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": slowWebhook,
	} {
		if w := s.as("sesame", "POST", path, body); w.Code != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	const maps = "/api/v1/namespaces/default/configmaps"
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	send := func(method, path, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer jane")
		answer, err := transport.RoundTrip(r)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body) // only shown
		return answer.StatusCode, string(text)
	}
	const n = 50
	if places := s.plane.Fairness.Places().Places; places != 4 {
		t.Fatalf("there are %d places", places)
	}
	var creates sync.WaitGroup
	for i := range n {
		creates.Go(func() {
			if code, text := send("POST", maps, fmt.Sprintf(`{"metadata":{"name":"m%d"}}`, i)); code != http.StatusCreated {
				t.Errorf("a create got %d %s", code, text)
			}
		})
	}
	for range n {
		<-hook.arrived
	}
	if code, text := send("GET", maps, ""); code != http.StatusOK {
		t.Errorf("beside creates that wait, a GET got %d %s", code, text)
	}
	go func() { // controllers create some, too
		for range hook.arrived {
		}
	}()
	close(hook.release)
	creates.Wait()
	text := s.as("sesame", "GET", "/metrics", "").Body.String()
	for _, name := range []string{"places", "places_held", "places_waiting", "place_waits_total",
		"place_wait_seconds_total"} {
		if !strings.Contains(text, "\nplinth_"+name+" ") {
			t.Errorf("there is no metric plinth_%s", name)
		}
	}
	transport.CloseIdleConnections()
	if err := s.Close(); err != nil { // requests end after their answers
		t.Error(err)
	}
	if f := s.plane.Fairness.Places(); f.Held != 0 || f.Waiting != 0 {
		t.Errorf("at the end %d places are held, and %d requests wait", f.Held, f.Waiting)
	}
}

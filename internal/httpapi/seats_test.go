package httpapi

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
	"plinth/internal/fairness"
)

// SPEC: AUTH-6
// With one seat at the level of users, a second request of jane's is refused with 429 in plain text, and both have the
// headers. Members of access.Masters are served meanwhile; a watch gives its seat back after its initial events.
func TestSeats(t *testing.T) { inBubble(t, nil, testSeats) }

func testSeats(t *testing.T, s *server) {
	inside, leave := make(chan bool), make(chan bool)
	s.config.Fairness = fairness.New(fairness.Config{Seats: 1})
	s.config.Authorizer = access.AuthorizerFunc(func(_ context.Context, a *access.Attributes) (access.Decision,
		string, error) {
		if a.Path == "/wait" {
			inside <- true
			<-leave
		}
		return access.Allow, "", nil
	})
	s.config.Authenticate = func(_ context.Context, r *http.Request) (*access.Identity, error) {
		groups := []string{access.Authenticated}
		if r.Header.Get("Master") != "" {
			groups = append(groups, access.Masters)
		}
		return &access.Identity{User: access.User{Name: "jane", Groups: groups}}, nil
	}
	rejected := 0
	s.config.Metrics = Metrics{Request: func(o Observation) {
		if o.Rejected {
			rejected++
		}
	}}
	h, err := New(s.config)
	if err != nil {
		t.Fatal(err)
	}
	go serve(h, "GET", "/wait")
	<-inside
	w := serve(h, "GET", configMaps)
	if w.code != 429 || w.header.Get("Retry-After") != "1" || rejected != 1 ||
		w.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("got %d %v, %d rejected", w.code, w.header, rejected)
	}
	if _, named := w.header["X-Kubernetes-Pf-Flowschema-Uid"]; !named {
		t.Errorf("the flow schema is not named in %v", w.header)
	}
	r, _ := http.NewRequest("GET", "https://localhost"+configMaps, nil)
	r.Header.Set("Master", "yes")
	master := &codeWriter{discardWriter: discardWriter{header: http.Header{}}}
	h.ServeHTTP(master, r)
	if master.code != 200 {
		t.Errorf("a master got %d", master.code)
	}
	leave <- true
	synctest.Wait() // the seat is free when the request has ended
	ctx, cancel := context.WithCancel(t.Context())
	watch, _ := http.NewRequestWithContext(ctx, "GET", "https://localhost"+configMaps+"?watch=1&resourceVersion=0", nil)
	go h.ServeHTTP(&codeWriter{discardWriter: discardWriter{header: http.Header{}}}, watch)
	synctest.Wait()
	time.Sleep(time.Second)
	if w := serve(h, "GET", configMaps); w.code != 200 {
		t.Errorf("beside a watch that has begun: %d", w.code)
	}
	cancel()
	synctest.Wait()
}

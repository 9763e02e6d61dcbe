package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"plinth/internal/access"
	"plinth/internal/audit"
	"plinth/internal/fairness"
)

// oneSeat makes a handler with one seat for jane, from whom all requests are.
func oneSeat(t *testing.T, s *server) *Handler {
	t.Helper()
	s.config.Fairness = fairness.New(fairness.Config{Seats: 1})
	s.config.Authenticate = func(context.Context, *http.Request) (*access.Identity, error) {
		return &access.Identity{User: access.User{Name: "jane", Groups: []string{access.Authenticated}}}, nil
	}
	s.config.Authorizer = access.AuthorizerFunc(func(context.Context, *access.Attributes) (access.Decision, string,
		error) {
		return access.Allow, "", nil
	})
	h, err := New(s.config)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// SPEC: AUTH-6
// A watch that is forwarded holds no seat, and another request that is forwarded holds one.
func TestForwardedWatchHoldsNoSeat(t *testing.T) { inBubble(t, nil, testForwardedWatchHoldsNoSeat) }

func testForwardedWatchHoldsNoSeat(t *testing.T, s *server) {
	s.config.Backends = func(group, _, _, _ string) Backend {
		if group != "metrics.example" {
			return nil
		}
		return func(_ http.ResponseWriter, r *http.Request, _ *access.Attributes) error {
			<-r.Context().Done()
			return nil
		}
	}
	h := oneSeat(t, s)
	for query, want := range map[string]int{"?watch=1": 200, "": 429} {
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, "GET", "https://localhost"+forwarded+query, nil) // it is valid
		go h.ServeHTTP(&codeWriter{discardWriter: discardWriter{header: http.Header{}}}, r)
		synctest.Wait()
		if w := serve(h, "GET", "/version"); w.code != want {
			t.Errorf("beside a forwarded request %q: %d, want %d", query, w.code, want)
		}
		cancel()
		synctest.Wait()
	}
}

// SPEC: AUTH-4
// SPEC: AUTH-6
// While a webhook does not answer that is told of the end of a request (mode blocking), the request holds neither seats
// nor a place.
func TestAuditHoldsNoSeat(t *testing.T) {
	told, answer := make(chan bool), make(chan bool)
	webhook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		told <- true
		<-answer
	}))
	defer webhook.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	options := audit.Defaults()
	options.PolicyFile = write("policy", `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],
		"rules":[{"level":"None","nonResourceURLs":["/version"]},{"level":"Metadata"}]}`)
	options.Webhook.ConfigFile = write("webhook", `{"apiVersion":"v1","kind":"Config","current-context":"a",
		"contexts":[{"name":"a","context":{"cluster":"a"}}],"clusters":[{"name":"a","cluster":{"server":"`+webhook.URL+`"}}]}`)
	options.Webhook.Mode = "blocking"
	auditor, err := audit.New(options, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, nil)
	s.config.Auditor = auditor
	h := oneSeat(t, s)
	ended := make(chan int)
	go func() { ended <- serve(h, "GET", configMaps).code }()
	<-told
	if f := s.config.Fairness.Places(); f.Held != 0 {
		t.Errorf("%d places are held while the webhook is told", f.Held)
	}
	if w := serve(h, "GET", "/version"); w.code != 200 {
		t.Errorf("beside a request whose end is recorded: %d", w.code)
	}
	close(answer)
	if code := <-ended; code != 200 {
		t.Errorf("the request got %d", code)
	}
	if err := auditor.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"plinth/internal/execution"
)

// Files with credentials are read while the request that needs them holds no place: a disk may be as slow as a webhook.
//
// SPEC: AUTH-8
func TestCredentialsAreReadOutside(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization")) // the test sees what the client gets
	}))
	defer s.Close()
	c := Clients{Credentials: &Credentials{rest: &user{TokenFile: token}}}
	var place execution.Place
	ctx := execution.With(t.Context(), &place)
	if err := place.Enter(ctx, execution.New(1, 1).Share(1).Band(), 1); err != nil {
		t.Fatal(err)
	}
	defer place.Exit()
	const want = "Bearer secret"
	for _, when := range []string{"a new client", "the same one"} {
		if got, err := c.Call(ctx, at(s, "/"), nil); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", when, got, err)
		}
	}
	old := newTokenFile(token) // it is time to read it again
	got, err := post(ctx, s.Client(), s.URL, "agent", func(r *http.Request) error {
		token, err := old.get(time.Now())
		r.Header.Set("Authorization", "Bearer "+token)
		return err
	}, nil)
	if err != nil || string(got) != want {
		t.Errorf("a call with an old token: %q, %v", got, err)
	}
}

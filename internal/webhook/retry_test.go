package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// SPEC: AUTH-2
func TestRetry(t *testing.T) {
	passes, stays := apierrors.NewTooManyRequests("later", 0), errors.New("never")
	reset := fmt.Errorf("read: %w", syscall.ECONNRESET)
	for _, c := range []struct {
		errs  []error // the last one stays
		calls int
		want  error
	}{
		{[]error{nil}, 1, nil},
		{[]error{stays}, 1, stays},
		{[]error{passes, reset, apierrors.NewInternalError(stays), nil}, 4, nil},
		{[]error{apierrors.NewTimeoutError("slow", 1), stays}, 2, stays},
		{[]error{passes}, attempts, passes},
	} {
		calls := 0
		err := Retry(t.Context(), time.Microsecond, func() error {
			calls++
			return c.errs[min(calls, len(c.errs))-1]
		})
		if calls != c.calls || !errors.Is(err, c.want) {
			t.Errorf("%v: have %d calls and the error %v, want %d and %v", c.errs, calls, err, c.calls, c.want)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := Retry(ended, 0, func() error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: have %v, want Canceled", err)
	}
	// If the context would end during the delay, Retry does not wait.
	short, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Retry(short, time.Hour, func() error { return passes }); !errors.Is(err, passes) {
		t.Errorf("with a delay beyond the deadline: have %v, want %v", err, passes)
	}
}

// A response can ask for a retry, and the timeout is sent to the webhook.
//
// SPEC: AUTH-2
func TestRetryAfter(t *testing.T) {
	asked, code := 0, http.StatusTooManyRequests
	after := "0"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked%3 != 0 {
			w.Header().Set("Retry-After", after)
			http.Error(w, "later", code)
			return
		}
		io.WriteString(w, r.URL.RawQuery)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(
		"clusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n",
		server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := FromKubeconfig(file)
	if err != nil {
		t.Fatal(err)
	}
	r.SetTimeout(3 * time.Second)
	if got, err := r.Post(t.Context(), nil); string(got) != "timeout=3s" || err != nil || asked != 3 {
		t.Errorf("have %q, %v after %d calls, want timeout=3s after 3", got, err, asked)
	}
	asked, after = 0, "60" // longer than the timeout
	if _, err := r.Post(t.Context(), nil); !apierrors.IsTooManyRequests(err) || asked != 1 {
		t.Errorf("Retry-After beyond the timeout: have %v after %d calls, want 429 after 1", err, asked)
	}
	asked, after, code = 0, "0", http.StatusForbidden // a 403 is not retried
	if _, err := r.Post(t.Context(), nil); !apierrors.IsForbidden(err) || asked != 1 {
		t.Errorf("403 with Retry-After: have %v after %d calls, want 403 after 1", err, asked)
	}
}

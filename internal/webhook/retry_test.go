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
			t.Errorf("%v: %d calls, %v", c.errs, calls, err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := Retry(ended, 0, func() error { return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// Who asks for less time than the pause takes is not kept waiting.
	short, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Retry(short, time.Hour, func() error { return passes }); !errors.Is(err, passes) {
		t.Error(err)
	}
}

// An answer may say when to ask again, and how long a call may take is told to the webhook.
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
		t.Errorf("%q, %v, asked %d times", got, err, asked)
	}
	asked, after = 0, "60" // more than the call may take
	if _, err := r.Post(t.Context(), nil); !apierrors.IsTooManyRequests(err) || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	asked, after, code = 0, "0", http.StatusForbidden // these do not say so
	if _, err := r.Post(t.Context(), nil); !apierrors.IsForbidden(err) || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

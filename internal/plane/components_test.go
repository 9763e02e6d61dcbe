package plane

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"plinth/internal/egress"
)

// The page of a component says how it is; one that does not answer is not healthy.
func TestHealthPage(t *testing.T) {
	code := http.StatusOK
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		io.WriteString(w, "as it is")
	}))
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	expect := func(status, text string) {
		t.Helper()
		healthy, message, problem := healthPage(port, egress.Policy{})(t.Context())
		if healthy != status || !strings.HasPrefix(message, text) || problem != "" {
			t.Errorf("it is %s, %q, %q, want %s, %q", healthy, message, problem, status, text)
		}
	}
	expect("True", "as it is")
	code = http.StatusInternalServerError
	expect("False", "HTTP probe failed with statuscode: 500")
	code = http.StatusNotModified
	expect("Unknown", "Probe terminated redirects")
	server.Close()
	expect("False", `Get "https://`+at.Host+`/healthz": dial tcp `+at.Host+": connect: connection refused")
}

package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"plinth/internal/planes/route"
)

// Where browsers have sessions, what other servers answer is a page of another origin, whatever they say themselves,
// and nothing of the console goes to them. Elsewhere their answers are passed on as they are.
//
// SPEC: BEY-14
func TestForwardedAnswersAreInASandbox(t *testing.T) {
	for _, browsers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			s := newForwardingServer(t, func(w http.ResponseWriter, _ *http.Request) {
				asked++
				w.Header().Set("Content-Security-Policy", "default-src *")
			}, func(c *Config) {
				if browsers {
					c.Console = http.NotFoundHandler()
				}
			})
			for _, path := range []string{forwarded + "/a", "/apis/metrics.example/v1", connected + "/proxy/x"} {
				got := s.do("GET", path, "")
				if own := got.header["Content-Security-Policy"]; len(own) != 1 || own[0] != "default-src *" {
					t.Errorf("%s: a client that is no browser gets the policies %s", path, own)
				}
				got = s.do("GET", path, "", "Sec-Fetch-Site", "none")
				policies := strings.Join(got.header["Content-Security-Policy"], ", ")
				if got.code != 200 || strings.Contains(policies, "sandbox") != browsers ||
					strings.Contains(policies, "allow-same-origin") || !strings.Contains(policies, "default-src *") {
					t.Errorf("%s: %d, with the policies %s", path, got.code, policies)
				}
			}
			if asked != 6 {
				t.Errorf("the other server was asked %d times", asked)
			}
			for _, path := range []string{forwarded + "/a", "/apis/metrics.example/v1", connected + "/proxy/x",
				connected + "/log", connected + "/exec"} {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodGet, path, nil).WithContext(FromConsole(context.Background()))
				r.Header.Set("Authorization", "Bearer admin")
				s.handler.ServeHTTP(w, r)
				if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "console") {
					t.Errorf("%s for the console: %d %s", path, w.Code, w.Body)
				}
			}
			if asked != 6 {
				t.Error("a request of the console was sent on")
			}
		})
	}
}

// What is below the console's path is the console's, if there is one, and everything else the API's.
//
// SPEC: BEY-14
func TestPathsOfTheConsole(t *testing.T) {
	for path, want := range map[string]bool{"/console": true, "/console/": true, "/console/api/x": true, "/": false,
		"/consolex": false, "/api/console": false, "/Console/": false} {
		h := &Handler{Config: Config{Console: http.NotFoundHandler()}}
		if h.ofConsole(path) != want || (&Handler{}).ofConsole(path) {
			t.Errorf("%s is the console's: %t", path, h.ofConsole(path))
		}
	}
}

// The planes at the paths of a host have one origin. What is sent on in one that has no console could be a page that
// uses the console of another, so it is in a sandbox, too.
//
// SPEC: BEY-9, BEY-14
func TestForwardedAnswersOfAPlaneAreInASandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newForwardingServer(t, func(http.ResponseWriter, *http.Request) {}, func(*Config) {})
		for _, plane := range []string{"", "a"} {
			for _, path := range []string{forwarded + "/a", connected + "/proxy/x"} {
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r = r.WithContext(route.With(r.Context(), route.Address{Plane: plane}))
				r.Header.Set("Sec-Fetch-Site", "none")
				w := httptest.NewRecorder()
				s.handler.ServeHTTP(w, r)
				if policy := w.Header().Get("Content-Security-Policy"); w.Code != 200 ||
					strings.Contains(policy, "sandbox") != (plane != "") {
					t.Errorf("%s in the plane %q: %d, with the policy %q", path, plane, w.Code, policy)
				}
			}
		}
	})
}

package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/samplelog"

	"plinth/internal/access"
	"plinth/internal/apierr"
)

// The permission to impersonate is checked, and a request that sets other fields of a user without its name is 400.
// Empty headers are ignored, except an empty group.
//
// SPEC: AUTH-1
func TestImpersonation(t *testing.T) {
	s := newServer(t, nil)
	lacks := func(fields string) string {
		return "requested &user.DefaultInfo{" + fields + "} without impersonating a user name"
	}
	for _, c := range []struct {
		header  []string
		code    int
		message string
	}{
		{[]string{"Impersonate-User", "admin"}, 200, ""},
		{[]string{"Impersonate-User", "bob"}, 403,
			`configmaps is forbidden: User "bob" cannot list resource "configmaps" in API group "" in the namespace "default"`},
		{[]string{"Impersonate-User", "bob", "Authorization", "Bearer jane"}, 403, "forbidden: jane may not list as bob"},
		{[]string{"Impersonate-Extra-Foo%2fBar", "x"}, 400,
			lacks(`Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"foo/bar":[]string{"x"}}`)},
		{[]string{"Impersonate-Uid", "u"}, 400,
			lacks(`Name:"", UID:"u", Groups:[]string(nil), Extra:map[string][]string(nil)`)},
		{[]string{"Impersonate-Group", ""}, 400,
			lacks(`Name:"", UID:"", Groups:[]string{""}, Extra:map[string][]string(nil)`)},
		{[]string{"Impersonate-Extra-B", "y", "Impersonate-Extra-A", "x", "Impersonate-Group", "g", "Impersonate-Uid", "u"},
			400,
			lacks(`Name:"", UID:"u", Groups:[]string{"g"}, Extra:map[string][]string{"a":[]string{"x"}, "b":[]string{"y"}}`)},
		{[]string{"Impersonate-Extra-Foo", "x", "Authorization", "Bearer jane"}, 400,
			// before authorization
			lacks(`Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"foo":[]string{"x"}}`)},
		{[]string{"Impersonate-Extra-Foo", "x", "Authorization", "Bearer wrong"}, 401, "Unauthorized"},
		{[]string{"Impersonate-User", ""}, 200, ""},
		{[]string{"Impersonate-Uid", ""}, 200, ""},
		{[]string{"Impersonate-Foo", "x"}, 200, ""},
	} {
		got := s.do("GET", configMaps, "", c.header...)
		if got.code != c.code || c.message != "" && got.message() != c.message {
			t.Errorf("%q: %d %s", c.header, got.code, got.body)
		}
	}
}

// Paths with empty segments, and methods other than GET on documents. The results are those of the reference.
//
// SPEC: URI-2
func TestUnusualPathsAndMethods(t *testing.T) {
	s := newServer(t, nil)
	const noPath, plain = "the server could not find the requested resource", "404 page not found\n"
	for _, c := range []struct {
		method, path string
		code         int
		message      string // "": any message
	}{
		{"GET", "//api/v1/namespaces", 404, plain},
		{"POST", "//api/v1/namespaces", 404, plain},
		{"GET", "//api/v1", 404, plain},
		{"GET", "//api", 404, plain},
		{"GET", "//apis/apps/v1/deployments", 404, plain},
		{"GET", "//healthz", 404, plain},
		{"GET", "/apis//v1/namespaces", 404, plain},
		{"GET", "/apis//apps/v1/deployments", 404, plain},
		{"GET", "/apis//v1", 404, plain},
		{"GET", "/api//v1/namespaces", 404, noPath},
		{"GET", "/apis/apps//v1/deployments", 404, noPath},
		{"GET", "/api/v1/namespaces/", 200, ""},
		{"GET", "/api/v1/namespaces//", 200, ""},
		{"GET", "/api/v1/", 200, ""},
		{"GET", "/api/v1%2fnamespaces", 200, ""},
		{"GET", "/api/v1/./namespaces", 404, noPath},
		{"GET", "/api/v1/namespaces//configmaps", 200, ""},
		{"GET", "/api/v1/namespaces//configmaps?fieldSelector=metadata.name%3Dx", 200, ""},
		{"GET", "/api/v1/namespaces//configmaps/x", 400, "Namespace parameter required."},
		{"DELETE", "/api/v1/namespaces//configmaps/x", 400, "Namespace parameter required."},
		{"POST", "/api/v1/namespaces//configmaps/x", 405, ""},
		{"GET", "/api/v1/namespaces/default/pods//status", 400, "name must be provided"},
		{"PUT", "/api/v1/nodes//status", 400, "name must be provided"},
		{"POST", "/api/v1/nodes//status", 405, ""},
		{"GET", "/api/v1/namespaces/default/pods//nosuch", 404, noPath},
		{"GET", "/version/x", 404, noPath},
		{"POST", "/apis/apps", 200, ""},
		{"POST", "/apis/", 200, ""},
		{"POST", "/apis/apps/v1", 405, ""},
		{"POST", "/version", 405, ""},
	} {
		if got := s.do(c.method, c.path, ""); got.code != c.code || c.message != "" && got.message() != c.message {
			t.Errorf("%s %s: %d %s", c.method, c.path, got.code, got.body)
		}
	}
}

// Metrics have the verbs of the reference, and no others whatever a client sends (RUN-3).
func TestReportedVerbs(t *testing.T) {
	var seen []string
	inBubble(t, func(c *Config) {
		c.Metrics.Request = func(o Observation) { seen = append(seen, o.Verb) }
	}, func(t *testing.T, s *server) { testReportedVerbs(t, s, &seen) })
}

func testReportedVerbs(t *testing.T, s *server, seen *[]string) {
	synctest.Wait()
	*seen = nil
	for _, c := range []struct{ method, path, contentType, want string }{
		{"BREW", configMaps, "", "other"},
		{strings.Repeat("A", 5000), configMaps, "", "other"},
		{"BREW", "/version", "", "other"},
		{"OPTIONS", "/version", "", "other"},
		{"HEAD", "/version", "", "GET"},
		{"POST", "/version", "", "POST"},
		{"HEAD", configMaps, "", "LIST"},
		{"GET", configMaps, "", "LIST"},
		{"GET", configMaps + "/x", "", "GET"},
		{"DELETE", configMaps, "", "DELETE"},
		{"GET", configMaps + "?watch=1&timeoutSeconds=1", "", "WATCH"},
		{"GET", "/api/v1/namespaces/default/pods/x/log", "", "CONNECT"},
		{"PATCH", configMaps + "/x", "application/apply-patch+yaml", "APPLY"},
		{"PATCH", configMaps + "/x", "application/merge-patch+json", "PATCH"},
		{"PUT", configMaps + "/x", "", "PUT"},
	} {
		s.do(c.method, c.path, "", "Content-Type", c.contentType)
		synctest.Wait() // metrics are counted after the answer has been sent
		if got := *seen; len(got) != 1 || got[0] != c.want {
			t.Errorf("%.20s %s: %.20q, want %q", c.method, c.path, got, c.want)
		}
		*seen = nil
	}
}

// A client cannot fill the log, neither with long paths nor with many requests that are refused.
func TestRefusalsAreLoggedInBounds(t *testing.T) {
	var mu sync.Mutex
	var logged strings.Builder
	inBubble(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(locked{&mu, &logged}, nil))
		c.Impersonate = func(context.Context, access.User, *access.Attributes) (access.User, string, error) {
			return access.User{}, "", apierr.NewNotImplemented("this fails", nil)
		}
	}, func(t *testing.T, s *server) {
		testRefusalsAreLoggedInBounds(t, s, func() string {
			mu.Lock()
			defer mu.Unlock()
			defer logged.Reset()
			return logged.String()
		})
	})
}

// testRefusalsAreLoggedInBounds calls logged for the lines since its previous call.
func testRefusalsAreLoggedInBounds(t *testing.T, s *server, logged func() string) {
	long := "/api/v1/namespaces/default/configmaps/" + strings.Repeat("x", 500_000)
	refuse := func() {
		if got := s.do("GET", long, "", "Impersonate-User", "bob", "Audit-Id",
			strings.Repeat("y", 100_000)); got.code != 501 {
			t.Fatalf("%d %s", got.code, got.body)
		}
	}
	synctest.Wait()
	logged()
	for range 3 * samplelog.PerSecond {
		refuse()
	}
	synctest.Wait()
	text := logged()
	if n := strings.Count(text, "\n"); n != samplelog.PerSecond || len(text) > n*5*256 {
		t.Errorf("%d lines of %d bytes", n, len(text))
	}
	if !strings.Contains(text, "... (500038 bytes)") {
		t.Errorf("the length of the path is missing in %.1000s", text)
	}
	time.Sleep(time.Second)
	refuse()
	synctest.Wait()
	if text := logged(); strings.Count(text, "\n") != 1 ||
		!strings.Contains(text, fmt.Sprint("skipped=", 2*samplelog.PerSecond)) {
		t.Errorf("the log of the next second: %.1000s", text)
	}
}

// locked is a writer that several goroutines may use.
type locked struct {
	mu *sync.Mutex
	to *strings.Builder
}

func (l locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

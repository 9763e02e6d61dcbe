package server

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
)

// spoil replaces values in the data directory of a stopped server by ones that are not objects, or adds such values.
// The log accepts them like any others: their checksums are valid, as if a faulty server had written them.
func spoil(t *testing.T, dir string, values map[store.Key]string) {
	t.Helper()
	log, err := filelog.Open(filepath.Join(dir, "store"), filelog.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Config{Log: log, Describe: func(store.Key,
		[]byte) *store.Sidecar {
		return &store.Sidecar{}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for key, data := range values {
		pre := store.Precondition{Key: key}
		if live, _, err := s.Live(t.Context(), key, true); err != nil {
			t.Fatal(err)
		} else if live != nil {
			pre.Revision = live.Revision
		}
		if _, err := s.Commit(t.Context(), []store.Precondition{pre},
			[]store.Change{{Key: key, Data: []byte(data)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A server starts with objects that it cannot read, names them in the errors of requests that need them, and serves the
// rest. The administrator can delete them, even those that the server itself uses, and then all is as before, also
// after a restart.
//
// SPEC: DEL-6, DEL-7
func TestUnreadableObjectsOnDisk(t *testing.T) {
	c := quiet(t.TempDir())
	const (
		secrets     = "/api/v1/namespaces/default/secrets"
		definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		force       = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
	)
	run := func(do func(s *Server, send func(method, path, body string, want int) string)) {
		t.Helper()
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		client := clientOf(t, s)
		defer client.CloseIdleConnections()
		do(s, func(method, path, body string, want int) string {
			t.Helper()
			var content any
			if body != "" {
				content = json.RawMessage(body)
			}
			response, err := client.send(t.Context(), method, path, "application/json", content)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != want {
				t.Errorf("%s %s: %d %s, want %d (%v)", method, path, response.StatusCode, text, want, err)
			}
			return string(text)
		})
	}
	run(func(_ *Server, send func(string, string, string, int) string) {
		for _, name := range []string{"a", "b", "c", "d"} {
			send(http.MethodPost, secrets, `{"metadata":{"name":"`+name+`","finalizers":["x/y"]}}`, 201)
		}
		send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"lost"}}`, 201)
		send(http.MethodPost, "/api/v1/namespaces/lost/configmaps", `{"metadata":{"name":"in-it"}}`, 201)
	})
	broken := map[store.Key]string{
		{Resource: "/secrets", Name: "default/a"}: "\x00\xff",
		{Resource: "/secrets",
			Name: "default/b"}: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"`,
		{Resource: "/secrets",
			Name: "default/c"}: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"c","uid":"1"},"data":{"k":nul}}`,
		{Resource: "/secrets", Name: "default/e"}:                                                `[]`,
		{Resource: "/namespaces", Name: "lost"}:                                                  "k8s\x00",
		{Resource: "/serviceaccounts", Name: "lost/sa"}:                                          "?",
		{Resource: "apiextensions.k8s.io/customresourcedefinitions", Name: "things.example.com"}: "{}",
	}
	spoil(t, c.DataDir, broken)
	paths := []string{
		secrets + "/a", secrets + "/b", secrets + "/c", secrets + "/e", "/api/v1/namespaces/lost",
		"/api/v1/namespaces/lost/serviceaccounts/sa", definitions + "/things.example.com",
	}
	if len(paths) != len(broken) {
		t.Fatal("the table is incomplete")
	}
	run(func(s *Server, send func(string, string, string, int) string) {
		for _, path := range paths {
			if text := send(http.MethodGet, path, "", 500); !strings.Contains(text, `"reason":"InternalError"`) ||
				!strings.Contains(text, "unable to read the stored object") {
				t.Errorf("%s: %s", path, text)
			}
			send(http.MethodDelete, path, "", 500)
			send(http.MethodDelete, path+force+"&gracePeriodSeconds=0", "", 422)
		}
		var failed struct {
			Reason  string
			Details struct{ Causes []struct{ Field string } }
		}
		if err := json.Unmarshal([]byte(send(http.MethodGet, secrets, "", 500)), &failed); err != nil {
			t.Fatal(err)
		}
		var named []string
		for _, cause := range failed.Details.Causes {
			named = append(named, cause.Field)
		}
		if failed.Reason != "StorageReadError" || !slices.Equal(named, []string{"/secrets/default/a", "/secrets/default/b",
			"/secrets/default/c", "/secrets/default/e"}) {
			t.Errorf("%s: %q", failed.Reason, named)
		}
		send(http.MethodGet, secrets+"/d", "", 200)
		send(http.MethodGet, secrets+"?fieldSelector=metadata.name%3Dd", "", 200)
		send(http.MethodGet, "/api/v1/namespaces/kube-system/secrets", "", 200)
		send(http.MethodGet, "/api/v1/namespaces/lost/configmaps", "", 200)
		send(http.MethodDelete, secrets+"/d"+force, "", 409)
		revision := s.plane.Store.Revision()
		for _, path := range paths {
			send(http.MethodDelete, path+force+"&dryRun=All", "", 200)
		}
		if s.plane.Store.Revision() != revision {
			t.Error("a dry run has written something")
		}
		for _, path := range paths {
			send(http.MethodDelete, path+force, "", 200)
			send(http.MethodDelete, path+force, "", 404)
		}
	})
	run(func(_ *Server, send func(string, string, string, int) string) {
		for _, path := range paths {
			send(http.MethodGet, path, "", 404)
		}
		if text := send(http.MethodGet, secrets, "", 200); strings.Count(text, `"uid"`) != 1 {
			t.Errorf("left are %s", text)
		}
		send(http.MethodGet, definitions, "", 200)
		send(http.MethodPost, secrets, `{"metadata":{"name":"a"}}`, 201)
		send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"lost"}}`, 201)
		send(http.MethodGet, "/api/v1/namespaces/lost/configmaps/in-it", "", 200)
	})
}

// The address and ports of an unreadable object are free when it is deleted, and the IPAddress of a Service is created
// again.
//
// SPEC: DEL-6
func TestUnreadableClaims(t *testing.T) {
	c := quiet(t.TempDir())
	const (
		services = "/api/v1/namespaces/default/services"
		ips      = "/apis/networking.k8s.io/v1/ipaddresses"
		force    = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
		body     = `{"metadata":{"name":"%s"},"spec":{"type":"NodePort","clusterIP":"%s","ports":[{"port":80,"nodePort":%d}]}}`
	)
	run := func(do func(send func(method, path, body string, want int))) {
		t.Helper()
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		client := clientOf(t, s)
		defer client.CloseIdleConnections()
		do(func(method, path, body string, want int) {
			t.Helper()
			var content any
			if body != "" {
				content = json.RawMessage(body)
			}
			if _, _, err := client.do(t.Context(), method, path, "application/json", content, want); err != nil {
				t.Error(err)
			}
		})
	}
	run(func(send func(string, string, string, int)) {
		send(http.MethodPost, services, fmt.Sprintf(body, "a", "10.0.0.201", 30201), 201)
		send(http.MethodPost, services, fmt.Sprintf(body, "b", "10.0.0.202", 30202), 201)
	})
	spoil(t, c.DataDir, map[store.Key]string{
		{Resource: "/services", Name: "default/a"}:                      "?",
		{Resource: "networking.k8s.io/ipaddresses", Name: "10.0.0.202"}: "?",
	})
	run(func(send func(string, string, string, int)) {
		send(http.MethodPost, services, fmt.Sprintf(body, "c", "10.0.0.201", 30203), 422)
		send(http.MethodPost, services, fmt.Sprintf(body, "c", "10.0.0.203", 30201), 422)
		send(http.MethodDelete, services+"/a"+force+"&dryRun=All", "", 200)
		send(http.MethodPost, services, fmt.Sprintf(body, "c", "10.0.0.203", 30201), 422)
		send(http.MethodDelete, services+"/a"+force, "", 200)
		send(http.MethodGet, ips+"/10.0.0.201", "", 404)
		send(http.MethodPost, services, fmt.Sprintf(body, "c", "10.0.0.201", 30201), 201)
		send(http.MethodGet, ips+"/10.0.0.202", "", 500)
		send(http.MethodDelete, ips+"/10.0.0.202"+force, "", 200)
		send(http.MethodGet, ips+"/10.0.0.202", "", 200)
		send(http.MethodPost, services, fmt.Sprintf(body, "d", "10.0.0.202", 30204), 422)
		send(http.MethodDelete, services+"/b", "", 200)
		send(http.MethodGet, ips+"/10.0.0.202", "", 404)
	})
}

// SPEC: DEL-6
func TestForceDeleteWithoutTheGate(t *testing.T) {
	c := quiet(t.TempDir())
	c.FeatureGates = []string{"AllowUnsafeMalformedObjectDeletion=false"}
	spoil(t, c.DataDir, map[store.Key]string{{Resource: "/configmaps", Name: "default/a"}: "?"})
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := clientOf(t, s)
	defer client.CloseIdleConnections()
	const path = "/api/v1/namespaces/default/configmaps/a?ignoreStoreReadErrorWithClusterBreakingPotential=true"
	// The option has no effect, and may be combined with any other.
	for _, options := range []string{"", "&gracePeriodSeconds=0"} {
		if _, _, err := client.do(t.Context(), http.MethodDelete, path+options, "", nil, 500); err != nil {
			t.Error(err)
		}
	}
}

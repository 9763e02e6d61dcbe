package audit

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
)

const (
	maps = "/api/v1/namespaces/default/configmaps"
	pods = "/api/v1/namespaces/default/pods"
)

// ordered are requests that are sent one after the other, and the events that each of them leaves in the log, behind
// those of the one before it. They are what the reference writes: the stage, the code and the message of each event.
var ordered = []struct {
	title, method, path, body, token string
	want                             []string
}{
	{title: "a create", method: "POST", path: maps, body: `{"metadata":{"name":"one"}}`, want: []string{
		"RequestReceived", "ResponseComplete 201"}},
	{title: "a GET of nothing", method: "GET", path: maps + "/none", want: []string{
		"RequestReceived", `ResponseComplete 404 configmaps "none" not found`}},
	{title: "a watch", method: "GET", path: maps + "?watch=1&timeoutSeconds=1", want: []string{
		"RequestReceived", "ResponseStarted 200", "ResponseComplete 200"}},
	{title: "a connection to nothing", method: "GET", path: pods + "/none/exec?command=a&stdout=1", want: []string{
		"RequestReceived", `ResponseStarted 404 pods "none" not found`, `ResponseComplete 404 pods "none" not found`}},
	{title: "a timeout that is none", method: "GET", path: maps + "?timeout=abc", want: []string{
		`ResponseStarted 400 invalid timeout specified in the request URL - time: invalid duration "abc"`}},
	{title: "an unknown user", method: "GET", path: maps, token: "wrong", want: []string{
		"ResponseStarted 401 Unauthorized"}},
	{title: "a create without time", method: "POST", path: maps + "?timeout=1s",
		body: `{"metadata":{"name":"late","labels":{"hook":"hangs"}}}`, want: []string{"RequestReceived",
			"ResponseComplete 504 Timeout: request did not complete within requested timeout - context deadline exceeded"}},
	{title: "a version", method: "GET", path: "/version", want: []string{"RequestReceived", "ResponseComplete 200"}},
}

// The log has the events of a request in the order of their stages, and all of them before those of a request that is
// sent after its answer. A request whose time is over ends with what was decided within: that there was none.
//
// SPEC: AUTH-4
func TestOrder(t *testing.T) {
	testOrder(t, harness.Target())
	if harness.WantReference() && harness.Target() == harness.Plinth {
		t.Run("Reference", func(t *testing.T) { testOrder(t, harness.Reference) })
	}
}

func testOrder(t *testing.T, kind harness.Kind) {
	policy, err := filepath.Abs("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "audit.log")
	server := harness.Run(t, harness.Options{Kind: kind,
		Flags: []string{"--audit-policy-file", policy, "--audit-log-path", log}})
	client := server.Client()
	t.Cleanup(client.CloseIdleConnections)
	send := func(id, method, path, body, token string) (code int) {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {"Bearer " + token}, "Audit-Id": {id}, "Content-Type": {"application/json"}}
		answer, err := client.Do(r)
		if err != nil {
			return 0 // a server may break off a request that has no time
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		return answer.StatusCode
	}
	if code := send("hook", "POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", hangingHook(t),
		harness.AdminToken); code != http.StatusCreated {
		t.Fatalf("the configuration of the webhook: %d", code)
	}
	waitFor(t, func() bool { // the reference notices a configuration later
		return send("hook", "POST", maps+"?dryRun=All&timeout=1s", `{"metadata":{"name":"x","labels":{"hook":"hangs"}}}`,
			harness.AdminToken) != http.StatusCreated
	})
	var want []string
	for _, c := range ordered {
		token := c.token
		if token == "" {
			token = harness.AdminToken
		}
		send("order "+c.title, c.method, c.path, c.body, token)
		for _, event := range c.want {
			want = append(want, c.title+": "+event)
		}
		// Who has no time is answered before the log has what became of the request.
		if strings.Contains(c.path, "timeout=1s") {
			waitFor(t, func() bool { return len(inOrder(t, log)) >= len(want) })
		}
	}
	waitFor(t, func() bool { return len(inOrder(t, log)) >= len(want) })
	if got := inOrder(t, log); !slices.Equal(got, want) {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// hangingHook starts a webhook that does not answer as long as somebody waits, and returns its configuration: it is
// asked about objects with a label.
func hangingHook(t *testing.T) string {
	t.Helper()
	hook := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(hook.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	return fmt.Sprintf(`{"metadata":{"name":"hangs"},"webhooks":[{"name":"hangs.example.com",
		"admissionReviewVersions":["v1"],"sideEffects":"None","timeoutSeconds":30,
		"objectSelector":{"matchLabels":{"hook":"hangs"}},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]}],
		"clientConfig":{"url":%q,"caBundle":%q}}]}`, hook.URL, base64.StdEncoding.EncodeToString(authority))
}

// inOrder returns the events of the ordered requests, in the order of the log.
func inOrder(t *testing.T, log string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) { // the last one may be half written
		var event struct {
			AuditID, Stage string
			ResponseStatus struct {
				Code    int
				Message string
			}
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		title, ok := strings.CutPrefix(event.AuditID, "order ")
		if !ok {
			continue
		}
		said := title + ": " + event.Stage
		if s := event.ResponseStatus; s.Code != 0 {
			said = strings.TrimSpace(fmt.Sprintf("%s %d %s", said, s.Code, s.Message))
		}
		all = append(all, said)
	}
	return all
}

// waitFor waits until something holds.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it has not come about within a minute")
		}
	}
}

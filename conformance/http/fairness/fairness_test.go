package fairness

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
)

var rewrite = flag.Bool("rewrite", false, "ask the reference and record its answers in testdata")

func TestMain(m *testing.M) { harness.Main(m) }

const (
	recorded = "testdata/classes.txt"
	group    = "/apis/flowcontrol.apiserver.k8s.io/v1/"
)

// levels are PriorityLevelConfigurations with shares and limits of many kinds.
var levels = map[string]string{
	"none":    limited(`"nominalConcurrencyShares":0`, ""),
	"zero":    limited(`"nominalConcurrencyShares":0,"borrowingLimitPercent":0`, ""),
	"lending": limited(`"nominalConcurrencyShares":33,"lendablePercent":100`, ""),
	"half": limited(`"nominalConcurrencyShares":7,"lendablePercent":50,"borrowingLimitPercent":0`,
		`{"queues":4,"handSize":2,"queueLengthLimit":3}`),
	"odd": limited(`"nominalConcurrencyShares":1,"lendablePercent":33,"borrowingLimitPercent":250`,
		`{"queues":8,"handSize":3,"queueLengthLimit":50}`),
}

// limited is the spec of a level with limits. Without queues it rejects what exceeds them.
func limited(limits, queues string) string {
	response := `{"type":"Reject"}`
	if queues != "" {
		response = `{"type":"Queue","queuing":` + queues + `}`
	}
	return `{"type":"Limited","limited":{` + limits + `,"limitResponse":` + response + `}}`
}

// schemas are FlowSchemas: precedence, level and rules. Of two with one precedence the name decides.
var schemas = []struct{ name, level, rules string }{
	{"100-users", "odd", `[{"subjects":[{"kind":"User","user":{"name":"jane"}}],"resourceRules":[{"verbs":["get","list"],
		"apiGroups":[""],"resources":["configmaps","pods/log"],"namespaces":["default","other"]}]}]`},
	{"100-anybody", "half", `[{"subjects":[{"kind":"User","user":{"name":"*"}}],"resourceRules":[{"verbs":["create"],
		"apiGroups":["apps","batch"],"resources":["*"],"namespaces":["*"]}]}]`},
	{"200-groups", "lending", `[{"subjects":[{"kind":"Group","group":{"name":"devs"}},{"kind":"User","user":{"name":"eve"}}],
		"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["nodes","namespaces"],"clusterScope":true}],
		"nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["/version","/healthz/*","/metrics"]}]}]`},
	{"201-accounts", "exempt", `[{"subjects":[{"kind":"ServiceAccount","serviceAccount":{"namespace":"default","name":"robot"}},
		{"kind":"ServiceAccount","serviceAccount":{"namespace":"other","name":"*"}}],"resourceRules":[{"verbs":["*"],
		"apiGroups":["*"],"resources":["*"],"clusterScope":true,"namespaces":["*"]}]}]`},
	{"202-everything", "none", `[{"subjects":[{"kind":"Group","group":{"name":"*"}}],"resourceRules":[{"verbs":["delete"],
		"apiGroups":["*"],"resources":["secrets"],"namespaces":["default"]}],"nonResourceRules":[{"verbs":["*"],
		"nonResourceURLs":["/a/*"]}]},{"subjects":[{"kind":"User","user":{"name":"bob"}}],"nonResourceRules":[{"verbs":["*"],
		"nonResourceURLs":["*"]}]}]`},
	{"203-nowhere", "missing", `[{"subjects":[{"kind":"User","user":{"name":"lost"}}],"nonResourceRules":[{"verbs":["*"],
		"nonResourceURLs":["*"]}]}]`},
	{"204-found", "zero", `[{"subjects":[{"kind":"User","user":{"name":"lost"}}],"nonResourceRules":[{"verbs":["*"],
		"nonResourceURLs":["*"]}]}]`},
	{"205-norules", "zero", `null`},
}

// users are who asks: a name, and groups.
var users = []string{"jane", "jane devs", "eve", "bob", "lost", "system:serviceaccount:default:robot",
	"system:serviceaccount:other:any", "system:serviceaccount:default:other", "system:kube-scheduler",
	"root system:masters", "system:node:n system:nodes", "system:serviceaccount:kube-system:generic-garbage-collector"}

// requests are what they ask for.
var requests = []string{"GET /api/v1/namespaces/default/configmaps", "GET /api/v1/namespaces/default/configmaps/a",
	"GET /api/v1/namespaces/third/configmaps", "GET /api/v1/configmaps", "GET /api/v1/namespaces/other/pods/p/log",
	"GET /api/v1/namespaces/other/pods/p", "POST /apis/apps/v1/namespaces/default/deployments",
	"POST /apis/batch/v1/namespaces/x/jobs", "GET /api/v1/nodes", "PUT /api/v1/nodes/n", "GET /api/v1/namespaces/default",
	"DELETE /api/v1/namespaces/default/secrets/s", "GET /version", "GET /healthz/ping", "GET /healthz", "GET /metrics/x",
	"GET /a/b/c", "GET /a", "GET /apis", "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler",
	"GET /api/v1/namespaces/kube-system/endpoints/x", "PATCH /api/v1/nodes/n/status"}

// Requests of many users get the FlowSchema and the level that the reference gives them, and levels have as many seats.
//
// SPEC: AUTH-6
func TestClasses(t *testing.T) {
	if *rewrite {
		text := classes(t, harness.Run(t, harness.Options{Kind: harness.Reference}))
		if err := os.WriteFile(recorded, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	kind := harness.Target()
	if harness.WantReference() {
		kind = harness.Reference
	}
	if got := classes(t, harness.Run(t, harness.Options{Kind: kind})); got != string(want) {
		t.Errorf("--- wanted\n+++ here\n%s", linediff.Diff(string(want), got))
	}
}

// asker sends requests to a server.
type asker struct {
	*testing.T
	server *harness.Server
}

// ask sends a request as a user; "": as the administrator.
func (a *asker) ask(user, method, path, body string) (answer *http.Response, text []byte) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, a.server.URL+path, strings.NewReader(body))
	if err != nil {
		a.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	request.Header.Set("Content-Type", "application/json")
	if name, groups, _ := strings.Cut(user, " "); name != "" {
		request.Header.Set("Impersonate-User", name)
		for _, g := range strings.Fields(groups) {
			request.Header.Add("Impersonate-Group", g)
		}
	}
	answer, err = a.server.Client().Do(request)
	if err != nil {
		a.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(answer.Body); err != nil {
		a.Fatal(err)
	}
	return answer, text
}

// create creates an object of the group.
func (a *asker) create(resource string, body any) {
	a.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		a.Fatal(err)
	}
	if answer, text := a.ask("", http.MethodPost, group+resource, string(text)); answer.StatusCode != http.StatusCreated {
		a.Fatalf("%s: %s %s", resource, answer.Status, text)
	}
}

// names returns the names of all objects of a type by UID.
func (a *asker) names(resource string) map[string]string {
	a.Helper()
	_, text := a.ask("", http.MethodGet, group+resource, "")
	var list struct {
		Items []struct{ Metadata struct{ Name, UID string } }
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list.Items) < 5 {
		a.Fatalf("%s: %v %s", resource, err, text)
	}
	names := map[string]string{}
	for _, item := range list.Items {
		names[item.Metadata.UID] = item.Metadata.Name
	}
	return names
}

// classes returns, for each request of each user, its FlowSchema and level; then the seats of the levels, and which
// FlowSchemas dangle.
func classes(t *testing.T, server *harness.Server) string {
	t.Helper()
	a := &asker{t, server}
	for name, spec := range levels {
		a.create("prioritylevelconfigurations", map[string]any{"metadata": map[string]string{"name": name},
			"spec": json.RawMessage(spec)})
	}
	for _, s := range schemas {
		precedence, _, _ := strings.Cut(s.name, "-")
		a.create("flowschemas", map[string]any{"metadata": map[string]string{"name": s.name}, "spec": map[string]any{
			"priorityLevelConfiguration": map[string]string{"name": s.level}, "rules": json.RawMessage(s.rules),
			"matchingPrecedence": json.Number(precedence)}})
	}
	a.settled()
	flows, priorities := a.names("flowschemas"), a.names("prioritylevelconfigurations")
	var b strings.Builder
	for _, user := range users {
		fmt.Fprintf(&b, "%s\n", user)
		for _, request := range requests {
			method, path, _ := strings.Cut(request, " ")
			answer, _ := a.ask(user, method, path, "{}")
			fmt.Fprintf(&b, "  %s: %s, %s\n", request, flows[answer.Header.Get("X-Kubernetes-Pf-Flowschema-Uid")],
				priorities[answer.Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid")])
		}
	}
	b.WriteString("\n")
	b.WriteString(a.seats())
	b.WriteString(a.dangling())
	return b.String()
}

// settled waits until the server has taken up the last schema: the reference does so some time after the write.
func (a *asker) settled() {
	a.Helper()
	a.create("flowschemas", map[string]any{"metadata": map[string]string{"name": "299-marker"}, "spec": map[string]any{
		"priorityLevelConfiguration": map[string]string{"name": "odd"}, "matchingPrecedence": 299,
		"rules": json.RawMessage(`[{"subjects":[{"kind":"User","user":{"name":"marker"}}],"nonResourceRules":[{
			"verbs":["*"],"nonResourceURLs":["*"]}]}]`)}})
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		answer, _ := a.ask("marker", http.MethodGet, "/version", "")
		if a.names("flowschemas")[answer.Header.Get("X-Kubernetes-Pf-Flowschema-Uid")] == "299-marker" &&
			!strings.Contains(a.dangling(), "?") {
			return
		}
		if time.Now().After(end) {
			a.Fatal("the schemas are not used")
		}
	}
}

var limits = regexp.MustCompile(`(?m)^apiserver_flowcontrol_(nominal_limit|lower_limit|upper_limit)_seats\{.*\n`)

// seats are the lines of /metrics that follow from the configuration alone.
func (a *asker) seats() string {
	a.Helper()
	_, text := a.ask("", http.MethodGet, "/metrics", "")
	lines := limits.FindAll(text, -1)
	if len(lines) < 30 {
		a.Fatalf("%d limits of levels", len(lines))
	}
	slices.SortFunc(lines, bytes.Compare)
	return string(bytes.Join(lines, nil)) + "\n"
}

// dangling says of each schema of this test whether it dangles; "?" if the server has not yet said so.
func (a *asker) dangling() string {
	a.Helper()
	var b strings.Builder
	for _, s := range schemas {
		_, text := a.ask("", http.MethodGet, group+"flowschemas/"+s.name, "")
		var obj struct {
			Status struct {
				Conditions []struct{ Type, Status, Reason, Message string }
			}
		}
		if err := json.Unmarshal(text, &obj); err != nil {
			a.Fatal(err)
		}
		if len(obj.Status.Conditions) == 0 {
			fmt.Fprintf(&b, "%s: ?\n", s.name)
		}
		for _, c := range obj.Status.Conditions {
			fmt.Fprintf(&b, "%s: %s %s %s %s\n", s.name, c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return b.String()
}

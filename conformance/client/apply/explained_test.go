package apply

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plinth/conformance/internal/harness"
)

// contested is an apply that conflicts with another manager's.
type contested struct {
	path            string // of the object; ~ is the namespace
	subresource     string
	manager         string
	created         string // the object before both applies
	theirs, ours    string // the intents of "a" and of manager
	parts           []string
	takesOver       bool   // whether kubectl can take the fields over
	field, live, is string // a path in the object, and its value before and after the way out
}

var contests = []contested{{
	path: "/api/v1/~/configmaps/shared", manager: "b", takesOver: true,
	theirs: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shared"},"data":{"key":"one"}}`,
	ours:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shared"},"data":{"key":"two"}}`,
	parts: []string{"Apply failed with 1 conflict: conflict with \"a\": .data.key\n\n",
		"configmaps \"shared\" in namespace \"apply-explained\"",
		".data.key is \"one\", owned by \"a\" (Apply, 20", "this apply wants \"two\"", "--field-manager=b --force-conflicts"},
	field: "data.key", live: "one", is: "two",
}, {
	path: "/api/v1/~/configmaps/quoted", manager: `it's "$HOME"; (no) \x é`, takesOver: true,
	theirs: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"quoted"},"data":{"key":"one"}}`,
	ours:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"quoted"},"data":{"key":"two"}}`,
	field:  "data.key", live: "one", is: "two",
}, {
	path: "/apis/rbac.authorization.k8s.io/v1/clusterroles/a 'b' $c, d", manager: "b", takesOver: true,
	theirs: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"a 'b' $c, d",
		"labels":{"key":"one"}}}`,
	ours: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"a 'b' $c, d",
		"labels":{"key":"two"}}}`,
	field: "metadata.labels.key", live: "one", is: "two",
}, {
	// The preferred version of this kind is v2, in which the field is elsewhere.
	path: "/apis/autoscaling/v1/~/horizontalpodautoscalers/old", manager: "b", takesOver: true,
	theirs: `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"old"},"spec":{
		"maxReplicas":3,"targetCPUUtilizationPercentage":50,"scaleTargetRef":{"apiVersion":"apps/v1",
		"kind":"Deployment","name":"x"}}}`,
	ours: `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"old"},"spec":{
		"maxReplicas":3,"targetCPUUtilizationPercentage":60,"scaleTargetRef":{"apiVersion":"apps/v1",
		"kind":"Deployment","name":"x"}}}`,
	field: "spec.targetCPUUtilizationPercentage", live: "50", is: "60",
}, {
	path: "/apis/apps/v1/~/deployments/web", subresource: "status", manager: "b", takesOver: true,
	created: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{
		"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},
		"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
	theirs: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"status":{"replicas":3}}`,
	ours:   `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"status":{"replicas":4}}`,
	parts:  []string{"--subresource=status"},
	field:  "status.replicas", live: "3", is: "4",
}, {
	path: "/apis/apps/v1/~/deployments/web", subresource: "scale", manager: "b",
	theirs: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web"},"spec":{"replicas":3}}`,
	ours:   `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web"},"spec":{"replicas":4}}`,
	parts:  []string{"repeat the request with force=true"},
	field:  "spec.replicas", live: "3", is: "3",
}, {
	path: "/api/v1/~/pods/small", subresource: "resize", manager: "b", takesOver: true,
	created: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"small"},"spec":{"containers":[
		{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}}}]}}`,
	theirs: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"small"},"spec":{"containers":[
		{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}`,
	ours: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"small"},"spec":{"containers":[
		{"name":"c","resources":{"requests":{"cpu":"3"}}}]}}`,
	parts: []string{"--subresource=resize"},
	field: "spec.containers.0.resources.requests.cpu", live: "2", is: "3",
}}

// TestExplained: every conflict of Plinth also has the values and the ways to resolve it (BEY-2), in the form that
// the comparison with the reference leaves out. Each command that it prints does what is said of it, for the real
// kubectl in a shell, with a context whose namespace is another one.
//
// SPEC: BEY-2
func TestExplained(t *testing.T) {
	if *rewrite || harness.Target() == harness.Reference {
		return
	}
	server := harness.RunTarget(t)
	client := server.Client()
	t.Cleanup(client.CloseIdleConnections)
	r, err := newRunner(server, client, t.TempDir(), &script{file: filepath.Join("testdata", "explained.txt")})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := newRunner(server, client, r.home, &script{file: filepath.Join("testdata", "elsewhere.txt")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range contests {
		t.Run(c.path+"/"+c.subresource, func(t *testing.T) { c.run(t, r, elsewhere) })
	}
}

// run makes the conflict in the namespace of r, and runs the commands of its message in that of elsewhere.
func (c *contested) run(t *testing.T, r, elsewhere *runner) {
	path := strings.Replace(c.path, "~", "namespaces/"+r.namespace, 1)
	parent, name := filepath.Split(path)
	object := parent + url.PathEscape(name)
	must := func(method, path, body, media string, want ...int) []byte {
		t.Helper()
		status, answer, err := r.send(method, path, body, http.Header{"Content-Type": {media}})
		if err != nil || !slices.Contains(want, status) {
			t.Fatalf("%s %s: %d %v, want %d\n%s", method, path, status, err, want, answer)
		}
		return answer
	}
	apply := func(manager, body string, want ...int) []byte {
		t.Helper()
		query := "?fieldManager=" + url.QueryEscape(manager)
		return must(http.MethodPatch, strings.TrimSuffix(object+"/"+c.subresource, "/")+query, body,
			"application/apply-patch+yaml", want...)
	}
	if c.created != "" {
		must(http.MethodPost, strings.TrimSuffix(parent, "/")+"?fieldManager=creator", c.created, "application/json", 201)
	}
	if c.subresource == "" {
		apply("a", c.theirs, 201)
	} else {
		must(http.MethodPatch, object+"/"+c.subresource+"?fieldManager=a&force=true", c.theirs,
			"application/apply-patch+yaml", 200)
	}
	var conflict struct{ Message string }
	if err := json.Unmarshal(apply(c.manager, c.ours, 409), &conflict); err != nil {
		t.Fatal(err)
	}
	for _, part := range c.parts {
		if !strings.Contains(conflict.Message, part) {
			t.Errorf("the conflict does not say %s:\n%s", part, conflict.Message)
		}
	}
	if err := os.WriteFile(filepath.Join(elsewhere.dir, "FILE"), []byte(c.ours), 0o644); err != nil {
		t.Fatal(err)
	}
	var shows, forces string
	for line := range strings.Lines(conflict.Message) {
		_, command, found := strings.Cut(strings.TrimSpace(line), "kubectl ")
		switch {
		case found && strings.HasPrefix(command, "get "):
			shows = "kubectl " + command
		case found:
			forces = "kubectl " + command
		}
	}
	if forces != "" != c.takesOver {
		t.Errorf("the command that takes the fields over: %q", forces)
	}
	shown := elsewhere.shell.Run(shows+" | grep -v '^ *f:'", "")
	key := c.field[strings.LastIndexByte(c.field, '.')+1:]
	if shown.Err != nil || shown.Stderr != "" || !strings.Contains(shown.Stdout, key+": "+c.live) &&
		!strings.Contains(shown.Stdout, fmt.Sprintf("%s: %q", key, c.live)) ||
		!strings.Contains(shown.Stdout, "manager: a\n") {
		t.Errorf("%s does not show %s: %s and its manager a:\n%v", shows, key, c.live, shown)
	}
	if forces != "" {
		if done := elsewhere.shell.Run(forces, ""); done.Err != nil {
			t.Errorf("%s\n%v", forces, done)
		}
	}
	c.check(t, must(http.MethodGet, object, "", "application/json", 200), forces != "")
}

// check compares the field with what the way out makes of it, and looks for the manager that has it then.
func (c *contested) check(t *testing.T, object []byte, taken bool) {
	t.Helper()
	var now any
	if err := json.Unmarshal(object, &now); err != nil {
		t.Fatal(err)
	}
	is := now
	for step := range strings.SplitSeq(c.field, ".") {
		switch v := is.(type) {
		case map[string]any:
			is = v[step]
		case []any:
			is = v[0]
		}
	}
	if fmt.Sprint(is) != c.is {
		t.Errorf("afterwards %s is %v, want %s", c.field, is, c.is)
	}
	var managed struct {
		Metadata struct {
			ManagedFields []struct{ Manager, Operation, Subresource string }
		}
	}
	if err := json.Unmarshal(object, &managed); err != nil {
		t.Fatal(err)
	}
	want := struct{ Manager, Operation, Subresource string }{c.manager, "Apply", c.subresource}
	if has := slices.Contains(managed.Metadata.ManagedFields, want); has != taken {
		t.Errorf("the managers are %v, that %v is among them should be %v", managed.Metadata.ManagedFields, want, taken)
	}
}

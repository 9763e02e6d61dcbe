package plinthtest

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// client is a client of a plane, by net/http alone.
type client struct {
	t    testing.TB
	host string
	http.RoundTripper
	agent string
}

func newClient(t testing.TB, p *Plane, as ...User) *client {
	return &client{t, p.Host(), p.Transport(as...), "test/1"}
}

// send sends a request, and returns the answer without its body read.
func (c *client) send(method, path, contentType, body string) *http.Response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.host+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("User-Agent", c.agent)
	answer, err := c.RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

// do sends a request with a status that is expected, and returns the body of the answer.
func (c *client) do(want int, method, path, body string) string {
	c.t.Helper()
	contentType := "application/json"
	if method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	answer := c.send(method, path, contentType, body)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if answer.StatusCode != want {
		c.t.Fatalf("%s %s: %s, want %d: %s", method, path, answer.Status, want, text)
	}
	return string(text)
}

func (c *client) apply(want int, manager, path, body string) string {
	c.t.Helper()
	answer := c.send(http.MethodPatch, path+"?fieldManager="+manager, "application/apply-patch+yaml", body)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != want {
		c.t.Fatalf("apply by %s: %s, %v: %s", manager, answer.Status, err, text)
	}
	return string(text)
}

// watched is an event of a watch.
type watched struct {
	Type   string
	Object struct {
		Metadata struct{ Name, ResourceVersion string }
		Data     map[string]string
	}
}

// watch starts a watch, and returns a function that reads its next event; nil at its end, with the error.
func (c *client) watch(path string) (next func() (*watched, error), end func() error) {
	c.t.Helper()
	answer := c.send(http.MethodGet, path, "", "")
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		c.t.Fatalf("GET %s: %s: %s", path, answer.Status, text)
	}
	lines := bufio.NewReader(answer.Body)
	return func() (*watched, error) {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		e := &watched{}
		return e, json.Unmarshal(line, e)
	}, answer.Body.Close
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func configMap(name string, data ...string) string {
	values := map[string]string{}
	for i := 0; i < len(data); i += 2 {
		values[data[i]] = data[i+1]
	}
	text, _ := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]string{"name": name}, "data": values})
	return string(text)
}

// SPEC: BEY-7
func TestPlane(t *testing.T) {
	p := New(t)
	c := newClient(t, p)
	next, end := c.watch(configMaps + "?watch=true")
	if made := c.do(201, "POST", configMaps, configMap("a", "color", "red")); !strings.Contains(made, `"color":"red"`) {
		t.Errorf("made %s", made)
	}
	if e, err := next(); err != nil || e.Type != "ADDED" || e.Object.Metadata.Name != "a" {
		t.Errorf("the watch sends %+v, %v", e, err)
	}
	c.do(409, "POST", configMaps, configMap("a"))
	c.do(404, "GET", configMaps+"/b", "")
	c.do(200, "DELETE", configMaps+"/a", "")
	if e, err := next(); err != nil || e.Type != "DELETED" {
		t.Errorf("the watch sends %+v, %v", e, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if _, err := next(); err == nil {
		t.Error("a closed watch goes on")
	}
	if groups := c.do(200, "GET", "/apis", ""); !strings.Contains(groups, `"apps"`) {
		t.Errorf("the groups are %s", groups)
	}
}

// A request is from the user of its transport, whom RBAC restricts, or from the owner of its token.
func TestUsers(t *testing.T) {
	p := New(t)
	admin := newClient(t, p)
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/"
	admin.do(201, "POST", rbac+"roles", `{"metadata": {"name": "reader"},
		"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]}`)
	admin.do(201, "POST", rbac+"rolebindings", `{
		"metadata": {"name": "readers"}, "subjects": [{"kind": "Group", "name": "readers"}],
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}}`)
	jane := newClient(t, p, User{Name: "jane", Groups: []string{"readers"}})
	jane.do(200, "GET", configMaps, "")
	jane.do(403, "POST", configMaps, configMap("a"))
	newClient(t, p, User{Name: "joe"}).do(403, "GET", configMaps, "")
	const review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	who := jane.do(201, "POST", review, `{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`)
	if !strings.Contains(who, `"username":"jane"`) || !strings.Contains(who, "system:authenticated") {
		t.Errorf("jane is %s", who)
	}
	admin.do(201, "POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata": {"name": "robot"}}`)
	var token struct{ Status struct{ Token string } }
	text := admin.do(201, "POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", `{"spec": {}}`)
	if err := json.Unmarshal([]byte(text), &token); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", p.Host()+configMaps, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token.Status.Token)
	answer, err := p.Transport().RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	refusal, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != 403 || !strings.Contains(string(refusal), "system:serviceaccount:default:robot") {
		t.Errorf("the token of a service account: %s: %s", answer.Status, refusal)
	}
}

// Without controllers a plane is like envtest's: Pods need no ServiceAccount, and namespaces stay. With them it is
// not.
func TestControllers(t *testing.T) {
	const pod = `{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`
	alone := newClient(t, New(t))
	alone.do(201, "POST", "/api/v1/namespaces/default/pods", pod)
	p := New(t, Controllers("*"))
	c := newClient(t, p)
	c.do(201, "POST", "/api/v1/namespaces", `{"metadata": {"name": "n"}}`)
	if text := c.do(201, "POST", "/api/v1/namespaces/n/pods", pod); !strings.Contains(text, `"serviceAccount":"default"`) {
		t.Errorf("the Pod is %s", text)
	}
	c.do(200, "DELETE", "/api/v1/namespaces/n", "")
	p.Wait(t, Ref{Version: "v1", Resource: "namespaces", Name: "n"}, func(object []byte) bool { return object == nil })
	c.do(404, "GET", "/api/v1/namespaces/n", "")
}

// What is wrong with an option is the error of New.
func TestWrongOptions(t *testing.T) {
	for name, test := range map[string]struct {
		option Option
		want   string
	}{
		"gate":       {FeatureGates("Nonsense=true"), "Nonsense"},
		"plugin":     {Admission("-Nonsense"), "Nonsense"},
		"controller": {Controllers("nonsense"), "nonsense"},
		"object":     {Objects([]byte("apiVersion: v1\nkind: Nonsense\nmetadata: {name: a}\n")), "Nonsense"},
		"invalid":    {Objects([]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A_A}\n")), "A_A"},
		"text":       {Objects([]byte("a: [")), "yaml"},
		"JSON":       {Objects([]byte("{{")), "document 1"},
		"hooks":      {Webhooks(http.NotFoundHandler(), []byte(configMap("a"))), "no webhook"},
	} {
		if _, err := newPlane(t.Context(), []Option{test.option}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

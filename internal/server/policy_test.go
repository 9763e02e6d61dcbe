package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asked is a request of a user, as METHOD PATH, and its result.
type asked struct {
	who, request, body string
	code               int
	says               string // anywhere in the response
}

// tenants is a server with an administrator, whose token is sesame, and other users, whose tokens are their names.
func tenants(t *testing.T, dir string) *Server {
	t.Helper()
	return tenantsWith(t, dir, func(*Config) {})
}

func tenantsWith(t *testing.T, dir string, edit func(*Config)) *Server {
	t.Helper()
	c := quiet(dir)
	c.Storage, c.TokenAuthFile = "memory", filepath.Join(dir, "tokens.csv")
	text := "sesame,admin,1,system:masters\njane,jane,2,devs\nbob,bob,3\n"
	if err := os.WriteFile(c.TokenAuthFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	edit(&c)
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (a asked) check(t *testing.T, s *Server) {
	t.Helper()
	method, path, _ := strings.Cut(a.request, " ")
	r := httptest.NewRequest(method, path, strings.NewReader(a.body))
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	if a.who != "" {
		r.Header.Set("Authorization", "Bearer "+a.who)
	}
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, r)
	if w.Code != a.code || !strings.Contains(w.Body.String(), a.says) {
		t.Errorf("%s: %s\nhave %d %s\nwant %d with %s", a.who, a.request, w.Code, w.Body, a.code, a.says)
	}
}

const (
	rbacPath = "/apis/rbac.authorization.k8s.io/v1"
	inNS     = rbacPath + "/namespaces/default"
)

// Changes of roles and bindings apply at once, and users cannot grant permissions that they do not have.
//
// SPEC: AUTH-2, SSA-17
func TestRolesAndBindings(t *testing.T) {
	s := tenants(t, t.TempDir())
	const team = `{"metadata":{"name":"team"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"%"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"devs"}]}`
	of := func(role string) string { return strings.Replace(team, "%", role, 1) }
	const reader = `{"metadata":{"name":"reader"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list","patch"]}]}`
	const writer = `{"metadata":{"name":"writer"},"rules":[{"apiGroups":["","apps"],"resources":["configmaps"],"verbs":["get","delete","list"]}]}`
	const maps = "/api/v1/namespaces/default/configmaps"
	const apply = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	for _, step := range []asked{
		{"", "GET /healthz", "", 200, "ok"},
		{"", "GET /api", "", 403, `forbidden: User \"system:anonymous\" cannot get path \"/api\"`},
		{"jane", "GET /api", "", 200, ""},
		{"jane", "GET " + maps, "", 403,
			`configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"`},
		{"sesame", "POST " + inNS + "/rolebindings", of("reader"), 201, ""},
		{"jane", "GET " + maps, "", 403,
			`in the namespace \"default\": rbac: RBAC: clusterrole.rbac.authorization.k8s.io \"reader\" not found`},
		{"sesame", "POST " + rbacPath + "/clusterroles", reader, 201, ""},
		{"jane", "GET " + maps, "", 200, ""},
		{"jane", "GET /api/v1/configmaps", "", 403, "at the cluster scope"},
		{"bob", "GET " + maps, "", 403, ""},
		// An apply that creates an object needs both verbs; one that does not, needs one.
		{"jane", "PATCH " + maps + "/a?fieldManager=m", apply, 403,
			`configmaps \"a\" is forbidden: User \"jane\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\"`},
		{"sesame", "PATCH " + maps + "/a?fieldManager=m", apply, 201, ""},
		{"jane", "PATCH " + maps + "/a?fieldManager=m", apply, 200, ""},
		// A user who may write roles cannot grant more permissions than they have.
		{"sesame", "POST " + inNS + "/roles",
			`{"metadata":{"name":"chief"},"rules":[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles","rolebindings"],"verbs":["create","update","patch"]}]}`, 201, ""},
		{"sesame", "POST " + inNS + "/rolebindings",
			`{"metadata":{"name":"chief"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"chief"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}`, 201, ""},
		{"jane", "POST " + inNS + "/roles", writer, 403,
			`roles.rbac.authorization.k8s.io \"writer\" is forbidden: user \"jane\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n` +
				`{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}\n{APIGroups:[\"apps\"], Resources:[\"configmaps\"], Verbs:[\"get\" \"delete\" \"list\"]}`},
		{"jane", "POST " + inNS + "/roles", reader, 201, ""},
		{"jane", "PUT " + inNS + "/roles/reader",
			`{"metadata":{"name":"reader","finalizers":["a.io/b"]},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["*"]}]}`, 403, `Verbs:[\"*\"]`},
		{"jane", "POST " + inNS + "/rolebindings", strings.Replace(of("reader"), "team", "more", 1), 201, ""},
		{"jane", "POST " + inNS + "/rolebindings", strings.Replace(of("system:basic-user"), "team", "own", 1), 201, ""},
		{"jane", "POST " + inNS + "/rolebindings", strings.Replace(of("cluster-admin"), "team", "all", 1), 403,
			"not currently held"},
		{"jane", "POST " + inNS + "/rolebindings", strings.Replace(of("nobody"), "team", "none", 1), 404,
			`clusterroles.rbac.authorization.k8s.io \"nobody\" not found`},
		{"jane", "POST " + rbacPath + "/clusterroles",
			`{"metadata":{"name":"sum"},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}`, 403,
			"cannot create"},
		// A user with the verb escalate or bind can.
		{"sesame", "POST " + inNS + "/roles",
			`{"metadata":{"name":"free"},"rules":[{"apiGroups":["*"],"resources":["roles"],"verbs":["escalate"]},{"apiGroups":["*"],"resources":["clusterroles"],"resourceNames":["cluster-admin"],"verbs":["bind"]}]}`, 201, ""},
		{"sesame", "POST " + inNS + "/rolebindings",
			`{"metadata":{"name":"free"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"free"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}`, 201, ""},
		{"jane", "POST " + inNS + "/roles", writer, 201, ""},
		{"jane", "POST " + inNS + "/rolebindings", strings.Replace(of("cluster-admin"), "team", "all", 1), 201, ""},
		{"jane", "DELETE " + maps + "/a", "", 200, ""},
		{"jane", "DELETE " + inNS + "/rolebindings/all", "", 200, ""},
		{"jane", "DELETE " + maps + "/a", "", 403, ""},
	} {
		step.check(t, s)
	}
}

// The mode Node alone does not keep a kubelet from the Nodes of others: the log says so, and names the plugin that
// does.
//
// SPEC: AUTH-2
func TestNodeWithoutItsPluginIsSaid(t *testing.T) {
	for _, c := range []struct {
		modes   []string
		plugins []string
		said    bool
	}{{[]string{"Node", "RBAC"}, nil, true}, {[]string{"Node", "RBAC"}, []string{"NodeRestriction"}, false},
		{[]string{"RBAC"}, nil, false}} {
		var log bytes.Buffer
		config := quiet(t.TempDir())
		config.Storage, config.AuthorizationModes, config.EnableAdmission = "memory", c.modes, c.plugins
		config.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s, err := Start(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if text := log.String(); strings.Contains(text, "plugin=NodeRestriction") != c.said {
			t.Errorf("%v: the log is %s", c.modes, text)
		}
	}
}

// A binding to a role that cannot exist, by a user who would have to hold its rules, gets the error of a GET of that
// role.
//
// SPEC: AUTH-2
func TestBindingsToImpossibleRoles(t *testing.T) {
	s := tenants(t, t.TempDir())
	const bindings = rbacPath + "/clusterrolebindings"
	to := func(kind, name string) string {
		return `{"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"` + kind + `","name":"` + name +
			`"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}`
	}
	for _, step := range []asked{
		{"sesame", "POST " + rbacPath + "/clusterroles",
			`{"metadata":{"name":"binder"},"rules":[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["rolebindings","clusterrolebindings"],"verbs":["create"]}]}`,
			201, ""},
		{"sesame", "POST " + bindings, strings.Replace(to("ClusterRole", "binder"), `"b"`, `"binder"`, 1), 201, ""},
		{"jane", "POST " + inNS + "/rolebindings", to("Role", "a/b"), 400,
			`"message":"Name parameter invalid: \"a/b\": may not contain '/'"`},
		{"jane", "POST " + inNS + "/rolebindings", to("ClusterRole", ".."), 400,
			`"message":"Name parameter invalid: \"..\": may not be '..'"`},
		{"jane", "POST " + inNS + "/rolebindings", to("Role", ""), 400, `"message":"Name parameter required."`},
		{"jane", "POST " + bindings, to("Role", "r"), 400, `"message":"Namespace parameter required."`},
		{"jane", "POST " + bindings, to("ClusterRole", "a%b"), 400, `"message":"Name parameter invalid: \"a%b\"`},
		{"jane", "POST " + inNS + "/rolebindings", to("Role", "r"), 404, `roles.rbac.authorization.k8s.io \"r\" not found`},
		{"jane", "POST " + bindings, to("Other", "a/b"), 500, `unsupported role reference kind: \"Other\"`},
	} {
		step.check(t, s)
	}
}

// An aggregated role grants the rules of every role that carries the label, so its author needs all permissions, or the
// verb escalate.
//
// SPEC: AUTH-2
func TestAggregationNeedsEverything(t *testing.T) {
	s := tenants(t, t.TempDir())
	const (
		roles    = rbacPath + "/clusterroles"
		bindings = rbacPath + "/clusterrolebindings"
		sum      = `{"metadata":{"name":"sum"},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}`
		refused  = `clusterroles.rbac.authorization.k8s.io \"sum\" is forbidden: must have cluster-admin privileges to use the aggregationRule`
	)
	role := func(name, rules string) string { return `{"metadata":{"name":"` + name + `"},"rules":[` + rules + `]}` }
	to := func(name, user string) string {
		return `{"metadata":{"name":"` + name + user + `"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"` +
			name + `"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"` + user + `"}]}`
	}
	const write = `"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles"],"verbs":["create","update"`
	for _, step := range []asked{
		{"sesame", "POST " + roles, role("writer", `{`+write+`]}`), 201, ""},
		{"sesame", "POST " + roles, role("escalator", `{`+write+`,"escalate"]}`), 201, ""},
		{"sesame", "POST " + bindings, to("writer", "jane"), 201, ""},
		{"sesame", "POST " + bindings, to("escalator", "bob"), 201, ""},
		{"jane", "POST " + roles, role("none", ""), 201, ""},
		{"jane", "POST " + roles, sum, 403, refused},
		{"bob", "POST " + roles, sum, 201, ""},
		{"jane", "PUT " + roles + "/sum", role("sum", ""), 403, refused},
		{"sesame", "POST " + bindings, to("cluster-admin", "jane"), 201, ""},
		{"jane", "PUT " + roles + "/sum", role("sum", ""), 200, ""},
	} {
		step.check(t, s)
	}
}

// A WebSocket is opened by GET, but its subresource needs the verb create nevertheless.
//
// SPEC: AUTH-2, URI-7
func TestConnectingNeedsCreate(t *testing.T) {
	const pods = "/api/v1/namespaces/default/pods"
	for _, gate := range []bool{true, false} {
		dir := t.TempDir()
		s := tenantsWith(t, dir, func(c *Config) {
			c.FeatureGates = append(c.FeatureGates, fmt.Sprintf("AuthorizePodWebsocketUpgradeCreatePermission=%v", gate))
		})
		steps := []asked{{"sesame", "POST " + pods,
			`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, 201, ""}}
		for user, verbs := range map[string]string{"jane": `"get"`, "bob": `"get","create"`} {
			steps = append(steps, asked{"sesame", "POST " + inNS + "/roles", `{"metadata":{"name":"` + user +
				`"},"rules":[{"apiGroups":[""],"resources":["pods/exec","pods/attach","pods/portforward","pods/log","pods/proxy"],"verbs":[` +
				verbs + `]}]}`, 201, ""},
				asked{"sesame", "POST " + inNS + "/rolebindings", `{"metadata":{"name":"` + user +
					`"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"` + user +
					`"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"` + user + `"}]}`, 201, ""})
		}
		for _, subresource := range []string{"exec", "attach", "portforward"} {
			at := pods + "/p/" + subresource
			const unbound = "pod p does not have a host assigned"
			there := asked{"jane", "GET " + at, "", 400, unbound}
			gone := asked{"jane", "GET " + pods + "/none/" + subresource, "", 404, "not found"}
			if gate {
				there.code, there.says = 403, `"message":"pods \"p\" is forbidden: "`
				gone.code, gone.says = 403, `"message":"pods \"none\" is forbidden: "`
			}
			steps = append(steps, there, gone,
				asked{"jane", "POST " + at, "", 403, `cannot create resource \"pods/` + subresource},
				asked{"jane", "GET " + at + "?dryRun=All", "", 400, "dryRun is not supported"},
				asked{"bob", "GET " + at, "", 400, unbound},
				asked{"bob", "POST " + at, "", 400, unbound})
		}
		steps = append(steps, asked{"jane", "GET " + pods + "/p/log", "", 204, ""},
			asked{"jane", "GET " + pods + "/p/proxy", "", 400, "address not allowed"})
		for _, step := range steps {
			step.check(t, s)
		}
	}
}

// Reviews return the decisions that requests would get, with the reasons.
//
// SPEC: AUTH-2
func TestAccessReviews(t *testing.T) {
	s := tenants(t, t.TempDir())
	const reviews = "POST /apis/authorization.k8s.io/v1/"
	for _, step := range []asked{
		{"sesame", "POST " + inNS + "/rolebindings",
			`{"metadata":{"name":"lost"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"lost"},"subjects":[{"kind":"ServiceAccount","name":"sa"}]}`, 201, ""},
		{"sesame", reviews + "subjectaccessreviews",
			`{"spec":{"user":"system:serviceaccount:default:sa","resourceAttributes":{"namespace":"default","verb":"list","resource":"pods"}}}`, 201,
			`"status":{"allowed":false,"reason":"rbac: RBAC: role.rbac.authorization.k8s.io \"lost\" not found"}`},
		{"sesame", reviews + "subjectaccessreviews",
			`{"spec":{"groups":["system:masters"],"resourceAttributes":{"verb":"list","resource":"pods"}}}`, 201,
			`"status":{"allowed":true}`},
		{"sesame", reviews + "subjectaccessreviews",
			`{"spec":{"user":"system:kube-scheduler","resourceAttributes":{"verb":"list","resource":"pods","fieldSelector":{"rawSelector":"a b"}}}}`, 201,
			`"status":{"allowed":true,"evaluationError":"spec.resourceAttributes.fieldSelector ignored due to parse error","reason":"RBAC: allowed by ClusterRoleBinding \"system:kube-scheduler\" of ClusterRole \"system:kube-scheduler\" to User \"system:kube-scheduler\""}`},
		{"sesame", reviews + "subjectaccessreviews",
			`{"spec":{"user":"x","resourceAttributes":{"labelSelector":{},"fieldSelector":{"rawSelector":"a","requirements":[{"key":"","operator":"In"}]}}}}`, 422,
			`spec.resourceAttributes.labelSelector.requirements: Required value: when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required`},
		{"bob", reviews + "selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"verb":"get","path":"/healthz"}}}`,
			201, `"status":{"allowed":true,"reason":"RBAC: allowed by ClusterRoleBinding \"system:`},
		{"bob", reviews + "subjectaccessreviews", `{"spec":{"user":"x","nonResourceAttributes":{"verb":"get","path":"/"}}}`,
			403, `User \"bob\" cannot create resource \"subjectaccessreviews\"`},
		{"bob", reviews + "selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`, 201,
			`{"apiGroups":["authorization.k8s.io"],"resources":["selfsubjectaccessreviews","selfsubjectrulesreviews"],"verbs":["create"]}`},
	} {
		step.check(t, s)
	}
}

// A restart adds to the bootstrap roles and bindings what they lack, keeps additions, and does not write complete ones.
//
// SPEC: AUTH-2
func TestBootstrapPolicyIsReconciled(t *testing.T) {
	dir := t.TempDir()
	start := func() (*Server, *testClient) {
		config := quiet(dir)
		config.Controllers = nil // the controller that aggregates roles writes some of them later
		s, err := Start(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		return s, &testClient{apiClient: clientOf(t, s), t: t, ctx: t.Context()}
	}
	change := func(c *testClient, path string, edit func(obj jsonObject)) {
		obj := c.must(200, "GET", rbacPath+path, nil)
		edit(obj)
		c.must(200, "PUT", rbacPath+path, obj)
	}
	s, c := start()
	rule := map[string]any{"apiGroups": []any{"a.io"}, "resources": []any{"things"}, "verbs": []any{"get"}}
	change(c, "/clusterroles/system:basic-user", func(obj jsonObject) { obj["rules"] = []any{rule} })
	change(c, "/clusterroles/system:discovery", func(obj jsonObject) {
		obj["rules"] = nil
		obj["metadata"].(map[string]any)["annotations"] = map[string]any{
			"rbac.authorization.kubernetes.io/autoupdate": "false",
		}
	})
	change(c, "/clusterrolebindings/system:basic-user", func(obj jsonObject) {
		obj["subjects"] = []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}}
	})
	c.must(200, "DELETE", rbacPath+"/clusterrolebindings/system:volume-scheduler", nil)
	c.must(201, "POST", rbacPath+"/clusterrolebindings", jsonObject{
		"metadata": map[string]any{"name": "system:volume-scheduler"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
	})
	c.must(200, "DELETE", rbacPath+"/clusterroles/view", nil)
	s.Close()
	s, c = start()
	if got := c.must(200, "GET", rbacPath+"/clusterroles/system:basic-user", nil)["rules"].([]any); len(got) != 4 {
		t.Errorf("rules of system:basic-user: %v", got)
	}
	if got := c.must(200, "GET", rbacPath+"/clusterroles/system:discovery", nil)["rules"]; got != nil {
		t.Errorf("rules of system:discovery: %v", got)
	}
	if got := c.must(200, "GET", rbacPath+"/clusterrolebindings/system:basic-user",
		nil)["subjects"].([]any); len(got) != 2 {
		t.Errorf("subjects of system:basic-user: %v", got)
	}
	if got := c.must(200, "GET", rbacPath+"/clusterrolebindings/system:volume-scheduler", nil).text("roleRef",
		"name"); got != "system:volume-scheduler" {
		t.Errorf("system:volume-scheduler gives %s", got)
	}
	c.must(200, "GET", rbacPath+"/clusterroles/view", nil)
	before := s.plane.Store.Collection("rbac.authorization.k8s.io/clusterroles").Revision()
	s.Close()
	if s, _ = start(); s.plane.Store.Collection("rbac.authorization.k8s.io/clusterroles").Revision() != before {
		t.Error("a restart has written roles")
	}
	s.Close()
}

// Cluster roles that aggregate others have the rules of those, and the rules of a new role as soon as it is labelled.
//
// SPEC: AUTH-2
func TestAggregatedRoles(t *testing.T) {
	c, _ := serveFrom(t, quiet(t.TempDir()))
	rules := func(role, resource string) int {
		n := 0
		list, _ := c.must(200, "GET", rbacPath+"/clusterroles/"+role, nil)["rules"].([]any)
		for _, rule := range list {
			if strings.Contains(fmt.Sprint(rule), "resources:["+resource) {
				n++
			}
		}
		return n
	}
	wait := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	wait("admin has no rules", func() bool {
		return rules("view", "configmaps") == 1 && rules("admin", "localsubjectaccessreviews") == 1
	})
	role := jsonObject{
		"metadata": map[string]any{"name": "more",
			"labels": map[string]any{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		"rules": []any{map[string]any{"apiGroups": []any{"a.io"}, "resources": []any{"things"}, "verbs": []any{"get"}}},
	}
	c.must(201, "POST", rbacPath+"/clusterroles", role)
	wait("the rules of a new role are not aggregated", func() bool {
		return rules("view", "things") == 1 && rules("edit", "things") == 1 && rules("admin", "things") == 1
	})
	// Another role with the same rule and a further one: the shared rule appears once.
	c.must(201, "POST", rbacPath+"/clusterroles", jsonObject{
		"metadata": map[string]any{"name": "other",
			"labels": map[string]any{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		"rules": []any{role["rules"].([]any)[0],
			map[string]any{"apiGroups": []any{"a.io"}, "resources": []any{"others"}, "verbs": []any{"get"}}},
	})
	wait("the rules of another role are not aggregated", func() bool { return rules("admin", "others") == 1 })
	for _, name := range []string{"view", "edit", "admin"} {
		if n := rules(name, "things"); n != 1 {
			t.Errorf("%s has a rule %d times", name, n)
		}
	}
	c.must(200, "DELETE", rbacPath+"/clusterroles/other", nil)
	wait("the rules of a deleted role stay", func() bool {
		return rules("view", "others")+rules("edit", "others")+rules("admin", "others") == 0 && rules("view", "things") == 1
	})
	role["metadata"] = map[string]any{"name": "more"}
	c.must(200, "PUT", rbacPath+"/clusterroles/more", role)
	wait("the rules of a role stay", func() bool {
		return rules("view", "things")+rules("edit", "things")+rules("admin",
			"things") == 0
	})
}

// The status of a ResourceClaim needs further rights for the allocation and for the devices of each driver, unless the
// gate is off.
//
// SPEC: AUTH-2
func TestStatusOfResourceClaims(t *testing.T) {
	const (
		claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
		claim  = `"metadata":{"name":"a"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}`
		device = `"driver":"d.example.com","pool":"p","device":"x"`
		alone  = `{` + claim + `}`
		bound  = `{` + claim + `,"status":{"allocation":{"devices":{"results":[{"request":"r",` + device + `}]}}}}`
		used   = `{` + claim + `,"status":{"allocation":{"devices":{"results":[{"request":"r",` + device + `}]}},"devices":[{` +
			device + `}]}}`
		grant = `{"metadata":{"name":"%"},"rules":[{"apiGroups":["resource.k8s.io"],"resources":["resourceclaims/%"],"verbs":["update","arbitrary-node:update"],"resourceNames":["a","d.example.com"]}]}`
		to    = `{"metadata":{"name":"%"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"%"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}`
	)
	may := func(what string) []asked {
		return []asked{
			{"sesame", "POST " + rbacPath + "/clusterroles", strings.ReplaceAll(grant, "%", what), 201, ""},
			{"sesame", "POST " + rbacPath + "/clusterrolebindings", strings.ReplaceAll(to, "%", what), 201, ""},
		}
	}
	begin := append(may("status"), asked{"sesame", "POST " + claims, alone, 201, ""})
	s := tenants(t, t.TempDir())
	steps := append(begin, []asked{
		{"jane", "PUT " + claims + "/a/status", bound, 422,
			`status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"update\" permission: resourceclaims.resource.k8s.io is forbidden: User \"jane\" cannot update resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope`},
		{"sesame", "PUT " + claims + "/a/status", bound, 200, ""},
		{"jane", "PUT " + claims + "/a/status", bound, 200, ""}, // nothing changes
		{"jane", "PUT " + claims + "/a/status", used, 422,
			`status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:update]\" permission: resourceclaims.resource.k8s.io \"d.example.com\" is forbidden: User \"jane\" cannot arbitrary-node:update resource \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the namespace \"default\"`},
	}...)
	steps = append(append(steps, may("driver")...),
		asked{"jane", "PUT " + claims + "/a/status", used, 200, "d.example.com"})
	for _, step := range steps {
		step.check(t, s)
	}
	s = tenantsWith(t, t.TempDir(), func(c *Config) {
		c.FeatureGates = []string{"DRAResourceClaimGranularStatusAuthorization=false"}
	})
	for _, step := range append(begin, asked{"jane", "PUT " + claims + "/a/status", used, 200, "d.example.com"}) {
		step.check(t, s)
	}
}

package server

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

const reviewsPath = "/apis/plinth/v1alpha1/"

// review asks a question, as a user or, for "", as the administrator.
func (c *testClient) review(user, name, spec string, header ...string) (int, string) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.ctx, "POST", c.url+reviewsPath+name,
		strings.NewReader(`{"spec":`+spec+`}`))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if user != "" {
		request.Header.Set("Impersonate-User", user)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer, err := c.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// Who can do something, by which binding; asked by whom a role allows it.
//
// SPEC: BEY-17
func TestWhoCan(t *testing.T) {
	_, admin := serveConsole(t, nil)
	const pods = `{"resourceAttributes":{"verb":"list","resource":"configmaps","namespace":"default"}}`
	code, text := admin.review("", "whocanreviews", pods)
	for _, want := range []string{`"kind":"WhoCanReview"`, `{"binding":{"kind":"ClusterRoleBinding","name":` +
		`"alice"},"role":{"kind":"ClusterRole","name":"reader"},"subject":{"kind":"User","name":"alice"}}`,
		`{"subject":{"kind":"Group","name":"system:masters"}`} {
		if code != 201 || !strings.Contains(text, want) {
			t.Errorf("who can: %d without %s:\n%s", code, want, text)
		}
	}
	code, text = admin.review("", "whocanreviews", `{"nonResourceAttributes":{"verb":"get","path":"/healthz"}}`)
	if code != 201 || !strings.Contains(text, `"name":"system:authenticated"`) {
		t.Errorf("who can get a path: %d %s", code, text)
	}
	if code, text := admin.review("alice", "whocanreviews", pods); code != 403 ||
		!strings.Contains(text, `cannot create resource \"whocanreviews\" in API group \"plinth\"`) {
		t.Errorf("alice: %d %s", code, text)
	}
	for spec, want := range map[string]string{
		`{}`: "exactly one of nonResourceAttributes or resourceAttributes",
		`{"resourceAttributes":{"verb":"get"},"nonResourceAttributes":{"verb":"get"}}`: "exactly one of",
	} {
		if code, text := admin.review("", "whocanreviews", spec); code != 422 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", spec, code, text)
		}
	}
	// It is served, and listed nowhere.
	for _, path := range []string{"/apis", "/openapi/v2", "/openapi/v3"} {
		if code, text := admin.plain(path); code != 200 || strings.Contains(text, "whocan") ||
			strings.Contains(text, `"plinth`) {
			t.Errorf("%s shows the reviews", path)
		}
	}
	code, text = admin.plain("/apis", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if code != 200 || strings.Contains(text, `"plinth"`) {
		t.Errorf("discovery shows the group")
	}
	if code, _ := admin.review("", "whocanreviews", pods, "Accept", "application/vnd.kubernetes.protobuf"); code != 406 {
		t.Errorf("protobuf: %d", code)
	}
	_, without := serveConsole(t, func(c *Config) { c.Console = false })
	if code, _ := without.review("", "whocanreviews", pods); code != 404 {
		t.Errorf("without the console: %d", code)
	}
}

// Expressions on the objects that are there: with the rights of their user, and within limits.
//
// SPEC: BEY-18
func TestExpressionReviews(t *testing.T) {
	_, admin := serveConsole(t, nil)
	for _, name := range []string{"a", "b", "c"} {
		admin.must(201, "POST", configMaps, jsonObject{"metadata": map[string]any{"name": name,
			"labels": map[string]any{"is": name}}, "data": map[string]any{"n": name, "long": strings.Repeat("x", 20_000)}})
	}
	const of = `"resource":{"group":"","version":"v1","resource":"configmaps"},"namespace":"default"`
	ask := func(user, more string) (int, string) {
		t.Helper()
		return admin.review(user, "expressionreviews", `{`+of+`,`+more+`}`)
	}
	const nine = "[1,2,3,4,5,6,7,8,9].all("
	const costly = `{"expression":"` + nine + "a, " + nine + "b, " + nine + "c, " + nine +
		`d, !object.data.long.contains('xxxxxxxxxxxxxxxxxxxxxxxxy')))))"}`
	for _, test := range []struct {
		spec  string
		wants []string
	}{
		{`"labelSelector":"is in (a,b)","variables":[{"name":"n","expression":"object.data.n"}],
			"expressions":[{"name":"is a","expression":"variables.n == 'a'"},{"expression":"variables.n + '!'"}]`,
			[]string{`"name":"a","namespace":"default","results":[{"cost":`, `"name":"is a","type":"bool","value":true`,
				`"value":"b!"`, `"value":false`}},
		{`"name":"c","operation":"UPDATE",
			"expressions":[{"expression":"oldObject.metadata.name + request.operation + request.userInfo.username"}]`,
			[]string{`"value":"cUPDATE`}},
		{`"name":"c","operation":"DELETE","expressions":[{"expression":"object == null && oldObject.data.n == 'c'"}]`,
			[]string{`"value":true`}},
		{`"name":"c","params":{"most":3},
			"expressions":[{"expression":"params.most"},{"expression":"namespaceObject.metadata.name"}]`,
			[]string{`"value":3`, `"value":"default"`}},
		{`"name":"c",
			"expressions":[{"expression":"authorizer.group('').resource('pods').check('get').allowed()"}]`,
			[]string{`"value":true`}},
		{`"name":"c","expressions":[{"expression":"object.data.none"},{"expression":"1"}]`,
			[]string{`no such key: none`, `"value":1`}},
		{`"name":"c","expressions":[{"expression":"object"}]`, []string{`the value is too large to be shown`}},
		{`"limit":1,"expressions":[{"expression":"1"}]`,
			[]string{`"incomplete":"there are more than the first 1 objects"`}},
		// Each of the expressions costs the most that one may; the third object is not looked at any more.
		{`"expressions":[` + strings.Repeat(costly+",", 4) + costly + `]`,
			[]string{`cost limit exceeded`, `running out of cost budget`, `"incomplete":"`, `"cost":10000000`}},
	} {
		code, text := ask("", test.spec)
		for _, want := range test.wants {
			if code != 201 || !strings.Contains(text, want) {
				t.Errorf("%s: %d without %s:\n%.600s", test.spec, code, want, text)
			}
		}
	}
	const trivial = `"expressions":[{"expression":"1"}]`
	for spec, want := range map[string]string{
		`"expressions":[]`:                            "spec.expressions: Required value",
		`"expressions":[{"expression":"1 +"}]`:        "spec.expressions[0].expression: Invalid value",
		`"limit":501,` + trivial:                      "must be between 1 and 500",
		`"operation":"CONNECT",` + trivial:            "spec.operation: Unsupported value",
		`"labelSelector":"a in",` + trivial:           "spec.labelSelector: Invalid value",
		`"variables":[{"expression":"1"}],` + trivial: "spec.variables[0].name: Required value",
		`"expressions":[` + strings.Repeat(`{"expression":"1"},`, 50) + `{"expression":"1"}]`: "spec.expressions: Too many",
	} {
		if code, text := ask("", spec); code != 422 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", spec, code, text)
		}
	}
	code, text := admin.review("", "expressionreviews",
		`{"resource":{"version":"v1","resource":"nothing"},"expressions":[{"expression":"1"}]}`)
	if code != 422 || !strings.Contains(text, "this server has no such type") {
		t.Errorf("no such type: %d %s", code, text)
	}
	// alice may list ConfigMaps, and nothing else; and she may ask when a role says so.
	const one = `"name":"a","expressions":[{"expression":"has(namespaceObject.metadata)"},
		{"expression":"authorizer.group('').resource('secrets').check('get').allowed()"}]`
	if code, _ := ask("alice", one); code != 403 {
		t.Errorf("alice without the right to ask: %d", code)
	}
	admin.must(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", jsonObject{
		"metadata": map[string]any{"name": "asker"}, "rules": []any{map[string]any{"apiGroups": []any{"plinth"},
			"verbs": []any{"create"}, "resources": []any{"expressionreviews"}}}})
	admin.must(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", jsonObject{
		"metadata": map[string]any{"name": "asker"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "asker"},
		"subjects": []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}}})
	if code, text := ask("alice", one); code != 201 || strings.Contains(text, `"value":true`) ||
		strings.Count(text, `"value":false`) == 0 {
		t.Errorf("alice sees what she may not: %d %s", code, text)
	}
	if code, text := admin.review("alice", "expressionreviews",
		`{"resource":{"version":"v1","resource":"secrets"},"expressions":[{"expression":"1"}]}`); code != 403 ||
		!strings.Contains(text, `cannot list resource \"secrets\"`) {
		t.Errorf("alice reads Secrets: %d %s", code, text)
	}
}

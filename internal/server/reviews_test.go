package server

import (
	"fmt"
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
	admin.allow("asker", "expressionreviews")
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

// What goes with an object, level by level, and what is in a namespace: of the types that one may list.
//
// SPEC: BEY-19
func TestDependents(t *testing.T) {
	_, admin := serveConsole(t, nil)
	create := func(name, owner, uid string, more jsonObject) string {
		t.Helper()
		meta := map[string]any{"name": name}
		for key, value := range more {
			meta[key] = value
		}
		if owner != "" {
			meta["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": owner,
				"uid": uid}}
		}
		return admin.must(201, "POST", configMaps, jsonObject{"metadata": meta}).text("metadata", "uid")
	}
	top := create("top", "", "", jsonObject{"finalizers": []any{"example.com/keep"}})
	child := create("child", "top", top, nil)
	create("grandchild", "child", child, jsonObject{"finalizers": []any{"example.com/held"}})
	create("other", "", "", nil)
	secret := admin.must(201, "POST", "/api/v1/namespaces/default/secrets", jsonObject{"metadata": map[string]any{
		"name": "s", "ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "child",
			"uid": child}}}})
	code, text := admin.review("", "dependentsreviews", `{"owner":"`+top+`","namespace":"default"}`)
	for _, want := range []string{`"name":"child"`, `"owners":["` + top + `"]`, `"name":"grandchild"`,
		`"finalizers":["example.com/held"]`, `"kind":"Secret"`, secret.text("metadata", "uid")} {
		if code != 201 || !strings.Contains(text, want) {
			t.Errorf("dependents: %d without %s:\n%s", code, want, text)
		}
	}
	if strings.Contains(text, `"name":"top"`) || strings.Contains(text, `"name":"other"`) ||
		strings.Contains(text, "incomplete") {
		t.Errorf("dependents: %s", text)
	}
	if code, text := admin.review("", "dependentsreviews", `{"owner":"`+child+`"}`); code != 201 ||
		strings.Count(text, `"kind":`) != 3 { // with that of the review
		t.Errorf("of the child, in all namespaces: %d %s", code, text)
	}
	code, text = admin.review("", "dependentsreviews", `{"namespace":"default"}`)
	if code != 201 || !strings.Contains(text, `"name":"other"`) || !strings.Contains(text, `"kind":"Secret"`) ||
		strings.Contains(text, "kube-system") {
		t.Errorf("in the namespace: %d %s", code, text)
	}
	if code, text := admin.review("", "dependentsreviews", `{}`); code != 422 ||
		!strings.Contains(text, "spec.owner: Required") {
		t.Errorf("of nothing: %d %s", code, text)
	}
	if code, _ := admin.review("alice", "dependentsreviews", `{"owner":"`+top+`"}`); code != 403 {
		t.Errorf("alice without the right to ask: %d", code)
	}
	admin.allow("asker", "dependentsreviews")
	code, text = admin.review("alice", "dependentsreviews", `{"owner":"`+top+`"}`)
	if code != 201 || !strings.Contains(text, `"name":"grandchild"`) || strings.Contains(text, `"kind":"Secret"`) ||
		!strings.Contains(text, `you may not list`) {
		t.Errorf("alice: %d %s", code, text)
	}
	create("over", "child", child, nil)
	for i := range 1000 {
		create(fmt.Sprint("many-", i), "child", child, nil)
	}
	if code, text := admin.review("", "dependentsreviews", `{"owner":"`+top+`"}`); code != 201 ||
		!strings.Contains(text, "these are the first 1000") || strings.Count(text, `"uid":`) != 1000 {
		t.Errorf("of many: %d %d", code, strings.Count(text, `"uid":`))
	}
}

// allow lets alice ask a review.
func (c *testClient) allow(role, review string) {
	c.t.Helper()
	c.must(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", jsonObject{
		"metadata": map[string]any{"name": role}, "rules": []any{map[string]any{"apiGroups": []any{"plinth"},
			"verbs": []any{"create"}, "resources": []any{review}}}})
	c.must(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", jsonObject{
		"metadata": map[string]any{"name": role},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
		"subjects": []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}}})
}

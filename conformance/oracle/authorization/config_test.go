package authorization

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	authzconfig "k8s.io/apiserver/pkg/apis/apiserver"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer"

	"plinth/internal/authz"
)

// leastConfigs is the minimum number of configuration files that are compared, leastRefused of those that are refused.
const leastConfigs, leastRefused = 250, 180

// Parts of errors that differ by design: the scheme of the reference's decoder, the packages of its types, and a struct
// of the reference that is printed whole.
var differentInConfigs = []struct {
	found *regexp.Regexp
	as    string
}{
	{regexp.MustCompile(` in scheme "[^"]*"`), ""},
	{regexp.MustCompile(`\b(apiserver|authz|v1|v1beta1|v1alpha1)\.(Authoriz|Webhook)`), "$2"},
	{regexp.MustCompile(`\{"Type":("[^"]*"),"KubeConfigFile":[^}]*\}`), "$1"},
	{regexp.MustCompile(`authz\.Mode`), "string"},
}

func configError(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, d := range differentInConfigs {
		text = d.found.ReplaceAllString(text, d.as)
	}
	return text
}

// Each file is accepted by both or refused by both, with the same message.
//
// SPEC: AUTH-2
func TestConfigs(t *testing.T) {
	compiler := authorizationcel.NewDefaultCompiler()
	refused, accepted := 0, 0
	compare := func(text string, required ...authz.Mode) {
		t.Helper()
		types := sets.New[authzconfig.AuthorizerType]()
		for _, m := range required {
			types.Insert(authzconfig.AuthorizerType(m))
		}
		_, theirs := authorizer.LoadAndValidateData([]byte(text), compiler, types)
		_, ours := authz.ParseConfig([]byte(text), required)
		if want, got := configError(theirs), configError(ours); got != want {
			t.Errorf("%s\n--- reference\n%s\n+++ here\n%s", text, want, got)
		}
		if theirs != nil {
			refused++
		} else {
			accepted++
		}
	}
	for _, text := range configTexts(t) {
		compare(text)
	}
	for _, required := range [][]authz.Mode{{"RBAC"}, {"Node"}, {"RBAC", "Node", "AlwaysAllow"}} {
		compare(configWith(nil), required...)
	}
	if refused+accepted < leastConfigs || refused < leastRefused || accepted < 30 {
		t.Errorf("only %d files were compared, of which %d were refused", refused+accepted, refused)
	}
}

// replace is a path in a configuration, such as "authorizers.0.webhook.timeout", and its new value; nil deletes it.
type replace struct {
	path  string
	value any
}

// configWith returns a valid configuration with changes, as JSON, which is YAML, too.
func configWith(kubeconfig any, changes ...replace) string {
	config := map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration",
		"authorizers": []any{
			map[string]any{"type": "Webhook", "name": "one", "webhook": map[string]any{
				"timeout": "3s", "subjectAccessReviewVersion": "v1", "matchConditionSubjectAccessReviewVersion": "v1",
				"failurePolicy":   "Deny",
				"connectionInfo":  map[string]any{"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
				"matchConditions": []any{map[string]any{"expression": "request.user == 'alice'"}},
			}},
			map[string]any{"type": "Node", "name": "node"},
			map[string]any{"type": "RBAC", "name": "rbac"},
		},
	}
	for _, c := range changes {
		put(config, strings.Split(c.path, "."), c.value)
	}
	text, err := json.Marshal(config)
	if err != nil {
		panic(err) // impossible: the tests' values can be encoded
	}
	return string(text)
}

func put(at any, path []string, value any) {
	switch at := at.(type) {
	case map[string]any:
		switch {
		case len(path) > 1:
			put(at[path[0]], path[1:], value)
		case value == nil:
			delete(at, path[0])
		default:
			at[path[0]] = value
		}
	case []any:
		i := int(path[0][0] - '0')
		if i >= len(at) {
			return // another change has removed it
		}
		if len(path) > 1 {
			put(at[i], path[1:], value)
			return
		}
		at[i] = value
	}
}

// configTexts returns files of all sorts: a valid one with each member removed or set to another value or type, pairs
// of such changes, and texts that are not configurations.
func configTexts(t *testing.T) (all []string) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	const hook = "authorizers.0.webhook."
	condition := func(texts ...string) (list []any) {
		for _, text := range texts {
			list = append(list, map[string]any{"expression": text})
		}
		return list
	}
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf("request.user == '%d'", i))
	}
	values := map[string][]any{
		"apiVersion": {nil, "", "v1", "apiserver.config.k8s.io/v1alpha1",
			"apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v2", "a/b/c", 3},
		"kind":        {nil, "", "Nope", 3, []any{}},
		"authorizers": {nil, []any{}, map[string]any{}, "x", 3},
		"more":        {1, nil},
		"authorizers.1": {map[string]any{}, nil, "x", map[string]any{"type": "RBAC", "name": "rbac2"},
			map[string]any{"type": "Webhook", "name": "one"}},
		"authorizers.1.type":    {nil, "", "Nope", "ABAC", "AlwaysAllow", "AlwaysDeny", "Webhook", "RBAC", "webhook", 3},
		"authorizers.1.name":    {nil, "", "rbac", "one", "a b", "Node", strings.Repeat("a", 254), 3},
		"authorizers.1.webhook": {map[string]any{}, map[string]any{"timeout": "90s"}, 3},
		"authorizers.0.name":    {nil, "", "rbac", "node", "Ä", "a.b", "-a"},
		"authorizers.0.type":    {"RBAC", "AlwaysAllow"},
		"authorizers.0.Webhook": {map[string]any{}},
		"authorizers.0.webhook": {nil, map[string]any{}, 3},
		hook + "timeout":        {nil, "", "0s", "-1s", "30s", "30.001s", "1h", "x", 3, "3"},
		hook + "authorizedTTL":  {"", "0s", "-1s", "5s", "x", 3}, hook + "unauthorizedTTL": {"", "0s", "-1ns", "5s",
			"x", true},
		hook + "cacheAuthorizedRequests": {true, false, "x"}, hook + "cacheUnauthorizedRequests": {true, false, 1},
		hook + "subjectAccessReviewVersion":               {nil, "", "v1beta1", "v2", "V1", 1},
		hook + "matchConditionSubjectAccessReviewVersion": {nil, "", "v1beta1", "v2", 1},
		hook + "failurePolicy":                            {nil, "", "NoOpinion", "Deny", "Allow", "deny", 1},
		hook + "connectionInfo":                           {nil, map[string]any{}, "x"},
		hook + "connectionInfo.type":                      {nil, "", "InClusterConfig", "Nope", 1},
		hook + "connectionInfo.kubeConfigFile":            {nil, "", "relative", "/nowhere/at/all", dir, "/dev/null", 1},
		hook + "matchConditions": {nil, []any{}, "x", condition(""), condition(" "), condition("true"),
			condition("false", "true"), condition("true", "true"),
			condition("1"), condition("'a'"), condition("request"), condition("request.nope"),
			condition("request.user"), condition("nope"), condition("request.user =="),
			condition("has(request.resourceAttributes) && request.resourceAttributes.namespace == 'a'"),
			condition("request.resourceAttributes.labelSelector.requirements.exists(r, r.key == 'a' && r.values.size() > 0)"),
			condition("request.resourceAttributes.?fieldSelector.rawSelector.orValue('') == 'a'"),
			condition("request.groups.exists(g, g.startsWith('a'))"),
			condition("request.groups == 'a'"), condition("request.extra['a'] == ['b']"),
			condition("request.extra.a.exists(x, x == 'b')"), condition("request.uid == 3"),
			condition("request.nonResourceAttributes.path.matches('^/a')"), condition("request.user.matches('(')"),
			condition("[1, 'a'].size() == 2"),
			condition("dyn(1) == 1"), condition("ip('10.0.0.1').family() == 4"),
			condition("semver('1.2.3').major() == 1"), condition("quantity('1Mi').isInteger()"),
			condition("authorizer.path('/').check('get').allowed()"), condition("[3, 1].sortBy(x, x) == [1, 3]"),
			condition("request.user.lowerAscii() == 'a'"),
			condition("object.metadata.name == 'a'"), condition("variables.x"),
			condition("format.dns1123Label().validate(request.user).hasValue()"),
			condition("cel.bind(x, 1, x == 1)"), condition("request.all(k, true)"),
			condition("{1: 2}.all(k, v, v == 2)"), condition("size(request.user) < 4u"),
			condition(many[:64]...), condition(many...), []any{map[string]any{"expression": "true", "name": "x"}}, []any{3}},
		hook + "matchConditions.0.expression": {nil, 3, "has(request.user.x)"},
	}
	for path, list := range values {
		for _, value := range list {
			all = append(all, configWith(kubeconfig, replace{path, value}))
			all = append(all, configWith(kubeconfig, replace{path, value}, replace{hook + "timeout", "40s"},
				replace{"authorizers.2.name", "r"}))
		}
	}
	sound := configWith(kubeconfig)
	head := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n"
	return append(all, "", " ", "\n", "null", "[]", "3", "x", "{", "{}", "a: b: c", "\t", "\x00", "---\n"+sound,
		sound+"\n---\n"+sound, sound+"x", " "+sound,
		head, head+"authorizers:\n- type: RBAC\n  name: rbac\n",
		head+"authorizers:\n- type: RBAC\n  type: RBAC\n  name: rbac\n",
		head+"authorizers:\n- type: RBAC\n  name: rbac\n  size: 3\nmore: true\n",
		head+"authorizers:\n- &a {type: AlwaysAllow, name: alwaysallow}\n- *a\n",
		head+"kind: AuthorizationConfiguration\n", head+"metadata: {name: a}\nauthorizers: [{type: RBAC, name: rbac}]\n",
		strings.Replace(sound, `"kind"`, `"kind":"AuthorizationConfiguration","kind"`, 1), strings.Replace(sound,
			`"kind"`, `"Kind"`, 1))
}

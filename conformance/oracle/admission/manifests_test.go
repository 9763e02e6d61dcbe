package admission

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	policies "k8s.io/kubernetes/pkg/admission/plugin/policy/manifest/loader"
	"k8s.io/kubernetes/pkg/admission/plugin/webhook/manifest/loader"

	ours "plinth/internal/admission"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
)

// hookIn is a configuration with a hook.
func hookIn(kind, name, hook string) string {
	return fmt.Sprintf("{apiVersion: admissionregistration.k8s.io/v1, kind: %s, metadata: {name: %s}, webhooks: [%s]}", kind,
		name, hook)
}

// SPEC: AUTH-3: the same directories are accepted and refused.
func TestStaticManifests(t *testing.T) {
	const hook = "{name: a.example.com, clientConfig: {url: 'https://example.com'}, sideEffects: None, " +
		"admissionReviewVersions: [v1]}"
	const own, other = "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"
	good := hookIn(own, "a.static.k8s.io", hook)
	accepted, refused := 0, 0
	for _, files := range []map[string]string{
		{}, {"a.yaml": good}, {"a.yml": "#\n" + good}, {"a.YAML": "#\n" + good}, {"a.txt": "nothing"},
		{"a.yaml": ""}, {"a.yaml": "---\n---\n"},
		{"a.yaml": good + "\n---\n" + hookIn(own, "b.static.k8s.io", hook)},
		{"a.yaml": good, "b.json": strings.ReplaceAll(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"K",`+
			`"metadata":{"name":"b.static.k8s.io"}}`, `"K"`, `"`+own+`"`)},
		{"a.yaml": good, "b.yaml": good}, {"a.yaml": hookIn(own, "a", hook)}, {"a.yaml": hookIn(own, `""`, hook)},
		{"a.yaml": hookIn(own, ".static.k8s.io", hook)}, {"a.yaml": hookIn(own, "A.static.k8s.io", hook)},
		{"a.yaml": hookIn(other, "a.static.k8s.io", hook)}, {"a.yaml": "{apiVersion: v1, kind: Pod}"},
		{"a.yaml": "garbage"},
		{"a.yaml": "{apiVersion: v1, kind: List, items: [" + good + ", " + hookIn(own, "b.static.k8s.io", hook) + "]}"},
		{"a.yaml": "{apiVersion: v1, kind: List, items: [" + good + ", " + good + "]}"},
		{"a.yaml": "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod}]}"},
		{"a.yaml": "{apiVersion: v1, kind: List}"},
		{"a.yaml": "{apiVersion: admissionregistration.k8s.io/v1, kind: " + own + "List, items: [{metadata: " +
			"{name: b.static.k8s.io}, webhooks: [" + hook + "]}]}"},
		{"a.yaml": "{apiVersion: admissionregistration.k8s.io/v1, kind: " + other + "List, items: []}"},
		{"a.yaml": strings.Replace(good, "v1,", "v1beta1,", 1)}, {"a.yaml": strings.Replace(good, "webhooks",
			"hooks", 1)},
		{"a.yaml": strings.Replace(good, "sideEffects: None", "sideEffects: None, sideEffects: None", 1)},
		{"a.yaml": strings.Replace(good, "sideEffects: None, ", "", 1)},
		{"a.yaml": strings.Replace(good, "url: 'https://example.com'", "service: {namespace: a, name: b}", 1)},
		{"a.yaml": strings.Replace(good, "url: 'https://example.com'", "", 1)},
		{"a.yaml": strings.Replace(good, "https", "http", 1)}, {"a.yaml": strings.Replace(good, "a.example.com", "a",
			1)},
		{"a.yaml": strings.Replace(good, "sideEffects: None",
			"sideEffects: None, matchConditions: [{name: a, expression: '1+'}]", 1)},
		{"a.yaml": strings.Replace(good, "sideEffects: None",
			"sideEffects: None, matchConditions: [{name: a, expression: 'true'}]", 1)},
		{"a.yaml": strings.Replace(good, "sideEffects: None",
			"sideEffects: None, namespaceSelector: {matchExpressions: "+
				"[{key: a, operator: Bad}]}", 1)},
		{"a.yaml": good, "dir.yaml/x.yaml": "garbage"},
		// Empty files and documents.
		{"a.yml": ""}, {"a.yml": "", "b.yaml": good}, {"a.yml": "\n---\n \n---\n"},
		{"a.yml": "\n---\n#\n" + good},
		{"a.yaml": good + "\n--- b\n"}, {"a.yaml": "\x00"}, {"a.yaml": "link"},
		// Lists.
		{"a.yaml": "{apiVersion: v2, kind: List, items: [" + good + "]}"},
		{"a.yaml": "{apiVersion: a/b, kind: List, items: [" + good + ", " + good + "]}"},
		{"a.yaml": "{kind: List, items: []}"},
		{"a.yaml": "{apiVersion: a/b/c, kind: List, items: []}"}, {"a.yaml": "{apiVersion: '', kind: List, items: []}"},
		{"a.yaml": "{apiVersion: admissionregistration.k8s.io/v1, kind: " + own + "List, items: [" + good + ", " +
			good + "]}"},
		{"a.yaml": "{apiVersion: admissionregistration.k8s.io/v1, kind: " + own + "List, items: [" + good + ", " +
			hookIn(own, "b", hook) + "]}"},
		{"a.yaml": "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: [" + good + ", " +
			good + "]}]}"},
		{"a.yaml": "{apiVersion: v1, kind: List, items: 5}"}, {"a.yaml": "{apiVersion: v1, kind: List, items: {}}"},
		{"a.yaml": "{apiVersion: v1, kind: List, itemz: [], more: [], metadata: {resourceVersion: a}}"},
		{"a.yaml": "{apiVersion: v1, kind: List, items: null, metadata: {resourceVersion: a}}"},
		{"a.yaml": "{apiVersion: admissionregistration.k8s.io/v1, kind: " + own + "List, items: 5}"},
		{"a.yaml": "{apiVersion: admissionregistration.k8s.io/v1, kind: " + own + "List, itemz: [], metadata: {}}"},
		{"a.yaml": "{apiVersion: v1, kind: List, items: [" + strings.Replace(good, "webhooks", "hooks", 1) + "]}"},
		{"a.yaml": "{apiVersion: v1, kind: List, items: [" + strings.Replace(good, "[v1]", "[1]", 1) + "]}"},
		{"a.yaml": "{apiVersion: v1, kind: List, items: [{apiVersion: admissionregistration.k8s.io/v1, kind: " + own +
			"List, items: 'a'}]}"},
		{"a.yaml": "{apiVersion: v1, kind: List, items: [" + strings.Replace(good, "a.static", "a.other", 1) + "]}"},
		// Types of fields, and unknown ones.
		{"a.yaml": strings.Replace(good, "sideEffects: None", "sideEffects: None, unknown: 1, other: 2", 1)},
		{"a.yaml": strings.Replace(good, "webhooks: [", "webhooks: 5 #", 1) + "\n}"},
		{"a.yaml": strings.Replace(good, "sideEffects: None", "sideEffects: 5", 1)},
		{"a.yaml": strings.Replace(good, "sideEffects: None", "sideEffects: None, failurePolicy: null", 1)},
		{"a.yaml": strings.Replace(good, "sideEffects: None", "sideEffects: None, namespaceSelector: null", 1)},
		{"a.yaml": strings.Replace(good, "name: a.static.k8s.io", "generateName: a", 1)},
		{"a.yaml": strings.Replace(good, "name: a.static.k8s.io", "name: null, generateName: a", 1)},
		{"a.yaml": strings.Replace(good, "'https://example.com'", "''", 1)},
		{"a.yaml": strings.Replace(good, "'https://example.com'", "null", 1)},
	} {
		dir := writeManifests(t, files)
		loaded, theirs := loader.LoadValidatingManifests(dir)
		hash, mine := loadOurs(t, "ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration", dir)
		if theirs == nil && hash != loaded.Hash {
			t.Errorf("%v\nthe hash is %q, want %q", files, hash, loaded.Hash)
		}
		if !sameManifestError(theirs, mine) {
			t.Errorf("%v\nreference: %v\nours: %v", files, theirs, mine)
		}
		if theirs == nil {
			accepted++
		} else {
			refused++
		}
	}
	if accepted < 10 || refused < 15 {
		t.Errorf("%d directories were accepted, %d refused", accepted, refused)
	}
	for _, dir := range []string{"relative", "/does/not/exist", "/dev/null"} {
		if _, err := loadOurs(t, "ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration", dir); err == nil {
			t.Errorf("%s is accepted", dir)
		}
	}
}

// SPEC: AUTH-3: the same directories with policies are accepted and refused.
func TestStaticPolicies(t *testing.T) {
	const validations = "validations: [{expression: 'true'}], "
	const mutations = "reinvocationPolicy: Never, mutations: [{patchType: JSONPatch, jsonPatch: " +
		`{expression: '[JSONPatch{op: "remove", path: "/data"}]'}}], `
	for _, k := range []struct {
		kind, other, more, actions string
		load                       func(dir string) (hash string, err error)
	}{
		{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", validations, ", validationActions: [Deny]",
			func(dir string) (string, error) {
				loaded, err := policies.LoadValidatingManifestsFromDirectory(dir)
				if err != nil {
					return "", err
				}
				return loaded.Hash, nil
			}},
		{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy", mutations, "",
			func(dir string) (string, error) {
				loaded, err := policies.LoadMutatingManifestsFromDirectory(dir)
				if err != nil {
					return "", err
				}
				return loaded.Hash, nil
			}},
	} {
		policy := func(name, more string) string {
			return fmt.Sprintf("{apiVersion: admissionregistration.k8s.io/v1, kind: %s, metadata: {name: %s}, spec: {%s"+
				"matchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE], "+
				"resources: ['*']}]}%s}}", k.kind, name, k.more, more)
		}
		binding := func(name, policy, more string) string {
			return fmt.Sprintf("{apiVersion: admissionregistration.k8s.io/v1, kind: %sBinding, metadata: {name: %s}, "+
				"spec: {policyName: %s%s%s}}", k.kind, name, policy, k.actions, more)
		}
		const a = "a.static.k8s.io"
		accepted, refused := 0, 0
		for _, files := range []map[string]string{
			{}, {"a.yaml": policy(a, "")}, {"a.yaml": policy(a, "") + "\n---\n" + binding(a, a, "")},
			{"a.yaml": binding(a, a, ""), "b.yaml": policy(a, "")}, {"a.yaml": binding(a, a, "")},
			{"a.yaml": policy("a", "")}, {"a.yaml": policy(a, ""), "b.yaml": policy(a, "")},
			{"a.yaml": policy(a, ""), "b.yaml": binding("b", a, "")},
			{"a.yaml": policy(a, ""), "b.yaml": binding(a, "a", "")},
			{"a.yaml": policy(a, ""), "b.yaml": binding(a, `""`, "")},
			{"a.yaml": policy(a, ", paramKind: {apiVersion: v1, kind: ConfigMap}")},
			{"a.yaml": policy(a, ""), "b.yaml": binding(a, a, ", paramRef: {name: a, parameterNotFoundAction: Deny}")},
			{"a.yaml": policy(a, ", matchConditions: [{name: a, expression: '1+'}]")},
			{"a.yaml": policy(a, ", variables: [{name: a, expression: 'variables.b'}]")},
			{"a.yaml": policy(a, ", unknown: 1")}, {"a.yaml": strings.Replace(policy(a, ""), k.kind, k.other, 1)},
			{"a.yaml": strings.Replace(policy(a, ""), "'true'", "'1'", 1)}, {"a.yaml": "{apiVersion: v1, kind: Pod}"},
			{"a.yaml": "{apiVersion: v1, kind: List, items: [" + policy(a, "") + ", " + binding(a, a, "") + "]}"},
			{"a.yaml": "{apiVersion: admissionregistration.k8s.io/v1, kind: " + k.kind + "List, items: [" +
				policy(a, "") + "]}"},
			{"a.yaml": policy(a, "") + "\n---\n" + policy("b.static.k8s.io", ""), "c.json": "{}"},
		} {
			dir := writeManifests(t, files)
			want, theirs := k.load(dir)
			hash, mine := loadOurs(t, k.kind, k.kind+"Configuration", dir)
			if theirs == nil && hash != want {
				t.Errorf("%s %v\nthe hash is %q, want %q", k.kind, files, hash, want)
			}
			if !sameManifestError(theirs, mine) {
				t.Errorf("%s %v\nreference: %v\nours: %v", k.kind, files, theirs, mine)
			}
			if theirs == nil {
				accepted++
			} else {
				refused++
			}
		}
		if accepted < 5 || refused < 10 {
			t.Errorf("%s: %d directories were accepted, %d refused", k.kind, accepted, refused)
		}
	}
}

// otherKind are our errors of what is of another kind.
var otherKind = regexp.MustCompile(`: unsupported resource type \w* of (|v1|a/b/c|admissionregistration.k8s.io/v1(beta1)?)$`)

// sameManifestError says whether two errors are alike. Ours says of what is of another kind what that is, where the
// reference names the types of its sources, and validates names without the suffix.
func sameManifestError(theirs, mine error) bool {
	if theirs == nil || mine == nil {
		return theirs == mine
	}
	_, text, _ := strings.Cut(mine.Error(), `": `) // the plugin and the directory
	contains := func(part string) bool { return strings.Contains(theirs.Error(), part) }
	if otherKind.MatchString(text) {
		return slices.ContainsFunc([]string{"unsupported resource type", "no kind ", "Object 'Kind' is missing",
			"Object 'apiVersion' is missing", "unexpected GroupVersion string",
			"json parse error", "unknown field"}, contains)
	}
	if contains("yaml: unmarshal errors:") {
		return strings.Contains(text, "yaml: unmarshal errors:")
	}
	if contains("metadata.name: Invalid value") {
		return strings.Contains(text, `.static.k8s.io": metadata.name: `)
	}
	return text == theirs.Error()
}

// writeManifests writes files into a directory.
func writeManifests(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if text == "link" { // to nowhere
			if err := os.Symlink("nowhere", file); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".yaml") { // the reference takes what begins with a brace as JSON; ours as YAML, too
			text = "#\n" + strings.ReplaceAll(text, "---\n{", "---\n#\n{")
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// loadOurs starts our plugin with a directory, and returns the hash that its metrics are told.
func loadOurs(t *testing.T, plugin, kind, dir string) (hash string, err error) {
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	opened, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(registry)})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	settings, _ := json.Marshal(map[string]string{"apiVersion": "apiserver.config.k8s.io/v1",
		"kind": kind, "staticManifestsDir": dir})
	_, err = ours.New(ours.Config{Selection: ours.Selection{Only: []string{plugin}}, Store: opened,
		Registry: registry, Features: features.Set{}, Configurations: map[string][]byte{plugin: settings},
		Metrics: ours.Metrics{Loaded: func(name, of string, _ error) {
			if hash = of; name != plugin {
				t.Errorf("the plugin %s is called %s", plugin, name)
			}
		}}})
	return hash, err
}

package authz

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"plinth/internal/access"
)

func policyFile(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policies.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func policyLine(spec string) string {
	return `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":` + spec + `}`
}

// SPEC: AUTH-2
func TestPoliciesOfAFile(t *testing.T) {
	file := policyFile(t, "# people", "", "  ",
		policyLine(`{"user":"alice","namespace":"ns1","resource":"*","apiGroup":"*"}`),
		policyLine(`{"user":"bob","namespace":"*","resource":"pods","readonly":true}`),
		policyLine(`{"group":"ops","user":"carol","nonResourcePath":"/metrics/*"}`),
		policyLine(`{"user":"*","nonResourcePath":"/version"}`),
		policyLine(`{"group":"system:unauthenticated","nonResourcePath":"/healthz"}`),
		policyLine(`{"namespace":"*","resource":"*","apiGroup":"*"}`), // about nobody
		`{"user":"dave","resource":"services"}`,
		`{"user":"erin","readonly":true}`,
		`{"group":"*","resource":"endpoints","namespace":"ns1"}`)
	y, err := New(FromModes([]Mode{ABAC}, nil), Options{Logger: slog.New(slog.DiscardHandler), PolicyFile: file})
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]bool{
		"alice create apps/deployments ns1 x":          true,
		"alice create apps/deployments ns2 x":          false,
		"alice get /version":                           false, // not authenticated
		"bob list -/pods ns2 -":                        true,
		"bob get -/pods/log ns2 a":                     true,
		"bob delete -/pods ns2 a":                      false,
		"bob list apps/pods ns2 a":                     false,
		"carol,ops get /metrics":                       false, // not below it
		"x,system:authenticated get /version":          true,
		"x,system:unauthenticated get /version":        false,
		"x,system:unauthenticated get /healthz":        true,
		"dave create a/services ns3 x":                 true,
		"dave create a/pods ns3 x":                     false,
		"dave get /version":                            false, // it names a resource, so no paths
		"erin get a/pods - x":                          true,
		"erin get /version":                            true,
		"erin create a/pods ns1 x":                     false,
		"x,system:authenticated get -/endpoints ns1 -": true,
		"x,system:authenticated get -/endpoints ns2 -": false,
		"x,system:masters delete -/pods ns1 a":         true,
	} {
		decision, reason, err := y.Authorize(t.Context(), asked(request))
		if allowed := decision == access.Allow; allowed != want || err != nil ||
			!allowed && reason != "abac: No policy matched." {
			t.Errorf("%s: %v %q, %v", request, decision, reason, err)
		}
	}
	for user, want := range map[string]access.Decision{"carol,ops": access.Allow, "carol": access.NoOpinion,
		"x,ops": access.NoOpinion} {
		below := asked(user + " get /x")
		below.Path = "/metrics/slis"
		if decision, _, err := y.Authorize(t.Context(), below); decision != want || err != nil {
			t.Errorf("a path below, %s: %v, %v", user, decision, err)
		}
	}
	for user, want := range map[string][]Rule{
		"alice": {{Verbs: everything, APIGroups: []string{"*"}, Resources: []string{"*"}}},
		"bob":   {{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
		"erin": {{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
			{Verbs: []string{"get", "list", "watch"}, NonResourceURLs: []string{"*"}}},
		"x": nil,
	} {
		rules, incomplete, err := y.RulesFor(t.Context(), &access.User{Name: user}, "ns1")
		if !reflect.DeepEqual(rules, want) || incomplete || err != nil {
			t.Errorf("%s: %v, %v, %v", user, rules, incomplete, err)
		}
	}
}

// A file that cannot be read, or has a line that is no policy, is refused as a whole, with the number of the line.
//
// SPEC: AUTH-2
func TestRefusedPolicyFiles(t *testing.T) {
	const good = `{"user":"a"}`
	for line, want := range map[string]string{
		`{"user":`:                            "line 2: {\"user\":: couldn't get version/kind; json parse error: unexpected end of JSON input",
		`{"user":1}`:                          "json: cannot unmarshal number into Go struct field Policy.user of type string",
		policyLine(`{"readonly":"true"}`):     "json: cannot unmarshal string into Go struct field PolicySpec.spec.readonly of type bool",
		`{"kind":"Policy","apiVersion":"v9"}`: `no kind "Policy" is registered for version "v9"`,
		`{"apiVersion":"v9"}`:                 `no kind "Policy" is registered for version "v9"`,
		strings.Replace(policyLine("{}"), "Policy", "Role", 1): `no kind "Role" is registered for version "` +
			`abac.authorization.kubernetes.io/v1beta1"`,

		`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","user":"u"}`: "converting (v1beta1.Policy) to (v0.Policy): unknown conversion",
		`{"kind":"Policy","apiVersion":"a/b/c"}`:                               "unexpected GroupVersion string: a/b/c",

		"\tuser: a": "yaml: found character that cannot start any token",

		`{"user":"` + strings.Repeat("x", 70000) + `"}`: "bufio.Scanner: token too long",
	} {
		file := policyFile(t, good, line, good)
		_, err := New(FromModes([]Mode{ABAC}, nil), Options{PolicyFile: file, Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.HasPrefix(err.Error(), "error reading policy file "+file) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v", line, err)
		}
	}
	if _, err := New(FromModes([]Mode{ABAC}, nil), Options{}); fmt.Sprint(err) != "open : no such file or directory" {
		t.Error(err)
	}
}

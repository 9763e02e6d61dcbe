package authorization

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/auth/authorizer/abac"

	"plinth/internal/access"
	"plinth/internal/authz"
)

// policyLines are lines of policy files of all sorts. Those in the reference's internal version, which it reads with
// the names of its Go fields, are left out: it is not a format.
var policyLines = []string{
	`{"user":"a"}`, `{user: a}`, `user: a`, `{"user":1}`, `{"user":"a",`, `x`, `[1]`, `"x"`, `1`, `null`, `true`, `{}`,
	`{"apiVersion":"v0"}`, `{"kind":"Policy","user":"a"}`, `{"kind":"Nope"}`, `{"kind":3}`, `{"KIND":"Nope"}`,
	`{"kind":"Policy","apiVersion":"a/b/c"}`, `{"kind":"Policy","apiVersion":"v9","user":"u"}`,
	`{"kind":"Policy","apiVersion":"abac.authorization.kubernetes.io/","user":"u"}`,
	`{"kind":"Policy","apiVersion":"abac.authorization.kubernetes.io/v2","user":"u"}`,
	`{"kind":"Policy","apiVersion":"/v0","user":"u"}`, `{"apiVersion":"other/","user":"u"}`,
	`{"user":"a"} {"user":"b"}`, `{"user":"a"} # x`, `  {"user":"a"}`, "\tuser: a", `{"kind":"List","apiVersion":"v1"}`,
	`{"kind":"Policy","apiVersion":"","user":"*","namespace":"n"}`, `# {"user":1}`, ` #`, `{"user":"a","user":"b"}`,
	`{"User":"a","nope":1}`, `{"readonly":"yes"}`, `{"readonly":1,"user":"a"}`, `{"user":null,"group":"g"}`,
	`{"apiVersion":"abac.authorization.kubernetes.io/v0","user":"u"}`,
	`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","user":"u"}`,
	`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"ListOptions"}`,
	`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":[]}`,
	`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":7}}`,
	`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"User":"x","Group":"y"}}`,
	`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"readonly":"true"}}`,
	`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy"}`,
	`apiVersion: abac.authorization.kubernetes.io/v1beta1`,
}

// Parts of errors that differ by design: the scheme of the reference's decoder, and the packages of its types.
var differentInPolicies = regexp.MustCompile(` in scheme "[^"]*"|\b(v0|v1beta1|authz)\.`)

// newPolicies reads a policy file with both.
func newPolicies(t *testing.T, lines []string) (theirs abac.PolicyList, ours *authz.Authority) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policies")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	theirs, their := abac.NewFromFile(file)
	ours, our := authz.New(authz.FromModes([]authz.Mode{authz.ABAC}, nil),
		authz.Options{PolicyFile: file, Logger: slog.New(slog.DiscardHandler)})
	plain := func(err error) string { return differentInPolicies.ReplaceAllString(fmt.Sprint(err), "") }
	if plain(their) != plain(our) {
		t.Errorf("%s\n--- reference\n%v\n+++ here\n%v", lines, their, our)
	}
	if their != nil || our != nil {
		return nil, nil
	}
	return theirs, ours
}

// Each line is accepted by both or refused by both, with the same message, and the policies of each file lead to the
// same decisions and to the same lists of rules.
//
// SPEC: AUTH-2
func TestPolicyFiles(t *testing.T) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	t.Cleanup(func() { klog.LogToStderr(true) })
	r := random{rand.New(rand.NewPCG(27, 3))}
	refused, allowed, denied := 0, 0, 0
	compare := func(lines []string) {
		theirs, ours := newPolicies(t, lines)
		if theirs == nil {
			refused++
			return
		}
		for range 40 {
			want, got := decidePolicies(t, r, theirs, ours, lines)
			if want != got {
				t.Fatalf("%s\n--- reference\n%s\n+++ here\n%s", strings.Join(lines, "\n"), want, got)
			}
			if strings.HasPrefix(want, "allow") {
				allowed++
			} else {
				denied++
			}
		}
	}
	for _, line := range policyLines {
		compare([]string{line})
	}
	for range 150 {
		var lines []string
		for range r.IntN(6) {
			lines = append(lines, policyText(t, r))
		}
		compare(lines)
	}
	if refused < 20 || allowed < 500 || denied < 500 {
		t.Errorf("only %d refused files, %d allowed and %d denied requests", refused, allowed, denied)
	}
}

// policyText is one policy of either version.
func policyText(t *testing.T, r random) string {
	maybe := func(list []string) string {
		switch r.IntN(6) {
		case 0, 1:
			return ""
		case 2:
			return "*"
		}
		return one(r, list)
	}
	spec := map[string]any{"user": maybe(users), "group": maybe(groups), "namespace": maybe(namespaces),
		"resource": maybe(resources), "readonly": r.IntN(3) == 0}
	line := spec
	if r.IntN(3) > 0 {
		spec["apiGroup"], spec["nonResourcePath"] = maybe(apiGroups), maybe(append(ruleURLs, paths...))
		line = map[string]any{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": spec}
	}
	text, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// decidePolicies asks both for the same decision and the same list of rules.
func decidePolicies(t *testing.T, r random, theirs abac.PolicyList, ours *authz.Authority, lines []string) (want,
	got string) {
	t.Helper()
	u := access.User{Name: one(r, users), Groups: some(r, groups, 0)}
	a := &access.Attributes{User: u, Verb: one(r, verbs)}
	info := &user.DefaultInfo{Name: u.Name, Groups: u.Groups}
	record := authorizer.AttributesRecord{User: info, Verb: a.Verb}
	if r.IntN(3) == 0 {
		a.Path = one(r, paths)
		record.Path = a.Path
	} else {
		a.IsResource, a.Group, a.Namespace = true, one(r, apiGroups), one(r, append(namespaces, ""))
		a.Resource, a.Subresource, _ = strings.Cut(one(r, resources), "/")
		record.ResourceRequest, record.APIGroup, record.Namespace = true, a.Group, a.Namespace
		record.Resource, record.Subresource = a.Resource, a.Subresource
	}
	names := map[access.Decision]string{access.Allow: "allow", access.NoOpinion: "no opinion", access.Deny: "deny"}
	theirNames := map[authorizer.Decision]string{authorizer.DecisionAllow: "allow",
		authorizer.DecisionNoOpinion: "no opinion", authorizer.DecisionDeny: "deny"}
	decision, reason, err := theirs.Authorize(t.Context(), record)
	want = fmt.Sprint(theirNames[decision], " ", reason, err)
	our, why, err := ours.Authorize(t.Context(), a)
	got = fmt.Sprint(names[our], " ", strings.TrimPrefix(why, "abac: "), err)
	namespace := one(r, namespaces)
	resourceRules, paths, incomplete, err := theirs.RulesFor(t.Context(), info, namespace)
	wanted := []string{fmt.Sprint(incomplete, err)}
	for _, rule := range resourceRules {
		wanted = append(wanted, fmt.Sprint(rule.GetVerbs(), rule.GetAPIGroups(), rule.GetResources()))
	}
	for _, rule := range paths {
		wanted = append(wanted, fmt.Sprint(rule.GetVerbs(), rule.GetNonResourceURLs()))
	}
	rules, more, err := ours.RulesFor(t.Context(), &u, namespace)
	listed := []string{fmt.Sprint(more, err)}
	for _, about := range []bool{true, false} {
		for _, rule := range rules {
			switch {
			case about && rule.NonResourceURLs == nil:
				listed = append(listed, fmt.Sprint(rule.Verbs, rule.APIGroups, rule.Resources))
			case !about && rule.NonResourceURLs != nil:
				listed = append(listed, fmt.Sprint(rule.Verbs, rule.NonResourceURLs))
			}
		}
	}
	if !reflect.DeepEqual(wanted, listed) {
		t.Errorf("%s\nrules of %v in %s\n--- reference\n%s\n+++ here\n%s", strings.Join(lines, "\n"), u, namespace, wanted,
			listed)
	}
	return want, got
}

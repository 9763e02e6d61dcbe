package impersonation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"plinth/internal/access"
	"plinth/internal/recent"
)

// authorizer allows some questions, and records all that it is asked. A question is written as
//
//	verb resource[/subresource][.group] [namespace/]name
type authorizer struct {
	allows func(question string) bool
	asked  []string
	users  []access.User
}

func (a *authorizer) Authorize(_ context.Context, q *access.Attributes) (access.Decision, string, error) {
	text := q.Verb + " " + q.Resource
	if q.Subresource != "" {
		text += "/" + q.Subresource
	}
	if q.Group != "" {
		text += "." + q.Group
	}
	text += " "
	if q.Namespace != "" {
		text += q.Namespace + "/"
	}
	text += q.Name
	a.asked, a.users = append(a.asked, text), append(a.users, q.User)
	if a.allows(text) {
		return access.Allow, "", nil
	}
	return access.NoOpinion, "no role", nil
}

// constrainedOnly allows all questions of the modes of constrained impersonation.
func constrainedOnly(question string) bool {
	return strings.HasPrefix(question, "impersonate:") || strings.HasPrefix(question, "impersonate-on:")
}

func only(questions ...string) func(string) bool {
	return func(q string) bool { return slices.Contains(questions, q) }
}

// listPods returns the attributes of a user's request.
func listPods(by access.User) *access.Attributes {
	return &access.Attributes{User: by, Verb: "list", IsResource: true, Version: "v1", Resource: "pods", Namespace: "u"}
}

// Who may be impersonated, in which mode, with which groups, and what the authorizer is asked for it. The same answers
// are compared with the reference's in conformance/http/tokens.
//
// SPEC: AUTH-1
func TestImpersonate(t *testing.T) {
	somebody := access.User{Name: "somebody", Groups: []string{"g"}}
	onNode := access.User{Name: "system:serviceaccount:u:a",
		Extra: map[string][]string{access.NodeName: {"n"}, access.PodName: {"p"}}}
	for _, c := range []struct {
		name       string
		by         access.User
		wanted     access.User
		allows     func(string) bool
		groups     []string // of the user that the request continues as
		constraint string
		refused    string   // part of the error
		asked      []string // all that the authorizer was asked, in order; nil: not compared
	}{
		{name: "a user", by: somebody, wanted: access.User{Name: "jane", Groups: []string{"a", "b"}},
			allows: constrainedOnly, groups: []string{"a", "b", access.Authenticated},
			constraint: "impersonate:user-info", asked: []string{
				"impersonate-on:user-info:list pods u/", "impersonate:user-info users.authentication.k8s.io jane",
				"impersonate:user-info groups.authentication.k8s.io a",
				"impersonate:user-info groups.authentication.k8s.io b"}},
		{name: "a user, by the old verb", by: somebody, wanted: access.User{Name: "jane", UID: "1", Groups: []string{"a"},
			Extra: map[string][]string{"scopes": {"view"}}},
			allows: func(q string) bool { return strings.HasPrefix(q, "impersonate ") },
			groups: []string{"a", access.Authenticated}, asked: []string{
				"impersonate-on:user-info:list pods u/", "impersonate users jane",
				"impersonate uids.authentication.k8s.io 1", "impersonate groups a",
				"impersonate userextras/scopes.authentication.k8s.io view"}},
		{name: "nothing is allowed: the first refusal is returned", by: somebody, wanted: access.User{Name: "jane"},
			allows: only(), refused: `cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "u"`,
			asked: []string{"impersonate-on:user-info:list pods u/", "impersonate users jane"}},
		{name: "the user, but not for this verb", by: somebody, wanted: access.User{Name: "jane"},
			allows:  only("impersonate:user-info users.authentication.k8s.io jane", "impersonate-on:user-info:get pods u/"),
			refused: "cannot impersonate-on:user-info:list"},
		{name: "the verb, but not this user", by: somebody, wanted: access.User{Name: "jane"},
			allows:  only("impersonate-on:user-info:list pods u/", "impersonate:user-info users.authentication.k8s.io joe"),
			refused: `cannot impersonate:user-info resource "users"`},
		{name: "a UID is asked for", by: somebody, wanted: access.User{Name: "jane", UID: "1"},
			allows:  func(q string) bool { return constrainedOnly(q) && !strings.Contains(q, "uids") },
			refused: `cannot impersonate:user-info resource "uids"`},
		{name: "system:masters", by: somebody, wanted: access.User{Name: "jane", Groups: []string{access.Masters}},
			allows: constrainedOnly, refused: "impersonating the system:masters group is not allowed"},
		{name: "system:masters among many", by: somebody,
			wanted: access.User{Name: "jane", Groups: []string{"a", "b", "c", "d", access.Masters}},
			allows: constrainedOnly, refused: "impersonating the system:masters group is not allowed"},
		{name: "a group without a name", by: somebody, wanted: access.User{Name: "jane", Groups: []string{"a", ""}},
			allows: constrainedOnly, refused: "impersonating the empty string group is not allowed"},
		{name: "many groups, all of which are allowed", by: somebody,
			wanted: access.User{Name: "jane", Groups: []string{"a", "b", "c", "d"}}, allows: constrainedOnly,
			groups: []string{"a", "b", "c", "d", access.Authenticated}, constraint: "impersonate:user-info",
			asked: []string{"impersonate-on:user-info:list pods u/", "impersonate:user-info users.authentication.k8s.io jane",
				"impersonate:user-info groups.authentication.k8s.io *"}},
		{name: "many groups, one of which is not allowed", by: somebody,
			wanted: access.User{Name: "jane", Groups: []string{"a", "b", "c", "d"}},
			allows: func(q string) bool {
				return constrainedOnly(q) && !strings.HasSuffix(q, "*") && !strings.HasSuffix(q, "d")
			},
			refused: `cannot impersonate:user-info resource "groups"`},
		{name: "the anonymous user", by: somebody, wanted: access.User{Name: access.Anonymous}, allows: constrainedOnly,
			groups: []string{access.Unauthenticated}, constraint: "impersonate:user-info"},
		{name: "an unauthenticated user", by: somebody, allows: constrainedOnly,
			wanted: access.User{Name: "jane", Groups: []string{access.Unauthenticated}},
			groups: []string{access.Unauthenticated}, constraint: "impersonate:user-info"},
		{name: "a service account", by: somebody, wanted: access.User{Name: "system:serviceaccount:u:a"},
			allows:     constrainedOnly,
			groups:     []string{access.ServiceAccounts, "system:serviceaccounts:u", access.Authenticated},
			constraint: "impersonate:serviceaccount", asked: []string{"impersonate-on:serviceaccount:list pods u/",
				"impersonate:serviceaccount serviceaccounts.authentication.k8s.io u/a"}},
		{name: "a service account with groups", by: somebody, allows: constrainedOnly, // fits no constrained mode
			wanted:  access.User{Name: "system:serviceaccount:u:a", Groups: []string{"g"}},
			refused: `cannot impersonate resource "serviceaccounts"`,
			asked:   []string{"impersonate serviceaccounts u/a"}},
		{name: "a service account with groups, by the old verb", by: somebody,
			wanted: access.User{Name: "system:serviceaccount:u:a", Groups: []string{"g"}},
			allows: only("impersonate serviceaccounts u/a", "impersonate groups g"),
			groups: []string{"g", access.Authenticated}},
		{name: "a Node", by: somebody, wanted: access.User{Name: "system:node:n"}, allows: constrainedOnly,
			groups: []string{"system:nodes", access.Authenticated}, constraint: "impersonate:arbitrary-node",
			asked: []string{"impersonate-on:arbitrary-node:list pods u/",
				"impersonate:arbitrary-node nodes.authentication.k8s.io n"}},
		{name: "a Node with a UID", by: somebody, wanted: access.User{Name: "system:node:n", UID: "1"},
			allows: constrainedOnly, refused: `cannot impersonate resource "users"`,
			asked: []string{"impersonate users system:node:n"}},
		{name: "a name that no Node can have", by: somebody, wanted: access.User{Name: "system:node:N_"},
			allows: constrainedOnly, groups: []string{access.Authenticated}, constraint: "impersonate:user-info"},
		{name: "the Node of the Pod that asks", by: onNode, wanted: access.User{Name: "system:node:n"},
			allows: constrainedOnly, groups: []string{"system:nodes", access.Authenticated},
			constraint: "impersonate:associated-node", asked: []string{"impersonate-on:associated-node:list pods u/",
				"impersonate:associated-node nodes.authentication.k8s.io *"}},
		{name: "another Node than that of the Pod that asks", by: onNode, wanted: access.User{Name: "system:node:m"},
			allows:  func(q string) bool { return strings.Contains(q, "associated-node") },
			refused: "cannot impersonate-on:arbitrary-node:list",
			asked:   []string{"impersonate-on:arbitrary-node:list pods u/", "impersonate users system:node:m"}},
		{name: "extra values", by: somebody,
			wanted: access.User{Name: "jane", Extra: map[string][]string{"example.com/b": {"x", "y"}, "example.com/a": {"z"}}},
			allows: constrainedOnly, groups: []string{access.Authenticated}, constraint: "impersonate:user-info",
			asked: []string{"impersonate-on:user-info:list pods u/", "impersonate:user-info users.authentication.k8s.io jane",
				"impersonate:user-info userextras/example.com/a.authentication.k8s.io z",
				"impersonate:user-info userextras/example.com/b.authentication.k8s.io x",
				"impersonate:user-info userextras/example.com/b.authentication.k8s.io y"}},
		{name: "many extra values", by: somebody, allows: constrainedOnly,
			wanted: access.User{Name: "jane", Extra: map[string][]string{"example.com/a": {"1", "2", "3", "4"}}},
			groups: []string{access.Authenticated}, constraint: "impersonate:user-info",
			asked: []string{"impersonate-on:user-info:list pods u/", "impersonate:user-info users.authentication.k8s.io jane",
				"impersonate:user-info userextras/*.authentication.k8s.io *"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &authorizer{allows: c.allows}
			user, constraint, err := New(a, true).Impersonate(t.Context(), c.wanted, listPods(c.by))
			if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Fatalf("error %v, want one with %q", err, c.refused)
			}
			if c.asked != nil && !slices.Equal(a.asked, c.asked) {
				t.Errorf("the authorizer was asked\n%s\nwant\n%s", strings.Join(a.asked, "\n"), strings.Join(c.asked, "\n"))
			}
			if err != nil {
				if !reflect.DeepEqual(user, access.User{}) || constraint != "" {
					t.Errorf("a refused impersonation is %+v by %q", user, constraint)
				}
				return
			}
			want := c.wanted
			want.Groups = c.groups
			if !reflect.DeepEqual(user, want) || constraint != c.constraint {
				t.Errorf("the request continues as %+v by %q, want %+v by %q", user, constraint, want, c.constraint)
			}
		})
	}
}

// Without the feature gate, the verb impersonate alone counts.
//
// SPEC: AUTH-1
func TestWithoutConstrainedModes(t *testing.T) {
	a := &authorizer{allows: constrainedOnly}
	_, _, err := New(a, false).Impersonate(t.Context(), access.User{Name: "jane"}, listPods(access.User{Name: "somebody"}))
	if err == nil || !slices.Equal(a.asked, []string{"impersonate users jane"}) {
		t.Errorf("%v after the questions %q", err, a.asked)
	}
}

// When a Pod's service account impersonates its Node, the authorizer gets only the keys of the extra values, without
// the details of the Pod.
//
// SPEC: AUTH-1
func TestQuestionsForTheNodeOfAPod(t *testing.T) {
	by := access.User{Name: "system:serviceaccount:u:a",
		Extra: map[string][]string{access.NodeName: {"n"}, access.PodName: {"p"}}}
	a := &authorizer{allows: constrainedOnly}
	if _, _, err := New(a, true).Impersonate(t.Context(), access.User{Name: "system:node:n"}, listPods(by)); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"authentication.kubernetes.io/associated-node-keys": slices.Sorted(maps.Keys(by.Extra))}
	for n, user := range a.users {
		if user.Name != by.Name || !reflect.DeepEqual(user.Extra, want) {
			t.Errorf("%s was asked for %+v, want the extra values %v", a.asked[n], user, want)
		}
	}
	if len(a.users) != 2 {
		t.Errorf("%d questions were asked, want 2", len(a.users))
	}
}

// Constrained impersonation refuses keys and values of extra that the old verb takes.
//
// SPEC: AUTH-1
func TestExtraThatIsRefused(t *testing.T) {
	for _, c := range []struct {
		key    string
		values []string
		want   string // "": it is taken
	}{
		{"example.com/a", []string{"v"}, ""},
		{"", []string{"v"}, "impersonating the empty string key in extra is not allowed"},
		{"a", []string{"v"}, "impersonating an invalid key in extra is not allowed"},
		{"example.com/A", []string{"v"}, "impersonating a non-lowercase key in extra is not allowed"},
		{"example.com/a", nil, "impersonating empty values in extra is not allowed"},
		{"example.com/a", []string{"v", ""}, "impersonating the empty string value in extra is not allowed"},
	} {
		wanted := access.User{Name: "jane", Extra: map[string][]string{c.key: c.values}}
		for _, other := range []bool{false, true} { // the first mode refuses; the old verb may still allow it
			a := &authorizer{allows: func(q string) bool { return constrainedOnly(q) || other }}
			user, constraint, err := New(a, true).Impersonate(t.Context(), wanted, listPods(access.User{Name: "somebody"}))
			switch {
			case c.want == "" && (err != nil || constraint == ""):
				t.Errorf("%q=%q: %v by %q, want it allowed by a constrained mode", c.key, c.values, err, constraint)
			case c.want != "" && other && (err != nil || constraint != "" || user.Name != "jane"):
				t.Errorf("%q=%q: %v by %q, want it allowed by the old verb", c.key, c.values, err, constraint)
			case c.want != "" && !other && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%q=%q: error %v, want %s", c.key, c.values, err, c.want)
			}
		}
	}
}

// The mode that was allowed last is tried first for the next request of the same user, but not for those of other
// users.
//
// SPEC: AUTH-1
func TestTheLastModeIsTriedFirst(t *testing.T) {
	a := &authorizer{allows: func(q string) bool { return strings.HasPrefix(q, "impersonate ") }}
	i := New(a, true)
	first := func(by string) string {
		t.Helper()
		a.asked = nil
		if _, _, err := i.Impersonate(t.Context(), access.User{Name: "jane"}, listPods(access.User{Name: by})); err != nil {
			t.Fatal(err)
		}
		return a.asked[0]
	}
	for n, want := range []string{"impersonate-on:user-info:list pods u/", "impersonate users jane"} {
		if got := first("somebody"); got != want {
			t.Errorf("request %d: the first question is %s, want %s", n, got, want)
		}
	}
	if got := first("somebody else"); got != "impersonate-on:user-info:list pods u/" {
		t.Errorf("the first question for another user is %s", got)
	}
}

// The number of remembered modes is bounded.
//
// SPEC: AUTH-1
func TestRememberedModesAreBounded(t *testing.T) {
	i := New(&authorizer{allows: constrainedOnly}, true)
	const most = 2 * recent.DefaultLimit
	for n := range 2*most + 1 {
		i.remember(fmt.Sprint(n), n%2)
		if i.last.Len() > most {
			t.Fatalf("%d users are remembered, want %d at most", i.last.Len(), most)
		}
	}
}

// An authorizer's error is part of the refusal, with its reason.
//
// SPEC: AUTH-1
func TestErrorsOfTheAuthorizer(t *testing.T) {
	for _, c := range []struct{ reason, want string }{
		{"", `at the cluster scope: no connection`}, {"no role", `at the cluster scope: no connection: no role`},
	} {
		_, _, err := New(failing(c.reason), false).Impersonate(t.Context(), access.User{Name: "jane"},
			listPods(access.User{Name: "somebody"}))
		if err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("error %v, want one that ends with %s", err, c.want)
		}
	}
}

// failing is an authorizer that has an error and a reason.
type failing string

func (f failing) Authorize(context.Context, *access.Attributes) (access.Decision, string, error) {
	return access.NoOpinion, string(f), errors.New("no connection")
}

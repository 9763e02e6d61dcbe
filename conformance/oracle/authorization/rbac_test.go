package authorization

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"plinth/internal/access"
	"plinth/internal/authz"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
)

var policies = flag.Int("policies", 400, "how many policies are made, for each of which 50 requests are decided")

const requestsEach = 50

// listed implements the getters and listers of the reference's authorizer for a policy. The real listers have no order;
// here the binding whose name is in the field first precedes all others.
type listed struct {
	policy
	first string
}

func (l *listed) GetRole(_ context.Context, namespace, name string) (*rbacv1.Role, error) {
	for i := range l.roles {
		if r := &l.roles[i]; r.Namespace == namespace && r.Name == name {
			return r, nil
		}
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("role"), name)
}

func (l *listed) GetClusterRole(_ context.Context, name string) (*rbacv1.ClusterRole, error) {
	for i := range l.clusterRoles {
		if r := &l.clusterRoles[i]; r.Name == name {
			return r, nil
		}
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("clusterrole"), name)
}

func (l *listed) ListRoleBindings(_ context.Context, namespace string) (list []*rbacv1.RoleBinding, _ error) {
	for i := range l.roleBindings {
		if b := &l.roleBindings[i]; b.Namespace == namespace {
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b *rbacv1.RoleBinding) int {
		return l.compare(a.Name+"/"+namespace,
			b.Name+"/"+namespace)
	})
	return list, nil
}

func (l *listed) ListClusterRoleBindings(context.Context) (list []*rbacv1.ClusterRoleBinding, _ error) {
	for i := range l.clusterRoleBindings {
		list = append(list, &l.clusterRoleBindings[i])
	}
	slices.SortFunc(list, func(a, b *rbacv1.ClusterRoleBinding) int { return l.compare(a.Name, b.Name) })
	return list, nil
}

func (l *listed) compare(a, b string) int {
	switch l.first {
	case a:
		return -1
	case b:
		return 1
	}
	return strings.Compare(a, b)
}

// reference returns the reference's authorizer, with one binding before all others.
func (p policy) reference(first string) *rbac.RBACAuthorizer {
	l := &listed{p, first}
	return rbac.New(l, l, l, l)
}

// stored returns our authorizer over the same objects.
func (p policy) stored(t testing.TB, modes ...authz.Mode) *authz.Authority {
	t.Helper()
	s, err := store.Open(store.Config{Log: memlog.New(),
		Describe: func(store.Key, []byte) *store.Sidecar { return &store.Sidecar{} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var changes []store.Change
	add := func(resource string, meta metav1.ObjectMeta, obj any) {
		name := strings.TrimPrefix(meta.Namespace+"/"+meta.Name, "/")
		data, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, store.Change{Key: store.Key{Resource: authz.RBACGroup + "/" + resource, Name: name},
			Data: data})
	}
	for _, o := range p.clusterRoles {
		add("clusterroles", o.ObjectMeta, o)
	}
	for _, o := range p.clusterRoleBindings {
		add("clusterrolebindings", o.ObjectMeta, o)
	}
	for _, o := range p.roles {
		add("roles", o.ObjectMeta, o)
	}
	for _, o := range p.roleBindings {
		add("rolebindings", o.ObjectMeta, o)
	}
	if _, err := s.Commit(t.Context(), nil, changes); err != nil {
		t.Fatal(err)
	}
	y, err := authz.New(authz.FromModes(modes, nil), authz.Options{})
	if err != nil {
		t.Fatal(err)
	}
	y.Open(s)
	return y
}

// The parts of generated policies and requests. They are few, so that they coincide often.
var (
	users = []string{"alice", "bob", "system:serviceaccount:ns1:sa1", "system:serviceaccount:ns2:sa1",
		"system:serviceaccount:ns1:sa2", "system:anonymous", ""}
	groups     = []string{"devs", "ops", "system:authenticated", "system:serviceaccounts", "system:serviceaccounts:ns1"}
	namespaces = []string{"ns1", "ns2"}
	verbs      = []string{"get", "list", "watch", "create", "update", "delete", "impersonate", ""}
	apiGroups  = []string{"", "apps", "a.example.com"}
	resources  = []string{"pods", "pods/log", "deployments", "deployments/scale", "deployments/status", "*/scale",
		"pods/*", "things", "*/", "log"}
	names    = []string{"a", "b", "c", ""}
	paths    = []string{"/", "/healthz", "/healthz/ping", "/api", "/apis/apps", "/healthz*", "/metrics", ""}
	ruleURLs = []string{"/healthz", "/healthz/*", "/api*", "/*", "/metrics", "/apis/**", "*/x"}
)

type random struct{ *rand.Rand }

func one[T any](r random, list []T) T { return list[r.IntN(len(list))] }

func some(r random, list []string, all float64) (picked []string) {
	if r.Float64() < all {
		return []string{"*"}
	}
	for range 1 + r.IntN(3) {
		picked = append(picked, one(r, list))
	}
	return picked
}

func (r random) rules() (rules []rbacv1.PolicyRule) {
	for range r.IntN(4) {
		if r.IntN(4) == 0 {
			rules = append(rules, rbacv1.PolicyRule{Verbs: some(r, verbs, 0.3), NonResourceURLs: some(r, ruleURLs, 0.1)})
			continue
		}
		rule := rbacv1.PolicyRule{Verbs: some(r, verbs, 0.3), APIGroups: some(r, apiGroups, 0.3),
			Resources: some(r, resources, 0.15)}
		if r.IntN(4) == 0 {
			rule.ResourceNames = some(r, names, 0.05)
		}
		rules = append(rules, rule)
	}
	return rules
}

func (r random) subjects() (list []rbacv1.Subject) {
	for range r.IntN(4) {
		switch r.IntN(7) {
		case 0, 1, 2:
			list = append(list, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: one(r, users)})
		case 3, 4:
			list = append(list, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: one(r, groups)})
		case 5:
			list = append(list, rbacv1.Subject{Kind: "ServiceAccount", Name: one(r, []string{"sa1", "sa2"}),
				Namespace: one(r, []string{"ns1", "ns2", ""})})
		default:
			list = append(list, rbacv1.Subject{Kind: one(r, []string{"Robot", "", "user"}), Name: one(r, users),
				Namespace: "ns1"})
		}
	}
	return list
}

func (r random) policy() (p policy) {
	name := func(kind string) string { return fmt.Sprintf("%s%d", kind, r.IntN(6)) }
	ref := func() rbacv1.RoleRef {
		kind := one(r, []string{"Role", "ClusterRole", "ClusterRole", "Other"})
		if kind == "Other" && r.IntN(6) > 0 {
			kind = "Role"
		}
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name("r")}
	}
	taken := map[string]bool{}
	free := func(kind, key string) bool {
		key = kind + key
		was := taken[key]
		taken[key] = true
		return !was
	}
	for range 4 + r.IntN(12) {
		if o := (rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name("r")}, Rules: r.rules()}); free("cr", o.Name) {
			p.clusterRoles = append(p.clusterRoles, o)
		}
		if o := (rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name("r"), Namespace: one(r, namespaces)},
			Rules: r.rules()}); free("r", o.Namespace+o.Name) {
			p.roles = append(p.roles, o)
		}
	}
	for range r.IntN(12) {
		if o := (rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name("b")}, RoleRef: ref(),
			Subjects: r.subjects()}); free("crb", o.Name) {
			p.clusterRoleBindings = append(p.clusterRoleBindings, o)
		}
		if o := (rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name("b"), Namespace: one(r, namespaces)},
			RoleRef: ref(), Subjects: r.subjects()}); free("rb", o.Namespace+o.Name) {
			p.roleBindings = append(p.roleBindings, o)
		}
	}
	return p
}

func (r random) request() access.Attributes {
	a := access.Attributes{User: access.User{Name: one(r, users)}, Verb: one(r, verbs)}
	for range r.IntN(3) {
		a.User.Groups = append(a.User.Groups, one(r, groups))
	}
	if r.IntN(5) == 0 {
		a.Path = one(r, paths)
		return a
	}
	a.IsResource, a.Group, a.Version, a.Name = true, one(r, apiGroups), "v1", one(r, names)
	a.Resource, a.Subresource, _ = strings.Cut(one(r, resources), "/")
	if r.IntN(4) > 0 {
		a.Namespace = one(r, namespaces)
	}
	return a
}

// aim makes a request similar to what a binding of the policy allows: it takes one of its subjects and one of its
// role's rules.
func (r random) aim(a *access.Attributes, p policy) {
	var subjects []rbacv1.Subject
	var ref rbacv1.RoleRef
	if n := len(p.clusterRoleBindings); n > 0 && r.IntN(2) == 0 {
		b := p.clusterRoleBindings[r.IntN(n)]
		subjects, ref = b.Subjects, b.RoleRef
	} else if n := len(p.roleBindings); n > 0 {
		b := p.roleBindings[r.IntN(n)]
		subjects, ref, a.Namespace = b.Subjects, b.RoleRef, b.Namespace
	}
	if len(subjects) > 0 {
		switch s := one(r, subjects); s.Kind {
		case "User":
			a.User.Name = s.Name
		case "Group":
			a.User.Groups = append(a.User.Groups, s.Name)
		case "ServiceAccount":
			a.User.Name = "system:serviceaccount:" + cmp.Or(s.Namespace, a.Namespace) + ":" + s.Name
		}
	}
	l := &listed{policy: p}
	var rules []rbacv1.PolicyRule
	if role, _ := l.GetClusterRole(context.Background(), ref.Name); ref.Kind == "ClusterRole" && role != nil {
		rules = role.Rules
	} else if role, _ := l.GetRole(context.Background(), a.Namespace, ref.Name); ref.Kind == "Role" && role != nil {
		rules = role.Rules
	}
	if len(rules) == 0 {
		return
	}
	rule := one(r, rules)
	a.Verb = one(r, rule.Verbs)
	if len(rule.NonResourceURLs) > 0 {
		*a = access.Attributes{User: a.User, Verb: a.Verb, Path: strings.ReplaceAll(one(r, rule.NonResourceURLs), "*", "x")}
		return
	}
	a.IsResource, a.Path, a.Group = true, "", one(r, rule.APIGroups)
	a.Resource, a.Subresource, _ = strings.Cut(one(r, rule.Resources), "/")
	if len(rule.ResourceNames) > 0 {
		a.Name = one(r, rule.ResourceNames)
	}
}

// theirs converts a request to the reference's form.
func theirs(a *access.Attributes) authorizer.AttributesRecord {
	required := a.Required
	if required == nil {
		required = new(access.Requirements)
	}
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: a.User.Name, UID: a.User.UID, Groups: a.User.Groups, Extra: a.User.Extra},
		Verb: a.Verb, Path: a.Path, ResourceRequest: a.IsResource, APIGroup: a.Group, APIVersion: a.Version,
		Resource:    a.Resource,
		Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name,
		FieldSelectorRequirements: required.Fields, LabelSelectorRequirements: required.Labels,
	}
}

var decisions = map[access.Decision]authorizer.Decision{
	access.Allow: authorizer.DecisionAllow, access.Deny: authorizer.DecisionDeny,
	access.NoOpinion: authorizer.DecisionNoOpinion,
}

// The same policy gives the same verdict on the same request, for the same reason.
//
// SPEC: AUTH-2
func TestRBAC(t *testing.T) {
	r := random{rand.New(rand.NewPCG(1, 2))}
	allowed, told, different := 0, 0, 0
	for n := range *policies {
		p := r.policy()
		ours := p.stored(t, authz.RBAC)
		for range requestsEach {
			a := r.request()
			if r.IntN(2) == 0 {
				r.aim(&a, p)
			}
			decision, reason, err := ours.Authorize(t.Context(), &a)
			if err != nil {
				t.Fatal(err)
			}
			// Several bindings may allow a request, and the reference names the first that it finds; so the one that we name is
			// put first.
			by := ""
			if _, rest, ok := strings.Cut(reason, `Binding "`); ok && decision == access.Allow {
				by, _, _ = strings.Cut(rest, `"`)
				allowed++
			}
			reason = strings.TrimPrefix(reason, "rbac: ") // the name of the authorizer in a union
			if decision != access.Allow && reason != "" {
				told++
			}
			want, wantReason, _ := p.reference(by).Authorize(t.Context(), theirs(&a))
			if decisions[decision] != want || reason != wantReason {
				if different++; different < 5 {
					policy, _ := json.Marshal(map[string]any{"clusterRoles": p.clusterRoles,
						"clusterRoleBindings": p.clusterRoleBindings, "roles": p.roles, "roleBindings": p.roleBindings})
					t.Errorf("policy %d: %+v\nhave %v %q\nwant %v %q\n%s", n, a, decisions[decision], reason, want, wantReason, policy)
				}
			}
		}
	}
	total := *policies * requestsEach
	t.Logf("%d requests, %d allowed, %d told of roles that are missing, %d different", total, allowed, told, different)
	if allowed < total/10 || told < total/25 {
		t.Errorf("of %d requests only %d are allowed, and %d name missing roles", total, allowed, told)
	}
}

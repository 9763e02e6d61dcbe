package authz

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plinth/internal/access"
)

// Of random roles and bindings, the subjects that WhoCan lists are those whom Authorize allows, and no others.
//
// SPEC: BEY-17
func TestWhoCanIsAuthorize(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	verbs, resources, names := []string{"get", "list", all}, []string{"pods", "pods/log", "*/log", "secrets", all},
		[]string{"", "", "a", "b"}
	subjects := []Subject{{"User", "", "u0"}, {"User", "", "u1"}, {"Group", "", "g0"}, {"Group", "", "g1"},
		{"ServiceAccount", "n0", "s"}, {"ServiceAccount", "n1", "s"}}
	asUser := func(s Subject) access.User {
		switch s.Kind {
		case groupKind:
			return access.User{Name: "member", Groups: []string{s.Name}}
		case serviceAccountKind:
			return access.User{Name: serviceAccountUser + s.Namespace + ":" + s.Name}
		}
		return access.User{Name: s.Name}
	}
	rule := func() string {
		if random.IntN(5) == 0 {
			return fmt.Sprintf(`{"verbs":[%q],"nonResourceURLs":[%q]}`, pick(verbs...), pick("/healthz", "/health*", "*"))
		}
		restricted := ""
		if name := pick(names...); name != "" {
			restricted = fmt.Sprintf(`,"resourceNames":[%q]`, name)
		}
		return fmt.Sprintf(`{"verbs":[%q],"apiGroups":[%q],"resources":[%q]%s}`, pick(verbs...), pick("", "apps", all),
			pick(resources...), restricted)
	}
	allowed, refused := 0, 0
	for range 60 {
		s := newStore(t)
		var put []string
		for _, namespace := range []string{"", "n0/", "n1/"} {
			roles, bindings, kind := "roles", "rolebindings", roleKind
			if namespace == "" {
				roles, bindings, kind = "clusterroles", "clusterrolebindings", clusterRoleKind
			}
			for i := range 2 {
				put = append(put, roles, fmt.Sprint(namespace, "r", i), fmt.Sprintf(`{"rules":[%s,%s]}`, rule(), rule()))
			}
			for i := range 2 {
				if namespace != "" {
					kind = pick(roleKind, clusterRoleKind)
				}
				of := subjects[random.IntN(len(subjects))]
				text := fmt.Sprintf(`{"kind":%q,"namespace":%q,"name":%q}`, of.Kind, of.Namespace, of.Name)
				put = append(put, bindings, fmt.Sprint(namespace, "b", i), binding1(kind, pick("r0", "r1", "gone"), text))
			}
		}
		s.put(put...)
		y := s.authority(RBAC)
		for range 40 {
			a := access.Attributes{Verb: pick("get", "list"), IsResource: random.IntN(4) > 0}
			if a.IsResource {
				a.Group, a.Namespace, a.Name = pick("", "apps"), pick("", "n0", "n1"), pick(names...)
				a.Resource, a.Subresource = pick("pods", "secrets"), pick("", "log")
			} else {
				a.Path = pick("/healthz", "/healthz/etcd", "/metrics")
			}
			grants, _ := y.WhoCan(&a)
			for _, subject := range subjects {
				listed := slices.ContainsFunc(grants, func(g Grant) bool { return g.Subject == subject })
				asked := a
				asked.User = asUser(subject)
				decision, why, err := y.Authorize(t.Context(), &asked)
				if err != nil || listed != (decision == access.Allow) {
					t.Fatalf("%v %+v: listed %t, but %v %q %v", subject, a, listed, decision, why, err)
				}
				if listed {
					allowed++
				} else {
					refused++
				}
			}
			if !slices.ContainsFunc(grants, func(g Grant) bool { return g.Subject.Name == access.Masters }) {
				t.Fatalf("%+v: without %s", a, access.Masters)
			}
		}
	}
	if allowed < 500 || refused < 500 {
		t.Errorf("the test says little: %d allowed, %d refused", allowed, refused)
	}
}

// A grant names its binding and role; what is not known is said.
//
// SPEC: BEY-17
func TestWhoCan(t *testing.T) {
	s := newStore(t)
	s.put("clusterroles", "reader", `{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`,
		"roles", "ns/mine", `{"rules":[{"verbs":["*"],"apiGroups":[""],"resources":["*"]}]}`,
		"clusterrolebindings", "all", binding1("ClusterRole", "reader", `{"kind":"Group","name":"devs"}`),
		"clusterrolebindings", "dangling", binding1("ClusterRole", "gone", `{"kind":"Group","name":"ops"}`),
		"rolebindings", "ns/one", binding1("ClusterRole", "reader", `{"kind":"User","name":"alice"}`),
		"rolebindings", "ns/two", binding1("Role", "mine", `{"kind":"ServiceAccount","name":"bot"}`),
		"rolebindings", "other/x", binding1("ClusterRole", "reader", `{"kind":"User","name":"bob"}`))
	a := access.Attributes{Verb: "get", IsResource: true, Resource: "pods", Namespace: "ns"}
	var lines []string
	grants, incomplete := s.authority(Node, RBAC).WhoCan(&a)
	for _, g := range grants {
		lines = append(lines, fmt.Sprint(g.Subject, g.Binding, g.Role))
	}
	want := []string{
		"{Group  devs} {ClusterRoleBinding  all} {ClusterRole  reader}",
		"{Group  system:masters} {  } {  }",
		"{User  alice} {RoleBinding ns one} {ClusterRole  reader}",
		"{ServiceAccount ns bot} {RoleBinding ns two} {Role ns mine}",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("who can:\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if len(incomplete) != 2 || !strings.Contains(incomplete[0], "the authorizer Node") ||
		incomplete[1] != `clusterrole.rbac.authorization.k8s.io "gone" not found` {
		t.Errorf("incomplete: %q", incomplete)
	}
	grants, _ = s.authority(AlwaysAllow).WhoCan(&a)
	if len(grants) != 3 || grants[2].Subject.Name != access.Unauthenticated {
		t.Errorf("of AlwaysAllow: %v", grants)
	}
	grants = attributePolicies{{User: "alice", Readonly: true, Namespace: all, Resource: "pods"}, {Group: "devs",
		Namespace: "other", Resource: all}, {Group: "ops", Namespace: all, Resource: all}}.whoCan(&a)
	if len(grants) != 2 || grants[0].Subject.Name != "alice" || grants[1].Subject.Name != "ops" {
		t.Errorf("of ABAC: %v", grants)
	}
}

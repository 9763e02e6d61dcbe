package authz

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/internal/view"
)

// policyStore is a store that holds roles and bindings as JSON.
type policyStore struct {
	testing.TB
	*store.Store
}

func newStore(tb testing.TB) policyStore {
	tb.Helper()
	s, err := store.Open(store.Config{
		Log: memlog.New(), Describe: func(store.Key, []byte) *store.Sidecar { return &store.Sidecar{} },
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return policyStore{tb, s}
}

// put stores objects, each as its resource, its name and its text; "" removes it.
func (s policyStore) put(objects ...string) {
	s.Helper()
	var changes []store.Change
	for i := 0; i < len(objects); i += 3 {
		c := store.Change{Key: store.Key{Resource: RBACGroup + "/" + objects[i], Name: objects[i+1]}}
		if text := objects[i+2]; text != "" {
			c.Data = []byte(text)
		}
		changes = append(changes, c)
	}
	if _, err := s.Commit(s.Context(), nil, changes); err != nil {
		s.Fatal(err)
	}
}

func (s policyStore) authority(modes ...Mode) *Authority {
	s.Helper()
	y, err := New(FromModes(modes, nil), Options{})
	if err != nil {
		s.Fatal(err)
	}
	y.Open(s.Store)
	return y
}

// A binding that cannot be read grants nothing, and who is refused is told so; the server is not ready then.
//
// SPEC: AUTH-2
func TestUnreadableBindings(t *testing.T) {
	s := newStore(t)
	y := s.authority(RBAC)
	user := access.Attributes{User: access.User{Name: "alice"}, Verb: "get", IsResource: true, Resource: "pods",
		Namespace: "ns"}
	decide := func(want access.Decision, reason string) {
		t.Helper()
		have, why, err := y.Authorize(t.Context(), &user)
		if have != want || err != nil || !strings.Contains(why, reason) {
			t.Errorf("%v, %q, %v; want %v, %q", have, why, err, want, reason)
		}
		if ready := y.Ready(); (ready == nil) != (reason == "") {
			t.Errorf("ready: %v", ready)
		}
	}
	s.put("roles", "ns/r", `{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`,
		"rolebindings", "ns/a", binding1("Role", "r", `{"kind":"User","name":"alice"}`))
	decide(access.Allow, "")
	lost := &store.Sidecar{Unreadable: errors.New("no key")}
	if _, err := s.Commit(t.Context(), nil, []store.Change{{Key: store.Key{Resource: RBACGroup + "/rolebindings",
		Name: "ns/a"}, Data: []byte("?"), Sidecar: lost}}); err != nil {
		t.Fatal(err)
	}
	decide(access.NoOpinion, `rolebindings.rbac.authorization.k8s.io "ns/a" cannot be read`)
	s.put("clusterroles", "r", `{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`,
		"clusterrolebindings", "b", binding1("ClusterRole", "r", `{"kind":"User","name":"alice"}`))
	decide(access.Allow, "RBAC: allowed by") // by the other one
	s.put("rolebindings", "ns/a", "")
	decide(access.Allow, "")
}

// asked returns the request written as "alice,group1,group2 verb group/resource/subresource namespace name", or as
// "alice verb /path"; "-" stands for "".
func asked(text string) *access.Attributes {
	f := strings.Fields(text)
	who := strings.Split(f[0], ",")
	a := &access.Attributes{User: access.User{Name: who[0], Groups: who[1:]}, Verb: f[1]}
	if strings.HasPrefix(f[2], "/") && strings.Count(f[2], "/") == 1 {
		a.Path = f[2]
		return a
	}
	for i := range f {
		if f[i] == "-" {
			f[i] = ""
		}
	}
	what := strings.Split(f[2], "/")
	if what[0] == "-" {
		what[0] = ""
	}
	a.IsResource, a.Group, a.Resource = true, what[0], what[1]
	if len(what) > 2 {
		a.Subresource = what[2]
	}
	a.Namespace, a.Name = f[3], f[4]
	return a
}

func binding1(kind, role, subjects string) string {
	return fmt.Sprintf(`{"roleRef":{"kind":%q,"name":%q},"subjects":[%s]}`, kind, role, subjects)
}

// A change of a role or of a binding takes effect with the next request, and the reasons are those of the reference.
//
// SPEC: AUTH-2
func TestRoleBased(t *testing.T) {
	s := newStore(t)
	y := s.authority(RBAC)
	check := func(request, want string) {
		t.Helper()
		decision, reason, err := y.Authorize(t.Context(), asked(request))
		got := reason
		if decision == access.Allow {
			got = "yes " + reason
		}
		if got != want || err != nil || decision == access.Deny {
			t.Errorf("%s: have %q, want %q; %v", request, got, want, err)
		}
	}
	check("alice get a.io/things ns1 x", "")
	check("root,system:masters get a.io/things ns1 x", "yes ")
	s.put("clusterroles", "reader",
		`{"rules":[{"verbs":["get","list"],"apiGroups":["a.io"],"resources":["things","*/scale"]},{"verbs":["get"],"nonResourceURLs":["/a*"]}]}`,
		"rolebindings", "ns1/some", binding1("ClusterRole", "reader",
			`{"kind":"User","name":"alice"},{"kind":"Group","name":"devs"},{"kind":"ServiceAccount","name":"sa"}`))
	const some = `yes RBAC: allowed by RoleBinding "some/ns1" of ClusterRole "reader" to `
	check("alice get a.io/things ns1 x", some+`User "alice"`)
	check("alice,devs get a.io/things ns1 x", some+`User "alice"`)
	check("bob,devs list a.io/things ns1 -", some+`Group "devs"`)
	check("system:serviceaccount:ns1:sa list a.io/things ns1 -", some+`ServiceAccount "sa/ns1"`)
	check("system:serviceaccount:ns2:sa list a.io/things ns1 -", "")
	check("alice get a.io/things/scale ns1 x", some+`User "alice"`)
	check("alice get a.io/things/status ns1 x", "")
	check("alice get a.io/things ns2 x", "")
	check("alice get a.io/things - x", "")
	check("alice get b.io/things ns1 x", "")
	check("alice get /abc", "")
	s.put("clusterrolebindings", "all", binding1("ClusterRole", "reader", `{"kind":"User","name":"alice"}`))
	check("alice get /abc", `yes RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to User "alice"`)
	check("alice get /bc", "")
	s.put("clusterrolebindings", "all", "", "clusterroles", "reader",
		`{"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"resourceNames":["x"]}]}`)
	check("alice delete b.io/others ns1 x", some+`User "alice"`)
	check("alice delete b.io/others ns1 y", "")
	s.put("clusterroles", "reader", "")
	check("alice get a.io/things ns1 x", `rbac: RBAC: clusterrole.rbac.authorization.k8s.io "reader" not found`)
	s.put("rolebindings", "ns1/more", binding1("Role", "local", `{"kind":"User","name":"alice"}`))
	check("alice get a.io/things ns1 x",
		`rbac: RBAC: [role.rbac.authorization.k8s.io "local" not found, clusterrole.rbac.authorization.k8s.io "reader" not found]`)
	s.put("roles", "ns1/local", `{"rules":[{"verbs":["get"],"apiGroups":["a.io"],"resources":["things"]}]}`)
	check("alice get a.io/things ns1 x", `yes RBAC: allowed by RoleBinding "more/ns1" of Role "local" to User "alice"`)
	s.put("rolebindings", "ns1/more", "", "rolebindings", "ns1/some", "")
	check("alice get a.io/things ns1 x", "")
}

// All bindings of a group can be deleted at once, in time that is linear in their number.
//
// SPEC: AUTH-2
func TestManyBindingsOfAGroupAreDeleted(t *testing.T) {
	const n = 150_000
	put, remove := make([]view.Change, n), make([]view.Change, n)
	text := []byte(binding1("ClusterRole", "r", `{"kind":"Group","name":"g"}`))
	for i := range put {
		name := fmt.Sprint("b", i)
		put[i] = view.Change{Name: name, Version: store.NewVersion(store.Key{Name: name}, 0, text, &store.Sidecar{})}
		remove[i].Name = name
	}
	all := compileBindings(nil, slices.Values(put))
	if list, _ := all.groups.get(scopedName{"", "g"}); len(list) != n {
		t.Fatalf("the index has %d bindings of the group, want %d", len(list), n)
	}
	began := time.Now()
	none := compileBindings(all, slices.Values(remove))
	if list, ok := none.groups.get(scopedName{"", "g"}); ok {
		t.Errorf("the index has %d bindings of the group after all were deleted", len(list))
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("deleting %d bindings took %v, want less than 5 s", n, took)
	}
}

// The index that is compiled change by change is the one that is compiled from all bindings at once.
func TestIndexOfBindingsIsKept(t *testing.T) {
	s := newStore(t)
	y := s.authority(RBAC)
	for i := range 300 {
		subjects := fmt.Sprintf(`{"kind":"User","name":"u%d"},{"kind":"Group","name":"g%d"},{"kind":"Group","name":"g%d"}`,
			i%7, i%5, i%3)
		name, text := fmt.Sprintf("b%d", i*7%40), binding1("ClusterRole", "r", subjects)
		if i%3 == 2 {
			text = ""
		}
		s.put("clusterrolebindings", name, text)
		kept, _ := y.roles.clusterBindings.Now()
		fresh, _ := s.authority(RBAC).roles.clusterBindings.Now()
		for p := range 64 {
			for _, lists := range [][2]map[scopedName][]*binding{
				{kept.users.parts[p], fresh.users.parts[p]}, {kept.groups.parts[p], fresh.groups.parts[p]},
			} {
				if len(lists[0]) != len(lists[1]) {
					t.Fatalf("step %d: %d lists, want %d", i, len(lists[0]), len(lists[1]))
				}
				for key, want := range lists[1] {
					if have := lists[0][key]; names(have) != names(want) {
						t.Fatalf("step %d: %v: have %s, want %s", i, key, names(have), names(want))
					}
				}
			}
		}
	}
}

func names(list []*binding) (all string) {
	for _, b := range list {
		all += b.name + " "
	}
	return all
}

// large returns a store with 1,000 roles and 2,000 bindings to users, groups and service accounts.
func large(tb testing.TB) policyStore {
	s := newStore(tb)
	var objects []string
	for i := range 1000 {
		rules := fmt.Sprintf(
			`{"verbs":["get","list","watch"],"apiGroups":["","apps"],"resources":["pods","pods/log","deployments","things%d"]},`+
				`{"verbs":["create","update","patch","delete"],"apiGroups":["batch"],"resources":["jobs","cronjobs"],"resourceNames":["a","b%d"]}`, i, i)
		resource, name := "clusterroles", fmt.Sprintf("r%d", i)
		if i%2 == 0 {
			resource, name = "roles", fmt.Sprintf("ns%d/r%d", i%50, i)
		}
		objects = append(objects, resource, name, `{"rules":[`+rules+`]}`)
	}
	for i := range 2000 {
		subjects := fmt.Sprintf(
			`{"kind":"User","name":"u%d"},{"kind":"Group","name":"g%d"},{"kind":"ServiceAccount","namespace":"ns%d","name":"sa%d"}`, i%400, i%300, i%50, i%10)
		switch i % 4 {
		case 0:
			objects = append(objects, "rolebindings", fmt.Sprintf("ns%d/b%d", i%50, i),
				binding1("Role", fmt.Sprintf("r%d", i/2), subjects))
		case 1, 2:
			objects = append(objects, "rolebindings", fmt.Sprintf("ns%d/b%d", i%50, i),
				binding1("ClusterRole", fmt.Sprintf("r%d", i/2|1), subjects))
		default:
			objects = append(objects, "clusterrolebindings", fmt.Sprintf("b%d", i),
				binding1("ClusterRole", fmt.Sprintf("r%d", i/2|1), subjects))
		}
	}
	s.put(objects...)
	return s
}

var sizes = []struct{ name, request string }{
	{"allowed by a cluster role", "u3,g3,g7,g11,system:authenticated get apps/deployments ns3 x"},
	{"allowed in a namespace", "u2,g2,system:authenticated list -/things1 ns2 -"},
	{"not allowed", "u2,g3,g7,g11,system:authenticated delete apps/deployments ns2 x"},
	{"a service account",
		"system:serviceaccount:ns3:sa3,system:serviceaccounts,system:serviceaccounts:ns3,system:authenticated delete batch/jobs ns3 b1"},
}

// A decision allocates no memory.
func TestAuthorizeAllocatesNothing(t *testing.T) {
	y := large(t).authority(RBAC)
	for _, c := range sizes {
		a := asked(c.request)
		if n := testing.AllocsPerRun(100, func() { y.Authorize(t.Context(), a) }); n > 0 {
			t.Errorf("%s: have %v allocations, want 0", c.name, n)
		}
	}
}

func BenchmarkAuthorize(b *testing.B) {
	y := large(b).authority(RBAC)
	for _, c := range sizes {
		b.Run(c.name, func(b *testing.B) {
			a, ctx := asked(c.request), b.Context()
			decision, reason, _ := y.Authorize(ctx, a)
			b.Logf("%v %s", decision, reason)
			b.ReportAllocs()
			for b.Loop() {
				y.Authorize(ctx, a)
			}
		})
	}
}

// One binding is changed between two requests.
func BenchmarkChangedBinding(b *testing.B) {
	s := large(b)
	y := s.authority(RBAC)
	a := asked(sizes[0].request)
	b.ReportAllocs()
	for b.Loop() {
		s.put("clusterrolebindings", "b3", binding1("ClusterRole", "r1",
			`{"kind":"User","name":"u3"},{"kind":"Group","name":"g3"}`))
		y.Authorize(b.Context(), a)
	}
}

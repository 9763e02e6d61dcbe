package authorization

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"plinth/internal/authz"
	"plinth/internal/features"
	"plinth/object"
)

var rewrite = flag.Bool("rewrite", false, "write the table anew")

const table = "../../../internal/authz/bootstrap.txt"

// policy is the bootstrap policy of the reference, in the order in which it makes the objects.
type policy struct {
	clusterRoles        []rbacv1.ClusterRole
	clusterRoleBindings []rbacv1.ClusterRoleBinding
	roles               []rbacv1.Role
	roleBindings        []rbacv1.RoleBinding
}

func bootstrapPolicy() policy {
	p := policy{
		clusterRoles:        append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...),
		clusterRoleBindings: append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...),
	}
	roles, bindings := bootstrappolicy.NamespaceRoles(), bootstrappolicy.NamespaceRoleBindings()
	for _, namespace := range slices.Sorted(maps.Keys(roles)) {
		p.roles = append(p.roles, roles[namespace]...)
	}
	for _, namespace := range slices.Sorted(maps.Keys(bindings)) {
		p.roleBindings = append(p.roleBindings, bindings[namespace]...)
	}
	return p
}

// The table of bootstrap roles and bindings agrees with the reference's code, object by object: with the gates at their
// defaults, and with each gate that the policy names turned over, together with those that have to follow.
//
// SPEC: AUTH-2
func TestBootstrapPolicy(t *testing.T) {
	gates := newGates()
	if *rewrite {
		if err := os.WriteFile(table, []byte(gates.text(t)), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Skip("the table was written; run the test again")
	}
	written, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != gates.text(t) {
		t.Error("the table is not that of the reference; -rewrite writes it anew")
	}
	samePolicy(t, "by default", nil)
	turned := 0
	for _, gate := range gates.named(t, string(written)) {
		set := map[string]bool{}
		gates.turn(set, gate, !utilfeature.DefaultFeatureGate.Enabled(gate))
		samePolicy(t, fmt.Sprint(set), set)
		turned++
	}
	if turned < 15 {
		t.Errorf("the policy depends on only %d gates", turned)
	}
	everything := gates.everything()
	samePolicy(t, "with every gate", everything)
}

// samePolicy compares the policies under some gates.
func samePolicy(t *testing.T, what string, gates map[string]bool) {
	t.Helper()
	var set features.Set
	for name, on := range gates {
		g, ok := features.Find(name)
		if !ok {
			t.Fatalf("there is no gate %s", name)
		}
		set = set.With(g, on)
	}
	p := policyUnder(t, gates)
	want := map[string]string{}
	for _, o := range p.clusterRoles {
		want["clusterroles "+o.Name] = canonical(t, o)
	}
	for _, o := range p.clusterRoleBindings {
		want["clusterrolebindings "+o.Name] = canonical(t, o)
	}
	for _, o := range p.roles {
		want["roles "+o.Namespace+"/"+o.Name] = canonical(t, o)
	}
	for _, o := range p.roleBindings {
		want["rolebindings "+o.Namespace+"/"+o.Name] = canonical(t, o)
	}
	if len(want) < 100 {
		t.Fatalf("the reference has only %d objects", len(want))
	}
	have := map[string]bool{}
	for _, o := range authz.Bootstrap(set) {
		key := o.Resource + " " + o.Name
		if o.Namespace != "" {
			key = o.Resource + " " + o.Namespace + "/" + o.Name
		}
		have[key] = true
		var obj any
		if err := json.Unmarshal(object.AppendJSON(nil, o.Body), &obj); err != nil {
			t.Fatal(err)
		}
		if got := canonical(t, obj); got != want[key] {
			t.Errorf("%s, %s:\nhave %s\nwant %s", what, key, got, want[key])
		}
	}
	for key := range want {
		if !have[key] {
			t.Errorf("%s: %s is missing", what, key)
		}
	}
}

// canonical returns an object as JSON with sorted keys, without its type and without empty rules.
func canonical(t *testing.T, obj any) string {
	t.Helper()
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "kind")
	delete(fields, "apiVersion")
	if fields["rules"] == nil {
		delete(fields, "rules")
	}
	if raw, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

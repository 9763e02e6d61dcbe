package kubectl_test

import (
	"os"
	"path/filepath"
	"testing"

	"plinth/conformance/internal/harness"
)

// readme has the chapters of the README that are sessions, in their order.
var readme = []chapter{
	{title: "Five minutes with kubectl", command: "kubectl ",
		shown: []string{"color: blue", "deployment.apps/web scaled", "web    0/3", `namespace "demo" deleted`}},
	{title: "Five minutes with a custom resource", command: "kubectl ", shown: []string{
		"customresourcedefinition.apiextensions.k8s.io/databases.example.com serverside-applied",
		"database.example.com/orders serverside-applied",
		"NAME     ENGINE     REPLICAS", "orders   postgres   1", "What the database is meant to be.",
		"database.example.com/orders scaled",
		"database.example.com/orders condition met", "there are more replicas than maxReplicas allows",
		`customresourcedefinition.apiextensions.k8s.io "databases.example.com" deleted`,
	}, failed: []string{"1 kubectl scale database orders --replicas=9"}},
	{title: "Five minutes with a webhook", command: "kubectl ", shown: []string{
		"mutatingwebhookconfiguration.admissionregistration.k8s.io/settings created",
		"Warning: the color green fades", `{"color":"green","size":"medium"}`,
		`admission webhook "settings.example.com" denied the request: red is taken`, `configmap "fence" deleted`,
	}, failed: []string{"1 kubectl create configmap door --from-literal=color=red"}},
	{title: "Five minutes with a policy", command: "kubectl ", shown: []string{
		"validatingadmissionpolicy.admissionregistration.k8s.io/replicas created",
		"mutatingadmissionpolicybinding.admissionregistration.k8s.io/team created",
		"ValidatingAdmissionPolicy 'replicas' with binding 'replicas' denied request: five replicas are enough, not 9",
		"deployment.apps/front created", "app=front,made-by=plinth-admin",
		`deployment.apps "front" deleted`, `mutatingadmissionpolicy.admissionregistration.k8s.io "team" deleted`,
	}, failed: []string{"1 kubectl create deployment front --image=nginx --replicas=9"}},
	{title: "Five minutes with users and roles", command: "kubectl ", shown: []string{
		"rolebinding.rbac.authorization.k8s.io/developers created", "yes\n", "no\n", "deployment.apps/web created",
		"serviceaccount/robot created", "system:serviceaccount:team-a:robot", "web    0/1",
		`cannot delete resource "deployments"`, `namespace "team-a" deleted`,
	}, failed: []string{"1 kubectl auth can-i list secrets --all-namespaces --as jane --as-group developers",
		"1 kubectl --context robot delete deployment web"}},
	{title: "Five minutes with an envtest suite", command: "KUBEBUILDER_ASSETS", shown: []string{
		"kube-apiserver and etcd are in ", "the API server is ready after", "settings has the resourceVersion ",
		"--- PASS: TestSuite",
	}, instead: []string{"make build kubectl\n", ""}}, // they are there
	{title: "Five minutes with a test of a controller", command: "PLINTH=", shown: []string{
		"--- PASS: TestTwoDays", "--- PASS: TestFaults", "1 of them refused", " 0 led to a failure",
	}, instead: []string{"PLINTH=$PWD\n", "PLINTH=$CHECKOUT\n"}},
	{title: "Who owns each field", command: "kubectl ", shown: []string{
		"configmap/shared serverside-applied", "color: blue  ", "# team (Apply)", "size: large  ", "# ops (Update)",
		`conflict with "team": .data.color`, `.data.color is "blue", owned by team (Apply); the intent has "red"`,
		"color: red ", "# ops (Apply)",
	}, failed: []string{"1 bin/plinth merge --live live.yaml --apply wanted.yaml --manager ops"}},
}

// The sessions of the README work as written, one after the other in one shell, and no command fails but those that the
// README means to.
//
// SPEC: URI-5, SSA-2, BEY-1, AUTH-1, AUTH-2, AUTH-3, RUN-2
func TestReadmeSessions(t *testing.T) {
	dir := sessionDir(t)
	kubeconfig, err := os.ReadFile(harness.RunTarget(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "plinth-data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "plinth-data", "kubeconfig"), kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	walk(t, "README.md", dir, readme)
}

package kubectl_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/shell"
)

// The sessions of the README work as written.
//
// SPEC: URI-5, SSA-2, BEY-1, AUTH-1, AUTH-2, AUTH-3
func TestReadmeSessions(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	server := harness.RunTarget(t)
	dir := session(t, server)
	for chapter, shown := range map[string][]string{
		"Five minutes with kubectl": {"color: blue", "deployment.apps/web scaled", "web    0/3", `namespace "demo" deleted`},
		"Five minutes with a custom resource": {
			"customresourcedefinition.apiextensions.k8s.io/databases.example.com serverside-applied",
			"database.example.com/orders serverside-applied",
			"NAME     ENGINE     REPLICAS", "orders   postgres   1", "What the database is meant to be.",
			"database.example.com/orders scaled",
			"database.example.com/orders condition met", "there are more replicas than maxReplicas allows",
			"refused, as the rule says",
			`customresourcedefinition.apiextensions.k8s.io "databases.example.com" deleted`,
		},
		"Five minutes with a webhook": {
			"mutatingwebhookconfiguration.admissionregistration.k8s.io/settings created",
			"Warning: the color green fades", `{"color":"green","size":"medium"}`,
			`admission webhook "settings.example.com" denied the request: red is taken`, "refused, as the webhook says",
			`configmap "fence" deleted`,
		},
		"Five minutes with a policy": {
			"validatingadmissionpolicy.admissionregistration.k8s.io/replicas created",
			"mutatingadmissionpolicybinding.admissionregistration.k8s.io/team created",
			"ValidatingAdmissionPolicy 'replicas' with binding 'replicas' denied request: five replicas are enough, not 9",
			"refused, as the policy says", "deployment.apps/front created", "app=front,made-by=plinth-admin",
			`deployment.apps "front" deleted`, `mutatingadmissionpolicy.admissionregistration.k8s.io "team" deleted`,
		},
		"Five minutes with users and roles": {
			"rolebinding.rbac.authorization.k8s.io/developers created", "yes\n", "no\n", "she has access to her namespace only",
			"deployment.apps/web created",
			"serviceaccount/robot created", "system:serviceaccount:team-a:robot", "web    0/1",
			`cannot delete resource "deployments"`, "refused: the role view is read-only",
			`namespace "team-a" deleted`,
		},
		"Who owns each field": {
			"configmap/shared serverside-applied", "color: blue  ", "# team (Apply)", "size: large  ", "# ops (Update)",
			`conflict with "team": .data.color`, `.data.color is "blue", owned by team (Apply); the intent has "red"`,
			"color: red ", "# ops (Apply)",
		},
	} {
		t.Run(chapter, func(t *testing.T) {
			script, err := shell.Chapter(string(readme), chapter, "kubectl ")
			if err != nil {
				t.Fatal(err)
			}
			command := exec.Command("bash", "-eux", "-c", script)
			command.Dir = dir
			command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
			out, err := command.CombinedOutput()
			if err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			for _, line := range shown {
				if !strings.Contains(string(out), line) {
					t.Errorf("the session does not show %q:\n%s", line, out)
				}
			}
		})
	}
}

// session returns a folder as the README assumes it: with the kubeconfig, kubectl on the PATH, and bin/plinth.
func session(t *testing.T, server *harness.Server) string {
	t.Helper()
	kubectl, err := harness.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	plinth, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(server.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, folder := range []string{"plinth-data", "bin"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "plinth-data", "kubeconfig"), kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"kubectl": kubectl, "bin/plinth": plinth} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

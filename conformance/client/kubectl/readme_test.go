package kubectl_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/shell"
)

// chapters are the chapters of the README that are sessions with one server, in their order; what they show; and which
// of their commands fail, as the text beside them says.
var chapters = []struct {
	title         string
	shown, failed []string
}{
	{title: "Five minutes with kubectl",
		shown: []string{"color: blue", "deployment.apps/web scaled", "web    0/3", `namespace "demo" deleted`}},
	{title: "Five minutes with a custom resource", shown: []string{
		"customresourcedefinition.apiextensions.k8s.io/databases.example.com serverside-applied",
		"database.example.com/orders serverside-applied",
		"NAME     ENGINE     REPLICAS", "orders   postgres   1", "What the database is meant to be.",
		"database.example.com/orders scaled",
		"database.example.com/orders condition met", "there are more replicas than maxReplicas allows",
		`customresourcedefinition.apiextensions.k8s.io "databases.example.com" deleted`,
	}, failed: []string{"kubectl scale database orders --replicas=9"}},
	{title: "Five minutes with a webhook", shown: []string{
		"mutatingwebhookconfiguration.admissionregistration.k8s.io/settings created",
		"Warning: the color green fades", `{"color":"green","size":"medium"}`,
		`admission webhook "settings.example.com" denied the request: red is taken`, `configmap "fence" deleted`,
	}, failed: []string{"kubectl create configmap door --from-literal=color=red"}},
	{title: "Five minutes with a policy", shown: []string{
		"validatingadmissionpolicy.admissionregistration.k8s.io/replicas created",
		"mutatingadmissionpolicybinding.admissionregistration.k8s.io/team created",
		"ValidatingAdmissionPolicy 'replicas' with binding 'replicas' denied request: five replicas are enough, not 9",
		"deployment.apps/front created", "app=front,made-by=plinth-admin",
		`deployment.apps "front" deleted`, `mutatingadmissionpolicy.admissionregistration.k8s.io "team" deleted`,
	}, failed: []string{"kubectl create deployment front --image=nginx --replicas=9"}},
	{title: "Five minutes with users and roles", shown: []string{
		"rolebinding.rbac.authorization.k8s.io/developers created", "yes\n", "no\n", "deployment.apps/web created",
		"serviceaccount/robot created", "system:serviceaccount:team-a:robot", "web    0/1",
		`cannot delete resource "deployments"`, `namespace "team-a" deleted`,
	}, failed: []string{"kubectl auth can-i list secrets --all-namespaces --as jane --as-group developers",
		"kubectl --context robot delete deployment web"}},
	{title: "Who owns each field", shown: []string{
		"configmap/shared serverside-applied", "color: blue  ", "# team (Apply)", "size: large  ", "# ops (Update)",
		`conflict with "team": .data.color`, `.data.color is "blue", owned by team (Apply); the intent has "red"`,
		"color: red ", "# ops (Apply)",
	}, failed: []string{"bin/plinth merge --live live.yaml --apply wanted.yaml --manager ops"}},
}

// The sessions of the README work as written, one after the other in one shell, and no command fails but those that the
// README means to.
//
// SPEC: URI-5, SSA-2, BEY-1, AUTH-1, AUTH-2, AUTH-3
func TestReadmeSessions(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin, failure = "=== chapter ", "=== failed: "
	script := "trap 'echo \"" + failure + "$BASH_COMMAND\"' ERR\nbegan=$PWD\n"
	at := 0
	for _, c := range chapters {
		next := strings.Index(string(readme), "\n## "+c.title+"\n")
		if next < at {
			t.Errorf("the chapter %q is not after the one before it", c.title)
		}
		at = next
		text, err := shell.Chapter(string(readme), c.title, "kubectl ")
		if err != nil {
			t.Fatal(err)
		}
		script += "echo '" + begin + c.title + "'\n" + text
	}
	dir := session(t, harness.RunTarget(t))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", script+"test \"$PWD\" = \"$began\"\n")
	command.Dir, command.WaitDelay = dir, 10*time.Second
	command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
	all, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, all)
	}
	outputs := strings.Split(string(all), begin)[1:]
	if len(outputs) != len(chapters) {
		t.Fatalf("%d chapters of %d:\n%s", len(outputs), len(chapters), all)
	}
	for i, c := range chapters {
		t.Run(c.title, func(t *testing.T) {
			for _, line := range c.shown {
				if !strings.Contains(outputs[i], line) {
					t.Errorf("the session does not show %q:\n%s", line, outputs[i])
				}
			}
			var failed []string
			for line := range strings.Lines(outputs[i]) {
				if what, ok := strings.CutPrefix(line, failure); ok {
					failed = append(failed, strings.TrimSpace(what))
				}
			}
			if !slices.Equal(failed, c.failed) {
				t.Errorf("these commands failed: %q, and not %q:\n%s", failed, c.failed, outputs[i])
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

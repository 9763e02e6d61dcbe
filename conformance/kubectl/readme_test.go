package kubectl_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plinth/conformance/internal/harness"
)

// The session of the README works as it is written there.
// SPEC: URI-5
func TestReadmeSession(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "## Five minutes with kubectl")
	if !ok {
		t.Fatal("the README has no such chapter")
	}
	_, rest, _ = strings.Cut(rest, "```\n")
	script, _, ok := strings.Cut(rest, "```")
	if !ok || !strings.Contains(script, "kubectl create deployment") {
		t.Fatalf("the session is not where it is looked for: %q", script)
	}
	server := harness.RunTarget(t)
	kubectl, err := harness.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "plinth-data"), 0o700); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(server.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "plinth-data", "kubeconfig"), kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kubectl, filepath.Join(dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("bash", "-eux", "-c", script)
	command.Dir = dir
	command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, line := range []string{"color: blue", "deployment.apps/web scaled", "web    0/3", `namespace "demo" deleted`} {
		if !strings.Contains(string(out), line) {
			t.Errorf("the session does not show %q:\n%s", line, out)
		}
	}
}

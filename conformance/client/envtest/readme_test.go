package envtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/shell"
)

// The session of the README works as written, after the programs are built.
//
// SPEC: RUN-2
func TestReadmeSession(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := shell.Chapter(string(readme), "Five minutes with an envtest suite", "KUBEBUILDER_ASSETS")
	if err != nil {
		t.Fatal(err)
	}
	const make = "make build kubectl\n"
	if !strings.Contains(script, make) {
		t.Fatalf("the session does not begin with %q", make)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, build := range map[string]func() (string, error){"plinth": harness.Program, "kubectl": harness.Kubectl} {
		program, err := build()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(program, filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	script = "began=$PWD\n" + strings.Replace(script, make, "", 1) + "test $PWD = $began\n"
	command := exec.Command("bash", "-eux", "-c", script)
	command.Dir = dir
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, line := range []string{
		"kube-apiserver and etcd are in " + dir, "the API server is ready after", "settings has the resourceVersion ",
		"--- PASS: TestSuite",
	} {
		if !strings.Contains(string(out), line) {
			t.Errorf("the session does not show %q:\n%s", line, out)
		}
	}
}

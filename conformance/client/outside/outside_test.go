package outside

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plinth/conformance/internal/harness"
)

// goIn runs the go command in a folder, with Plinth's program in the environment.
func goIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	program, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("go", args...)
	command.Dir, command.Env = dir, append(os.Environ(), "PLINTH_BINARY="+program, "GOWORK=off", "GOFLAGS=")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// module is the folder of plinthtest/outside.
func module(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../plinthtest/outside")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The module's own tests pass, and it requires nothing.
//
// SPEC: BEY-7, BEY-9
func TestModule(t *testing.T) {
	goIn(t, module(t), "vet", "./...")
	goIn(t, module(t), "test", "-count=1", "./...")
	if all := goIn(t, module(t), "list", "-m", "all"); strings.Count(all, "\n") != 1 {
		t.Errorf("it requires modules:\n%s", all)
	}
}

// A controller on the libraries of 2024, and on those of 2026, passes its test, and the versions of its libraries stay.
//
// SPEC: BEY-7
func TestVersions(t *testing.T) {
	source, err := os.ReadFile("testdata/reconciler_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for folder, kubernetes := range map[string]string{"v0.19": "v0.31.4", "v0.25": "v0.37.1"} {
		t.Run(folder, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{"go.mod", "go.sum"} {
				text, err := os.ReadFile(filepath.Join("testdata", folder, name))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "reconciler_test.go"), source, 0o600); err != nil {
				t.Fatal(err)
			}
			goIn(t, dir, "mod", "edit", "-replace=plinth/plinthtest/outside="+module(t))
			for _, library := range []string{"api", "apimachinery", "client-go"} {
				got := strings.TrimSpace(goIn(t, dir, "list", "-m", "k8s.io/"+library))
				if want := "k8s.io/" + library + " " + kubernetes; got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}
			t.Log(goIn(t, dir, "test", "-count=1", "."))
		})
	}
}

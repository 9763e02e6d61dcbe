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

// The session of docs/encryption.md works as written: a Secret is encrypted, and the key replaced, with the real
// kubectl.
//
// SPEC: STORE-5
func TestEncryptionSession(t *testing.T) {
	page, err := os.ReadFile("../../../docs/encryption.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := shell.Chapter(string(page), "Encrypt Secrets, and replace the key", "kubectl ")
	if err != nil {
		t.Fatal(err)
	}
	kubectl, err := harness.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	plinth, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"kubectl": kubectl, "bin/plinth": plinth} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("bash", "-eu", "-c", "trap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n"+script)
	command.Dir = dir
	command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
	out, err := command.CombinedOutput()
	log, _ := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatalf("%v:\n%s\n%s", err, out, log)
	}
	for _, line := range []string{"secret/db created", "not on the disk", "secret/db replaced", "correct-horse"} {
		if !strings.Contains(string(out), line) {
			t.Errorf("the session does not show %q:\n%s\n%s", line, out, log)
		}
	}
}

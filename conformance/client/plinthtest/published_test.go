package plinthtest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plinth/conformance/internal/modules"
)

// chaosTest is a test of the controller in controller-runtime's folder examples/crd.
//
//go:embed testdata/chaos_test.go.txt
var chaosTest string

// Explore finds what is wrong with a published example of a controller, whose source stays as it is. A Pod is to live
// for ten seconds at least. But the controller decides by what its cache has of another object, which may be older than
// the Pod, and deletes the Pod at once. That needs no fault: which of two caches is first is chance, and in two hours
// of virtual time it happens again and again.
//
// SPEC: BEY-7
func TestPublishedExample(t *testing.T) {
	module, err := modules.Folder("sigs.k8s.io/controller-runtime@v0.25.2")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(module, "examples/crd/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"main.go": string(source), "chaos_test.go": chaosTest} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("bash", "-eux", "-c", `go mod init example.com/chaos
go mod edit -require=plinth@v0.0.0 -replace=plinth='`+root+`'
go get sigs.k8s.io/controller-runtime@v0.25.2
go mod tidy
go test -v ./...`)
	command.Dir = dir
	out, err := command.CombinedOutput()
	text := string(out)
	if err == nil || !strings.Contains(text, "--- FAIL: TestChaos") {
		t.Fatalf("nothing was found, %v:\n%s", err, text)
	}
	for _, line := range []string{"without a fault, a Pod was deleted after 0s", "create pods default/a 201",
		"delete pods default/a 200"} {
		if !strings.Contains(text, line) {
			t.Errorf("the report does not have %q:\n%s", line, text)
		}
	}
}

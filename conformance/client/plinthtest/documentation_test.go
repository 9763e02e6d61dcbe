package plinthtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The Go files in docs/testing.md are compiled, and their tests pass.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := strings.Split(string(text), "```go\n// ")[1:]
	if len(files) < 4 {
		t.Fatalf("there are only %d files", len(files))
	}
	for _, file := range files {
		name, body, ok := strings.Cut(file, "\n")
		body, _, closed := strings.Cut(body, "\n```\n")
		if !ok || !closed || !strings.HasSuffix(name, "_test.go") {
			t.Fatalf("a file begins with %q", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("bash", "-eux", "-c", `go mod init example.com/check
go mod edit -require=plinth@v0.0.0 -replace=plinth='`+root+`'
go get sigs.k8s.io/controller-runtime@v0.25.2
go mod tidy
go vet ./...
go test -v ./...`)
	command.Dir = dir
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if n := strings.Count(string(out), "--- PASS: Test"); n < len(files) {
		t.Errorf("only %d tests of %d files pass:\n%s", n, len(files), out)
	}
}

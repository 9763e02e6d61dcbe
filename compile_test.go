package plinth

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// tools/compile.sh says that there is much to compile, passes errors and the status of go build on, and says nothing if
// all is compiled.
func TestCompileSaysWhatItDoes(t *testing.T) {
	bin := t.TempDir()
	const fake = `#!/bin/sh
case $1 in
list) printf 'a\nb/c\nd.e/f\n' ;;
build) printf "$BUILD"; exit $STATUS ;;
esac
`
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(fake), 0o700); err != nil {
		t.Fatal(err)
	}
	const begins = "Compiling up to 3 packages, the first time only: some minutes on two processors.\n"
	for _, c := range []struct{ name, build, status, want string }{
		{"warm", "", "0", ""},
		{"cold", `a\nb/c\n`, "0", begins},
		{"modules", `go: downloading d.e v1.2.3\nd.e/f\n`, "0", "Fetching the modules that go.mod names, the first time only.\n" +
			begins},
		{"an error", `a\n# b/c\nb.go:1:2: undefined: x y\n`, "3", begins + "# b/c\nb.go:1:2: undefined: x y\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := exec.Command("sh", "tools/compile.sh", "-o", "x", "./...")
			script.Env = []string{"PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH"), "BUILD=" + c.build,
				"STATUS=" + c.status, "TERM=xterm"}
			var out, errs bytes.Buffer
			script.Stdout, script.Stderr = &out, &errs
			err, status := script.Run(), "0"
			if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
				status = string(rune('0' + failed.ExitCode()))
			} else if err != nil {
				t.Fatal(err)
			}
			if status != c.status || errs.String() != c.want || out.Len() > 0 {
				t.Errorf("status %s, and it says\n%s%s\nnot\n%s", status, &errs, &out, c.want)
			}
		})
	}
}

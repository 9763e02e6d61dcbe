package plinth

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// make fuzz, and so make nightly, runs every fuzz target that there is.
func TestEveryFuzzTargetIsRun(t *testing.T) {
	var want []string
	for _, p := range packages(t) {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") {
					want = append(want, fmt.Sprintf("./%s %s", p.folder(), f.Name.Name))
				}
			}
		}
	}
	out, err := exec.Command("make", "-s", "fuzz-list").Output()
	if err != nil {
		t.Fatal(err)
	}
	have := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(want)
	slices.Sort(have)
	if len(want) < 30 || !slices.Equal(have, want) {
		t.Errorf("make fuzz runs\n%s\nand there are\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

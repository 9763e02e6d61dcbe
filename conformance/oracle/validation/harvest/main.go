// Command harvest collects what Kubernetes' own unit tests hand to Kubernetes' validation functions: objects written by
// hand to make the rules fail. TestRecord of conformance/oracle/validation begins its search with them:
//
//	go run ./oracle/validation/harvest DIR
//	go test -tags mutants -overlay OVERLAY/overlay.json -vet=off ./oracle/validation -run TestRecord \
//		-corpus DIR/corpus.jsonl
//
// It makes a copy of module k8s.io/kubernetes in DIR in which each exported function Validate… first writes its
// arguments to a file, and runs the tests of the copy. None of this output gets into the repository: TestRecord reduces
// the cases that it takes from there to what they need.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// dump is the source of the package that the functions call; its import path is dumpPath.
//
//go:embed dump.go.txt
var dump []byte

const (
	module   = "k8s.io/kubernetes"
	dumpPath = "pkg/util/harvest"
	corpus   = "corpus.jsonl"
)

// tests are the test files that are run, each with the other files of its package.
var tests = []string{"pkg/apis/*/validation/*_test.go", "pkg/registry/*/*/strategy_test.go",
	"test/declarative_validation/*/*/*_test.go"}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("harvest DIR [PATTERN...]")
	}
	if err := harvest(os.Args[1], os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

func harvest(dir string, patterns []string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	found, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	original, copied := strings.TrimSpace(string(found)), filepath.Join(dir, "kubernetes")
	if _, err := os.Stat(copied); errors.Is(err, fs.ErrNotExist) {
		if err := copyModule(original, copied); err != nil {
			return err
		}
	}
	if err := modules(dir, copied); err != nil {
		return err
	}
	if len(patterns) == 0 {
		patterns = tests
	}
	var packages []string
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(copied, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			folder, err := filepath.Rel(copied, filepath.Dir(file))
			if err != nil {
				return err
			}
			if name := module + "/" + filepath.ToSlash(folder); !slices.Contains(packages, name) {
				packages = append(packages, name)
			}
		}
	}
	command := exec.Command("go", append([]string{"test", "-count=1", "-vet=off", "-p=2", "-mod=mod",
		"-modfile=" + filepath.Join(dir, "go.mod")}, packages...)...)
	command.Env = append(os.Environ(), "HARVEST="+filepath.Join(dir, corpus))
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	var exit *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exit) { // failing tests have called functions, too
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, corpus))
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d calls\n", filepath.Join(dir, corpus), bytes.Count(text, []byte("\n")))
	return nil
}

// copyModule copies the files of a module that are compiled, and inserts the calls of dump.
func copyModule(from, to string) error {
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{"vendor", "staging", "docs", "CHANGELOG", "LICENSES"}, name) {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(name))
		if hooked, _ := filepath.Match("pkg/apis/*/validation", folder); hooked && strings.HasSuffix(name, ".go") &&
			!strings.HasSuffix(name, "_test.go") {
			if text, err = withCalls(filepath.Base(filepath.Dir(folder)), text); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return os.WriteFile(filepath.Join(to, name), text, 0o644)
	})
	if err != nil {
		return err
	}
	folder := filepath.Join(to, filepath.FromSlash(dumpPath))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "harvest.go"), dump, 0o644)
}

// withCalls returns a file of a group's validation, changed so that each exported function Validate… first dumps its
// arguments.
func withCalls(group string, text []byte) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	type insertion struct {
		at   int
		text string
	}
	all := []insertion{{set.Position(file.Name.End()).Offset, "; import harvest \"" + module + "/" + dumpPath + "\""}}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Body == nil || !strings.HasPrefix(f.Name.Name, "Validate") {
			continue
		}
		call := fmt.Sprintf(" harvest.Call(%q", group+"."+f.Name.Name)
		for _, parameter := range f.Type.Params.List {
			for _, name := range parameter.Names {
				if name.Name != "_" {
					call += ", " + name.Name
				}
			}
		}
		all = append(all, insertion{set.Position(f.Body.Lbrace).Offset + 1, call + ");"})
	}
	if len(all) == 1 {
		return text, nil
	}
	var out []byte
	last := 0
	for _, i := range all {
		out = append(append(out, text[last:i.at]...), i.text...)
		last = i.at
	}
	return append(out, text[last:]...), nil
}

// modules writes a go.mod and a go.sum that replace the module by the copy.
func modules(dir, copied string) error {
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if name == "go.mod" {
			here, err := filepath.Abs("..")
			if err != nil {
				return err
			}
			text = bytes.ReplaceAll(text, []byte("plinth => ../"), []byte("plinth => "+here))
			text = fmt.Appendf(text, "\nreplace %s => %s\n", module, copied)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

package plinth

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var updateSpec = flag.Bool("update", false, "write the table of tests in docs/spec.md")

const (
	specFile   = "docs/spec.md"
	testsTitle = "\n## Tests\n"
	// noTest is what the table has, with the reason behind it, for a requirement that no test names.
	noTest = "none: "
)

var (
	requirement = regexp.MustCompile(`\b(?:URI|MED|WATCH|LIST|WRITE|VAL|DRY|DEL|SSA|AUTH|EXT|STORE|RUN|BEY)-\d+\b`)
	defined     = regexp.MustCompile(`(?m)^- \*\*([A-Z]+-\d+)\*\*`)
	row         = regexp.MustCompile(`(?m)^\| ([A-Z]+-\d+) \| (.*) \|$`)
)

// docs/spec.md and the tests agree: a test names requirements that there are, and a requirement has tests, or the table
// says why not.
func TestRequirementsHaveTests(t *testing.T) {
	text, err := os.ReadFile(specFile)
	if err != nil {
		t.Fatal(err)
	}
	body, table, _ := strings.Cut(string(text), testsTitle)
	named := testsOf(t)
	reasons := map[string]string{}
	for _, r := range row.FindAllStringSubmatch(table, -1) {
		if why, ok := strings.CutPrefix(r[2], noTest); ok {
			reasons[r[1]] = why
		}
	}
	known := map[string]bool{}
	out := bytes.NewBufferString(body + testsTitle +
		"\nWritten by `go test . -update`.\n\n| requirement | tests |\n|---|---|\n")
	for _, d := range defined.FindAllStringSubmatch(body, -1) {
		id := d[1]
		if known[id] {
			t.Errorf("%s: two requirements are %s", specFile, id)
		}
		known[id] = true
		cell := strings.Join(named[id], ", ")
		switch {
		case cell == "" && reasons[id] == "":
			t.Errorf("no test names %s; if none can, its row of the table in %s is to say \"%s\" and why", id, specFile, noTest)
			continue
		case cell == "":
			cell = noTest + reasons[id]
		}
		fmt.Fprintf(out, "| %s | %s |\n", id, cell)
	}
	if len(known) < 90 {
		t.Errorf("%s has only %d requirements", specFile, len(known))
	}
	for _, id := range slices.Sorted(maps.Keys(named)) {
		if !known[id] {
			t.Errorf("%s is no requirement of %s; it is named by %s", id, specFile, strings.Join(named[id], ", "))
		}
	}
	switch {
	case bytes.Equal(out.Bytes(), text):
	case *updateSpec && !t.Failed():
		if err := os.WriteFile(specFile, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table of tests in %s is not true any more: go test . -update", specFile)
	}
}

// testsOf finds the tests that name each requirement, in all modules of the repository: `folder`: Test, Test.
func testsOf(t *testing.T) map[string][]string {
	byFolder := map[string]map[string][]string{}
	eachFile(t, "_test.go", func(path string, text []byte) {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.ToSlash(filepath.Dir(path))
		for _, f := range file.Decls {
			f, ok := f.(*ast.FuncDecl)
			if !ok || f.Recv != nil || f.Doc == nil ||
				!regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)`).MatchString(f.Name.Name) {
				continue
			}
			_, ids, ok := strings.Cut(f.Doc.Text(), "SPEC: ")
			if !ok {
				continue
			}
			for _, id := range requirement.FindAllString(ids, -1) {
				if byFolder[id] == nil {
					byFolder[id] = map[string][]string{}
				}
				byFolder[id][folder] = append(byFolder[id][folder], f.Name.Name)
			}
		}
	})
	named := map[string][]string{}
	for id, folders := range byFolder {
		for _, folder := range slices.Sorted(maps.Keys(folders)) {
			tests := folders[folder]
			slices.Sort(tests)
			named[id] = append(named[id], "`"+folder+"`: "+strings.Join(slices.Compact(tests), ", "))
		}
	}
	return named
}

// Whatever names a requirement names one that there is.
func TestRequirementsThatAreNamedAreThere(t *testing.T) {
	text, err := os.ReadFile(specFile)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, d := range defined.FindAllStringSubmatch(string(text), -1) {
		known[d[1]] = true
	}
	named := 0
	for _, suffix := range []string{".go", ".md", ".txt"} {
		eachFile(t, suffix, func(path string, text []byte) {
			for _, id := range requirement.FindAllString(string(text), -1) {
				if named++; !known[id] {
					t.Errorf("%s names %s, which is not in %s", path, id, specFile)
				}
			}
		})
	}
	if named < 500 {
		t.Errorf("only %d names were found", named)
	}
}

// eachFile reads the files of the repository whose name ends like that.
func eachFile(t *testing.T, suffix string, read func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if path != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "plinth-data" || d.Name() == "bin" {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, suffix):
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			read(path, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

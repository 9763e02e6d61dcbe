package plinth

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the house limit of a line of Go (CONTRIBUTING); a tab counts as one.
const maxColumns = 120

// longString is how long a string is that cannot be broken without being harder to read: a line may be longer for its
// sake.
const longString = 60

var quoted = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`?")

func TestLinesAreShort(t *testing.T) {
	lines := 0
	own := parse(t, "go.mod").Module.Path
	eachFile(t, ".go", func(path string, text []byte) {
		raw := false // within a raw string of several lines
		for i, line := range strings.Split(string(text), "\n") {
			lines++
			line = strings.ReplaceAll(line, own, "plinth") // so that a longer path (make module) changes nothing
			inString := raw
			if strings.Count(line, "`")%2 == 1 {
				raw = !raw
			}
			if utf8.RuneCountInString(line) <= maxColumns || inString || strings.HasPrefix(line, "//go:") {
				continue
			}
			longest := 0
			for _, s := range quoted.FindAllString(line, -1) {
				longest = max(longest, utf8.RuneCountInString(s))
			}
			if longest < longString && !ast.IsGenerated(parsed(t, path, text)) {
				t.Errorf("%s:%d: the line has %d columns; %d are the limit", path, i+1, utf8.RuneCountInString(line), maxColumns)
			}
		}
	})
	if lines < 100_000 {
		t.Errorf("only %d lines were read", lines)
	}
}

func parsed(t *testing.T, path string, text []byte) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// What a package exports says what it is.
func TestWhatIsExportedIsDocumented(t *testing.T) {
	exported := 0
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			file := parsed(t, path, text)
			if ast.IsGenerated(file) || p.Name == "main" {
				continue
			}
			for _, what := range undocumented(file, &exported) {
				t.Errorf("%s: %s has no comment", path, what)
			}
		}
	}
	if exported < 1000 {
		t.Errorf("only %d exported names were found", exported)
	}
	n := 0
	bad := parsed(t, "bad.go",
		[]byte(
			"package p\nfunc F() {}\ntype T int\nfunc (T) M() {}\nfunc (t) M() {}\nvar V, w = 1, 2\n// G does.\nfunc G() {}\n"))
	if got := undocumented(bad, &n); len(got) != 4 || n != 5 {
		t.Errorf("of a file with 4 such names, %v were found, of %d", got, n)
	}
}

// selfEvident are the methods of error and fmt.Stringer, which do what these say.
var selfEvident = []string{"Error", "String", "Unwrap"}

// undocumented names what a file exports without a comment, and counts what it exports.
func undocumented(file *ast.File, exported *int) (names []string) {
	look := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if !name.IsExported() || slices.Contains(selfEvident, name.Name) {
			return
		}
		*exported++
		if !slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d != nil }) {
			names = append(names, name.Name)
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || receiver(d.Recv.List[0].Type).IsExported() {
				look(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					look(s.Name, s.Doc, s.Comment, d.Doc)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						look(name, s.Doc, s.Comment, d.Doc)
					}
				}
			}
		}
	}
	return names
}

// receiver is the name of the type that a method belongs to.
func receiver(of ast.Expr) *ast.Ident {
	for {
		switch e := of.(type) {
		case *ast.StarExpr:
			of = e.X
		case *ast.IndexExpr:
			of = e.X
		case *ast.IndexListExpr:
			of = e.X
		case *ast.Ident:
			return e
		}
	}
}

// A row of the table "Where do I change …" names files and what stands in them.
var (
	place = regexp.MustCompile(`^\| (.+) \| (.+) \| (.+) \|$`)
	code  = regexp.MustCompile("`([^`]+)`")
)

func TestWhereToChange(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "CONTRIBUTING.md"), "\n## Where do I change …\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for line := range strings.Lines(table) {
		row := place.FindStringSubmatch(strings.TrimSpace(line))
		if row == nil || !strings.Contains(row[2], "`") {
			continue
		}
		rows++
		var text string
		for _, file := range code.FindAllStringSubmatch(row[2], -1) {
			text += read(t, file[1])
		}
		for _, name := range code.FindAllStringSubmatch(row[3], -1) {
			if !strings.Contains(text, name[1]) {
				t.Errorf("%s: %s is not in %s", row[1], name[0], row[2])
			}
		}
	}
	if rows < 10 {
		t.Errorf("only %d rows were found", rows)
	}
}

// ARCHITECTURE.md lists the folder of each package of the product, in a row of its own or by its name in the row of the
// folder above, and no folder that does not exist.
func TestArchitectureListsTheFolders(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "ARCHITECTURE.md"), "\n## The folders\n")
	rows := map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.SplitN(line, " | ", 2)
		if name := code.FindStringSubmatch(cells[0]); name != nil && len(cells) == 2 && strings.HasPrefix(line, "| ") {
			rows[strings.TrimSuffix(name[1], "/")] = cells[1]
		}
	}
	for folder := range rows {
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			t.Errorf("ARCHITECTURE.md lists %s, which is no folder", folder)
		}
	}
	listed := 0
	for _, p := range packages(t) {
		folder := p.folder()
		_, own := rows[folder]
		if own || strings.Contains(rows[filepath.Dir(folder)], "`"+filepath.Base(folder)+"/`") {
			listed++
		} else if folder != "." {
			t.Errorf("ARCHITECTURE.md does not list %s", folder)
		}
	}
	if listed < 40 {
		t.Errorf("only %d packages were found", listed)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// Decision 2 has a row for each module that the product requires itself, and a word on each that tests and tools do;
// and none that is not required.
func TestDependenciesAreDecided(t *testing.T) {
	page := read(t, "docs/decisions/0002-dependencies.md")
	product, tests, ok := strings.Cut(page, "\n## Tests and tools\n")
	if !ok {
		t.Fatal("the page has no chapter of tests and tools")
	}
	module := regexp.MustCompile("`([a-z0-9.-]+\\.(?:dev|[a-z]+/[^` ]+))`")
	rows := map[string]bool{}
	for line := range strings.Lines(product) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| ") && len(cells) == 3 {
			for _, name := range module.FindAllStringSubmatch(cells[0], -1) {
				rows[name[1]] = true
			}
		}
	}
	same(t, "the table of decision 2", rows, direct(t, "go.mod"))
	named := map[string]bool{}
	for _, name := range module.FindAllStringSubmatch(tests, -1) {
		named[name[1]] = true
	}
	others := map[string]bool{}
	for _, file := range []string{"cloud/go.mod", "conformance/go.mod", "conformance/monitoring/go.mod", "release/go.mod", "tools/go.mod",
		"tools/helm/go.mod", "tools/site/go.mod"} {
		maps.Copy(others, direct(t, file))
	}
	maps.DeleteFunc(others, func(name string, _ bool) bool { return rows[name] })
	for _, file := range parse(t, "go.mod").Tool {
		others[file.Path] = true
	}
	same(t, "the chapter of tests and tools of decision 2", named, others)
}

func same(t *testing.T, where string, named, required map[string]bool) {
	t.Helper()
	if len(required) < 5 {
		t.Errorf("only %d modules are required", len(required))
	}
	for name := range required {
		if !named[name] {
			t.Errorf("%s is not in %s", name, where)
		}
	}
	for name := range named {
		if !required[name] {
			t.Errorf("%s is in %s, and nothing requires it", name, where)
		}
	}
}

// module is what a go.mod says.
type module struct {
	Module  struct{ Path string }
	Tool    []struct{ Path string }
	Require []struct {
		Path     string
		Indirect bool
	}
}

func parse(t *testing.T, file string) (m module) {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", file).Output()
	if err == nil {
		err = json.Unmarshal(out, &m)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return m
}

// direct are the modules that a module requires itself, but for those of this repository.
func direct(t *testing.T, file string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	own := parse(t, "go.mod").Module.Path
	for _, r := range parse(t, file).Require {
		if !r.Indirect && r.Path != own {
			all[r.Path] = true
		}
	}
	return all
}

// What names lead to.
var (
	decision = regexp.MustCompile(`\b[Dd]ecision (\d+)`)
	// A file of the repository, by its path from the root.
	file = regexp.MustCompile(
		"(?:^|[\\s`(\"])((?:internal|docs|cmd|merge|object|schema|patch|conformance|release|tools)/[A-Za-z0-9_./-]+\\.(?:go|md|sh|txt|yaml))\\b")
	// A page of documentation, by its name alone.
	page = regexp.MustCompile(`\b(?:[A-Z]{4,}\.md|(?:SPEC|DESIGN|STYLE|ARCHITECTURE|CONTRIBUTING|README)\b(?:\.md)?)`)
	// What only those know who were there.
	inside = regexp.MustCompile(`(?i)\b(?:its|their) own issues?\b|\bissue #?\d+\b`)
)

// conformance/doc.go names the folders of each of its groups, and no others.
func TestConformanceListsItsFolders(t *testing.T) {
	text := strings.ReplaceAll(read(t, "conformance/doc.go"), "\n//     ", " ")
	explained := regexp.MustCompile(`\([^)]*\)`)
	groups := 0
	for _, line := range regexp.MustCompile(`(?m)^//   - (\w+): (.+)\.$`).FindAllStringSubmatch(text, -1) {
		names := line[2][max(strings.LastIndex(line[2], "?"), strings.LastIndex(line[2], ":"))+1:]
		var listed []string
		for name := range strings.SplitSeq(explained.ReplaceAllString(names, ""), ",") {
			listed = append(listed, strings.TrimSpace(name))
		}
		packages, err := filepath.Glob("conformance/" + line[1] + "/*/*.go")
		if err != nil {
			t.Fatal(err)
		}
		var there []string
		for _, file := range packages {
			there = append(there, filepath.Base(filepath.Dir(file)))
		}
		if len(there) == 0 {
			continue
		}
		groups++
		slices.Sort(there)
		slices.Sort(listed)
		if there = slices.Compact(there); !slices.Equal(listed, there) {
			t.Errorf("conformance/doc.go lists for %s\n%v\nand there are\n%v", line[1], listed, there)
		}
	}
	if groups != 5 {
		t.Errorf("%d groups of folders were found, want 5", groups)
	}
}

// Each decision says whether it is in force, and since when.
func TestDecisionsHaveAStatus(t *testing.T) {
	status := regexp.MustCompile(`^# \d+\. [^\n]+\n\nStatus: (in force since|replaced by decision \d+ on) ` +
		`\d{4}-\d\d-\d\d(, last changed \d{4}-\d\d-\d\d)?\.\n\n## Context\n`)
	files, err := filepath.Glob("docs/decisions/[0-9]*.md")
	if err != nil || len(files) < 11 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		if !status.MatchString(read(t, file)) {
			t.Errorf("%s does not begin with its number, title, status and context", file)
		}
	}
}

// Documents, files, decisions and requirements that comments and pages name are there.
func TestNamesLeadSomewhere(t *testing.T) {
	pages := map[string]bool{"README": true, "ARCHITECTURE": true, "CONTRIBUTING": true, "CHANGELOG": true,
		"SECURITY": true}
	looked := map[string]int{}
	exists := func(what, path, name string) {
		t.Helper()
		looked[what]++
		if _, err := os.Stat(name); err != nil {
			t.Errorf("%s: %s is not there", path, name)
		}
	}
	look := func(path, text string) {
		text = strings.ReplaceAll(text, "SPEC: ", "")
		for _, m := range decision.FindAllStringSubmatch(text, -1) {
			looked["decision"]++
			if found, _ := filepath.Glob(fmt.Sprintf("docs/decisions/%04s-*.md", m[1])); len(found) != 1 {
				t.Errorf("%s: there is no %s", path, m[0])
			}
		}
		for _, m := range file.FindAllStringSubmatch(text, -1) {
			exists("file", path, m[1])
		}
		for _, name := range page.FindAllString(text, -1) {
			looked["page"]++
			if !pages[strings.TrimSuffix(name, ".md")] {
				t.Errorf("%s: there is no page %s", path, name)
			}
		}
		if m := inside.FindString(text); m != "" {
			t.Errorf("%s: %q leads nowhere", path, m)
		}
	}
	eachFile(t, ".md", func(path string, text []byte) { look(path, string(text)) })
	eachFile(t, ".go", func(path string, text []byte) {
		if path == "house_test.go" {
			return
		}
		for _, group := range parsed(t, path, text).Comments {
			for _, line := range group.List {
				_, ids, tests := strings.Cut(line.Text, "SPEC: ")
				look(path, line.Text)
				for _, id := range regexp.MustCompile(`\b[A-Z]{2,}-\d+\b`).FindAllString(ids, -1) {
					if looked["requirement"]++; tests && !requirement.MatchString(id) {
						t.Errorf("%s: %s is no requirement", path, id)
					}
				}
			}
		}
	})
	eachFile(t, "Makefile", func(path string, text []byte) { look(path, string(text)) })
	t.Log(looked)
	for what, least := range map[string]int{"decision": 2, "file": 15, "page": 10, "requirement": 600} {
		if looked[what] < least {
			t.Errorf("only %d of %s were found", looked[what], what)
		}
	}
}

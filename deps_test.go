package plinth

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pkg is what `go list` says of a package.
type pkg struct {
	ImportPath                           string
	Imports, TestImports, XTestImports   []string
	GoFiles, IgnoredGoFiles, TestGoFiles []string
	Dir, Name, Doc                       string
}

// allowed says, for each package of the project, which others it may import. A package that is not listed fails the
// test: whoever adds one says here what it stands on.
var allowed = map[string][]string{
	"object":                         {},
	"schema":                         {"object"},
	"patch":                          {"object", "schema"},
	"merge":                          {"object", "schema"},
	"internal/apierr":                {"object"},
	"internal/fielderrors":           {"object"},
	"internal/objectmeta":            {"object", "internal/fielderrors"},
	"internal/shard":                 {},
	"internal/store":                 {},
	"internal/store/filelog":         {"internal/store"},
	"internal/store/memlog":          {"internal/store"},
	"internal/store/storetest":       {"internal/store"},
	"internal/engine":                {"object", "schema", "patch", "merge", "internal/apierr", "internal/invariants", "internal/objectmeta", "internal/shard", "internal/store"},
	"internal/builtin":               {"object", "schema", "merge", "internal/apierr", "internal/engine", "internal/store", "internal/builtin/*"},
	"internal/builtin/gotypes":       {"object", "schema"},
	"internal/builtin/gotypes/facts": {"object", "schema"},
	"internal/builtin/defaults":      {"object"},
	"internal/builtin/convert":       {"object"},
	"internal/builtin/validation":    {"object", "internal/fielderrors", "internal/objectmeta"},
	"internal/builtin/columns":       {"object", "internal/engine"},
	"internal/builtin/warnings":      {"object", "internal/engine"},
	"internal/auth":                  {"internal/engine"},
	"internal/discovery":             {"object", "schema", "internal/apierr", "internal/engine", "internal/wire"},
	"internal/proto":                 {"object", "schema"},
	"internal/wire":                  {"object", "schema", "internal/apierr", "internal/builtin/gotypes", "internal/engine", "internal/proto", "internal/store"},
	"internal/httpapi":               {"object", "internal/apierr", "internal/coalesce", "internal/engine", "internal/fielderrors", "internal/objectmeta", "internal/proto", "internal/shard", "internal/wire", "internal/discovery"},
	"internal/coalesce":              {"internal/lull"},
	"internal/lull":                  {},
	"internal/invariants":            {},
	"internal/controller":            {"object", "internal/apierr", "internal/engine"},
	"internal/server":                {"*"},
	"cmd/plinth":                     {"internal/server", "internal/builtin", "merge", "object", "schema"},

	"internal/builtin/validation/validationtest": {},
}

// outside says which packages from elsewhere only these packages may import.
var outside = map[string][]string{
	"github.com/cockroachdb/pebble/v2":  {"internal/store/filelog"},
	"github.com/gorilla/websocket":      {"internal/httpapi"},
	"go.etcd.io/":                       {"internal/store/filelog", "internal/store/etcd"},
	"k8s.io/api/":                       {"internal/builtin/columns", "internal/builtin", "internal/builtin/convert", "internal/builtin/gotypes", "internal/builtin/warnings"},
	"google.golang.org/protobuf/":       {"internal/proto", "internal/wire"},
	"net/http":                          {"internal/httpapi", "internal/server", "internal/auth", "internal/apierr", "cmd/plinth"},
	"k8s.io/kubernetes":                 {},
	"k8s.io/client-go":                  {},
	"sigs.k8s.io/structured-merge-diff": {},
}

// pure packages decide, and do no I/O.
var pure = []string{"object", "schema", "merge", "patch"}

var impure = []string{"context", "net", "os", "log", "log/slog", "time"}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []pkg
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

func TestWhoImportsWhom(t *testing.T) {
	for _, p := range packages(t) {
		self := strings.TrimPrefix(p.ImportPath, "plinth/")
		if self == "plinth" {
			continue
		}
		may, listed := allowed[self]
		if !listed {
			t.Errorf("%s is not in the table of who may import whom", self)
			continue
		}
		for _, imported := range p.Imports {
			if own, ok := strings.CutPrefix(imported, "plinth/"); ok && !matches(may, own) {
				t.Errorf("%s imports %s", self, own)
			}
			for prefix, only := range outside {
				if strings.HasPrefix(imported+"/", strings.TrimSuffix(prefix, "/")+"/") && !slices.Contains(only, self) {
					t.Errorf("%s imports %s", self, imported)
				}
			}
			if slices.Contains(pure, self) && slices.Contains(impure, imported) && !(imported == "time" && self == "schema") {
				t.Errorf("%s imports %s, but is to be pure", self, imported)
			}
		}
	}
}

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, _ := path.Match(p, name); ok || p == "*" {
			return true
		}
	}
	return false
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	banned := []string{"util", "utils", "common", "helpers", "types", "base"}
	for _, p := range packages(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
		if slices.Contains(banned, path.Base(p.ImportPath)) {
			t.Errorf("%s: a package is named after what it is for", p.ImportPath)
		}
	}
}

// maxFunctionLines is the house limit (DESIGN, "The way of a request").
const maxFunctionLines = 120

func TestFunctionsAreShort(t *testing.T) {
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "conformance" || d.Name() == "tools" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "generated") {
			return nil
		}
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, declaration := range parsed.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1
			if lines > maxFunctionLines {
				t.Errorf("%s: %s has %d lines", files.Position(f.Pos()), f.Name.Name, lines)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

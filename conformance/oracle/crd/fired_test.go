package crd

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// fired holds the errors that upstream has returned: types and details.
var (
	firedMu sync.Mutex
	fired   = map[[2]string]bool{}
)

func noteFired(errs field.ErrorList) {
	firedMu.Lock()
	defer firedMu.Unlock()
	for _, e := range errs {
		fired[[2]string{string(e.Type), e.Detail}] = true
	}
}

// message is one place in upstream's source where an error is made.
type message struct {
	at    string   // file:line
	typ   string   // "" if it is made by fmt.Errorf
	words []string // the constant parts of its detail
}

// sources are upstream's packages and files that make the errors for definitions.
var sources = []string{
	"pkg/apis/apiextensions/validation/validation.go",
	"pkg/apiserver/schema/complete.go", "pkg/apiserver/schema/validation.go", "pkg/apiserver/schema/convert.go",
	"pkg/apiserver/schema/defaulting/validation.go",
}

var errorTypes = map[string]field.ErrorType{
	"Invalid": field.ErrorTypeInvalid, "Required": field.ErrorTypeRequired, "Forbidden": field.ErrorTypeForbidden,
	"NotSupported": field.ErrorTypeNotSupported,
	"Duplicate":    field.ErrorTypeDuplicate, "TooMany": field.ErrorTypeTooMany, "InternalError": field.ErrorTypeInternal,
}

// messages lists the errors that upstream can return, from its source.
func messages(t *testing.T) (found []message) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "-m", "k8s.io/apiextensions-apiserver").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Join(strings.TrimSpace(string(out)), source), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			called, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, _ := called.X.(*ast.Ident)
			m := message{at: filepath.Base(source) + ":" + strconv.Itoa(files.Position(call.Pos()).Line)}
			switch typ, known := errorTypes[called.Sel.Name]; {
			case pkg != nil && pkg.Name == "field" && known:
				m.typ = string(typ)
				m.words = constants(call.Args[len(call.Args)-1])
			case pkg != nil && pkg.Name == "fmt" && called.Sel.Name == "Errorf":
				m.words = constants(call.Args[0])
			default:
				return true
			}
			found = append(found, m)
			return true
		})
	}
	return found
}

// constants returns the constant parts of a text.
func constants(e ast.Expr) (words []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr: // fmt.Sprintf: only the format is constant
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Sprintf" {
				words = append(words, constants(n.Args[0])...)
			}
			return false
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil {
				for _, part := range strings.FieldsFunc(percent.Replace(text), func(r rune) bool { return r == 0 }) {
					words = append(words, part)
				}
			}
		}
		return true
	})
	return words
}

var percent = strings.NewReplacer("%v", "\x00", "%s", "\x00", "%d", "\x00", "%[1]s", "\x00", "%w", "\x00", "%q", "\x00")

func (m *message) isIn(typ, detail string) bool {
	if m.typ != "" && m.typ != typ {
		return false
	}
	for _, word := range m.words {
		if !strings.Contains(detail, word) {
			return false
		}
	}
	return true
}

// checkFired demands that each error in upstream's source has been seen, or is listed in neverFired.
func checkFired(t *testing.T) {
	known := maps.Clone(neverFired)
	all := messages(t)
	seen := 0
	for _, m := range all {
		hit := false
		for f := range fired {
			hit = hit || m.isIn(f[0], f[1])
		}
		key := strings.Join(m.words, "…")
		reason, excused := neverFired[key]
		delete(known, key)
		switch {
		case hit:
			seen++
			if excused {
				t.Errorf("%s: %q has fired after all; it was said not to: %s", m.at, m.words, reason)
			}
		case !excused:
			t.Errorf("%s: %s %q has never fired", m.at, m.typ, m.words)
		}
	}
	for key := range known {
		t.Errorf("no error of upstream contains %q", key)
	}
	if len(all) < 100 {
		t.Errorf("only %d places were found in upstream's source where something is wrong", len(all))
	}
	t.Logf("of %d places where upstream says that something is wrong, %d have done so", len(all), seen)
}

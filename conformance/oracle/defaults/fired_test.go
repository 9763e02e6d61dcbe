package defaults

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/scheme"
	"plinth/internal/builtin/defaults"
)

// makesValues lists the functions that only compute what another function fills in: they change no object.
var makesValues = []string{"policyTypes", "pullPolicyFor", "roundedUp", "scalingPolicy"}

// SPEC: VAL-4
//
// Every function that fills in defaults must be on the call stack of some change. Not parallel: the package has a
// single hook.
func TestEveryFunctionFires(t *testing.T) {
	fired := make(map[string]int)
	defaults.Traced = func() {
		var counters [64]uintptr
		frames := runtime.CallersFrames(counters[:runtime.Callers(2, counters[:])])
		for {
			frame, more := frames.Next()
			if name, ours := strings.CutPrefix(frame.Function, "plinth/internal/builtin/defaults."); ours {
				fired[name]++
			}
			if !more {
				return
			}
		}
	}
	defer func() { defaults.Traced = nil }()

	for gvk, documents := range corpus(t) {
		fill := functionFor(gvk)
		if fill == nil {
			continue
		}
		for i := range 60 {
			if typed, err := scheme.Decode(gvk, variant(t, gvk, documents, i)); err == nil {
				fill(parse(t, marshal(t, typed)), time.Now())
			}
		}
	}
	functions := slices.DeleteFunc(defaultingFunctions(t), func(name string) bool {
		// Upstream's defaults of definitions and of APIServices are in other modules: conformance/oracle/crd and
		// conformance/oracle/apiregistration compare them.
		return name == "CustomResourceDefinition" || strings.HasPrefix(name, "definition") ||
			name == "APIService" || strings.HasPrefix(name, "apiService")
	})
	for _, name := range functions {
		if fired[name] == 0 {
			t.Errorf("%s has never changed anything", name)
		}
	}
	t.Logf("%d functions have fired", len(functions))
}

// defaultingFunctions lists the functions of the package that return a value, or change the walk that is their first
// argument, except makesValues. Methods are those of the walk itself, and are left out.
func defaultingFunctions(t *testing.T) []string {
	t.Helper()
	production := func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }
	packages, err := parser.ParseDir(token.NewFileSet(), "../../../internal/builtin/defaults", production, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range packages["defaults"].Files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if ok && f.Recv == nil && defaultsSomething(f.Type) && !slices.Contains(makesValues, f.Name.Name) {
				names = append(names, f.Name.Name)
			}
		}
	}
	if len(names) < 100 {
		t.Fatalf("found only %d functions", len(names))
	}
	return names
}

func defaultsSomething(f *ast.FuncType) bool {
	if f.Params.NumFields() == 0 {
		return false
	}
	if pointer, ok := f.Params.List[0].Type.(*ast.StarExpr); ok {
		name, ok := pointer.X.(*ast.Ident)
		return ok && name.Name == "walk"
	}
	return f.Results.NumFields() == 1 && isValue(f.Results.List[0].Type)
}

func isValue(e ast.Expr) bool {
	selector, ok := e.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == "Value"
}

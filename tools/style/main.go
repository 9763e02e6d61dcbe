// Command style prints the countable figures of the house style, package by package and in total: `go run ./style ..`
// in tools/. The argument is the root of a module; modules below it are counted apart (conformance/ counts as tests).
//
// Counted are the files that people write: no generated ones, no testdata. A line is a code line when it is neither
// blank nor only a comment. The limits that we keep (function length, documentation, columns) are tests in
// deps_test.go and house_test.go; this program has none, so that it can be run on any checkout and on code of other
// projects.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxColumns is the limit of the house; a tab counts as one.
const maxColumns = 120

// figures are the counts of one package, or of several.
type figures struct {
	lines, code, comments int   // of files that are not tests: all lines, with code, with a comment and no code
	interfaces, methods   int   // methods: of the largest interface
	functions             []int // length in lines
	exported, documented  int
	tests                 int // code lines of tests
	wide                  int // lines over maxColumns, tests included
}

func (f *figures) add(other figures) {
	f.lines += other.lines
	f.code += other.code
	f.comments += other.comments
	f.interfaces += other.interfaces
	f.methods = max(f.methods, other.methods)
	f.functions = append(f.functions, other.functions...)
	f.exported += other.exported
	f.documented += other.documented
	f.tests += other.tests
	f.wide += other.wide
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: style DIR")
		os.Exit(2)
	}
	packages, conformance, err := measure(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%-42s %7s %7s %12s %17s %10s %9s %6s %5s\n", "package", "lines", "code", "interfaces",
		"functions", "documented", "comments", "tests", "wide")
	fmt.Printf("%-42s %7s %7s %12s %17s %10s %9s %6s %5s\n", "", "", "", "/1000 (most)",
		"50/90/99/max", "exported", "share", "/code", ">120")
	var all, cores figures
	names := make([]string, 0, len(packages))
	for name := range packages {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		all.add(*packages[name])
		switch name {
		case "merge", "schema", "internal/store", "internal/store/filelog", "internal/engine":
			cores.add(*packages[name])
		}
		packages[name].print(name)
	}
	fmt.Println()
	cores.print("merge, schema, store, filelog, engine")
	all.print("in total")
	conformance.tests += conformance.code
	all.tests += conformance.tests
	all.wide += conformance.wide
	all.print("in total, conformance/ counted as tests")
}

func (f *figures) print(name string) {
	slices.Sort(f.functions)
	at := func(share float64) int {
		if len(f.functions) == 0 {
			return 0
		}
		return f.functions[int(share*float64(len(f.functions)-1)+0.5)]
	}
	fmt.Printf("%-42s %7d %7d %12s %17s %10s %9s %6.2f %5d\n", name, f.lines, f.code,
		fmt.Sprintf("%.2f (%d)", 1000*ratio(f.interfaces, f.lines), f.methods),
		fmt.Sprintf("%d/%d/%d/%d", at(0.5), at(0.9), at(0.99), at(1)),
		fmt.Sprintf("%.1f %%", 100*ratio(f.documented, f.exported)),
		fmt.Sprintf("%.1f %%", 100*ratio(f.comments, f.comments+f.code)),
		ratio(f.tests, f.code), f.wide)
}

func ratio(a, b int) float64 { return float64(a) / float64(max(b, 1)) }

// measure counts the packages of the module below root by their folder, and apart from them those of its folder
// conformance.
func measure(root string) (packages map[string]*figures, conformance figures, err error) {
	packages = map[string]*figures{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")) ||
				slices.Contains([]string{"testdata", "vendor"}, d.Name()) {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && name != "." && name != "conformance" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		counted, err := count(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if strings.HasPrefix(name, "conformance/") {
			conformance.add(counted)
			return nil
		}
		folder := filepath.ToSlash(filepath.Dir(name))
		if packages[folder] == nil {
			packages[folder] = &figures{}
		}
		packages[folder].add(counted)
		return nil
	})
	return packages, conformance, err
}

// count counts one file; generated files are skipped.
func count(path string) (f figures, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return f, err
	}
	lines := bytes.Count(text, []byte("\n"))
	code, comments := kinds(text)
	for line := range bytes.Lines(text) {
		if utf8.RuneCount(bytes.TrimRight(line, "\n")) > maxColumns {
			f.wide++
		}
	}
	if strings.HasSuffix(path, "_test.go") {
		f.tests = code
		return f, nil
	}
	f.lines, f.code, f.comments = lines, code, comments
	for _, d := range file.Decls {
		f.declaration(files, d)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if i, ok := n.(*ast.InterfaceType); ok && i.Methods.NumFields() > 0 && !constraint(i) {
			f.interfaces++
			f.methods = max(f.methods, i.Methods.NumFields())
		}
		return true
	})
	return f, nil
}

// constraint reports whether an interface is one of types and not of methods.
func constraint(i *ast.InterfaceType) bool {
	for _, m := range i.Methods.List {
		switch m.Type.(type) {
		case *ast.BinaryExpr, *ast.UnaryExpr:
			return true
		}
	}
	return false
}

// kinds counts the lines with code, and those that have a comment and no code.
func kinds(text []byte) (code, comments int) {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	kind := map[int]bool{} // line → whether it has code
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		first := file.Line(pos)
		for line := first; line <= first+strings.Count(literal, "\n"); line++ {
			kind[line] = kind[line] || tok != token.COMMENT
		}
	}
	for _, hasCode := range kind {
		if hasCode {
			code++
		} else {
			comments++
		}
	}
	return code, comments
}

// declaration counts a declaration of the file: how long a function is, and whether exported names are documented.
func (f *figures) declaration(files *token.FileSet, d ast.Decl) {
	exported := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if !name.IsExported() {
			return
		}
		f.exported++
		if cmp.Or(docs...) != nil {
			f.documented++
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		f.functions = append(f.functions, files.Position(d.End()).Line-files.Position(d.Pos()).Line+1)
		if d.Recv == nil || receiver(d).IsExported() {
			exported(d.Name, d.Doc)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				exported(s.Name, s.Doc, s.Comment, d.Doc)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					exported(name, s.Doc, s.Comment, d.Doc)
				}
			}
		}
	}
}

// receiver is the name of a method's type.
func receiver(d *ast.FuncDecl) *ast.Ident {
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x
		default:
			return ast.NewIdent("_")
		}
	}
}

package mutation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// alias is the name under which the changed files import package mutants.
const alias = "mutants__"

// mutants is the package that turns mutants on.
const mutants = "plinth/internal/mutants"

// Path is the import path of a package of the product, by its folder.
func Path(folder string) string { return strings.TrimSuffix(mutants, "internal/mutants") + folder }

// Mutant is one change.
type Mutant struct {
	// Name is unique in the package and does not depend on the rest of the file: it has the file, the function, the piece
	// of source and what it becomes, and a number if the function has the same piece more than once.
	Name string
	Kind Kind
	// At is the position, as file and line.
	At string
	// Global is set for mutants in the value of a package-level variable.
	Global bool
}

// file is the base name of the file of the mutant.
func (m *Mutant) file() string {
	file, _, _ := strings.Cut(m.At, ":")
	return file
}

// Kind is what a mutant changes.
type Kind int

// The kinds of mutants.
const (
	Condition Kind = iota // always true, or always false
	Bound                 // off by one
	Statement             // left out
	Row                   // of a table, left out
	Text                  // another one
	Number                // the next one
	kinds
)

func (k Kind) String() string {
	return [kinds]string{"condition", "bound", "statement", "row", "text", "number"}[k]
}

// Kinds are all kinds, in order.
func Kinds() []Kind {
	var all []Kind
	for k := range kinds {
		all = append(all, k)
	}
	return all
}

// Package is a package and its mutants.
type Package struct {
	Path, Dir string
	// Mutants are numbered from 1: Mutants[0] is number 1.
	Mutants []Mutant

	fset  *token.FileSet
	info  *types.Info
	pkg   *types.Package
	files []*source
}

// source is a file on its way to its changed form.
type source struct {
	path    string
	text    []byte
	syntax  *ast.File
	edits   []edit
	imports map[string]string // by import path
}

// edit inserts text before and behind a piece of source, or replaces the piece.
type edit struct {
	from, to      int
	before, after string
	replaced      bool // before replaces the piece
}

// Parse reads the package at an import path, of the module in the folder root, and finds its mutants. It leaves out the
// files for whose base names skip returns true.
func Parse(root, path string, skip func(file string) bool) (*Package, error) {
	listed, err := list(root, path)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	p := &Package{Path: path, fset: token.NewFileSet()}
	var names []string
	for _, l := range listed {
		exports[l.ImportPath] = l.Export
		if l.ImportPath == path {
			p.Dir, names = l.Dir, l.GoFiles
		}
	}
	var syntax []*ast.File
	for _, name := range names {
		file := filepath.Join(p.Dir, name)
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		tree, err := parser.ParseFile(p.fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		syntax = append(syntax, tree)
		if skip == nil || !skip(name) {
			p.files = append(p.files, &source{path: file, text: text, syntax: tree})
		}
	}
	p.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	if p.pkg, err = config.Check(path, p.fset, syntax, p.info); err != nil {
		return nil, err
	}
	for _, f := range p.files {
		p.find(f)
	}
	return p, nil
}

type listedPackage struct {
	ImportPath, Export, Dir string
	GoFiles                 []string
}

func list(root, path string) ([]listedPackage, error) {
	command := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles", path)
	command.Dir = root
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", path, err)
	}
	var all []listedPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var one listedPackage
		if err := decoder.Decode(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// Overlay writes the changed files of the package into a folder, and returns the name of the file for go build
// -overlay.
func (p *Package) Overlay(root, dir string) (string, error) {
	replace := map[string]string{}
	put := func(path, name string, text []byte) error {
		replace[path] = filepath.Join(dir, name)
		return os.WriteFile(replace[path], text, 0o600)
	}
	if err := put(filepath.Join(root, "internal", "mutants", "count.go"), "count.go", p.count()); err != nil {
		return "", err
	}
	for _, f := range p.files {
		if len(f.edits) == 0 {
			continue
		}
		if err := put(f.path, filepath.Base(f.path), p.changed(f)); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// count returns a file for package mutants with the number of mutants, their names, and which of them are global.
func (p *Package) count() []byte {
	text := fmt.Appendf(nil, "package mutants\n\nvar Count, Globals = %d, []int{", len(p.Mutants))
	for i, m := range p.Mutants {
		if m.Global {
			text = fmt.Appendf(text, "%d, ", i+1)
		}
	}
	text = append(text, "}\n\n// Names are what they are called: Names[0] is number 1.\nvar Names = []string{\n"...)
	for _, m := range p.Mutants {
		text = fmt.Appendf(text, "\t%q,\n", m.Name)
	}
	return append(text, "}\n"...)
}

// changed returns the text of a file with all its mutants in it. It appends functions that compute the file's variables
// again, so that mutants in their values, and in those of variables that they depend on, can be turned on while the
// program runs.
func (p *Package) changed(f *source) []byte {
	clause := p.fset.Position(f.syntax.Name.End()).Offset
	var out bytes.Buffer
	out.Write(f.text[:clause])
	out.WriteString("; import " + alias + " \"" + mutants + "\"")
	out.Write(f.piece(clause, len(f.text)))
	for i, v := range p.info.InitOrder {
		from, to := p.fset.Position(v.Rhs.Pos()).Offset, p.fset.Position(v.Rhs.End()).Offset
		if p.fset.Position(v.Rhs.Pos()).Filename != f.path {
			continue
		}
		var names []string
		for _, name := range v.Lhs {
			names = append(names, name.Name())
		}
		fmt.Fprintf(&out, "\nfunc init() { %s.Again(%d, func() { %s = %s }) }\n", alias, i, strings.Join(names, ", "),
			f.piece(from, to))
	}
	return out.Bytes()
}

// piece returns a part of a file with the mutants in it.
func (f *source) piece(from, to int) []byte {
	type insertion struct {
		at, rank, size int
		text           string
		skip           int
	}
	var all []insertion
	for _, e := range f.edits {
		size := e.to - e.from
		switch {
		case e.from < from || e.to > to:
		case e.replaced:
			all = append(all, insertion{at: e.from, rank: 2, text: e.before, skip: size})
		default:
			all = append(all, insertion{at: e.from, rank: 1, size: -size, text: e.before}, insertion{at: e.to, rank: 0,
				size: size, text: e.after})
		}
	}
	// At the same offset, ends precede beginnings; the inner edit ends first, the outer begins first.
	slices.SortStableFunc(all, func(a, b insertion) int {
		if a.at != b.at {
			return a.at - b.at
		}
		if a.rank != b.rank {
			return a.rank - b.rank
		}
		return a.size - b.size
	})
	var out bytes.Buffer
	for _, i := range all {
		out.Write(f.text[from:i.at])
		out.WriteString(i.text)
		from = i.at + i.skip
	}
	out.Write(f.text[from:to])
	return out.Bytes()
}

// collapse puts source on one line.
func collapse(text []byte) string {
	s := strings.Join(strings.Fields(string(text)), " ")
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}

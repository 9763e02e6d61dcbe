// Command module gives this repository another module path: `make module MODULE=example.com/plinth`, or
// `go run ./module .. example.com/plinth` in tools/.
//
// The product's name and the module's path are the same word today, so a replacement of text would change too much.
// Only these are changed:
//
//   - in go.mod files the paths of the modules of this repository, and of what they require and replace;
//   - in all files the import paths of packages and modules of this repository: the module's path, a slash, and a
//     folder of the repository with Go files in it, as in plinth/object. In Go files they are only looked for in
//     imports, strings and comments. "plinth/claims" is no such path, and neither is cmd/plinth/main.go;
//   - there, too, the module's path in arguments of the go command: plinth@v0.0.0 and -replace=plinth=DIR.
//
// A Go file that changes is formatted, because imports are sorted by their paths. A path that a program puts together
// from parts is not found; the tests of this repository ask for the module's path instead.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: module DIR PATH, such as: module .. example.com/plinth")
		os.Exit(2)
	}
	from, changed, err := run(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "module:", err)
		os.Exit(1)
	}
	fmt.Printf("%s is %s now: %d files were changed\n", from, os.Args[2], len(changed))
}

// run renames the module of the repository in dir to a path from which it could be fetched.
func run(dir, to string) (from string, changed []string, err error) {
	if err := module.CheckPath(to); err != nil {
		return "", nil, err
	}
	if _, major, _ := module.SplitPathVersion(to); major != "" {
		return "", nil, fmt.Errorf("%s has a major version, and no release of this module has one", to)
	}
	return rename(dir, to)
}

// rename renames the module of the repository in dir. It returns the old path and the files that it has changed.
func rename(dir, to string) (from string, changed []string, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", nil, err
	}
	if from = modfile.ModulePath(text); from == "" {
		return "", nil, fmt.Errorf("%s names no module", filepath.Join(dir, "go.mod"))
	}
	files, folders, err := list(dir)
	if err != nil {
		return from, nil, err
	}
	r := &renamer{from: from, to: to, paths: patterns(from, folders)}
	// All files are read before the first is written: one that cannot be parsed leaves the repository as it is.
	results := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return from, nil, err
		}
		after, err := r.file(file, text)
		if err != nil {
			return from, nil, fmt.Errorf("%s: %w", file, err)
		}
		if !bytes.Equal(text, after) {
			results[file] = after
			changed = append(changed, file)
		}
	}
	for _, file := range changed {
		if err := os.WriteFile(file, results[file], 0o644); err != nil { // which keeps the mode of the file
			return from, nil, err
		}
	}
	return from, changed, nil
}

// list returns the files of the repository, and the folders in its root that have Go files or modules in them.
func list(dir string) (files, folders []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != dir && ignored(entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		files = append(files, path)
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		first, _, below := strings.Cut(filepath.ToSlash(relative), "/")
		if below && filepath.Ext(path) == ".go" && !slices.Contains(folders, first) {
			folders = append(folders, first)
		}
		return nil
	})
	return files, folders, err
}

// ignored says whether a folder is no part of the sources.
func ignored(folder string) bool {
	return strings.HasPrefix(folder, ".") || folder == "bin" || folder == "plinth-data"
}

// patterns match the module's path in a text, between two groups, what is before it and what is behind it. Neither end
// is within a longer path; a letter before it may belong to an escape such as \n in a string.
func patterns(from string, folders []string) []*regexp.Regexp {
	var names []string
	for _, folder := range folders {
		names = append(names, regexp.QuoteMeta(folder))
	}
	const before = `(^|[^\w./\\~-]|\\[nrt"])`
	path := regexp.QuoteMeta(from)
	return []*regexp.Regexp{
		regexp.MustCompile(before + path + `(/(?:` + strings.Join(names, "|") + `)(?:$|[^\w-]))`),
		regexp.MustCompile(before + path + `(@v[0-9])`),
		regexp.MustCompile(`(-replace=)` + path + `(=)`),
	}
}

// renamer changes files.
type renamer struct {
	from, to string
	paths    []*regexp.Regexp
}

// file returns what the file is to have.
func (r *renamer) file(name string, text []byte) ([]byte, error) {
	switch {
	case filepath.Base(name) == "go.mod":
		return r.module(name, text)
	case filepath.Ext(name) == ".go":
		return r.source(name, text)
	case !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0:
		return text, nil
	}
	return []byte(r.text(string(text))), nil
}

// text replaces the module's path. It does so twice: a match has what is behind the path, which may be what is before
// another one.
func (r *renamer) text(s string) string {
	replacement := "${1}" + strings.ReplaceAll(r.to, "$", "$$") + "${2}"
	for _, path := range slices.Concat(r.paths, r.paths) {
		s = path.ReplaceAllString(s, replacement)
	}
	return s
}

// path replaces the path of a package or a module of this repository.
func (r *renamer) path(p string) string {
	if rest, ok := strings.CutPrefix(p, r.from); ok && (rest == "" || rest[0] == '/') {
		return r.to + rest
	}
	return p
}

// module changes a go.mod.
func (r *renamer) module(name string, text []byte) ([]byte, error) {
	file, err := modfile.Parse(name, text, nil)
	if err != nil {
		return nil, err
	}
	set := func(line *modfile.Line, path string) {
		for i, token := range line.Token {
			if token == modfile.AutoQuote(path) {
				line.Token[i] = modfile.AutoQuote(r.path(path))
			}
		}
	}
	set(file.Module.Syntax, file.Module.Mod.Path)
	for _, require := range file.Require {
		set(require.Syntax, require.Mod.Path)
	}
	for _, replace := range file.Replace {
		set(replace.Syntax, replace.Old.Path)
	}
	for _, exclude := range file.Exclude {
		set(exclude.Syntax, exclude.Mod.Path)
	}
	for _, tool := range file.Tool {
		set(tool.Syntax, tool.Path)
	}
	after := modfile.Format(file.Syntax)
	if file, err = modfile.Parse(name, after, nil); err != nil {
		return nil, err
	}
	file.SortBlocks()
	return modfile.Format(file.Syntax), nil
}

// source changes the imports, strings and comments of a Go file.
func (r *renamer) source(name string, text []byte) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	type edit struct {
		offset      int
		old, change string
	}
	var edits []edit
	replace := func(at token.Pos, old string) {
		if change := r.text(old); change != old {
			edits = append(edits, edit{files.Position(at).Offset, old, change})
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			replace(literal.Pos(), literal.Value)
		}
		return true
	})
	for _, group := range file.Comments {
		for _, comment := range group.List {
			replace(comment.Pos(), comment.Text)
		}
	}
	if len(edits) == 0 {
		return text, nil
	}
	slices.SortFunc(edits, func(a, b edit) int { return a.offset - b.offset })
	var out bytes.Buffer
	done := 0
	for _, e := range edits {
		if !bytes.HasPrefix(text[e.offset:], []byte(e.old)) { // a carriage return, which the parser drops
			return nil, fmt.Errorf("offset %d does not have %q", e.offset, e.old)
		}
		out.Write(text[done:e.offset])
		out.WriteString(e.change)
		done = e.offset + len(e.old)
	}
	out.Write(text[done:])
	return format.Source(out.Bytes())
}

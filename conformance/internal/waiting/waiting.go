// Package waiting counts the code of tests that waits: for a condition that it asks for again and again, or for time
// to pass.
//
// The rule: a statement waits if it calls something that has one of the names in waits, whoever declares it. It counts
// from its first to its last line, with the function that it polls. A statement with a body, such as an if, waits if
// the call is in its head; a call in its body belongs to the statements there. Nothing within a statement that waits
// counts again. A function that waits for its caller counts where it is declared, for what waits in it, and where it
// is called, if its name is in the list.
//
// A line of code is one with anything else than white space and comments; other lines count nowhere.
package waiting

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// waits matches the names of calls that wait: those of gomega, of the time package, of apimachinery's package wait, of
// the environments and scenes of the suites that are compared, and of plinthtest.
func waits(name string) bool {
	switch name {
	case "Eventually", "EventuallyWithOffset", "Consistently", "ConsistentlyWithOffset",
		"Sleep", "After", "Tick", "NewTimer", "NewTicker",
		"ExponentialBackoff", "ExponentialBackoffWithContext", "OnError", "RetryOnConflict",
		"Elected", "Settle", "settle", "Wait", "pass":
		return true
	}
	return strings.HasPrefix(name, "Poll") || strings.HasPrefix(name, "WaitFor") || strings.HasSuffix(name, "AndWait")
}

// Count is how much of the tests of a folder waits.
type Count struct {
	Statements int // that wait
	Lines      int // of these statements
	Code       int // all lines of code
}

// Folder counts in the files of a folder whose names end with _test.go.
func Folder(dir string) (Count, error) {
	var all Count
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no tests", dir)
	}
	if err != nil {
		return all, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return all, err
		}
		one, err := inFile(file, text)
		if err != nil {
			return all, err
		}
		all.Statements += one.Statements
		all.Lines += one.Lines
		all.Code += one.Code
	}
	return all, nil
}

// inFile counts in one file.
func inFile(name string, text []byte) (Count, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return Count{}, err
	}
	code := codeLines(text)
	c := Count{Code: len(code)}
	end := token.NoPos // of the last statement that waits
	ast.Inspect(parsed, func(n ast.Node) bool {
		s, ok := n.(ast.Stmt)
		if !ok || s.Pos() < end || !waitsItself(s) {
			return true
		}
		end = s.End()
		c.Statements++
		for line := set.Position(s.Pos()).Line; line <= set.Position(s.End()).Line; line++ {
			if code[line] {
				c.Lines++
			}
		}
		return false
	})
	return c, nil
}

// waitsItself says whether a call that waits is in a statement, and not in a statement of its body. The body of a
// function literal is no part of the statement either: what the function does, it does when it is called.
func waitsItself(s ast.Stmt) bool {
	if _, ok := s.(*ast.BlockStmt); ok {
		return false
	}
	found := false
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
			return false
		case *ast.CallExpr:
			found = found || waits(called(n.Fun))
		}
		return !found
	})
	return found
}

// called is the name of what is called, without that of its package or variable.
func called(f ast.Expr) string {
	switch f := f.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// codeLines are the numbers of the lines with code.
func codeLines(text []byte) map[int]bool {
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		first := file.Line(pos)
		for i := range strings.Count(literal, "\n") + 1 {
			lines[first+i] = true
		}
	}
}

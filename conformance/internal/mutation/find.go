package mutation

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path/filepath"
	"strconv"
)

// finder finds the mutants of a file.
type finder struct {
	*Package
	file     *source
	function string
	global   bool
	repeated map[string]int
	// done holds the expressions that have a mutant already, or shall not have any.
	done map[ast.Node]bool
}

func (p *Package) find(file *source) {
	file.imports = map[string]string{p.Path: ""}
	for _, spec := range file.syntax.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		name := ""
		if spec.Name != nil {
			name = spec.Name.Name
		} else {
			for _, imported := range p.pkg.Imports() {
				if imported.Path() == path {
					name = imported.Name()
				}
			}
		}
		file.imports[path] = name
	}
	f := &finder{Package: p, file: file, repeated: map[string]int{}, done: map[ast.Node]bool{}}
	for _, decl := range file.syntax.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Body == nil {
				continue
			}
			f.function, f.global = decl.Name.Name, false
			f.visit(decl.Body)
		case *ast.GenDecl:
			if decl.Tok != token.VAR {
				continue
			}
			for _, spec := range decl.Specs {
				spec := spec.(*ast.ValueSpec)
				f.function, f.global = spec.Names[0].Name, true
				for _, value := range spec.Values {
					f.value(value)
					f.visit(value)
				}
			}
		}
	}
}

// new adds a mutant of a piece of source and returns its number.
func (f *finder) new(kind Kind, n ast.Node, change string) int {
	at := f.fset.Position(n.Pos())
	name := filepath.Base(f.file.path) + " " + f.function + ": " + collapse(f.text(n)) + " → " + change
	f.repeated[name]++
	if k := f.repeated[name]; k > 1 {
		name += " #" + strconv.Itoa(k)
	}
	f.Mutants = append(f.Mutants, Mutant{Name: name, Kind: kind, At: fmt.Sprintf("%s:%d", filepath.Base(at.Filename),
		at.Line), Global: f.global})
	return len(f.Mutants)
}

func (f *finder) text(n ast.Node) []byte { return f.file.text[f.offset(n.Pos()):f.offset(n.End())] }

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *finder) wrap(n ast.Node, before, after string) {
	f.file.edits = append(f.file.edits, edit{from: f.offset(n.Pos()), to: f.offset(n.End()), before: before,
		after: after})
}

func (f *finder) call(n ast.Node, function string, numbers ...int) {
	before := alias + "." + function + "("
	for _, number := range numbers {
		before += strconv.Itoa(number) + ", "
	}
	f.wrap(n, before, ")")
}

// visit finds the mutants below a node, the outer ones first.
func (f *finder) visit(root ast.Node) {
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.DeclStmt: // constants are not changed
			if decl, ok := n.Decl.(*ast.GenDecl); ok && decl.Tok != token.VAR {
				return false
			}
		case *ast.BlockStmt:
			f.statements(n.List)
		case *ast.CaseClause:
			f.statements(n.Body)
			for _, e := range n.List {
				f.value(e)
			}
		case *ast.IfStmt:
			f.value(n.Cond)
		case *ast.ForStmt:
			if n.Cond != nil {
				f.condition(n.Cond, false, true)
			}
		case *ast.ReturnStmt:
			for _, e := range n.Results {
				f.value(e)
			}
		case *ast.AssignStmt:
			for _, e := range n.Rhs {
				f.value(e)
			}
		case *ast.ValueSpec:
			for _, e := range n.Values {
				f.value(e)
			}
		case *ast.CallExpr:
			if f.isType(n.Fun) || f.isBuiltin(n.Fun, "make") || f.isBuiltin(n.Fun, "panic") {
				return !f.isBuiltin(n.Fun, "panic")
			}
			for _, e := range n.Args {
				f.value(e)
			}
		case *ast.BinaryExpr:
			switch n.Op {
			case token.ADD, token.SUB, token.MUL, token.QUO, token.REM:
				f.value(n.X)
				f.value(n.Y)
			}
		case *ast.SliceExpr:
			for _, e := range []ast.Expr{n.Low, n.High} {
				if e != nil {
					f.value(e)
				}
			}
		case *ast.CompositeLit:
			f.literal(n)
		}
		return true
	})
}

func (f *finder) isType(e ast.Expr) bool { return f.info.Types[e].IsType() }

func (f *finder) isBuiltin(e ast.Expr, name string) bool {
	ident, ok := e.(*ast.Ident)
	if !ok || ident.Name != name {
		return false
	}
	_, ok = f.info.Uses[ident].(*types.Builtin)
	return ok
}

// statements finds the statements that can be left out: those on which no variable and no result depends.
func (f *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && f.isBuiltin(call.Fun, "panic") {
				continue
			}
		case *ast.AssignStmt:
			if blank, ok := s.Lhs[0].(*ast.Ident); s.Tok == token.DEFINE || ok && blank.Name == "_" {
				continue
			}
		case *ast.IncDecStmt:
		default:
			continue
		}
		f.wrap(s, "if "+alias+".Keep("+strconv.Itoa(f.new(Statement, s, "left out"))+") { ", " }")
	}
}

// value finds the mutants of an expression that is used as a value: an argument, a result, the right side of an
// assignment.
func (f *finder) value(e ast.Expr) {
	if f.done[e] {
		return
	}
	of := f.info.Types[e]
	basic, ok := of.Type.(*types.Basic)
	switch {
	case of.Type == nil || of.IsType():
	case of.Value != nil:
		f.constant(e, of)
	case ok && basic.Info()&types.IsBoolean != 0:
		f.condition(e, true, true)
	}
}

// condition finds the mutants of a condition: each of its operands without influence, and the whole condition always
// true or always false, if toTrue or toFalse is set. A test that notices that a is true in "a && b" also notices that
// the whole is true; so the whole is only made false, and that of "a || b" only true.
func (f *finder) condition(e ast.Expr, toTrue, toFalse bool) {
	if f.done[e] || f.info.Types[e].Value != nil {
		return
	}
	f.done[e] = true
	switch n := e.(type) {
	case *ast.ParenExpr:
		f.condition(n.X, toTrue, toFalse)
		return
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			f.condition(n.X, toFalse, toTrue)
			return
		}
	case *ast.BinaryExpr:
		switch n.Op {
		case token.LAND:
			f.always(e, false, toFalse)
			f.condition(n.X, true, false)
			f.condition(n.Y, true, false)
			return
		case token.LOR:
			f.always(e, toTrue, false)
			f.condition(n.X, false, true)
			f.condition(n.Y, false, true)
			return
		case token.LSS, token.LEQ, token.GTR, token.GEQ:
			f.always(e, toTrue, toFalse)
			f.bound(n)
			return
		}
	}
	f.always(e, toTrue, toFalse)
}

func (f *finder) always(e ast.Expr, toTrue, toFalse bool) {
	basic, ok := f.info.Types[e].Type.(*types.Basic)
	if !ok || basic.Info()&types.IsBoolean == 0 || !toTrue && !toFalse {
		return
	}
	var t, n int
	if toTrue {
		t = f.new(Condition, e, "true")
	}
	if toFalse {
		n = f.new(Condition, e, "false")
	}
	f.call(e, "Bool", t, n)
}

var offByOne = map[token.Token]string{token.LSS: "LT", token.LEQ: "LE", token.GTR: "GT", token.GEQ: "GE"}

// bound makes a comparison off by one, unless the result would be always true or false, as no length is below 0.
func (f *finder) bound(n *ast.BinaryExpr) {
	if call, ok := n.X.(*ast.CallExpr); ok && (f.isBuiltin(call.Fun, "len") || isLength(call)) {
		if v := f.info.Types[n.Y].Value; v != nil && constant.Sign(v) == 0 {
			return
		}
	}
	x, y := f.info.Types[n.X], f.info.Types[n.Y]
	if x.Value != nil && y.Value != nil {
		return
	}
	f.done[n.X], f.done[n.Y] = true, true
	number := f.new(Bound, n, "off by one")
	f.call(n, offByOne[n.Op], number)
	at := f.offset(n.OpPos)
	f.file.edits = append(f.file.edits, edit{from: at, to: at + len(n.Op.String()), before: ",", replaced: true})
}

func isLength(call *ast.CallExpr) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == "Len"
}

// constant replaces a literal or a named constant by another one.
func (f *finder) constant(e ast.Expr, of types.TypeAndValue) {
	switch e.(type) {
	case *ast.BasicLit, *ast.Ident, *ast.SelectorExpr:
	default:
		return
	}
	f.done[e] = true
	basic, ok := of.Type.Underlying().(*types.Basic)
	if !ok {
		return
	}
	typ, ok := f.typeText(of.Type, e.Pos())
	if !ok {
		return
	}
	switch {
	case basic.Info()&types.IsString != 0:
		f.call(e, "Text["+typ+"]", f.new(Text, e, "another text"))
	case basic.Info()&types.IsBoolean != 0 && typ == "bool":
		f.call(e, "Not", f.new(Condition, e, "its opposite"))
	case basic.Info()&types.IsInteger != 0:
		f.call(e, "Number["+typ+"]", f.new(Number, e, "one more"))
	}
}

// typeText returns the text that denotes a type at a position of the source.
func (f *finder) typeText(t types.Type, at token.Pos) (string, bool) {
	ok := true
	if named, is := t.(*types.Named); is && named.Obj().Pkg() == f.pkg {
		_, found := f.pkg.Scope().Innermost(at).LookupParent(named.Obj().Name(), at)
		ok = found == named.Obj()
	}
	text := types.TypeString(types.Default(t), func(p *types.Package) string {
		name, imported := f.file.imports[p.Path()]
		ok = ok && imported
		return name
	})
	return text, ok
}

// literal finds the mutants of the elements of a composite literal.
func (f *finder) literal(n *ast.CompositeLit) {
	under := f.info.Types[n].Type
	if under == nil {
		return
	}
	if pointer, ok := under.Underlying().(*types.Pointer); ok {
		under = pointer.Elem()
	}
	if slice, ok := under.Underlying().(*types.Slice); ok && n.Type != nil && len(n.Elts) > 0 {
		if _, texts := slice.Elem().Underlying().(*types.Basic); !texts && !keyed(n) {
			first := 0
			for _, row := range n.Elts {
				if k := f.new(Row, row, "left out"); first == 0 {
					first = k
				}
			}
			f.call(n, "Rows", first)
		}
	}
	_, isMap := under.Underlying().(*types.Map)
	for _, element := range n.Elts {
		value := element
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			value = pair.Value
			if isMap {
				f.value(pair.Key)
			}
		}
		f.value(value)
		f.functionIn(value)
	}
}

func keyed(n *ast.CompositeLit) bool {
	_, ok := n.Elts[0].(*ast.KeyValueExpr)
	return ok
}

// functionIn replaces a function in a table by nil.
func (f *finder) functionIn(e ast.Expr) {
	if f.done[e] {
		return
	}
	var ident *ast.Ident
	switch e := e.(type) {
	case *ast.Ident:
		ident = e
	case *ast.SelectorExpr:
		ident = e.Sel
	default:
		return
	}
	if _, ok := f.info.Uses[ident].(*types.Func); ok && !f.generic(ident) {
		f.done[e] = true
		f.call(e, "Zero", f.new(Row, e, "none"))
	}
}

func (f *finder) generic(ident *ast.Ident) bool {
	signature, ok := f.info.Uses[ident].Type().(*types.Signature)
	return !ok || signature.TypeParams().Len() > 0
}

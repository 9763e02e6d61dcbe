package cel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kube "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/lazy"
)

// The expressions of an AuthenticationConfiguration: over the claims of a token, to map them to a user or to require
// something of them, and over that user. Administrators write the expressions, and they are compiled once, when the
// configuration is read. Their input is not trusted: the claims come from a token, which is signed by its issuer but
// may have any form.

const (
	claimsVariable = "claims"
	userVariable   = "user"
)

// The environments of expressions over claims and over users. They are built on first use.
var (
	claimsEnvironment = sync.OnceValues(func() (*cel.Env, error) {
		return withVariable(claimsVariable, kube.NewMapType(kube.StringType, kube.AnyType, -1))
	})
	userEnvironment = sync.OnceValues(func() (*cel.Env, error) {
		texts := kube.NewListType(kube.StringType, -1)
		fields := map[string]*kube.DeclField{}
		for name, of := range map[string]*kube.DeclType{
			"username": kube.StringType, "uid": kube.StringType, "groups": texts,
			"extra": kube.NewMapType(kube.StringType, texts, -1),
		} {
			fields[name] = kube.NewDeclField(name, of, false, nil, nil)
		}
		return withVariable(userVariable, kube.NewObjectType("kubernetes.UserInfo", fields))
	})
)

// withVariable is the environment for stored expressions, with one variable.
func withVariable(name string, of *kube.DeclType) (*cel.Env, error) {
	env, err := storedRules()
	if err != nil {
		return nil, err
	}
	provider := kube.NewDeclTypeProvider(of)
	provider.SetRecognizeKeywordAsFieldName(true)
	options, err := provider.EnvOptions(env.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	return env.Extend(append(options, cel.Variable(name, of.CelType()))...)
}

// TokenExpression is a compiled expression over claims or a user.
type TokenExpression struct {
	Source  string
	program cel.Program
	tree    *ast.AST
}

// CompileClaims compiles an expression over the variable claims. A condition must have the type bool. The type of
// other expressions is checked when they run. path is the expression's place in the configuration.
func CompileClaims(source string, condition bool, path *field.Path) (*TokenExpression, *field.Error) {
	return compileTokenExpression(claimsEnvironment, source, condition, path)
}

// CompileUser compiles a condition over the variable user.
func CompileUser(source string, path *field.Path) (*TokenExpression, *field.Error) {
	return compileTokenExpression(userEnvironment, source, true, path)
}

func compileTokenExpression(of func() (*cel.Env, error), source string, condition bool,
	path *field.Path) (*TokenExpression, *field.Error) {
	env, err := of()
	if err != nil {
		return nil, field.InternalError(path, err)
	}
	compiled, issues := env.Compile(source)
	if issues != nil {
		return nil, field.Invalid(path, source, "compilation failed: "+issues.String())
	}
	if condition && compiled.OutputType() != cel.BoolType {
		return nil, field.Invalid(path, source, "must evaluate to "+cel.BoolType.String())
	}
	program, err := env.Program(compiled)
	if err != nil {
		return nil, field.InternalError(path, fmt.Errorf("program instantiation failed: %w", err))
	}
	return &TokenExpression{Source: source, program: program, tree: compiled.NativeRep()}, nil
}

// UsesClaim says whether the expression accesses a claim by its name: claims.email or claims.?email.
func (e *TokenExpression) UsesClaim(name string) bool {
	found := false
	ast.PreOrderVisit(e.tree.Expr(), ast.NewExprVisitor(func(at ast.Expr) {
		switch at.Kind() {
		case ast.SelectKind:
			s := at.AsSelect()
			found = found || isClaims(s.Operand()) && s.FieldName() == name
		case ast.CallKind:
			c := at.AsCall()
			if c.FunctionName() != operators.OptSelect || c.IsMemberFunction() || len(c.Args()) != 2 || !isClaims(c.Args()[0]) {
				return
			}
			if field := c.Args()[1]; field.Kind() == ast.LiteralKind {
				found = found || field.AsLiteral() == types.String(name)
			}
		}
	}))
	return found
}

func isClaims(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == claimsVariable }

// Input is the variable that expressions run on. It must not be used concurrently.
type Input struct {
	name  string
	value *lazy.MapValue
}

// Claims makes an Input of the claims of a token. A claim is parsed when an expression accesses it.
func Claims(claims map[string]json.RawMessage) *Input {
	value := lazy.NewMapValue(types.NewObjectType("kubernetes.claims"))
	for name, text := range claims {
		value.Append(name, func(*lazy.MapValue) ref.Val {
			var parsed any
			if err := json.Unmarshal(text, &parsed); err != nil {
				return types.NewErr("claim %q failed to unmarshal: %w", name, err)
			}
			return unescaping(types.DefaultTypeAdapter.NativeToValue(parsed))
		})
	}
	return &Input{claimsVariable, value}
}

// User makes an Input of a user.
func User(name, uid string, groups []string, extra map[string][]string) *Input {
	value := lazy.NewMapValue(types.NewObjectType("kubernetes.UserInfo"))
	for name, of := range map[string]any{"username": name, "uid": uid, "groups": groups, "extra": extra} {
		value.Append(name, func(*lazy.MapValue) ref.Val { return unescaping(types.DefaultTypeAdapter.NativeToValue(of)) })
	}
	return &Input{userVariable, value}
}

// ResolveName implements interpreter.Activation.
func (i *Input) ResolveName(name string) (any, bool) { return i.value, name == i.name }

// Parent implements interpreter.Activation.
func (i *Input) Parent() interpreter.Activation { return nil }

// Result is the result of an expression.
type Result struct{ value ref.Val }

// Run evaluates the expression.
func (e *TokenExpression) Run(ctx context.Context, on *Input) (Result, error) {
	value, _, err := run(ctx, e.program, on)
	if err != nil {
		return Result{}, fmt.Errorf("expression '%s' resulted in error: %w", e.Source, err)
	}
	return Result{value}, nil
}

// Text returns the result if it is a string.
func (r Result) Text() (string, bool) {
	text, ok := r.value.(types.String)
	return string(text), ok
}

// Bool returns the result if it is a bool.
func (r Result) Bool() (value, ok bool) {
	holds, ok := r.value.(types.Bool)
	return bool(holds), ok
}

var errNoTexts = errors.New("expression must return a string or a list of strings")

// Texts returns the result if it is a string or a list of strings. Null is an empty list; empty strings are omitted.
func (r Result) Texts() ([]string, error) {
	var items []any
	switch r.value.Type().TypeName() {
	case types.NullType.TypeName():
		return nil, nil
	case types.StringType.TypeName():
		items = []any{r.value.Value()}
	case types.ListType.TypeName():
		switch list := r.value.Value().(type) {
		case []any:
			items = list
		case []ref.Val:
			for _, v := range list {
				items = append(items, v.Value())
			}
		default:
			return nil, errNoTexts
		}
	default:
		return nil, errNoTexts
	}
	var texts []string
	for _, item := range items {
		text, ok := item.(string)
		if !ok {
			return nil, errNoTexts
		}
		if text != "" {
			texts = append(texts, text)
		}
	}
	return texts, nil
}

// A claim such as example.com/role is not an identifier, so expressions write claims.example__dot__com__slash__role.
// The compiler cannot resolve the name, because it does not know the type of a claim. Therefore names are unescaped
// when they are looked up: in the map of claims by package lazy, and in maps below it, at any depth, by these types.

func unescaping(v ref.Val) ref.Val {
	switch v := v.(type) {
	case traits.Mapper:
		return unescapingMap{v}
	case traits.Lister:
		return unescapingList{v}
	}
	return v
}

type unescapingMap struct{ traits.Mapper }

// Find looks up a key. If the key is an escaped name, it looks up the name.
func (m unescapingMap) Find(key ref.Val) (ref.Val, bool) {
	if escaped, ok := key.(types.String); ok {
		if name, ok := kube.Unescape(string(escaped)); ok {
			key = types.String(name)
		}
	}
	v, ok := m.Mapper.Find(key)
	return unescaping(v), ok
}

type unescapingList struct{ traits.Lister }

// Get returns an item.
func (l unescapingList) Get(index ref.Val) ref.Val { return unescaping(l.Lister.Get(index)) }

package cel

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	limits "k8s.io/apiserver/pkg/apis/cel"
	kube "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/lazy"
)

// Scope has the names that the expressions of one policy, or of one webhook, may use besides those of every request:
// params, and variables, which are expressions themselves.
type Scope struct {
	// Latest says that expressions that are not stored yet may use the functions of this version, too (see environment).
	Latest bool

	params, composed bool
	variables        []variable
	types            map[string]*kube.DeclField // of the variables
}

// variable is a named expression of a policy. Others see it as variables.NAME.
type variable struct {
	name string
	*AdmissionExpression
}

// NewScope returns the scope of a policy. params says that it has a kind of parameters; variables, that its expressions
// may name variables, even if it has none.
func NewScope(params, variables bool) *Scope {
	return &Scope{params: params, composed: variables, types: map[string]*kube.DeclField{}}
}

// Add adds a variable, which may use those before it. stored says that its expression is in an object that is stored
// already (see environment). One that does not compile is added, too: whatever uses it fails.
func (s *Scope) Add(name, source string, stored bool) *AdmissionExpression {
	compiled, of := s.compile(Variable, source, stored)
	s.types[name] = kube.NewDeclField(name, variableType(of), true, nil, nil)
	s.variables = append(s.variables, variable{name, compiled})
	return compiled
}

// variableType is the type that other expressions see of a variable. It has types of its own only for scalars, lists
// and maps, as in the reference; everything else is of dynamic type.
func variableType(of *cel.Type) *kube.DeclType {
	if of == nil {
		return kube.DynType
	}
	if t := scalarTypes[of]; t != nil {
		return t
	}
	if of.HasTrait(traits.ContainerType) && of.HasTrait(traits.IndexerType) {
		switch parameters := of.Parameters(); len(parameters) {
		case 1:
			return kube.NewListType(variableType(parameters[0]), -1)
		case 2:
			return kube.NewMapType(variableType(parameters[0]), variableType(parameters[1]), -1)
		}
	}
	return kube.DynType
}

var scalarTypes = map[*cel.Type]*kube.DeclType{
	cel.AnyType: kube.AnyType, cel.BoolType: kube.BoolType, cel.BytesType: kube.BytesType,
	cel.DoubleType: kube.DoubleType, cel.DurationType: kube.DurationType, cel.IntType: kube.IntType,
	cel.NullType: kube.NullType, cel.StringType: kube.StringType, cel.TimestampType: kube.TimestampType,
	cel.UintType: kube.UintType,
}

// Role is what an expression is for. It determines its type, and what it may name.
type Role uint8

// The roles.
const (
	Condition          Role = iota // bool
	Message                        // string; the variable authorizer does not exist
	Annotation                     // string or null
	Variable                       // of any type
	ApplyConfiguration             // Object
	JSONPatch                      // a list of JSONPatch
)

// results are the types that an expression of a role may have; nil: any.
var results = [...][]*cel.Type{
	Condition: {cel.BoolType}, Message: {cel.StringType}, Annotation: {cel.StringType, cel.NullType},
	ApplyConfiguration: {types.NewObjectType(objectTypeName)}, JSONPatch: {cel.ListType(jsonPatchType)},
}

// AdmissionExpression is a compiled expression about a request that is admitted, such as a match condition of a
// webhook.
type AdmissionExpression struct {
	source  string
	program cel.Program
	err     error // of the compilation
}

// Compile compiles an expression. stored says that it is in an object that is stored already (see environment).
func (s *Scope) Compile(role Role, source string, stored bool) *AdmissionExpression {
	compiled, _ := s.compile(role, source, stored)
	return compiled
}

// compile is Compile, with the type of the expression; nil if it does not compile.
func (s *Scope) compile(role Role, source string, stored bool) (*AdmissionExpression, *cel.Type) {
	x := &AdmissionExpression{source: source}
	env, err := declared{
		stored: stored || s.Latest, params: s.params, authorizer: role != Message, variables: s.composed,
		patches: role == ApplyConfiguration || role == JSONPatch,
	}.environment()
	if err != nil {
		x.err = fmt.Errorf("unexpected error loading CEL environment: %w", err)
		return x, nil
	}
	var of *cel.Type
	x.program, of, x.err = env.compile(source, s.types, role.accept)
	return x, of
}

// accept refuses the type of an expression if those of the role may not have it.
func (r Role) accept(t *cel.Type) error {
	if r == Variable {
		return nil
	}
	for _, wanted := range results[r] {
		if t.IsExactType(wanted) {
			return nil
		}
	}
	if len(results[r]) == 1 {
		return fmt.Errorf("must evaluate to %s but got %s", results[r][0], t)
	}
	return fmt.Errorf("must evaluate to one of %v but got %s", results[r], t)
}

// Err says why the expression did not compile; nil: it did. It is worded as in the reference.
func (x *AdmissionExpression) Err() error { return x.err }

// The limits of evaluations.
const (
	// MatchConditionsBudget is the cost of all match conditions of a webhook or a policy together.
	MatchConditionsBudget = limits.RuntimeCELCostBudgetMatchConditions
	// PolicyBudget is the cost of all validations of a policy on one request, binding and param, and again for its audit
	// annotations, and for each mutation.
	PolicyBudget = limits.RuntimeCELCostBudget
	// MaxMessage is how many bytes a message may have that an expression makes.
	MaxMessage = limits.MaxEvaluatedMessageExpressionSizeBytes
)

// ErrOutOfBudget means that the expressions cost more than they may.
var ErrOutOfBudget = errors.New(
	"validation failed due to running out of cost budget, no further validation rules will be run")

// Evaluation evaluates expressions of one scope on one request, one after the other. A variable is evaluated when one
// of them first uses it, and once.
type Evaluation struct {
	ctx    context.Context
	scope  *Scope
	on     *AdmissionInput
	budget int64
	// variables is the value of the variable of that name, spent what its parts have cost since the last expression.
	variables *lazy.MapValue
	spent     int64
}

// Evaluate begins an evaluation whose expressions may cost budget together.
func (s *Scope) Evaluate(ctx context.Context, on *AdmissionInput, budget int64) *Evaluation {
	return &Evaluation{ctx: ctx, scope: s, on: on, budget: budget}
}

// Continue is a new evaluation with what is left of the budget, on another input. Variables are evaluated again.
func (e *Evaluation) Continue(on *AdmissionInput) *Evaluation {
	return e.scope.Evaluate(e.ctx, on, e.budget)
}

// Test evaluates a condition. stop is an error after which nothing else can be evaluated: the cost is above the budget,
// or unknown. err is of this expression alone.
func (e *Evaluation) Test(x *AdmissionExpression) (holds bool, err, stop error) {
	value, err, stop := e.run(x)
	return value == types.True, err, stop
}

// Text evaluates an expression whose value is a string. Another one, such as null, is "".
func (e *Evaluation) Text(x *AdmissionExpression) (text string, err, stop error) {
	value, err, stop := e.run(x)
	if value != nil {
		text, _ = value.Value().(string)
	}
	return text, err, stop
}

func (e *Evaluation) run(x *AdmissionExpression) (value ref.Val, err, stop error) {
	if x.err != nil {
		return nil, fmt.Errorf("compilation error: %w", x.err), nil
	}
	value, details, err := run(e.ctx, x.program, e)
	spent := e.spent
	e.spent = 0
	if spent > e.budget {
		return nil, nil, ErrOutOfBudget
	}
	e.budget -= spent
	if details == nil || details.ActualCost() == nil {
		return nil, nil, fmt.Errorf(
			"runtime cost could not be calculated for expression: %v, no further expression will be run", x.source)
	}
	cost := costOf(details)
	if cost > e.budget {
		return nil, nil, ErrOutOfBudget
	}
	e.budget -= cost
	if err != nil {
		return nil, fmt.Errorf("expression '%v' resulted in error: %w", x.source, err), nil
	}
	return value, nil, nil
}

func costOf(details *cel.EvalDetails) int64 {
	return int64(min(*details.ActualCost(), math.MaxInt64))
}

// Holds evaluates conditions. They hold if each does. failed has the errors of those that failed, up to the first that
// is false: that one counts, whatever the others are. stop is an error for all of them. Those behind a false one are
// evaluated, too: one step of an expression may cost more than the budget (a long pattern on a long text), which is an
// error wherever it stands.
func (e *Evaluation) Holds(conditions []*AdmissionExpression) (holds bool, failed []error, stop error) {
	holds = true
	for _, x := range conditions {
		isTrue, err, stop := e.Test(x)
		switch {
		case stop != nil:
			return false, nil, stop
		case !holds:
		case err != nil:
			failed = append(failed, err)
		case !isTrue:
			holds = false
		}
	}
	return holds, failed, nil
}

// ResolveName implements interpreter.Activation.
func (e *Evaluation) ResolveName(name string) (any, bool) {
	if name == "variables" {
		if e.variables == nil {
			e.variables = lazy.NewMapValue(variablesType)
			for _, v := range e.scope.variables {
				e.variables.Append(v.name, func(*lazy.MapValue) ref.Val { return e.variable(v) })
			}
		}
		return e.variables, true
	}
	return e.on.resolve(name)
}

var variablesType = types.NewObjectType("kubernetes.variables")

// Parent implements interpreter.Activation.
func (e *Evaluation) Parent() interpreter.Activation { return nil }

// variable evaluates a variable.
func (e *Evaluation) variable(v variable) ref.Val {
	if v.err != nil {
		return types.NewErr("composited variable %q fails to compile: %v", v.name, v.err)
	}
	value, details, err := run(e.ctx, v.program, e)
	switch {
	case details == nil:
		return types.NewErr("unable to get evaluation details of variable %q", v.name)
	case details.ActualCost() == nil:
		return types.NewErr("unable to calculate cost of variable %q", v.name)
	}
	// Both are below the limit of a call, but a policy may have any number of variables.
	e.spent = min(e.spent, math.MaxInt64-costOf(details)) + costOf(details)
	if err != nil {
		return types.NewErr("composited variable %q fails to evaluate: %v", v.name, err)
	}
	return value
}

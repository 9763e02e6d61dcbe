package cel

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"

	"plinth/schema"
)

// program is one compiled rule.
type program struct {
	rule          *schema.Rule
	run           cel.Program // nil: the rule is empty or does not compile
	message       cel.Program // nil: there is no messageExpression, or it does not compile
	broken        string      // why the rule did not compile
	brokenMessage string
	usesOldSelf   bool
	cost          uint64 // estimated, of one run
	messageCost   uint64
	fieldPath     string // the rule's fieldPath, as errors print it
}

func (p *program) optional() bool { return p.rule.OptionalOldSelf != nil && *p.rule.OptionalOldSelf }

// compiler compiles the rules of one place. Environments are created when a rule needs them.
type compiler struct {
	self *shape
	name string // the name of self's type
	envs map[envKey]*cel.Env
}

type envKey struct{ stored, optional bool }

func newCompiler(self *shape) *compiler {
	// A rule must not be able to name the type of self: it would depend on the name. So the name contains a number
	// that rules cannot know.
	return &compiler{self: self, name: fmt.Sprintf("selfType%d", time.Now().Nanosecond()), envs: map[envKey]*cel.Env{}}
}

// env returns the environment for rules of this place.
func (c *compiler) env(key envKey) (*cel.Env, error) {
	if env := c.envs[key]; env != nil {
		return env, nil
	}
	plain, err := newRules()
	if key.stored {
		plain, err = storedRules()
	}
	if err != nil {
		return nil, err
	}
	env, err := extend(plain, c.self, c.name, key.optional)
	if err == nil {
		c.envs[key] = env
	}
	return env, err
}

// stored says which expressions of a rule are stored already.
type stored struct{ rule, message bool }

// compile compiles one rule. at is the type of the rule's place. Errors in the rule are in the program; a returned
// error is one of the environment.
func (c *compiler) compile(rule *schema.Rule, at *schema.Type, current stored) (*program, error) {
	p := &program{rule: rule}
	if strings.TrimSpace(rule.Rule) == "" {
		return p, nil
	}
	env, err := c.env(envKey{current.rule, p.optional()})
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(rule.Rule)
	if issues != nil {
		p.broken = "compilation failed: " + issues.String()
		return p, nil
	}
	if ast.OutputType() != cel.BoolType {
		p.broken = "cel expression must evaluate to a bool"
		return p, nil
	}
	for _, r := range ast.NativeRep().ReferenceMap() {
		p.usesOldSelf = p.usesOldSelf || r.Name == "oldSelf"
	}
	run, err := env.Program(ast)
	if err != nil {
		p.broken = "program instantiation failed: " + err.Error()
		return p, nil
	}
	if p.cost, err = c.estimate(env, ast); err != nil {
		p.broken = "cost estimation failed: " + err.Error()
		return p, nil
	}
	p.run = run
	if rule.MessageExpression != "" {
		if err := c.compileMessage(p, current); err != nil || p.brokenMessage != "" {
			return p, err
		}
	}
	if rule.FieldPath != "" {
		p.fieldPath, _ = follow(rule.FieldPath, at)
	}
	return p, nil
}

func (c *compiler) compileMessage(p *program, current stored) error {
	env, err := c.env(envKey{current.message, p.optional()})
	if err != nil {
		return err
	}
	ast, issues := env.Compile(p.rule.MessageExpression)
	if issues != nil {
		p.brokenMessage = "messageExpression compilation failed: " + issues.String()
		return nil
	}
	if ast.OutputType() != cel.StringType {
		p.brokenMessage = "messageExpression must evaluate to a string"
		return nil
	}
	run, err := env.Program(ast)
	if err != nil {
		p.brokenMessage = "messageExpression instantiation failed: " + err.Error()
		return nil
	}
	if p.messageCost, err = c.estimate(env, ast); err != nil {
		p.brokenMessage = "cost estimation failed for messageExpression: " + err.Error()
		return nil
	}
	p.message = run
	return nil
}

// estimate is the highest cost of one run on any object that the schema allows.
func (c *compiler) estimate(env *cel.Env, ast *cel.Ast) (uint64, error) {
	cost, err := env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: sizeEstimator{c.self}})
	return cost.Max, err
}

// outcome is the result of a run.
type outcome struct {
	value any
	cost  uint64
	// counted is false if the cost is unknown: the expression has not run, or a panic has ended it.
	counted bool
	err     error
}

// evaluate runs a rule.
func evaluate(ctx context.Context, program cel.Program, vars interpreter.Activation) (out outcome) {
	value, details, err := run(ctx, program, vars)
	out.err = err
	if cost := details.ActualCost(); cost != nil {
		out.cost, out.counted = *cost, true
	}
	if err == nil && value != nil {
		out.value = value.Value()
	}
	return out
}

// run evaluates an expression, unless its context has ended. Every failure is an error, including a panic. Nothing
// interrupts an evaluation: the environment limits its cost.
func run(ctx context.Context, program cel.Program, vars interpreter.Activation) (value ref.Val,
	details *cel.EvalDetails, err error) {
	defer func() {
		if r := recover(); r != nil {
			value, details, err = nil, nil, fmt.Errorf("internal error: %v", r)
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	return program.Eval(vars)
}

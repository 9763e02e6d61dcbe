package cel

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	kube "k8s.io/apiserver/pkg/cel"
)

// AccessCondition is a condition on the spec of a SubjectAccessReview, the variable request. An authorization webhook
// is called only if its conditions hold. Administrators write them; the cost of one evaluation is limited as for rules.
type AccessCondition struct {
	source  string
	program cel.Program
}

// CompileAccessCondition compiles a condition. Errors are worded as in the reference.
func CompileAccessCondition(source string) (*AccessCondition, error) {
	env, err := accessReviews()
	if err != nil {
		return nil, err
	}
	compiled, issues := env.Compile(source)
	if issues != nil {
		return nil, fmt.Errorf("compilation failed: %s", issues)
	}
	if got := compiled.OutputType(); got != cel.BoolType {
		return nil, fmt.Errorf("must evaluate to %s but got %s", cel.BoolType, got)
	}
	program, err := env.Program(compiled)
	if err != nil {
		return nil, fmt.Errorf("program instantiation failed: %w", err)
	}
	return &AccessCondition{source, program}, nil
}

// Holds evaluates the condition. All members of type string have to be in the request, even if they are empty; others
// may be missing.
func (c *AccessCondition) Holds(ctx context.Context, request map[string]any) (bool, error) {
	variables, err := interpreter.NewActivation(map[string]any{"request": request})
	if err != nil {
		return false, err
	}
	value, _, err := run(ctx, c.program, variables)
	if err != nil {
		return false, fmt.Errorf("cel evaluation error: expression '%s' resulted in error: %w", c.source, err)
	}
	holds, ok := value.(types.Bool)
	if !ok {
		return false, fmt.Errorf("cel evaluation error: expression '%s' eval result value should be bool but got %T",
			c.source, value)
	}
	return bool(holds), nil
}

// accessReviews is the environment of these conditions.
var accessReviews = sync.OnceValues(func() (*cel.Env, error) {
	object := func(name string, members map[string]*kube.DeclType) *kube.DeclType {
		fields := make(map[string]*kube.DeclField, len(members))
		for member, t := range members {
			fields[member] = kube.NewDeclField(member, t, false, nil, nil)
		}
		return kube.NewObjectType("kubernetes."+name, fields)
	}
	text := kube.StringType
	texts := kube.NewListType(text, -1)
	selector := func(name string) *kube.DeclType {
		requirement := object("SelectorRequirement", map[string]*kube.DeclType{"key": text, "operator": text,
			"values": texts})
		return object(name, map[string]*kube.DeclType{"rawSelector": text, "requirements": kube.NewListType(requirement, -1)})
	}
	return withVariable("request", object("SubjectAccessReviewSpec", map[string]*kube.DeclType{
		"user": text, "uid": text, "groups": texts, "extra": kube.NewMapType(text, texts, -1),
		"resourceAttributes": object("ResourceAttributes", map[string]*kube.DeclType{
			"namespace": text, "verb": text, "group": text, "version": text, "resource": text, "subresource": text, "name": text,
			"fieldSelector": selector("FieldSelectorAttributes"), "labelSelector": selector("LabelSelectorAttributes"),
		}),
		"nonResourceAttributes": object("NonResourceAttributes", map[string]*kube.DeclType{"path": text, "verb": text}),
	}))
})

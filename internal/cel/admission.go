package cel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	gvr "k8s.io/apimachinery/pkg/runtime/schema"
	limits "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	kube "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"plinth/internal/access"
	"plinth/object"
)

// AdmissionExpression is a compiled expression about a request that is admitted, such as a match condition of a
// webhook. Its variables are object, oldObject, request, namespaceObject and authorizer.
type AdmissionExpression struct {
	source  string
	program cel.Program
	err     error // of the compilation; it is the result of each evaluation
}

// CompileMatchCondition compiles a match condition, which must have the type bool. stored says that it is in an object
// that is stored already (see environment). The error is worded as in the reference.
func CompileMatchCondition(source string, stored bool) (*AdmissionExpression, error) {
	env, err := admissionEnvironment(stored)
	if err != nil {
		return nil, err
	}
	compiled, issues := env.Compile(source)
	if issues != nil {
		return nil, fmt.Errorf("compilation failed: %s", issues)
	}
	if got := compiled.OutputType(); !got.IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("must evaluate to %s but got %s", cel.BoolType, got)
	}
	program, err := env.Program(compiled)
	if err != nil {
		return nil, fmt.Errorf("program instantiation failed: %w", err)
	}
	return &AdmissionExpression{source: source, program: program}, nil
}

// StoredMatchCondition is CompileMatchCondition for a condition that was accepted: one that does not compile any more
// fails whenever it is evaluated, as in the reference.
func StoredMatchCondition(source string) *AdmissionExpression {
	compiled, err := CompileMatchCondition(source, true)
	if err != nil {
		return &AdmissionExpression{source: source, err: fmt.Errorf("compilation error: %w", err)}
	}
	return compiled
}

// AdmissionInput is what expressions about one request are evaluated on. A null value is one that the request does not
// have. The values are converted when an expression first uses them, and once; so it may not be used concurrently.
type AdmissionInput struct {
	Object, OldObject, Namespace object.Value
	Request                      object.Value // an AdmissionRequest without its objects
	// User is the user of the request, for whom the variable authorizer asks Authorizer; nil: everything is refused.
	User       access.User
	Authorizer access.Authorizer

	converted map[string]ref.Val
}

// MatchConditionsBudget is the cost that all match conditions of a webhook may have together.
const MatchConditionsBudget = limits.RuntimeCELCostBudgetMatchConditions

// ErrOutOfBudget means that the expressions cost more than they may.
var ErrOutOfBudget = errors.New(
	"validation failed due to running out of cost budget, no further validation rules will be run")

// Holds evaluates a condition. Its cost is taken from budget; ErrOutOfBudget ends the evaluation of all conditions of
// the same budget, other errors are of this condition alone.
func (e *AdmissionExpression) Holds(ctx context.Context, on *AdmissionInput, budget *int64) (bool, error) {
	if e.err != nil {
		return false, e.err
	}
	value, details, err := run(ctx, e.program, on)
	if details == nil || details.ActualCost() == nil {
		return false, fmt.Errorf("runtime cost could not be calculated for expression: %v, no further expression will be run",
			e.source)
	}
	cost := *details.ActualCost()
	if cost > math.MaxInt64 || int64(cost) > *budget {
		return false, ErrOutOfBudget
	}
	*budget -= int64(cost)
	if err != nil {
		return false, fmt.Errorf("expression '%v' resulted in error: %w", e.source, err)
	}
	return value == types.True, nil
}

// ResolveName implements interpreter.Activation.
func (i *AdmissionInput) ResolveName(name string) (any, bool) {
	switch name {
	case "object":
		return i.convert(name, i.Object), true
	case "oldObject":
		return i.convert(name, i.OldObject), true
	case "namespaceObject":
		return i.convert(name, i.Namespace), true
	case "request":
		return i.convert(name, i.Request), true
	case "authorizer":
		return library.NewAuthorizerVal(userInfo(i.User), asked{i.Authorizer}), true
	case "authorizer.requestResource":
		return library.NewResourceAuthorizerVal(userInfo(i.User), asked{i.Authorizer}, requestResource{i.Request}), true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (i *AdmissionInput) Parent() interpreter.Activation { return nil }

func (i *AdmissionInput) convert(name string, v object.Value) ref.Val {
	if v.IsNull() {
		return types.NullValue
	}
	value, ok := i.converted[name]
	if !ok {
		value = types.DefaultTypeAdapter.NativeToValue(v.Native())
		if i.converted == nil {
			i.converted = map[string]ref.Val{}
		}
		i.converted[name] = value
	}
	return value
}

// requestResource is the resource of an AdmissionRequest.
type requestResource struct{ request object.Value }

func (r requestResource) GetName() string        { return r.request.At("name").Str() }
func (r requestResource) GetNamespace() string   { return r.request.At("namespace").Str() }
func (r requestResource) GetSubresource() string { return r.request.At("requestSubResource").Str() }
func (r requestResource) GetResource() gvr.GroupVersionResource {
	of := r.request.At("requestResource")
	return gvr.GroupVersionResource{
		Group: of.At("group").Str(), Version: of.At("version").Str(), Resource: of.At("resource").Str(),
	}
}

func userInfo(u access.User) user.Info {
	return &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}

// asked is an Authorizer as the library asks one.
type asked struct{ access.Authorizer }

func (f asked) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if f.Authorizer == nil {
		return authorizer.DecisionDeny, "", nil
	}
	question := &access.Attributes{Verb: a.GetVerb(), Path: a.GetPath(), IsResource: a.IsResourceRequest()}
	if u := a.GetUser(); u != nil {
		question.User = access.User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
	}
	if question.IsResource {
		question.Path = ""
		question.Group, question.Version, question.Resource = a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource()
		question.Subresource, question.Namespace, question.Name = a.GetSubresource(), a.GetNamespace(), a.GetName()
		question.Fields, question.FieldsErr = a.GetFieldSelector()
		question.Labels, question.LabelsErr = a.GetLabelSelector()
	}
	decision, reason, err := f.Authorizer.Authorize(ctx, question)
	switch decision {
	case access.Allow:
		return authorizer.DecisionAllow, reason, err
	case access.NoOpinion:
		return authorizer.DecisionNoOpinion, reason, err
	}
	return authorizer.DecisionDeny, reason, err
}

// admissionEnvironment is the environment of expressions about requests.
func admissionEnvironment(stored bool) (*cel.Env, error) {
	if stored {
		return storedAdmission()
	}
	return newAdmission()
}

var (
	newAdmission    = sync.OnceValues(func() (*cel.Env, error) { return admissionOn(newRules()) })
	storedAdmission = sync.OnceValues(func() (*cel.Env, error) { return admissionOn(storedRules()) })
)

// admissionOn adds the variables. The types have the fields that expressions may name; those of request leave out its
// objects, which are variables, and those of namespaceObject what tells nothing about a namespace (managedFields).
func admissionOn(plain *cel.Env, err error) (*cel.Env, error) {
	if err != nil {
		return nil, err
	}
	request, namespace := requestType(), namespaceType()
	provider := kube.NewDeclTypeProvider(request, namespace)
	provider.SetRecognizeKeywordAsFieldName(true)
	options, err := provider.EnvOptions(plain.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	return plain.Extend(append(options,
		cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
		cel.Variable("namespaceObject", namespace.CelType()), cel.Variable("request", request.CelType()),
		cel.Variable("authorizer", library.AuthorizerType),
		cel.Variable("authorizer.requestResource", library.ResourceCheckType))...)
}

// member is a field of an object type.
type member struct {
	name     string
	of       *kube.DeclType
	required bool
}

func objectType(name string, members ...member) *kube.DeclType {
	fields := make(map[string]*kube.DeclField, len(members))
	for _, m := range members {
		fields[m.name] = kube.NewDeclField(m.name, m.of, m.required, nil, nil)
	}
	return kube.NewObjectType("kubernetes."+name, fields)
}

func requestType() *kube.DeclType {
	text, texts := kube.StringType, kube.NewListType(kube.StringType, -1)
	kind := objectType("GroupVersionKind", member{"group", text, true}, member{"version", text, true},
		member{"kind", text, true})
	resource := objectType("GroupVersionResource", member{"group", text, true}, member{"version", text, true},
		member{"resource", text, true})
	by := objectType("UserInfo", member{"username", text, false}, member{"uid", text, false},
		member{"groups", texts, false}, member{"extra", kube.NewMapType(text, texts, -1), false})
	return objectType("AdmissionRequest",
		member{"kind", kind, true}, member{"resource", resource, true}, member{"subResource", text, false},
		member{"requestKind", kind, true}, member{"requestResource", resource, true},
		member{"requestSubResource", text, false}, member{"name", text, true}, member{"namespace", text, false},
		member{"operation", text, true}, member{"userInfo", by, true}, member{"dryRun", kube.BoolType, false},
		member{"options", kube.DynType, false})
}

func namespaceType() *kube.DeclType {
	text, texts, date := kube.StringType, kube.NewListType(kube.StringType, -1), kube.TimestampType
	pairs := kube.NewMapType(text, text, -1)
	condition := objectType("NamespaceCondition", member{"status", text, true}, member{"type", text, true},
		member{"lastTransitionTime", date, true}, member{"message", text, true}, member{"reason", text, true})
	meta := objectType("NamespaceMetadata",
		member{"name", text, true}, member{"generateName", text, true}, member{"namespace", text, true},
		member{"labels", pairs, true}, member{"annotations", pairs, true}, member{"UID", text, true},
		member{"creationTimestamp", date, true}, member{"deletionGracePeriodSeconds", kube.IntType, true},
		member{"deletionTimestamp", date, true}, member{"generation", kube.IntType, true},
		member{"resourceVersion", text, true}, member{"finalizers", texts, true})
	return objectType("Namespace", member{"metadata", meta, true},
		member{"spec", objectType("NamespaceSpec", member{"finalizers", texts, true}), true},
		member{"status", objectType("NamespaceStatus", member{"conditions", kube.NewListType(condition, -1), true},
			member{"phase", text, true}), true})
}

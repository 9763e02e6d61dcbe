package cel

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	gvr "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	kube "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"plinth/internal/access"
	"plinth/object"
)

// AdmissionInput is what expressions about one request are evaluated on. A null value is one that the request does not
// have.
type AdmissionInput struct {
	Object, OldObject, Namespace, Params object.Value
	// Request returns an AdmissionRequest without its objects. It is called whenever an expression uses it.
	Request func() object.Value
	// User is the user of the request, for whom the variable authorizer asks Authorizer; nil: everything is refused.
	User       access.User
	Authorizer access.Authorizer
	// Unauthorized says that there is no variable authorizer: an expression that uses it fails.
	Unauthorized bool
}

// resolve returns the value of a variable.
func (i *AdmissionInput) resolve(name string) (any, bool) {
	switch name {
	case "object":
		return loose(i.Object), true
	case "oldObject":
		return loose(i.OldObject), true
	case "namespaceObject":
		return loose(i.Namespace), true
	case "params":
		return loose(i.Params), true
	case "request":
		return loose(i.Request()), true
	case "authorizer":
		if !i.Unauthorized {
			return library.NewAuthorizerVal(userInfo(i.User), asked{i.Authorizer}), true
		}
	case "authorizer.requestResource":
		if !i.Unauthorized {
			return library.NewResourceAuthorizerVal(userInfo(i.User), asked{i.Authorizer}, requestResource{i.Request()}), true
		}
	}
	return nil, false
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
		question.Required = new(access.Requirements)
		question.Required.Fields, question.Required.FieldsErr = a.GetFieldSelector()
		question.Required.Labels, question.Required.LabelsErr = a.GetLabelSelector()
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

// declared says which names an expression about requests may use besides object, oldObject, namespaceObject and
// request. It is the key of its environment.
type declared struct {
	// stored: functions of this version, too (see environment).
	stored, params, authorizer bool
	// variables: the variables of a policy. patches: the types Object and JSONPatch.
	variables, patches bool
}

// admissionEnv is the environment of expressions about requests.
//
// An environment takes 0.1 MiB, and those of two policies differ only in the type of one name, `variables`. So all
// policies share one, and this type is changed for each compilation:
//
//	while mu is held, variables.Fields are those of the policy that is compiled
//
// The checker looks at the type, and so does the planner of a program; a program that runs does not.
type admissionEnv struct {
	mu        sync.Mutex
	env       *cel.Env
	variables *kube.DeclType
}

var admissionEnvs = byOptions[declared, *admissionEnv]{build: declared.build}

// environment returns the environment for these names.
func (d declared) environment() (*admissionEnv, error) { return admissionEnvs.get(d) }

// build makes an environment. The types have the fields that expressions may name; those of request leave out its
// objects, which are variables, and those of namespaceObject what tells nothing about a namespace (managedFields).
func (d declared) build() (*admissionEnv, error) {
	plain, err := newRules()
	if d.stored {
		plain, err = storedRules()
	}
	if err != nil {
		return nil, err
	}
	request, namespace := requestType(), namespaceType()
	variables := kube.NewObjectType("kubernetes.variables", map[string]*kube.DeclField{})
	provider := kube.NewDeclTypeProvider(request, namespace, variables)
	provider.SetRecognizeKeywordAsFieldName(true)
	options, err := provider.EnvOptions(plain.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	options = append(options, cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
		cel.Variable("namespaceObject", namespace.CelType()), cel.Variable("request", request.CelType()))
	if d.params {
		options = append(options, cel.Variable("params", cel.DynType))
	}
	if d.authorizer {
		options = append(options, cel.Variable("authorizer", library.AuthorizerType),
			cel.Variable("authorizer.requestResource", library.ResourceCheckType))
	}
	if d.variables {
		options = append(options, cel.Variable("variables", variables.CelType()))
	}
	if d.patches {
		options = append(options, patchTypes, library.JSONPatch())
	}
	env, err := plain.Extend(options...)
	return &admissionEnv{env: env, variables: variables}, err
}

// compile compiles an expression whose variables have these types, if its own type is accepted.
func (e *admissionEnv) compile(source string, variables map[string]*kube.DeclField, accept func(*cel.Type) error) (
	cel.Program, *cel.Type, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.variables.Fields = variables
	checked, issues := e.env.Compile(source)
	if issues != nil {
		return nil, nil, fmt.Errorf("compilation failed: %s", issues)
	}
	if err := accept(checked.OutputType()); err != nil {
		return nil, nil, err
	}
	program, err := e.env.Program(checked)
	if err != nil {
		return nil, nil, fmt.Errorf("program instantiation failed: %w", err)
	}
	return program, checked.OutputType(), nil
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

package reviews

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/object"
	"plinth/schema"
)

// An ExpressionReview evaluates expressions of the policies of admission on objects that are there, as if somebody
// created, updated or deleted each of them now. What it may cost is what all policies of one request may, whatever the
// number of objects: when that is spent, the answer ends, and says so.

// The limits of a review.
const (
	mostExpressions = 50  // with the variables
	defaultObjects  = 50  // on which they are evaluated
	mostObjects     = 500 // that may be asked for
	mostShown       = 1 << 20
	budget          = cel.PolicyBudget
)

func expressionSpec() *schema.Type {
	named := &schema.Type{Kind: schema.List, Elem: structOf(schema.Field{Name: "expression", Type: text},
		optional("name", text))}
	return structOf(
		schema.Field{Name: "expressions", Type: named},
		optional("fieldSelector", text),
		optional("labelSelector", text),
		optional("limit", number),
		optional("name", text),
		optional("namespace", text),
		optional("operation", text),
		optional("params", anything),
		schema.Field{Name: "resource", Type: structOf(optional("group", text), schema.Field{Name: "resource", Type: text},
			schema.Field{Name: "version", Type: text})},
		optional("variables", named),
	)
}

// expressionReview is one review.
type expressionReview struct {
	*Config
	ctx       context.Context
	rq        *engine.Request
	spec      object.Value
	resource  *engine.Resource
	operation string

	scope       *cel.Scope
	names       []string
	expressions []*cel.AdmissionExpression
	namespaces  map[string]object.Value // that expressions may see

	left       int64 // of the budget
	shown      int   // about how many bytes the answer has
	incomplete string
}

// expressions answers an ExpressionReview.
func (c *Config) expressions(ctx context.Context, rq *engine.Request, spec object.Value) (object.Value, error) {
	r := &expressionReview{Config: c, ctx: ctx, rq: rq, spec: spec, left: budget, namespaces: map[string]object.Value{},
		operation: cmp.Or(spec.At("operation").Str(), "CREATE")}
	options, errs := r.read()
	if len(errs) > 0 {
		return object.Nil, invalid("ExpressionReview", errs)
	}
	if err := r.permitted(); err != nil {
		return object.Nil, err
	}
	asked := &engine.Request{Resource: r.resource, Namespace: spec.At("namespace").Str(), User: rq.User, Verb: "list",
		UserAgent: rq.UserAgent, Authorizer: rq.Authorizer}
	list, err := c.Engine().List(ctx, asked, options)
	if err != nil {
		return object.Nil, err
	}
	var objects []object.Value
	for item := range list.Items {
		parsed, err := object.ParseJSON(item.Data())
		if err != nil {
			return object.Nil, err
		}
		if objects = append(objects, r.evaluate(parsed.Value)); r.incomplete != "" {
			break
		}
	}
	if err := list.Err(); err != nil {
		return object.Nil, err
	}
	if list.Continue != "" && r.incomplete == "" {
		r.incomplete = fmt.Sprintf("there are more than the first %d objects", options.Limit)
	}
	status := object.Fields("objects", object.ListOf(objects...), "cost", object.IntOf(budget-r.left), "costLimit",
		object.IntOf(budget))
	if r.incomplete != "" {
		status = status.With("incomplete", object.StringOf(r.incomplete))
	}
	return status, nil
}

// read reads the spec, and compiles the expressions.
func (r *expressionReview) read() (options engine.ListOptions, errs field.ErrorList) {
	at, spec := field.NewPath("spec"), r.spec
	of := spec.At("resource")
	named := of.At("resource").Str() + "." + of.At("version").Str() + "." + of.At("group").Str()
	r.resource = r.Types().Find(of.At("group").Str(), of.At("version").Str(), of.At("resource").Str())
	switch {
	case r.resource == nil:
		errs = append(errs, field.Invalid(at.Child("resource"), named,
			"this server has no such type, or another one serves it"))
	case !slices.Contains(r.resource.Verbs, "list"):
		errs = append(errs, field.Invalid(at.Child("resource"), named, "its objects cannot be listed"))
		r.resource = nil
	case !r.resource.Namespaced && spec.At("namespace").Str() != "":
		errs = append(errs, field.Invalid(at.Child("namespace"), spec.At("namespace").Str(), "the type has no namespaces"))
	}
	if !slices.Contains(operations, r.operation) {
		errs = append(errs, field.NotSupported(at.Child("operation"), r.operation, operations))
	}
	var err error
	if options.Labels, err = labels.Parse(spec.At("labelSelector").Str()); err != nil {
		errs = append(errs, field.Invalid(at.Child("labelSelector"), spec.At("labelSelector").Str(), err.Error()))
	}
	if options.Fields, err = fields.ParseSelector(spec.At("fieldSelector").Str()); err != nil {
		errs = append(errs, field.Invalid(at.Child("fieldSelector"), spec.At("fieldSelector").Str(), err.Error()))
	} else if name := spec.At("name").Str(); name != "" {
		options.Fields = fields.AndSelectors(options.Fields, fields.OneTermEqualSelector("metadata.name", name))
	}
	options.Limit = cmp.Or(spec.At("limit").Int(), defaultObjects)
	if options.Limit < 1 || options.Limit > mostObjects {
		errs = append(errs, field.Invalid(at.Child("limit"), options.Limit, fmt.Sprintf("must be between 1 and %d",
			mostObjects)))
	}
	return options, append(errs, r.compile(at)...)
}

// operations are those that expressions can be evaluated for.
var operations = []string{"CREATE", "UPDATE", "DELETE"}

// compile compiles variables and expressions. Those that do not compile are errors: they say nothing of any object.
func (r *expressionReview) compile(at *field.Path) (errs field.ErrorList) {
	variables, expressions := r.spec.At("variables").Items(), r.spec.At("expressions").Items()
	if len(expressions) == 0 {
		return field.ErrorList{field.Required(at.Child("expressions"), "")}
	}
	if n := len(variables) + len(expressions); n > mostExpressions {
		return field.ErrorList{field.TooMany(at.Child("expressions"), n, mostExpressions)}
	}
	r.scope = cel.NewScope(!r.spec.At("params").IsNull(), true)
	check := func(x *cel.AdmissionExpression, list string, i int, source string) {
		if err := x.Err(); err != nil {
			errs = append(errs, field.Invalid(at.Child(list).Index(i).Child("expression"), source, err.Error()))
		}
	}
	for i, v := range variables {
		source := v.At("expression").Str()
		if v.At("name").Str() == "" {
			errs = append(errs, field.Required(at.Child("variables").Index(i).Child("name"), ""))
		}
		check(r.scope.Add(v.At("name").Str(), source, false), "variables", i, source)
	}
	for i, v := range expressions {
		source := v.At("expression").Str()
		x := r.scope.Compile(cel.Variable, source, false)
		check(x, "expressions", i, source)
		r.names, r.expressions = append(r.names, v.At("name").Str()), append(r.expressions, x)
	}
	return errs
}

// permitted returns an error if the user may not list what the review is about.
func (r *expressionReview) permitted() error {
	a := access.Attributes{Verb: "list", IsResource: true, Group: r.resource.Group, Version: r.resource.Version,
		Resource: r.resource.Name, Namespace: r.spec.At("namespace").Str(), Name: r.spec.At("name").Str(), User: r.rq.User}
	ok, reason, err := r.rq.Allowed(r.ctx, a)
	switch {
	case ok:
		return nil
	case err != nil:
		return apierr.NewInternal(err)
	}
	return apierr.NewForbidden(r.resource.Type(), a.Name, a.Refusal(reason))
}

// evaluate evaluates the expressions on an object.
func (r *expressionReview) evaluate(obj object.Value) object.Value {
	on := &cel.AdmissionInput{Object: obj, Namespace: r.namespaceOf(obj), Params: r.spec.At("params"), User: r.rq.User,
		Authorizer: r.rq.Authorizer, Request: func() object.Value { return r.request(obj) }}
	switch r.operation {
	case "UPDATE":
		on.OldObject = obj
	case "DELETE":
		on.Object, on.OldObject = object.Nil, obj
	}
	e := r.scope.Evaluate(r.ctx, on, r.left)
	results := make([]object.Value, 0, len(r.expressions))
	for i, x := range r.expressions {
		shown, err, stop := e.Show(x)
		result := object.Fields("cost", object.IntOf(shown.Cost))
		if r.names[i] != "" {
			result = result.With("name", object.StringOf(r.names[i]))
		}
		switch {
		case stop != nil:
			r.incomplete = stop.Error()
			result = result.With("error", object.StringOf(stop.Error()))
		case err != nil:
			result = result.With("error", object.StringOf(err.Error()))
		default:
			result = result.With("type", object.StringOf(shown.Type)).With("value", shown.Value)
		}
		results = append(results, result)
		if r.shown += len(object.AppendJSON(nil, result)); r.shown > mostShown && r.incomplete == "" {
			r.incomplete = fmt.Sprintf("the answer is larger than %d bytes", mostShown)
		}
		if stop != nil {
			break
		}
	}
	if r.left = e.Left(); r.incomplete == cel.ErrOutOfBudget.Error() {
		r.left = 0
	}
	meta := obj.At("metadata")
	subject := object.Fields("name", meta.At("name"), "results", object.ListOf(results...))
	if namespace := meta.At("namespace"); !namespace.IsNull() {
		subject = subject.With("namespace", namespace)
	}
	return subject
}

// request is the AdmissionRequest that expressions see.
func (r *expressionReview) request(obj object.Value) object.Value {
	u, of := &r.rq.User, r.resource
	kind := object.Fields("group", object.StringOf(of.Group), "version", object.StringOf(of.Version), "kind",
		object.StringOf(of.Kind))
	resource := object.Fields("group", object.StringOf(of.Group), "version", object.StringOf(of.Version), "resource",
		object.StringOf(of.Name))
	by := object.Fields("username", object.StringOf(u.Name), "groups", object.Strings(u.Groups...))
	if u.UID != "" {
		by = by.With("uid", object.StringOf(u.UID))
	}
	meta := obj.At("metadata")
	request := object.Fields("dryRun", object.BoolOf(false), "kind", kind, "name", meta.At("name"), "operation",
		object.StringOf(r.operation), "requestKind", kind, "requestResource", resource, "resource", resource, "userInfo", by)
	if namespace := meta.At("namespace"); !namespace.IsNull() {
		request = request.With("namespace", namespace)
	}
	return request
}

// namespaceOf is the Namespace of an object, as expressions see it; null if there is none, or the user may not get it.
func (r *expressionReview) namespaceOf(obj object.Value) object.Value {
	name := obj.At("metadata", "namespace").Str()
	seen, ok := r.namespaces[name]
	if ok || name == "" {
		return seen
	}
	namespaces := r.Types().Find("", "v1", "namespaces")
	if ok, _, _ := r.rq.Allowed(r.ctx, access.Attributes{Verb: "get", IsResource: true, Version: "v1",
		Resource: "namespaces", Namespace: name, Name: name}); ok {
		rq := &engine.Request{Resource: namespaces, Name: name, User: r.rq.User, Verb: "get", Authorizer: r.rq.Authorizer}
		if got, err := r.Engine().Get(r.ctx, rq, ""); err == nil {
			if parsed, err := object.ParseJSON(got.Object.Data()); err == nil {
				seen = parsed.Value.Edit(nil, "apiVersion", "kind")
				seen = seen.With("metadata", seen.At("metadata").Edit(nil, "managedFields", "ownerReferences"))
			}
		}
	}
	r.namespaces[name] = seen
	return seen
}

// Package reviews has three virtual types, of which no object is stored: a create is a question, and its answer the
// status of what was sent, as with a SubjectAccessReview.
//
//	DependentsReview    what goes with an object, and what is in a namespace (BEY-19)
//	WhoCanReview        who may make a request, and by which binding (BEY-17)
//	ExpressionReview    what expressions of CEL say of the objects that are there (BEY-18)
//
// They are of the group plinth, which kube-apiserver does not have, and which discovery does not list: a client that
// goes through all types would find some that its other servers do not know. Who may ask is decided by roles, as for
// any type, by the verb create; objects that a review is about, its user must be able to list besides.
package reviews

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/authz"
	"plinth/internal/engine"
	"plinth/internal/gotypes"
	"plinth/object"
	"plinth/schema"
)

// The group and version of the types.
const (
	Group   = "plinth"
	Version = "v1alpha1"
)

// Config says of which server the reviews are.
type Config struct {
	Authority *authz.Authority
	// Engine reads objects. It is called with the first review, as an engine is made after its types.
	Engine func() *engine.Engine
	Types  func() *engine.Types
}

// Resources returns the types.
func Resources(c Config) []*engine.Resource {
	return []*engine.Resource{
		virtual("DependentsReview", "dependentsreviews", dependentsSpec(), c.dependents),
		virtual("ExpressionReview", "expressionreviews", expressionSpec(), c.expressions),
		virtual("WhoCanReview", "whocanreviews", whoCanSpec(), c.whoCan),
	}
}

// virtual is a type with metadata, a spec and a status. metadata has to be empty, and the status of what is sent does
// not matter.
func virtual(kind, name string, spec *schema.Type,
	answer func(ctx context.Context, rq *engine.Request, spec object.Value) (object.Value, error)) *engine.Resource {
	typ := structOf(
		schema.Field{Name: "apiVersion", Type: text, OmitEmpty: true},
		schema.Field{Name: "kind", Type: text, OmitEmpty: true},
		schema.Field{Name: "metadata", Type: gotypes.Of[metav1.ObjectMeta](), OmitEmpty: true},
		schema.Field{Name: "spec", Type: spec},
		schema.Field{Name: "status", Type: anything, OmitEmpty: true},
	)
	return &engine.Resource{
		Naming: engine.Naming{Group: Group, Version: Version, Name: name, Singular: name[:len(name)-1], Kind: kind,
			ListKind: kind + "List", Verbs: []string{"create"}, Unlisted: true},
		Writing: engine.Writing{ValidateName: func(string, bool) []string { return nil }},
		Answering: engine.Answering{Answer: func(ctx context.Context, rq *engine.Request, obj object.Value) (object.Value,
			error) {
			status, err := answer(ctx, rq, obj.At("spec"))
			if err != nil {
				return object.Nil, err
			}
			return obj.With("status", status), nil
		}, NoMessages: true},
		Schema: func() *schema.Type { return typ },
		Model:  Group + "." + Version + "." + kind,
	}
}

// The types of fields.
var (
	text     = &schema.Type{Kind: schema.String}
	number   = &schema.Type{Kind: schema.Int, Bits: 64}
	anything = &schema.Type{Kind: schema.Any}
)

// structOf is a struct of fields in byte order.
func structOf(fields ...schema.Field) *schema.Type {
	return &schema.Type{Kind: schema.Struct, Fields: fields}
}

// optional is a field that may be left out.
func optional(name string, of *schema.Type) schema.Field {
	return schema.Field{Name: name, Type: of, OmitEmpty: true}
}

// invalid is the error of a review.
func invalid(kind string, errs field.ErrorList) error {
	return apierr.NewInvalid(apierr.Type{Group: Group, Name: kind}, "", errs)
}

// whoCanSpec has the attributes of a SubjectAccessReview, but for selectors: rules do not know them.
func whoCanSpec() *schema.Type {
	texts := func(names ...string) *schema.Type {
		fields := make([]schema.Field, len(names))
		for i, name := range names {
			fields[i] = optional(name, text)
		}
		return structOf(fields...)
	}
	return structOf(
		schema.Field{Name: "nonResourceAttributes", Type: texts("path", "verb"), OmitEmpty: true, Pointer: true},
		schema.Field{Name: "resourceAttributes", Type: texts("group", "name", "namespace", "resource", "subresource", "verb",
			"version"), OmitEmpty: true, Pointer: true},
	)
}

// whoCan answers a WhoCanReview, whose spec is that of a SubjectAccessReview without a subject.
func (c *Config) whoCan(_ context.Context, _ *engine.Request, spec object.Value) (object.Value, error) {
	resource, path := spec.At("resourceAttributes"), spec.At("nonResourceAttributes")
	if resource.IsNull() == path.IsNull() {
		return object.Nil, invalid("WhoCanReview", field.ErrorList{field.Invalid(field.NewPath("spec"), "",
			"exactly one of nonResourceAttributes or resourceAttributes must be specified")})
	}
	a := access.Attributes{Verb: path.At("verb").Str(), Path: path.At("path").Str()}
	if !resource.IsNull() {
		a = access.Attributes{IsResource: true, Verb: resource.At("verb").Str(), Group: resource.At("group").Str(),
			Version: resource.At("version").Str(), Resource: resource.At("resource").Str(),
			Subresource: resource.At("subresource").Str(), Namespace: resource.At("namespace").Str(),
			Name: resource.At("name").Str()}
	}
	grants, incomplete := c.Authority.WhoCan(&a)
	list := make([]object.Value, len(grants))
	for i, g := range grants {
		list[i] = object.Fields("subject", ref(authz.Ref(g.Subject)))
		if g.Binding.Name != "" {
			list[i] = list[i].With("binding", ref(g.Binding)).With("role", ref(g.Role))
		}
	}
	status := object.Fields("grants", object.ListOf(list...))
	if len(incomplete) > 0 {
		status = status.With("incomplete", object.Strings(incomplete...))
	}
	return status, nil
}

// ref is a reference to a subject, a binding or a role.
func ref(r authz.Ref) object.Value {
	v := object.Fields("kind", object.StringOf(r.Kind), "name", object.StringOf(r.Name))
	if r.Namespace != "" {
		v = v.With("namespace", object.StringOf(r.Namespace))
	}
	return v
}

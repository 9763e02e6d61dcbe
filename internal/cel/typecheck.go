package cel

import (
	"fmt"
	"time"

	"github.com/google/cel-go/cel"
	kube "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"plinth/schema"
)

// TypeCheck checks expressions of a policy against the types of the objects that they see. In the expressions that are
// run, object, oldObject and params are of dynamic type, as a policy may match several types; here they have one each.
// A policy takes effect whatever is found.
type TypeCheck struct {
	env       *cel.Env
	variables *kube.DeclType
}

// NewTypeCheck returns a check against one type of objects. paramKind is the kind of the params, "" if the policy has
// none, and params its type, nil if that is unknown. Type names in errors are made of the kinds, and unique.
func NewTypeCheck(kind string, object *schema.Type, paramKind string, params *schema.Type) (*TypeCheck, error) {
	plain, err := storedRules()
	if err != nil {
		return nil, err
	}
	request, namespace := requestType(), namespaceType()
	c := &TypeCheck{variables: kube.NewObjectType("kubernetes.variables", map[string]*kube.DeclField{})}
	known := []*kube.DeclType{request, namespace, c.variables}
	declare := func(t *schema.Type, name string) *cel.Type {
		of := declaration(t, map[*schema.Type]bool{})
		if of == nil {
			return cel.DynType
		}
		of = of.MaybeAssignTypeName(fmt.Sprintf("%s%d", name, time.Now().Nanosecond()))
		known = append(known, of)
		return of.CelType()
	}
	options := []cel.EnvOption{
		cel.Variable("namespaceObject", namespace.CelType()), cel.Variable("request", request.CelType()),
		cel.Variable("authorizer", library.AuthorizerType), cel.Variable("variables", c.variables.CelType()),
	}
	of := declare(object, kind)
	options = append(options, cel.Variable("object", of), cel.Variable("oldObject", of))
	if paramKind != "" {
		options = append(options, cel.Variable("params", declare(params, paramKind)))
	}
	provider := kube.NewDeclTypeProvider(known...)
	provider.SetRecognizeKeywordAsFieldName(true)
	types, err := provider.EnvOptions(plain.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	c.env, err = plain.Extend(append(types, options...)...)
	return c, err
}

// Add adds a variable. One that is wrong is of dynamic type; the expressions that use it are not.
func (c *TypeCheck) Add(name, source string) {
	var of *cel.Type
	if compiled, issues := c.env.Compile(source); issues == nil {
		of = compiled.OutputType()
	}
	c.variables.Fields[name] = kube.NewDeclField(name, variableType(of), true, nil, nil)
}

// Check returns what is wrong with an expression; "" if nothing is.
func (c *TypeCheck) Check(source string) string {
	if _, issues := c.env.Compile(source); issues != nil {
		return issues.String()
	}
	return ""
}

// declaration is the type of values of a schema for the compiler; nil if expressions cannot access them. above are the
// types that contain it: a type that contains itself is an object without known fields there, as in the reference.
func declaration(t *schema.Type, above map[*schema.Type]bool) *kube.DeclType {
	if t == nil {
		return nil
	}
	if above[t] {
		return kube.NewObjectType("object", map[string]*kube.DeclField{})
	}
	above[t] = true
	defer delete(above, t)
	switch t.Kind {
	case schema.Struct:
		fields := make(map[string]*kube.DeclField, len(t.Fields))
		for i := range t.Fields {
			f := &t.Fields[i]
			of := declaration(f.Type, above)
			if escaped, ok := kube.Escape(f.Name); ok && of != nil {
				fields[escaped] = kube.NewDeclField(escaped, of, false, nil, nil)
			}
		}
		return kube.NewObjectType("object", fields)
	case schema.Map:
		if of := declaration(t.Elem, above); of != nil {
			return kube.NewMapType(kube.StringType, of, -1)
		}
	case schema.List:
		if of := declaration(t.Elem, above); of != nil {
			return kube.NewListType(of, -1)
		}
	case schema.Any:
		if t.GoName == "RawExtension" || t.GoName == "FieldsV1" { // objects of any content
			return kube.NewObjectType("object", map[string]*kube.DeclField{})
		}
	case schema.Quantity: // the reference's schema of it has no type
	default:
		return scalarDeclaration(t)
	}
	return nil
}

func scalarDeclaration(t *schema.Type) *kube.DeclType {
	switch t.Kind {
	case schema.IntOrString:
		return kube.DynType
	case schema.Int:
		return kube.IntType
	case schema.Float:
		return kube.DoubleType
	case schema.Bool:
		return kube.BoolType
	case schema.Bytes:
		return kube.BytesType
	case schema.Time, schema.MicroTime:
		return kube.TimestampType
	}
	if t.Custom != nil {
		switch t.Custom.Format {
		case "byte":
			return kube.BytesType
		case "duration":
			return kube.DurationType
		case "date", "date-time":
			return kube.TimestampType
		}
	}
	return kube.StringType
}

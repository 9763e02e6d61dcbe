package custom

import (
	"context"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/schemaconv"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"

	"plinth/schema"
)

// A merge treats a custom type as the reference does, by the OpenAPI document that it publishes for the type.
// SPEC: SSA-8 SSA-9 EXT-1
func TestTypesOfMerges(t *testing.T) {
	compared := map[string]int{}
	for number := uint64(1); number <= *schemas; number++ {
		s := newGenerator(*seed, number).schema()
		internal, external, err := internalSchema(s)
		if err != nil {
			t.Fatal(err)
		}
		if len(apiextensionsvalidation.ValidateCustomResourceDefinition(context.Background(), definition(internal))) > 0 {
			continue
		}
		if differences := compareTypes(t, s, external, compared); differences != nil {
			t.Fatalf("schema %d: %v\n%s", number, differences, encoded(s))
		}
	}
	t.Log(compared)
	for what, least := range map[string]int{
		"struct": 200, "open": 40, "map": 20, "atomic list": 40, "set": 20, "associative list": 10, "deduced": 40,
		"numeric": 100, "string": 60,
		"any scalar": 20, "atomic map": 10, "any": 20, "boolean": 10,
	} {
		if *schemas >= 200 && compared[what] < least {
			t.Errorf("%s: compared %d times, and not %d", what, compared[what], least)
		}
	}
}

// compareTypes reports where the types of a schema differ, and counts what it has compared.
func compareTypes(t *testing.T, s node, external *apiextensionsv1.JSONSchemaProps, compared map[string]int) []string {
	t.Helper()
	types, err := mergeTypes(external)
	if err != nil {
		t.Fatalf("%s: %v", encoded(s), err)
	}
	ours, err := newPlinth(s)
	if err != nil {
		t.Fatalf("%s: %v", encoded(s), err)
	}
	c := comparison{types: types, compared: compared}
	name := "org.example.v1.Example"
	c.compare("", smd.TypeRef{NamedType: &name}, ours.typ)
	return c.differences
}

func mergeTypes(external *apiextensionsv1.JSONSchemaProps) (map[string]smd.TypeDef, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.org", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "examples", Singular: "example", Kind: "Example",
			ListKind: "ExampleList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: external},
		}},
	}}
	document, err := builder.BuildOpenAPIV3(crd, "v1", builder.Options{})
	if err != nil {
		return nil, err
	}
	converted, err := schemaconv.ToSchemaFromOpenAPI(document.Components.Schemas, false)
	if err != nil {
		return nil, err
	}
	types := map[string]smd.TypeDef{}
	for _, def := range converted.Types {
		types[def.Name] = def
	}
	return types, nil
}

type comparison struct {
	types       map[string]smd.TypeDef
	compared    map[string]int
	differences []string
}

func (c *comparison) equal(path, what string, want, got any) {
	if fmt.Sprint(want) != fmt.Sprint(got) {
		c.differences = append(c.differences, fmt.Sprintf("%s: %s is %v in the reference, %v here", path, what, want, got))
	}
}

func (c *comparison) compare(path string, ref smd.TypeRef, t *schema.Type) {
	atom := ref.Inlined
	if ref.NamedType != nil {
		switch atom = c.types[*ref.NamedType].Atom; *ref.NamedType {
		case "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":
			c.equal(path, "metadata", true, t == metadata)
			return
		case "__untyped_deduced_":
			c.compared["deduced"]++
			c.equal(path, "deduced", true, t != nil && t.Kind == schema.Any && len(t.Fields) == 0 && !t.AtomicMap)
			return
		}
	}
	if t == nil {
		c.equal(path, "type", atom, "none")
		return
	}
	switch {
	case atom.Scalar != nil && atom.Map != nil:
		c.compared["any"]++
		c.equal(path, "kind", true, t.Kind == schema.Any || t.Kind == schema.IntOrString || path == "" &&
			t.Kind == schema.Struct)
		c.fields(path, atom.Map, t)
	case atom.Scalar != nil:
		c.scalar(path, *atom.Scalar, t)
	case atom.List != nil:
		c.list(path, atom.List, t)
	case atom.Map != nil:
		c.equal(path, "kind", true, t.Kind == schema.Struct || t.Kind == schema.Map)
		c.mapping(path, atom.Map, t)
	}
}

func (c *comparison) scalar(path string, scalar smd.Scalar, t *schema.Type) {
	format := ""
	if t.Custom != nil {
		format = t.Custom.Format
	}
	got := "a " + t.Kind.String()
	switch t.Kind {
	case schema.Int, schema.Float:
		got = "numeric"
	case schema.Bool:
		got = "boolean"
	case schema.String:
		if got = "string"; format != "" && format != "byte" {
			got = "untyped"
		}
	}
	c.equal(path, "scalar", scalar, got)
	if got == "untyped" {
		got = "any scalar"
	}
	c.compared[got]++
}

func (c *comparison) list(path string, list *smd.List, t *schema.Type) {
	c.equal(path, "kind", "list", t.Kind)
	if t.Kind != schema.List {
		return
	}
	want := "atomic list"
	if list.ElementRelationship == smd.Associative {
		if want = "set"; len(list.Keys) > 0 {
			want = "associative list"
		}
	}
	c.compared[want]++
	c.equal(path, "list type", want, [...]string{"atomic list", "set", "associative list"}[t.ListType])
	c.equal(path, "keys", list.Keys, t.ListKeys)
	c.compare(path+"[]", list.ElementType, t.Elem)
}

func (c *comparison) mapping(path string, m *smd.Map, t *schema.Type) {
	c.equal(path, "atomic", m.ElementRelationship == smd.Atomic, t.AtomicMap)
	if t.AtomicMap {
		c.compared["atomic map"]++
	}
	if t.Kind == schema.Map {
		c.compared["map"]++
		c.compare(path+"{}", m.ElementType, t.Elem)
		return
	}
	c.compared["struct"]++
	c.fields(path, m, t)
	if m.ElementType == (smd.TypeRef{}) {
		c.equal(path, "members that are not declared", "none", elem(t))
		return
	}
	c.compared["open"]++
	c.compare(path+"{}", m.ElementType, t.Elem)
}

func elem(t *schema.Type) string {
	if t.Elem == nil {
		return "none"
	}
	return t.Elem.Kind.String()
}

func (c *comparison) fields(path string, m *smd.Map, t *schema.Type) {
	c.equal(path, "fields", len(m.Fields), len(t.Fields))
	for _, field := range m.Fields {
		ours := t.Field(field.Name)
		if ours == nil {
			c.equal(path, "field", field.Name, "none")
			continue
		}
		if t.Custom != nil && t.Custom.Embedded && (field.Name == "apiVersion" || field.Name == "kind") {
			c.equal(path+"."+field.Name, "kind", "string", ours.Type.Kind) // whatever its format
			continue
		}
		c.compare(path+"."+field.Name, field.Type, ours.Type)
	}
}

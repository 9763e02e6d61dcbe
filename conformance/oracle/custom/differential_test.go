package custom

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"

	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/object"
)

var (
	schemas = flag.Uint64("schemas", 200, "how many generated schemas to run")
	seed    = flag.Uint64("seed", 1, "what they are made from")
	only    = flag.Uint64("only", 0, "run the schema of this number alone")
	enough  = flag.Int("enough", 3, "how many differences end the run")
	objects = flag.Int("objects", 12, "objects of a schema")
)

// definition returns a definition with the schema.
func definition(internal *apiextensions.JSONSchemaProps) *apiextensions.CustomResourceDefinition {
	no := false
	return &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "examples.example.org", ResourceVersion: "1"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: "example.org", Version: "v1", Scope: apiextensions.NamespaceScoped, PreserveUnknownFields: &no,
			Names: apiextensions.CustomResourceDefinitionNames{Plural: "examples", Singular: "example", Kind: "Example",
				ListKind: "ExampleList"},
			// the internal form has the schema of all versions here
			Validation: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: internal},
			Versions:   []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
			Conversion: &apiextensions.CustomResourceConversion{Strategy: apiextensions.NoneConverter},
		},
		Status: apiextensions.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
	}
}

// SPEC: EXT-1 VAL-2
func TestGeneratedSchemas(t *testing.T) {
	count := newTally()
	found := 0
	for number := uint64(1); number <= *schemas; number++ {
		if *only > 0 {
			number = *only
		}
		g := newGenerator(*seed, number)
		s := g.schema()
		internal, _, err := internalSchema(s)
		if err != nil {
			t.Fatalf("schema %d: %v", number, err)
		}
		if errs := apiextensionsvalidation.ValidateCustomResourceDefinition(context.Background(),
			definition(internal)); len(errs) > 0 {
			count.refusedSchemas++
			for _, err := range errs {
				count.why[fmt.Sprintf("%s %s", err.Type, err.Detail)]++
			}
		} else if d := run(t, g, s, count); d != "" {
			t.Errorf("schema %d\n%s\n%s", number, d, encoded(s))
			if found++; found >= *enough {
				t.FailNow()
			}
		}
		if *only > 0 {
			return
		}
	}
	count.check(t, *schemas)
}

// run puts objects of a schema through both engines and returns the first difference.
func run(t *testing.T, g *generator, s node, count *tally) string {
	reference, err := newReference(s)
	if err != nil {
		t.Fatal(err)
	}
	plinth, err := newPlinth(s)
	if err != nil {
		return fmt.Sprintf("compiling: %v", err)
	}
	count.schema(s)
	var text string
	var refOld, ourOld any
	for i := range *objects {
		switch {
		case i%3 > 0 && refOld != nil:
			text = encoded(g.damaged(refOld, 1+g.IntN(3)))
		default:
			text = encoded(g.object(s, pick(g, 75, 90, 97, 100)))
			refOld, ourOld = nil, nil
		}
		want, refNew := reference.take(text, refOld)
		got, ourNew := plinth.take(text, ourOld)
		for again := 0; again < 30 && want.decodeError != got.decodeError; again++ {
			want, refNew = reference.take(text, refOld) // if there are several errors, it returns any one of them
		}
		if d := difference(want, got); d != "" {
			return fmt.Sprintf("object %s\nold %s\n%s", text, encoded(refOld), d)
		}
		if refNew == nil {
			count.refusedObjects++
			continue
		}
		if refOld != nil {
			count.updates++
			before, after := refOld.(map[string]any), refNew.(map[string]any)
			want := causes(reference.validateStatus(after, before))
			got := causes(plinth.typ.ValidateStatus(ourNew.(object.Value), ourOld.(object.Value), nil))
			if strings.Join(want, "\n") != strings.Join(got, "\n") {
				return fmt.Sprintf("status of %s\nold %s\nreference: %s\nplinth:    %s", text, encoded(refOld), want, got)
			}
			count.ratcheted(causes(reference.validate(after, nil)), want, reference.validate(after, refOld))
		}
		count.object(s, refNew, want.causes)
		refOld, ourOld = refNew, ourNew
	}
	return ""
}

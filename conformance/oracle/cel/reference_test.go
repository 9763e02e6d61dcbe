package cel

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	celschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	limits "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/warning"
)

// reference is one schema in the reference's form.
type reference struct {
	props      *apiextensions.JSONSchemaProps
	structural *structuralschema.Structural
	validator  *celschema.Validator
}

func newReference(t testing.TB, schema []byte) *reference {
	t.Helper()
	r, err := tryReference(schema)
	if err != nil {
		t.Fatalf("%v\n%s", err, schema)
	}
	return r
}

func tryReference(schema []byte) (*reference, error) {
	var props v1.JSONSchemaProps
	if err := json.Unmarshal(schema, &props); err != nil {
		return nil, err
	}
	r := &reference{props: &apiextensions.JSONSchemaProps{}}
	if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, r.props, nil); err != nil {
		return nil, err
	}
	var err error
	if r.structural, err = structuralschema.NewStructural(r.props); err != nil {
		return nil, err
	}
	if errs := structuralschema.ValidateStructural(nil, r.structural); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	r.validator = celschema.NewValidator(r.structural, true, limits.PerCallLimit)
	return r, nil
}

func document(t testing.TB, text []byte) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := utiljson.Unmarshal(text, &doc); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return doc
}

// recorder keeps warnings.
type recorder struct{ told []string }

func (r *recorder) AddWarning(_, text string) { r.told = append(r.told, text) }

// validate returns the errors of the rules for an object; old is nil for a new one.
func (r *reference) validate(t testing.TB, obj, old []byte) (errs, warnings []string) {
	t.Helper()
	var was map[string]any
	var options []celschema.Option
	now := document(t, obj)
	var before any
	if old != nil {
		was = document(t, old)
		before = was
		options = append(options, celschema.WithRatcheting(common.NewCorrelatedObject(now, was,
			&model.Structural{Structural: r.structural})))
	}
	told := &recorder{}
	ctx := warning.WithWarningRecorder(context.Background(), told)
	list, _ := r.validator.Validate(ctx, nil, r.structural, now, before, limits.RuntimeCELCostBudget, options...)
	return lines(list), sorted(told.told)
}

// cost returns the rest of a budget after an object is validated like a default.
func (r *reference) cost(t testing.TB, obj []byte, budget int64) ([]string, int64) {
	t.Helper()
	now := document(t, obj)
	path := field.NewPath("default")
	errs, left := r.validator.Validate(context.Background(), path, r.structural, now, now, budget)
	if len(errs) == 0 {
		var alone int64
		errs, alone = r.validator.Validate(context.Background(), path, r.structural, now, nil, budget)
		left = min(left, alone)
	}
	return lines(errs), left
}

// definition returns a complete definition with this schema.
func definition(props *apiextensions.JSONSchemaProps) *apiextensions.CustomResourceDefinition {
	names := apiextensions.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget",
		ListKind: "WidgetList"}
	no := false
	return &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", ResourceVersion: "1"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: "example.com", Version: "v1", Names: names, Scope: apiextensions.NamespaceScoped, PreserveUnknownFields: &no,
			Versions:   []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
			Validation: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: props},
			Conversion: &apiextensions.CustomResourceConversion{Strategy: apiextensions.NoneConverter},
		},
		Status: apiextensions.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
	}
}

const schemaPath = "spec.validation.openAPIV3Schema"

// check returns the errors of a definition's rules, and the other errors; was is nil for a new definition.
func (r *reference) check(was *reference) (rules, other []string) {
	now := definition(r.props)
	var list field.ErrorList
	if was == nil {
		list = validation.ValidateCustomResourceDefinition(context.Background(), now)
	} else {
		list = validation.ValidateCustomResourceDefinitionUpdate(context.Background(), now, definition(was.props))
	}
	var of field.ErrorList
	for _, e := range list {
		if strings.Contains(e.Field, "x-kubernetes-validations") || strings.Contains(e.Detail, "estimated rule cost total") {
			of = append(of, e)
		} else {
			other = append(other, e.Error())
		}
	}
	return lines(of), other
}

// lines formats errors and sorts them, as the reference's order follows the iteration of Go maps.
func lines(list field.ErrorList) []string {
	out := make([]string, 0, len(list))
	for _, e := range list {
		out = append(out, fmt.Sprintf("%s: %s", e.Type, e.Error()))
	}
	return sorted(out)
}

func sorted(in []string) []string {
	out := make([]string, 0, len(in))
	for _, s := range in {
		out = append(out, selfName.ReplaceAllString(s, "selfType"))
	}
	slices.Sort(out)
	return out
}

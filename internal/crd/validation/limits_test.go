package validation_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/crd/validation"
	"plinth/object"
	"plinth/schema"
)

// A walk ends when the text of the errors has reached its limit: errors beside or above a long error are no longer
// reported.
func TestErrorsEndAtTheLimit(t *testing.T) {
	long := strings.Repeat("n", 1<<20)
	half := long[:600_000]
	for name, c := range map[string]struct {
		schema string
		want   int
	}{
		"nodes beside": {`{"type":"object","properties":{"` + long + `":{},"z":{}}}`, 1},
		"a node above": {`{"type":"object","properties":{"a":{"properties":{"` + long + `":{}}}}}`, 1},
		"nested nodes beside": {
			`{"type":"object","not":{"properties":{"` + long + `":{"title":"x"},"z":{"title":"x"}}},"properties":{"` +
				long + `":{"type":"string"},"z":{"type":"string"}}}`, 1},
		"a nested node above": {`{"type":"object","not":{"title":"x","properties":{"` + long +
			`":{"title":"x"}}},"properties":{"` + long + `":{"type":"string"}}}`, 1},
		"what the structure lacks": {`{"type":"object","not":{"properties":{"` + long +
			`":{},"z":{"properties":{"y":{}}}}},"properties":{"z":{"type":"object"}}}`, 1},
		"keywords beside": {`{"type":"object","properties":{"` + long +
			`":{"type":"string","uniqueItems":true},"z":{"type":"string","uniqueItems":true}}}`, 1},
		"keywords above": {`{"type":"object","properties":{"a":{"type":"object","x-kubernetes-map-type":"x","properties":{"` +
			long + `":{"type":"string","uniqueItems":true}}}}}`, 1},
		"paths of rules that are skipped": {`{"type":"object","properties":{"` + half +
			`":{"type":"string","uniqueItems":true,"x-kubernetes-validations":[{"rule":"true"}]},` +
			`"z":{"type":"string","uniqueItems":true}}}`, 1},
		"a short error": {`{"type":"object","properties":{"` + half +
			`":{"type":"string","uniqueItems":true},"z":{"type":"string","uniqueItems":true}}}`, 2},
		"arrays beside": {`{"type":"object","properties":{"` + long + `":{},"z":{"type":"array"}}}`, 1},
		"patterns beside": {`{"type":"object","not":{"properties":{"` + long +
			`":{"title":"x"},"z":{"pattern":"["}}},"properties":{"` + long +
			`":{"type":"string"},"z":{"type":"string"}}}`, 1},
		"rules": {`{"type":"object","properties":{"a":{"type":"string","x-kubernetes-validations":[{"rule":"1"}]},"` + long +
			`":{"type":"string","uniqueItems":true}}}`, 1},
	} {
		crd := definition(t, c.schema, "v1")
		if errs := validation.Validate(crd, served); len(errs) != c.want {
			for _, e := range errs {
				t.Logf("%.60s… %s", e.Field, e.Detail)
			}
			t.Errorf("%s: %d errors", name, len(errs))
		}
	}
}

// A text of exactly the limit is not beyond it.
func TestErrorsOfTheLimit(t *testing.T) {
	const limit = 1 << 20
	errs := func(length int) field.ErrorList {
		return validation.Validate(definition(t, `{"type":"object","properties":{"`+strings.Repeat("n", length)+
			`":{"type":"string","uniqueItems":true},"z":{"type":"string","uniqueItems":true}}}`, "v1"), served)
	}
	short := errs(1)[0]
	length := limit - len(short.Field) - len(short.Detail) + 1
	if have := len(errs(length)); have != 2 {
		t.Errorf("%d errors where the first one reaches the limit", have)
	}
	if have := len(errs(length + 1)); have != 1 {
		t.Errorf("%d errors where the first one exceeds the limit", have)
	}
}

// The rules of defaults run until their budget is used up, which is when it is negative.
func TestBudgetOfDefaults(t *testing.T) {
	crd := definition(t, `{"type":"object","properties":{"a":{"type":"string","default":""},
		"b":{"type":"string","default":""},"c":{"type":"string","default":""}}}`, "v1")
	var budgets []int64
	o := options
	o.RuleBudget = 1
	o.CheckDefaultRules = func(_ *schema.Type, _ *field.Path, _ object.Value, budget int64) (field.ErrorList, int64) {
		budgets = append(budgets, budget)
		return nil, budget - 1
	}
	if errs := validation.Validate(crd, o); len(errs) > 0 || len(budgets) != 2 || budgets[0] != 1 || budgets[1] != 0 {
		t.Errorf("%v; called with %v", errs, budgets)
	}
}

// Validation ends when it is told to, before it has seen all defaults.
//
// SPEC: WRITE-7
func TestValidationOfDefinitionsStops(t *testing.T) {
	const fields = 1000
	var properties []string
	for i := range fields {
		properties = append(properties, fmt.Sprintf(`"f%d":{"type":"string","default":""}`, i))
	}
	crd := definition(t, `{"type":"object","properties":{`+strings.Join(properties, ",")+`}}`, "v1")
	ran := 0
	o := options
	o.RuleBudget = 1
	o.CheckDefaultRules = func(*schema.Type, *field.Path, object.Value, int64) (field.ErrorList, int64) {
		ran++
		return nil, 1
	}
	if errs := validation.Validate(crd, o); len(errs) > 0 || ran != fields {
		t.Fatalf("%v; %d of %d defaults were checked", errs, ran, fields)
	}
	ran = 0
	o.Stop = func() error {
		if ran < 5 {
			return nil
		}
		return errors.New("too late")
	}
	if validation.Validate(crd, o); ran != 5 {
		t.Errorf("%d defaults were checked, want 5", ran)
	}
}

// Neither a budget nor rules are needed if the rules are not checked.
func TestWithoutRules(t *testing.T) {
	crd := definition(t, `{"type":"object","properties":{"a":{"type":"string","default":"",
		"x-kubernetes-validations":[{"rule":"nonsense"}]}}}`, "v1")
	if errs := validation.Validate(crd, options); len(errs) > 0 {
		t.Errorf("%v", errs)
	}
}

// Texts and numbers that the reference's JSON cannot represent.
func TestImpossibleValues(t *testing.T) {
	valid := definition(t, `{"type":"object"}`, "v1")
	version := valid.At("spec", "versions").Items()[0]
	warning := valid.WithAt(object.ListOf(version.With("deprecated", object.BoolOf(true)).With("deprecationWarning",
		object.StringOf("\xff"))), "spec", "versions")
	for want, crd := range map[string]object.Value{
		`spec.versions[0].deprecationWarning: Invalid value: "\ufffd": must only contain printable UTF-8 characters`: warning,
		`spec.validation.openAPIV3Schema.properties[a].default: Invalid value: "": ` +
			`json: cannot unmarshal number 1e999 into Go value of type float64`: definition(t,
			`{"type":"object","properties":{"a":{"type":"number","default":1e999}}}`, "v1"),
	} {
		errs := validation.Validate(crd, options)
		if len(errs) != 1 || errs[0].Error() != want {
			t.Errorf("have %v\nwant %s", errs, want)
		}
	}
}

// A selectable field of a schema without a structural form, with which the reference panics, is an error beside that of
// the schema.
func TestSelectableFieldOfNoStructure(t *testing.T) {
	valid := definition(t, `{"type":"object","properties":{"a":{"type":"string"}},"id":"x"}`, "v1")
	version := valid.At("spec", "versions").Items()[0]
	crd := valid.WithAt(object.ListOf(version.With("selectableFields",
		object.ListOf(object.Fields("jsonPath", object.StringOf(".a"))))), "spec", "versions")
	found := false
	for _, e := range validation.Validate(crd, served) {
		found = found || e.Field == "spec.selectableFields[0].jsonPath" && strings.HasPrefix(e.Detail, "is an invalid path")
	}
	if !found {
		t.Error("the path is not refused")
	}
}

// As in the reference, structural errors are sorted by their text; those of other rules are in the order of the schema.
func TestOrderOfStructuralErrors(t *testing.T) {
	crd := definition(t, `{"type":"object","additionalProperties":{"type":"string"},"properties":{"a":{"type":"array"}}}`,
		"v1")
	errs := validation.Validate(crd, options)
	if len(errs) < 2 || !strings.HasSuffix(errs[0].Field, "additionalProperties") ||
		!strings.HasSuffix(errs[1].Field, "properties[a].items") {
		t.Errorf("%v", errs)
	}
}

func TestApprovalOf(t *testing.T) {
	for text, want := range map[string]validation.Approval{"": validation.ApprovalMissing,
		"unapproved, why": validation.ApprovalBypassed, "https://a/b": validation.ApprovalGiven,
		"a":     validation.ApprovalInvalid,
		"//a/b": validation.ApprovalInvalid, "https:///b": validation.ApprovalInvalid} {
		crd := object.Fields("metadata", object.Fields("annotations",
			object.Fields(validation.ApprovalAnnotation, object.StringOf(text))))
		if got, said := validation.ApprovalOf(crd); got != want || said != text {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// Versions are printed with all of their members.
func TestVersionsAreShown(t *testing.T) {
	parsed, err := object.ParseJSON([]byte(`{"name":"v1","served":true,"storage":true,"additionalPrinterColumns":[
		{"name":"n","type":"integer","format":"int32","description":"d","priority":12,"jsonPath":".a"}],
		"subresources":{"scale":
		{"specReplicasPath":".spec.a","statusReplicasPath":".status.b","labelSelectorPath":".status.c"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	valid := definition(t, `{"type":"object"}`, "v1")
	crd := valid.WithAt(object.ListOf(parsed.Value, valid.At("spec", "versions").Items()[0]), "spec", "versions")
	for _, e := range validation.Validate(crd, options) {
		if !strings.Contains(e.Detail, "unique version names") {
			continue
		}
		for _, want := range []string{
			`{"Name":"n","Type":"integer","Format":"int32","Description":"d","Priority":12,"JSONPath":".a"}`,
			`{"SpecReplicasPath":".spec.a","StatusReplicasPath":".status.b","LabelSelectorPath":".status.c"}`,
		} {
			if !strings.Contains(e.Error(), want) {
				t.Errorf("%s\nis not in %v", want, e)
			}
		}
		return
	}
	t.Error("two versions have one name")
}

// An expression that only this version of CEL knows may stay in any version of a definition, and cannot be added.
func TestStoredExpressions(t *testing.T) {
	const (
		plain = `{"type":"object","properties":{"a":{"type":"string"}}}`
		rule  = `{"type":"object","properties":{"a":{"type":"string","maxLength":9,"x-kubernetes-validations":[
			{"rule":"[self].includes('a')"}]}}}`
		message = `{"type":"object","properties":{"a":{"type":"string","maxLength":9,"x-kubernetes-validations":[
			{"rule":"true","messageExpression":"[self].includes('a') ? 'x' : 'y'"}]}}}`
	)
	versions := func(first, second string) object.Value {
		v1, v2 := definition(t, first, "v1", "v2"), definition(t, second, "v1", "v2")
		return v1.WithAt(object.ListOf(v1.At("spec", "versions").Items()[0], v2.At("spec", "versions").Items()[1]),
			"spec", "versions")
	}
	for _, of := range []string{rule, message} {
		for _, c := range []struct {
			old, crd object.Value
			want     int
		}{
			{versions(plain, of), versions(plain, of), 0}, {versions(of, plain), versions(plain, of), 0},
			{versions(of, of), versions(plain, of), 0}, {versions(plain, plain), versions(plain, of), 1},
		} {
			unknown := 0 // the other errors say that it costs too much
			for _, e := range validation.ValidateUpdate(c.crd, c.old, served) {
				if strings.Contains(e.Detail, "undeclared reference to 'includes'") {
					unknown++
				}
			}
			if unknown != c.want {
				t.Errorf("%s after %s: %d errors", object.AppendJSON(nil, c.crd), object.AppendJSON(nil, c.old), unknown)
			}
		}
	}
}

package validation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/features"
	"plinth/internal/fielderrors"
	"plinth/object"
)

// The rules of a kind have exactly the functions that the kind has. Each function is called with the options.
func TestRulesOfKind(t *testing.T) {
	sloppy := Options{Features: features.Set{}.With(features.StrictIPCIDRValidation, false)}
	rule := func(f *errorList, obj, old object.Value) {
		if f.on(features.StrictIPCIDRValidation) {
			t.Error("the rule does not have the options")
		}
		f.Invalid((*fielderrors.Location)(nil).To(obj.Str()), old.Str(), "")
	}
	one := func(of func(obj, old object.Value) field.ErrorList) string {
		if of == nil {
			return ""
		}
		return of(object.StringOf("new"), object.StringOf("old")).ToAggregate().Error()
	}
	create := func(f *errorList, obj object.Value) { rule(f, obj, object.Nil) }
	const created, compared = `new: Invalid value: ""`, `new: Invalid value: "old"`
	for name, c := range map[string]struct {
		kind Kind
		want [5]string
	}{
		"none":     {Kind{}, [5]string{}},
		"create":   {Kind{create: create}, [5]string{0: created}},
		"update":   {Kind{update: rule}, [5]string{1: compared}},
		"status":   {Kind{status: rule}, [5]string{2: compared}},
		"approval": {Kind{approval: rule}, [5]string{3: compared}},
		"running":  {Kind{running: rule}, [5]string{4: compared}},
	} {
		rules := c.kind.Rules(sloppy)
		var have [5]string
		if rules.Create != nil {
			have[0] = rules.Create(object.StringOf("new")).ToAggregate().Error()
		}
		for i, of := range []func(obj, old object.Value) field.ErrorList{rules.Update, rules.Status, rules.Approval,
			rules.Running} {
			have[i+1] = one(of)
		}
		if have != c.want {
			t.Errorf("%s: have %q, want %q", name, have, c.want)
		}
	}
}

// The subjects of the mandatory FlowSchemas (bootstrap.MandatoryFlowSchemaExempt and …CatchAll in the reference).
func TestSubjectsOfMandatoryFlowSchemas(t *testing.T) {
	for name, want := range map[string]string{
		exempt: `[{"kind":"Group","group":{"name":"system:masters"}}]`,
		catchAll: `[{"kind":"Group","group":{"name":"system:unauthenticated"}},` +
			`{"kind":"Group","group":{"name":"system:authenticated"}}]`,
	} {
		subjects := fixedFlowSchemas[name].At("rules").Items()[0].At("subjects")
		parsed, err := object.ParseJSON([]byte(want))
		if err != nil {
			t.Fatal(err)
		}
		if !object.Equal(subjects, parsed.Value) {
			t.Errorf("%s: %s, should be %s", name, object.AppendObject(nil, subjects), want)
		}
	}
}

// The difference of long values is not shown: it would take time quadratic in their length.
func TestDifferenceIsBounded(t *testing.T) {
	const longest = 65536 - 2*len(`["",1]`) // of the strings in both values
	of := func(length int, n int64) object.Value {
		return object.ListOf(object.StringOf(strings.Repeat("a", length)), object.IntOf(n))
	}
	if have := difference(of(longest/2, 1), of(longest/2, 2)); !strings.Contains(have, "1") || len(have) < longest/2 {
		t.Errorf("the difference of short values is %.100q", have)
	}
	if have := difference(of(longest/2, 1), of(longest/2+1, 2)); have != "(too long to be compared)" {
		t.Errorf("the difference of long values is %.100q", have)
	}
}

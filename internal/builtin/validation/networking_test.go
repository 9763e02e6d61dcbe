package validation_test

import (
	"fmt"
	"slices"
	"testing"

	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/validation/validationtest"
	"plinth/internal/features"
	"plinth/object"
)

// A server that emulates 1.34 or 1.35 takes only names of Services that begin with a letter
// (RelaxedServiceNameValidation), except in an Ingress that has had another one already.
func TestNamesOfServicesInOlderReleases(t *testing.T) {
	ingress := func(backend, path string) object.Value {
		t.Helper()
		const text = `{"metadata":{"name":"web","namespace":"default"},"spec":{"defaultBackend":{"service":
			{"name":%q,"port":{"number":80}}},"rules":[{"host":"a.b"},{"http":{"paths":[{"path":"/","pathType":"Prefix",
			"backend":{"service":{"name":%q,"port":{"number":80}}}}]}}]}}`
		parsed, err := object.ParseJSON(fmt.Appendf(nil, text, backend, path))
		if err != nil {
			t.Fatal(err)
		}
		return parsed.Value
	}
	refused := func(where, name string) string {
		return fmt.Sprintf("FieldValueInvalid %s.service.name: Invalid value: %q: a DNS-1035 label must consist of lower "+
			"case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character "+
			"(e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')", where, name)
	}
	const first, second = "spec.defaultBackend", "spec.rules[1].http.paths[0].backend"
	required := "FieldValueRequired " + first + ".service.name: Required value"
	strict := features.Set{}.With(features.RelaxedServiceNameValidation, false)
	old := validation.Ingress.Rules(validation.Options{Features: strict})
	for _, test := range []struct {
		name     string
		obj, was object.Value // no old one: a create
		want     []string
	}{
		{"letters", ingress("a", "b"), object.Nil, nil},
		{"digits", ingress("1a", "2b"), object.Nil, []string{refused(first, "1a"), refused(second, "2b")}},
		{"no name", ingress("", "b"), object.Nil, []string{required}},
		{"after letters", ingress("1a", "b"), ingress("a", "b"), []string{refused(first, "1a")}},
		{"after digits in the default", ingress("3a", "2b"), ingress("1a", "b"), nil},
		{"after digits in a path", ingress("1a", "b"), ingress("a", "2b"), nil},
		{"after what no release takes", ingress("a", "2b"), ingress("A_b", "b"), []string{refused(second, "2b")}},
	} {
		errs := old.Create(test.obj)
		if !test.was.IsNull() {
			errs = old.Update(test.obj, test.was)
		}
		if got := validationtest.Lines(errs); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", test.name, got)
		}
	}
	// Newer ones take both.
	rules := validation.Ingress.Rules(validation.Options{})
	if got := validationtest.Lines(rules.Create(ingress("1a", "2b"))); len(got) != 0 {
		t.Errorf("in 1.37: %q", got)
	}
	if got := validationtest.Lines(rules.Update(ingress("1a", "2b"), ingress("a", "b"))); len(got) != 0 {
		t.Errorf("an update in 1.37: %q", got)
	}
}

package validation_test

import (
	"slices"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/builtin/validation"
)

// withoutRules are the served kinds of which nothing is validated here but metadata.
var withoutRules = [][2]string{
	{"", "ComponentStatus"},                              // read only
	{"apiextensions.k8s.io", "CustomResourceDefinition"}, // in a package of its own: crd/validation
	// What stands for an operation is validated where the operation is.
	{"", "Binding"}, {"authentication.k8s.io", "SelfSubjectReview"}, {"authentication.k8s.io", "TokenReview"},
	{"authorization.k8s.io", "LocalSubjectAccessReview"}, {"authorization.k8s.io", "SelfSubjectAccessReview"},
	{"authorization.k8s.io", "SelfSubjectRulesReview"}, {"authorization.k8s.io", "SubjectAccessReview"},
}

// Every key of the table is a served kind, so that a mistyped one is an error and not a rule that never applies; and
// every served kind is in the table, or in the list of those without rules.
//
// SPEC: VAL-1
func TestKeysAreServedKinds(t *testing.T) {
	served := map[[2]string]bool{}
	for _, r := range builtin.Resources(builtin.Config{}) {
		served[[2]string{r.Group, r.Kind}] = true
	}
	keys := validation.Keys()
	for _, key := range append(keys, withoutRules...) {
		if !served[key] {
			t.Errorf("%q is not served", key)
		}
	}
	for kind := range served {
		if slices.Contains(keys, kind) == slices.Contains(withoutRules, kind) {
			t.Errorf("%q belongs either in validation.kinds or in withoutRules", kind)
		}
	}
}

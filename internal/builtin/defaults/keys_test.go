package defaults_test

import (
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/builtin/defaults"
)

// Every key of the tables is a served kind, so that a mistyped one is an error and not a default that is never filled in.
//
// SPEC: VAL-4
func TestKeysAreServedKinds(t *testing.T) {
	served := map[[3]string]bool{}
	for _, r := range builtin.Resources(builtin.Config{}) {
		served[[3]string{r.Group, r.Version, r.Kind}] = true
		for _, s := range r.Subresources {
			served[[3]string{s.Group, s.Version, s.Kind}] = true
		}
	}
	for _, key := range defaults.Keys() {
		if !served[key] {
			t.Errorf("%q is not served", key)
		}
	}
}

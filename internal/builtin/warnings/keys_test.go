package warnings_test

import (
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/builtin/warnings"
)

// Every key of the table is a served kind, so that a mistyped one is an error and not a warning that never comes.
func TestKeysAreServedKinds(t *testing.T) {
	served := map[[2]string]bool{}
	for _, r := range builtin.Resources(builtin.Config{}) {
		served[[2]string{r.Group, r.Kind}] = true
	}
	for _, key := range warnings.Keys() {
		if !served[key] {
			t.Errorf("%q is not served", key)
		}
	}
}

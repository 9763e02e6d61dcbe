//go:build mutants

package validation_test

import (
	"strings"
	"testing"

	"plinth/internal/mutants"
)

// TestMutants runs the recorded definitions on each mutant, all in one process, and reports those that TestRecorded
// notices.
func TestMutants(t *testing.T) {
	r, err := mutants.NewRecorder()
	if err != nil {
		t.Fatal(err)
	}
	var samples []*mutants.Sample
	for _, w := range recorded(t) {
		s, err := r.Sample(func() (string, error) {
			lines, err := w.errors()
			return strings.Join(lines, "\n"), err
		})
		if err != nil || s.Says != strings.Join(w.want, "\n") {
			t.Fatalf("line %d: %v", w.line, err)
		}
		r.Close(s)
		samples = append(samples, s)
	}
	r.CloseGlobals(samples, nil)
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
}

//go:build mutants

package validation_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"plinth/internal/builtin/validation/validationtest"
	"plinth/internal/mutants"
)

// TestMutants runs the cases of the tables and the documents on each mutant, in one process, and reports those that
// TestTables and TestDocumentsAreValid notice.
func TestMutants(t *testing.T) {
	documents, err := validationtest.Documents("testdata")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := validationtest.Read("testdata")
	if err != nil {
		t.Fatal(err)
	}
	served := validationtest.NewServed()
	r, err := mutants.NewRecorder()
	if err != nil {
		t.Fatal(err)
	}
	var samples []*mutants.Sample
	plain := &validationtest.Table{Name: "documents"}
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		for _, verb := range []string{"create", "update", "status"} {
			if verb != "status" || documents[name]["status"] != nil {
				plain.Cases = append(plain.Cases, &validationtest.Case{Verb: verb, Object: name})
			}
		}
	}
	for _, table := range append(tables, plain) {
		for _, c := range table.Cases {
			request, err := served.Request(c, documents)
			if err != nil {
				t.Fatal(err)
			}
			s, err := r.Sample(func() (string, error) {
				errs, err := request.Refuse()
				return strings.Join(validationtest.Lines(errs), "\n"), err
			})
			if err != nil || s.Says != strings.Join(c.Want, "\n") {
				t.Fatalf("%s line %d: %v", table.Name, c.Line, err)
			}
			r.Close(s)
			samples = append(samples, s)
		}
	}
	r.CloseGlobals(samples, nil)
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
}
